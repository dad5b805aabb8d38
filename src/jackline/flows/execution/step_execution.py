"""Make one Python call durable: answered from the store, or run and saved.

Rules: (1) a finished step never runs again, and returns what was saved; (2) a step that fails
raises what it raised, and runs again when the run is resumed; (3) a step that was underway at a
crash runs again: the function must bear that; (4) a blocking function runs in a thread of its
own, and one that never returns prevents no program from ending.
Not here: keys (records.py), values (values.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from jackline.agents.runner import StopAgentError
from jackline.batches.threads import contain_exits, in_own_thread
from jackline.errors import BadArgumentError, StepFailedError
from jackline.flows.execution.execution import FlowScope
from jackline.flows.records import CallKind, CallRecord, CallState, call_key
from jackline.flows.run_events import StepBegan, StepEnded
from jackline.flows.values import returned_shape


class StepExecution:
    """One step of one execution."""

    def __init__(
        self,
        function: Callable[..., object],
        arguments: tuple[tuple[object, ...], dict[str, object]],
        scope: FlowScope,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._scope = scope
        self._run = run = scope.run
        self._shape = returned_shape(function)
        self._name = step_name(function)
        key = step_key(function, arguments, run.flow_module_name)
        occurrence, self._known, task_id = run.identify(key)
        self._call = CallRecord(
            run.run_id,
            key,
            occurrence,
            CallKind.STEP,
            self._name,
            scope.phase,
            task_id,
            CallState.RUNNING,
            attempts=1 if self._known is None else self._known.attempts + 1,
        )

    async def value(self) -> object:
        """What the function gave, decoded from what is kept."""
        if self._known is not None and self._run.answers_from_store(self._known):
            return self._replayed(self._known)
        gate = self._run.gate
        ticket = gate.ticket(may_probe=False)
        try:
            with self._run.running_call():
                await gate.enter(ticket)
                return await self._called()
        except StopAgentError as stop:
            raise StepFailedError(
                f"The step {self._name} was not started: {stop.evidence.says}"
            ) from None
        finally:
            gate.done(ticket)

    def _replayed(self, known: CallRecord) -> object:
        run = self._run
        trouble = "" if known.state is CallState.DONE else known.terminated_by
        self._tell_ended(trouble, replayed=True)
        if trouble:
            raise StepFailedError(
                f"The step {self._name} failed before with {trouble}.",
                next=f"`jackline retry {run.run_id} --only {self._name}` runs it again.",
            )
        return self._shape.decode(known.value or b"null")

    async def _called(self) -> object:
        run = self._run
        call = self._call = replace(self._call, started_at=run.clock.wall())
        await run.begin(call)
        run.emit(StepBegan(call.started_at, call.label, call.phase))
        try:
            returned = await self._work()
            data = self._shape.encode(returned)
            value = self._shape.decode(data)
        except Exception as error:
            name = type(error).__name__
            failed = replace(call, state=CallState.FAILED, value=None, terminated_by=name)
            await run.end(replace(failed, ended_at=run.clock.wall()))
            self._tell_ended(name, replayed=False)
            raise
        done = replace(call, state=CallState.DONE, value=data, ended_at=run.clock.wall())
        await run.shielded(run.end(done))
        self._tell_ended("", replayed=False)
        return value

    async def _work(self) -> object:
        positional, named = self._arguments
        with contain_exits():
            if inspect.iscoroutinefunction(self._function):
                return await self._function(*positional, **named)
            async with self._run.blocking_steps:
                call = partial(self._function, *positional, **named)
                returned = await in_own_thread(call, f"step {self._name}")
            return await returned if inspect.isawaitable(returned) else returned

    def _tell_ended(self, trouble: str, *, replayed: bool) -> None:
        call, at = self._call, self._run.clock.wall()
        self._run.emit(StepEnded(at, call.label, call.phase, trouble, replayed))


def step_key(
    function: Callable[..., object],
    arguments: tuple[tuple[object, ...], dict[str, object]],
    flow_module: str,
) -> str:
    """What a step is known by: its function and its arguments.

    The flow's own module has another name each time its file is loaded, and counts as none.
    """
    module = getattr(function, "__module__", None)
    place = "" if module in (None, flow_module) else f"{module}:"
    return call_key(CallKind.STEP, f"{place}{step_name(function)}", list(arguments))


def step_name(function: Callable[..., object]) -> str:
    """The name by which a step is known; BadArgumentError for what has none."""
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        raise BadArgumentError(
            f"step() needs a function, not a {type(function).__name__}.",
            next="Write step(fetch, url), not step(fetch(url)).",
        )
    if "<lambda>" in name:
        raise BadArgumentError(
            "A lambda has no name to be known by after a crash.",
            next="Write a small function, and give what it needs as arguments.",
        )
    return name
