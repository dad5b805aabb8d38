"""Begin, resume, retry, fork and cancel runs, or cancel single agents of a run.

Rules: (1) a finished run is not run again by `resume`: it returns its outcome; (2) `retry` runs
the failed calls again, and nothing else; (3) `fork` leaves the old run as it is; (4) two
processes never run one run: a process that does not get the claim says who holds it; (5) an order
to cancel agents is saved first, so that the next owner knows it; a run without an owner stays
parked or stopped, and only the named agents end; an order that nobody can carry out is refused
and leaves nothing behind.
How an owner cancels agents is in execution/agent_cancellation.py.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from jackline.agents.outcome import Ending, Outcome
from jackline.errors import BadArgumentError, JacklineError, UnreadableError, UsageError
from jackline.flows.authoring.flow_definition import Flow, load_flow, load_module
from jackline.flows.execution.agent_cancellation import (
    MOST_LABELS,
    agents_named,
    unknown_agent,
    was_cancelled_by_person,
    withdraw_cancellations,
)
from jackline.flows.execution.execution import Execution, FlowScope
from jackline.flows.flow_run import FlowRun
from jackline.flows.flow_sources import (
    SOURCES,
    ChangedSourceError,
    UserCodeError,
    check_user_code,
    leave_to_person,
    run_only_known,
    to_look_at,
    why_not_woken,
)
from jackline.flows.host import FlowHost
from jackline.flows.records import (
    ENDED,
    AgentOrder,
    CallKind,
    CallRecord,
    CallState,
    RunRecord,
    RunState,
    decode_outcome,
)
from jackline.flows.run_events import Listener
from jackline.flows.run_owner import is_dead, new_owner, process_here
from jackline.flows.settings import (
    NOT_WOKEN,
    RunSettings,
    decode_settings,
    encode_settings,
    limits_in_words,
)
from jackline.flows.store.run_store import (
    Claim,
    lease_holds,
    must_be_trusted,
    must_be_trusted_wholly,
)
from jackline.flows.values import decode_arguments

T = TypeVar("T")
_LOOKS_EVERY = 1.0

_BEGINS_ANEW = frozenset({Ending.SCHEMA, Ending.REFUSED, Ending.TOOL_ERROR})
"""The same conversation would end alike; these get a new log."""


async def begin_run(
    host: FlowHost,
    flow: Flow[..., T],
    arguments: bytes,
    *,
    settings: RunSettings | None = None,
    listener: Listener | None = None,
    run_id: str = "",
    cwd: str = "",
) -> FlowRun[T]:
    """A new run, claimed and saved; `run()` it. Its agents work in `cwd`, else where we do."""
    decode_arguments(flow.function, arguments)
    settings = settings or host.settings
    if flow.budget is not None:
        settings = replace(settings, budgets=(*settings.budgets, flow.budget))
    now = host.clock.wall()
    record = RunRecord(
        run_id or new_run_id(),
        flow.name,
        flow.source,
        arguments,
        encode_settings(settings),
        cwd=cwd or str(Path.cwd()),
        created_at=now,
        updated_at=now,
    )
    claim = await host.engine.create(record, owner=new_owner(), lease=settings.lease)
    execution = await _load(host, claim, record, flow, listener, settings)
    return FlowRun(execution, flow, resumed=False, probe_first=False)


async def begin_resume(
    host: FlowHost,
    run_id: str,
    *,
    settings: RunSettings | None = None,
    flow: Flow[..., Any] | None = None,
    listener: Listener | None = None,
    only: str | None = None,
    unattended: bool = False,
) -> FlowRun[Any] | Outcome[Any]:
    """The run to be resumed, with new settings if passed; its outcome when it is finished.

    `unattended`: no person requests it now. From then on this process runs only what a person has
    started the run with; if that has changed, the run is left to a person: ChangedSourceError.

    With `only`, of the agents that failed those of this label or task id continue at their last
    complete turn, also where the run has finished; the others stay failed.
    """
    record = await known_run(host, run_id)
    await must_be_trusted_wholly(host.engine, record)
    if only is not None and not unattended:
        chosen = await _agents_to_resume(host, record, only)
        return await _claim_and_load(
            host, record, flow, listener, chosen=chosen, anew=False, settings=settings
        )
    if unattended:
        # With the sources that a person has started, or not at all.
        await run_only_known(host.engine, record)
        settings, why = None, await why_not_woken(host.engine, record)
        try:
            flow = flow_of(record) if not why else None
        except ChangedSourceError as error:
            why = error.message
        if why:
            why = to_look_at(why, record)
            claim = await claim_run(host, record)
            if claim is not None and record.state is RunState.PARKED:
                at = host.clock.wall()
                await host.engine.note(record.run_id, at, NOT_WOKEN, "", {"why": why})
                await leave_to_person(host.engine, claim, record, why)
            raise ChangedSourceError(why)
    if record.state in (RunState.FINISHED, RunState.CANCELLED):
        if record.outcome is None:
            raise UnreadableError(f"The run {record.run_id} has no outcome.")
        await _clean_up_after(host, record, flow, listener)
        return decode_outcome(record.outcome)
    run = await _claim_and_load(host, record, flow, listener, settings=settings)
    if unattended:
        # What it imports from now on is compared, too; in a thread of a step, perhaps.
        run.wait_for_person_when_refused(SOURCES)
    return run


async def _agents_to_resume(host: FlowHost, record: RunRecord, name: str) -> list[CallRecord]:
    """The unfinished agents of this name; an order to end them is withdrawn."""
    calls = await host.engine.calls(record.run_id)
    named = agents_named(calls, name)
    chosen = [call for call in named if call.state is not CallState.DONE]
    withdrawn = await withdraw_cancellations(host.engine, record.run_id, name, chosen)
    if chosen or (withdrawn and record.state not in ENDED):
        return chosen
    if named:
        raise BadArgumentError(
            f"The agent {name} of {record.run_id} has finished: there is nothing to go on with.",
            hint=_fork(record, named[0]),
        )
    raise unknown_agent(record.run_id, calls, name)


async def begin_retry(
    host: FlowHost,
    run_id: str,
    *,
    only: str | None = None,
    settings: RunSettings | None = None,
    flow: Flow[..., Any] | None = None,
    listener: Listener | None = None,
) -> FlowRun[Any]:
    """An ended run whose failed calls (with `only`, those of that label) run again.

    Agents that a person has cancelled stay so unless they are named.
    """
    record = await known_run(host, run_id)
    await must_be_trusted_wholly(host.engine, record)
    calls = await host.engine.calls(record.run_id)
    failed = [call for call in calls if call.state is not CallState.DONE]
    if only is None:
        chosen = [call for call in failed if not was_cancelled_by_person(call)]
    else:
        chosen = [call for call in failed if only in (call.label, call.task_id)]
        await withdraw_cancellations(host.engine, record.run_id, only, chosen)
    if not chosen:
        by_hand = next((call.label for call in failed if was_cancelled_by_person(call)), None)
        if only is None and by_hand is not None:
            go_on = f"jackline resume {record.run_id} --only {shlex.quote(by_hand)}"
            raise BadArgumentError(
                f"Nothing failed in {record.run_id} but what a person cancelled.",
                hint=f"`{go_on}` goes on with it",
            )
        labels = ", ".join(sorted({call.label for call in failed})[:MOST_LABELS]) or "none"
        raise BadArgumentError(
            f"Nothing failed in {record.run_id}" + (f" under {only!r}." if only else "."),
            hint=f"Failed calls: {labels}." + (f" {_fork(record, calls[0])}" if calls else ""),
        )
    return await _claim_and_load(host, record, flow, listener, chosen=chosen, settings=settings)


def _fork(record: RunRecord, call: CallRecord) -> str:
    command = f"jackline fork {record.run_id} --from {shlex.quote(call.label)}"
    return f"`{command}` runs finished ones again, in a new run."


async def begin_fork(
    host: FlowHost,
    run_id: str,
    from_label: str,
    *,
    flow: Flow[..., Any] | None = None,
    listener: Listener | None = None,
) -> FlowRun[Any]:
    """A new run that keeps what the old one had finished before the first call of that label."""
    record = await known_run(host, run_id)
    await must_be_trusted_wholly(host.engine, record)
    flow = flow or flow_of(record)
    calls = await host.engine.calls(record.run_id)
    first = next((i for i, call in enumerate(calls) if call.label == from_label), None)
    if first is None:
        labels = ", ".join(dict.fromkeys(call.label for call in calls)) or "none"
        raise BadArgumentError(
            f"No call of {record.run_id} is labelled {from_label!r}.",
            hint=f"Its labels are: {labels[:300]}.",
        )
    now = host.clock.wall()
    new = RunRecord(
        new_run_id(),
        record.flow,
        record.source,
        record.arguments,
        record.settings,
        cwd=record.cwd,
        created_at=now,
        updated_at=now,
        forked_from=record.run_id,
    )
    claim = await host.engine.fork(
        record.run_id,
        new,
        owner=new_owner(),
        lease=decode_settings(record.settings).lease,
        without=[(call.key, call.occurrence) for call in calls[first:]],
    )
    execution = await _load(host, claim, new, flow, listener)
    return FlowRun(execution, flow, resumed=True, probe_first=False)


async def cancel_run(
    host: FlowHost, run_id: str, *, flow: Flow[..., Any] | None = None
) -> RunState:
    """Cancel a run: by its owner if one lives (it takes a moment), else here and now.

    Without its `flow`, its clean-up loads that from its file: UserCodeError in the service.
    """
    record = await known_run(host, run_id)
    if record.state in ENDED:
        return record.state
    if flow is None:
        check_user_code(f"the run {record.run_id}", next_step=f"jackline cancel {record.run_id}")
    await host.engine.request_stop(record.run_id, "cancel")
    claim = await claim_run(host, record)
    if claim is None:
        return record.state
    execution = await _load(host, claim, record, flow)
    execution.count_saved()
    run: FlowRun[None] = FlowRun(execution, Flow(_nothing), resumed=True, probe_first=False)
    run.cancel("It was cancelled while no process ran it.")
    await run.run()
    return run.state


# --- finding and claiming ------------------------------------------------------------------------


async def known_run(host: FlowHost, run_id: str) -> RunRecord:
    """The run of that id, or of that beginning of an id; UnreadableError when there is none."""
    record = await host.engine.run(run_id)
    if record is None:
        raise UnreadableError(f"There is no run {run_id}.", hint="`jackline ls` lists them.")
    return record


def flow_of(record: RunRecord) -> Flow[..., Any]:
    """The flow of a run, loaded again from its file."""
    must_be_trusted(record)
    if not record.source:
        raise UsageError(
            f"The run {record.run_id} was begun from code that is in no file.",
            hint="Resume it from Python: jackline.resume(run_id, flow=…).",
        )
    if not Path(record.source).is_file():
        raise UnreadableError(
            f"There is no file {record.source} any more, from which {record.run_id} was begun.",
            hint="Put it back (a link does), or use Python: jackline.resume(run_id, flow=…).",
        )
    return load_flow(f"{record.source}:{record.flow}")


def module_of(record: RunRecord) -> ModuleType | None:
    """The flow's module; None when its file is gone or cannot be loaded any more.

    ChangedSourceError when no person requests it, and it is not what a person has started;
    UserCodeError in the service.
    """
    must_be_trusted(record)
    try:
        return load_module(Path(record.source)) if record.source else None
    except UserCodeError:
        raise
    except ChangedSourceError as error:
        step = "look at it and go on with: jackline resources --retry"
        raise ChangedSourceError(f"{error.message}; {step}") from error
    except JacklineError:
        # Only its functions are missing then; whoever needs one says so by name.
        return None


def new_run_id() -> str:
    """A short id that no other run has."""
    return secrets.token_hex(5)


async def claim_run(host: FlowHost, record: RunRecord, lease: float | None = None) -> Claim | None:
    """The claim to a run that nobody owns, or only a dead process; else None.

    Its lease is that of the run's own settings unless another is passed.
    """
    dead = record.owner if is_dead(record.owner) else ""
    # Another process of this machine may be at work.
    may_live = process_here(record.owner) not in (None, os.getpid()) and not dead
    # A lease that holds is refused by the store. They are saved as dates: after the clock was set,
    # or the machine slept, those of living processes are over too, until they renew them. For as
    # long as that takes, we wait for it.
    own = decode_settings(record.settings).lease if may_live else 0.0
    if may_live and not lease_holds(record.lease_until, own, host.clock.wall()):
        until = host.clock.monotonic() + own
        while host.clock.monotonic() < until:
            await host.clock.sleep(_LOOKS_EVERY)
            fresh = await host.engine.run(record.run_id)
            if fresh is None or fresh.owner != record.owner:
                break
            if fresh.lease_until != record.lease_until:
                return None
    if lease is None:
        lease = decode_settings(record.settings).lease
    return await host.engine.claim(record.run_id, owner=new_owner(), lease=lease, instead_of=dead)


async def _claim_and_load(
    host: FlowHost,
    record: RunRecord,
    flow: Flow[..., Any] | None,
    listener: Listener | None,
    *,
    chosen: Collection[CallRecord] | None = None,
    anew: bool = True,
    settings: RunSettings | None = None,
) -> FlowRun[Any]:
    """The run, claimed: of its failed calls the chosen ones run, and by default all but those that
    a person has cancelled; with `anew`, what would end alike begins anew."""
    flow = flow or flow_of(record)
    settings = settings or decode_settings(record.settings)
    claim = await claim_run(host, record, settings.lease)
    if claim is None:
        raise UsageError(
            f"The run {record.run_id} is run by {record.owner.rpartition(':')[0]} now.",
            hint=f"`jackline logs {record.run_id} -f` follows it; stop that process to take over.",
        )
    parked = record.state is RunState.PARKED
    ended = record.decoded_outcome() if record.state in ENDED else None
    record = replace(record, state=RunState.RUNNING, why="", wake_at=None, ended_at=None)
    limits = limits_in_words(settings.budgets)
    if limits != limits_in_words(decode_settings(record.settings).budgets):
        says = f"the run may use {limits} from now on"
        await host.engine.note(record.run_id, host.clock.wall(), "note", "", {"says": says})
    record = replace(record, settings=encode_settings(settings))
    await host.engine.change(claim, replace(record, updated_at=host.clock.wall()))
    execution = await _load(host, claim, record, flow, listener, settings)
    await _cancel_ordered(execution)
    failed = {
        name: call for name, call in execution.calls.items() if call.state is CallState.FAILED
    }
    if chosen is None:
        rerun = {name for name, call in failed.items() if not was_cancelled_by_person(call)}
    else:
        rerun = {(call.key, call.occurrence) for call in chosen}
    execution.replayed_failures = frozenset(failed) - rerun
    if ended is not None:
        with FlowScope(execution, execution.accounting.account).entered():
            await execution.hooks.run_due({}, ending=None, run=ended)
    forgotten = [
        call
        for name, call in failed.items()
        if name in rerun
        and (call.kind is not CallKind.AGENT or (anew and call.terminated_by in _BEGINS_ANEW))
    ]
    if forgotten:
        await execution.accounting.begin_anew(forgotten)
    return FlowRun(execution, flow, resumed=True, probe_first=parked)


async def _clean_up_after(
    host: FlowHost, record: RunRecord, flow: Flow[..., Any] | None, listener: Listener | None
) -> None:
    """Run the clean-up of an ended run that failed, or was cut off by the process's end."""
    held = any(each.run_id == record.run_id for each in await host.engine.resources())
    owed = any(row.state != "done" for row in await host.engine.hooks(record.run_id))
    if flow is None and (held or owed):
        check_user_code(f"the clean-up of {record.run_id}")
    claim = await claim_run(host, record) if held or owed else None
    if claim is None:
        return
    execution = await _load(host, claim, record, flow, listener)
    calls = {call.task_id: call for call in execution.calls.values()}
    with FlowScope(execution, execution.accounting.account).entered():
        await execution.hooks.recover()
        await execution.hooks.run_due(calls, ending=Ending.CRASH, run=record.decoded_outcome())
        await execution.resources.release_all()
    await execution.events.settle()
    await host.engine.let_go(claim, record)


async def _cancel_ordered(execution: Execution) -> None:
    """Carry out orders that an earlier owner has left, on agents that it had begun."""
    for order in execution.cancellations.pending:
        for call in agents_named(execution.calls.values(), order.name):
            if call.state is CallState.RUNNING:
                await execution.cancel_stored_agent(call, order.name)
            elif not was_cancelled_by_person(call) or (call.ended_at or 0.0) < order.at:
                continue  # it had ended before, and by something else
            execution.cancellations.carried_out(order.name)


async def _load(
    host: FlowHost,
    claim: Claim,
    record: RunRecord,
    flow: Flow[..., Any] | None = None,
    listener: Listener | None = None,
    settings: RunSettings | None = None,
) -> Execution:
    """This process's hold on a claimed run."""
    name = flow.function.__module__ if flow is not None else ""
    execution = Execution(
        host,
        claim,
        record,
        settings or decode_settings(record.settings),
        listener=listener or host.listener,
        flow_module=lambda: sys.modules.get(name) if name else module_of(record),
        flow_module_name=name,
    )
    before = record.decoded_outcome()
    await execution.load(duration_before=0.0 if before is None else before.duration)
    return execution


async def _nothing() -> None:
    """The body of a run that is only ended."""


_LOOKS = 4
"""How many of its checks for orders an owner has to answer, with a moment for the clean-up."""
_MOMENT = 5.0
_LOOK_EVERY = 0.2


@dataclass(frozen=True, slots=True)
class CancelledAgents:
    """What came of an order to cancel agents."""

    run: RunRecord
    name: str
    ended: int | None
    """How many; None when the owner has not answered in time, 0 when it is for one yet to come."""
    carried: bool
    """Whether a process runs the run, whose flow knows of it."""


async def cancel_agents(
    host: FlowHost, run_id: str, name: str, *, ahead: bool = False
) -> CancelledAgents:
    """End the agents of this label or task id, and no others.

    With `ahead`, the order is also for agents that the flow has not come to yet.
    """
    run = await known_run(host, run_id)
    if run.state in ENDED:
        raise UsageError(
            f"The run {run.run_id} has ended ({run.state}): none of its agents is at work.",
            hint=f"`jackline show {run.run_id}` shows how each of them ended.",
        )
    # Their clean-up may be functions of the flow's file.
    step = f"jackline cancel {run.run_id} --only {shlex.quote(name)}"
    check_user_code(f"the agent {name}", next_step=step)
    order = AgentOrder(run.run_id, name, host.clock.wall())
    await host.engine.order_end(order)
    claim = await claim_run(host, run)
    if claim is None:
        patience = decode_settings(run.settings).poll * _LOOKS + _MOMENT
        ended, until = None, host.clock.monotonic() + patience
        while ended is None and host.clock.monotonic() < until:
            for each in await host.engine.ordered_ends(run.run_id):
                if (each.name, each.at) == (name, order.at) and each.ended is not None:
                    ended = each.ended
            if ended is None:
                await host.clock.sleep(_LOOK_EVERY)
    else:
        ended = await _cancel_here(host, claim, order)
    if ended == 0 and not ahead:
        await host.engine.withdraw_order(run.run_id, name)
        calls = await host.engine.calls(run.run_id)
        before = agents_named(calls, name)
        if not before:
            raise unknown_agent(run.run_id, calls, name)
        raise BadArgumentError(
            f"The agent {name} of {run.run_id} has ended already: {before[-1].terminated_by}.",
            hint=f"`jackline show {run.run_id}` shows more.",
        )
    return CancelledAgents(run, name, ended, carried=claim is None)


async def _cancel_here(host: FlowHost, claim: Claim, order: AgentOrder) -> int:
    run = await known_run(host, order.run_id)
    execution = await _load(host, claim, run)
    calls = agents_named(execution.calls.values(), order.name)
    named = [call for call in calls if call.state is CallState.RUNNING]
    for call in named:
        await execution.cancel_stored_agent(call, order.name)
    if named:
        await host.engine.answer_order(claim, replace(order, ended=len(named)))
    await execution.events.settle()
    used = execution.accounting.account
    record = replace(run, tokens=used.tokens, cost=used.dollars, updated_at=host.clock.wall())
    await host.engine.let_go(claim, record)
    return len(named)
