"""Run and resume flows from Python: `await jackline.run(flow, …)`, `await jackline.resume(id)`.

Rules: (1) the outcome says how it ended: nothing that happened in the flow is raised here; (2)
without a host, the usual host of this machine is opened for the call and closed after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import Any, TypeVar, cast

from jackline.agents.outcome import Outcome
from jackline.errors import UsageError
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.flow_run import FlowRun
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import (
    begin_fork,
    begin_resume,
    begin_retry,
    begin_run,
    cancel_agents,
    cancel_run,
)
from jackline.flows.records import RunState
from jackline.flows.run_events import Listener
from jackline.flows.settings import RunSettings
from jackline.flows.values import encode_arguments

T = TypeVar("T")


async def run(
    flow: Flow[..., T],
    /,
    *args: Any,
    settings: RunSettings | None = None,
    host: FlowHost | None = None,
    listener: Listener | None = None,
    **kwargs: Any,
) -> Outcome[T]:
    """Run a flow to its end (or until it is stopped), and say how it ended."""
    if not isinstance(flow, Flow):
        raise UsageError(
            f"jackline.run() needs a flow, not a {type(flow).__name__}.",
            hint="Mark the function with @flow, and give it uncalled: run(research, question).",
        )
    arguments = encode_arguments(flow.function, args, kwargs)
    async with _opened(host) as found:
        begun = await begin_run(found, flow, arguments, settings=settings, listener=listener)
        return await begun.run()


async def resume(
    run_id: str,
    *,
    settings: RunSettings | None = None,
    flow: Flow[..., Any] | None = None,
    host: FlowHost | None = None,
    listener: Listener | None = None,
    only: str | None = None,
) -> Outcome[Any]:
    """Go on with a run that was stopped, parked, failed or left by a crash.

    What is finished answers from the store. A finished run returns its outcome again. `settings`
    replace those that are saved with it, for a higher budget, say. `flow` is needed only when the
    run was begun from code that is in no file. With `only` (a label or task id), of the agents that
    failed or were cancelled only those of this name go on, each at its last complete turn.
    """
    async with _opened(host) as found:
        return await _outcome_of(
            begin_resume(found, run_id, settings=settings, flow=flow, listener=listener, only=only)
        )


async def retry(
    run_id: str,
    *,
    only: str | None = None,
    settings: RunSettings | None = None,
    flow: Flow[..., Any] | None = None,
    host: FlowHost | None = None,
    listener: Listener | None = None,
) -> Outcome[Any]:
    """Run an ended run's failed calls again, or only those with one label."""
    async with _opened(host) as found:
        return await _outcome_of(
            begin_retry(found, run_id, only=only, settings=settings, flow=flow, listener=listener)
        )


async def fork(
    run_id: str,
    from_label: str,
    *,
    flow: Flow[..., Any] | None = None,
    host: FlowHost | None = None,
    listener: Listener | None = None,
) -> Outcome[Any]:
    """Run a new run that keeps what the old one finished before the first call of that label."""
    async with _opened(host) as found:
        return await _outcome_of(
            begin_fork(found, run_id, from_label, flow=flow, listener=listener)
        )


async def cancel(run_id: str, *, only: str | None = None, host: FlowHost | None = None) -> RunState:
    """Cancel a run, with its clean-up; gives its state, which a live owner changes in a moment.

    With `only` (a label or task id), only those agents end, and the run goes on.
    """
    async with _opened(host) as found:
        if only is not None:
            return (await cancel_agents(found, run_id, only)).run.state
        return await cancel_run(found, run_id)


async def _outcome_of(begun: Awaitable[FlowRun[Any] | Outcome[Any]]) -> Outcome[Any]:
    found = await begun
    return found if isinstance(found, Outcome) else await found.run()


@asynccontextmanager
async def _opened(host: FlowHost | None) -> AsyncIterator[FlowHost]:
    if host is not None:
        yield host
        return
    # By its name, so that flows/ depends on nothing above it. It has this machine's store, its
    # configuration, and its gateway or one of our own.
    opener = import_module("jackline.assembly.flow_host").open_flow_host
    usual = cast("AbstractAsyncContextManager[FlowHost]", opener())
    async with usual as found:
        yield found
