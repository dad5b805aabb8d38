"""Run one flow in this process: its lease, its gate, its stops, and its end.

Rules: (1) a process that lost the lease writes nothing more; (2) the first stop lets agents end
their turns, the second ends at once, and neither loses finished work; (3) a parked run wakes only
when its brakes allow it; (4) a run ends by `completion` only when its result is what the flow
promises; a run that was ordered to fail or to cancel does so, whatever its function returns
afterwards; (5) the end that is reported is the end that is saved.
Runs are started and resumed in lifecycle.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.clock import ClockWatch
from jackline.errors import InternalError, JournalError, LeaseLostError
from jackline.flows.authoring.calls import AgentFailedError
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.execution.execution import (
    CURRENT,
    Execution,
    FlowScope,
    Interruption,
    first_done,
)
from jackline.flows.execution.gate import GateState
from jackline.flows.flow_sources import ExecutedSources, to_look_at
from jackline.flows.records import (
    ENDED,
    CallKind,
    CallState,
    RunRecord,
    RunState,
    encode_outcome,
)
from jackline.flows.run_events import RunEnded, RunParked, RunStarted, RunStopping, RunWoke, Warned
from jackline.flows.settings import may_wake
from jackline.flows.values import UnfitValueError, decode_arguments
from jackline.user_errors import error_texts

# Within a lease it is renewed so often.
_RENEWALS = 3
_REAPING = 30.0
_LAST_WAIT = 5.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a run: its state, its ending, and its result both decoded and as it is saved."""

    state: RunState
    ending: Ending
    evidence: Evidence
    value: object = None
    data: bytes | None = None
    text: str = ""
    error: BaseException | None = None


def run_result_of(
    flow: Flow[..., Any],
    main: asyncio.Task[Any],
    interruption: Interruption | None,
    record: RunRecord,
    wall: tuple[Ending, Evidence],
) -> RunResult:
    """How it ended; `main` is the flow's own task, and done.

    `record` says whether the run was parked, and `wall` by what: what it means, and what was seen.
    """
    error = None if main.cancelled() else main.exception()
    if interruption is not None:
        finished = not main.cancelled() and error is None
        if interruption.state is not RunState.STOPPED or not finished:
            if interruption.state is RunState.STOPPED and record.state is RunState.PARKED:
                resets_at = None
                if record.wake_at is not None:
                    resets_at = datetime.fromtimestamp(record.wake_at, UTC)
                parked = replace(wall[1], says=record.why, resets_at=resets_at)
                return RunResult(RunState.PARKED, wall[0], parked)
            shown = None if interruption.keeps_agents else error
            return RunResult(
                interruption.state, interruption.ending, interruption.evidence, error=shown
            )
    if main.cancelled():
        evidence = Evidence(says="The flow cancelled itself.")
        return RunResult(RunState.FAILED, Ending.CANCELLED, evidence)
    if error is not None:
        return _raised(error)
    value = main.result()
    try:
        data = flow.shape.encode(value)
        decoded = flow.shape.decode(data)
    except UnfitValueError as unfit:
        says = f"What the flow returned cannot be kept: {unfit.message}"
        if value is None:
            promised = getattr(flow.promises, "__name__", str(flow.promises))
            says = f"The flow returned nothing, though it promises {promised}."
        evidence = Evidence(says=says, private=unfit.private)
        return RunResult(RunState.FAILED, Ending.SCHEMA, evidence, error=unfit)
    return RunResult(RunState.FINISHED, Ending.COMPLETION, Evidence(), decoded, data)


def _raised(error: BaseException) -> RunResult:
    texts = error_texts(error)
    if isinstance(error, AgentFailedError):
        outcome = error.outcome
        evidence = replace(outcome.evidence, says=texts.brief, private=texts.private)
        return RunResult(
            RunState.FAILED, outcome.terminated_by, evidence, text=outcome.text, error=error
        )
    evidence = Evidence(says=texts.brief, private=texts.private)
    return RunResult(RunState.FAILED, Ending.CRASH, evidence, error=error)


T = TypeVar("T")


class FlowRun(Generic[T]):
    """One run in this process: `run()` it, and `stop()` or `cancel()` it meanwhile."""

    def __init__(
        self, execution: Execution, flow: Flow[..., T], *, resumed: bool, probe_first: bool
    ) -> None:
        self._x = execution
        self._flow = flow
        self._resumed = resumed
        self._probe_first = probe_first
        self._hurry = asyncio.Event()
        self._was_stopped = False
        self._has_ended = False
        """Its end is saved, and only clean-up is left to do."""
        self._clock_watch = ClockWatch(execution.clock)
        self._renewed_at = execution.clock.monotonic()
        self._reaped_at = execution.clock.monotonic()
        self.error: BaseException | None = None
        """What the flow raised, for a traceback; None when it raised nothing."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._x.run_id

    @property
    def state(self) -> RunState:
        """The run's state."""
        return self._x.record.state

    @property
    def is_parked(self) -> bool:
        """Whether it waits at a wall."""
        return self._x.record.state is RunState.PARKED

    @property
    def is_cleaning_up(self) -> bool:
        """Whether it has ended, and only its clean-up goes on."""
        return self._has_ended

    def stop(self, why: str = "It was ordered to stop.") -> None:
        """First time: nothing new starts and agents end their turns. Second time: now.

        A run that has ended is cleaned up after; the second time leaves the rest of that to the
        next process.
        """
        x = self._x
        if self._was_stopped:
            x.break_off_clean_up()
        if self._was_stopped or x.interruption is not None or x.gate.state is GateState.PARKED:
            self._hurry.set()
        self._was_stopped = True
        if not self._has_ended:
            self._stop(why)

    def stop_now(self, why: str = "It was ordered to stop at once.") -> None:
        """End at once; what is finished stays saved."""
        self._hurry.set()
        self._stop(why)

    def _stop(self, why: str) -> None:
        x = self._x
        if x.gate.state is GateState.PARKED:
            # It stays parked, even if the keeper has not saved that yet.
            x.record = replace(
                x.record, state=RunState.PARKED, why=x.gate.why, wake_at=x.gate.wake_at
            )
        x.stop(why)

    def cancel(self, why: str = "It was cancelled.") -> None:
        """End the run and its agents for good, with their clean-up."""
        self._hurry.set()
        self._x.cancel(why)

    def wait_for_person_when_refused(self, sources: ExecutedSources) -> None:
        """Stay parked when a source that is not known was to run: it is left to a person."""
        x = self._x

        def refused(why: str) -> None:
            x.loop.call_soon_threadsafe(x.leave_to_person, to_look_at(why, x.record))

        sources.refused = refused

    async def run(self) -> Outcome[T]:
        """How the run ended, or its state so far when it was stopped or stays parked.

        Raises only LeaseLostError and JournalError: then nothing more could be saved.
        """
        x = self._x
        kept = sum(
            call.state is CallState.DONE and call.kind is CallKind.AGENT
            for call in x.calls.values()
        )
        used = x.accounting.account
        x.emit(
            RunStarted(
                x.clock.wall(),
                x.run_id,
                x.record.flow,
                self._resumed,
                kept,
                used.tokens,
                used.dollars,
            )
        )
        if self._probe_first:
            x.wake_ups.now = x.wake_ups.now.woke(by_person=x.record.confirmed)
            x.gate.probe()
        scope = FlowScope(x, x.accounting.account)
        CURRENT.set(scope)
        forget_waits = x.engine.on_wait(self._waits_for_store)
        main = asyncio.create_task(self._main(), name=f"flow {x.run_id}")
        around = [
            asyncio.create_task(self._keep(), name=f"keeper of {x.run_id}"),
            asyncio.create_task(self._watch(main), name=f"watch over {x.run_id}"),
        ]
        CURRENT.set(None)
        for task in around:
            task.add_done_callback(self._check_keeper)
        cancelled = None
        try:
            await asyncio.wait({main})
        except asyncio.CancelledError as error:
            cancelled = error
            self.stop_now("The program that ran it was stopped.")
            await asyncio.wait({main})
        try:
            outcome = await self._finish(main)
        finally:
            forget_waits()
            for task in around:
                task.cancel()
            await asyncio.gather(*around, return_exceptions=True)
        if cancelled is not None:
            raise cancelled
        return outcome

    def _waits_for_store(self, says: str) -> None:
        """Nothing can be saved for now; called in the thread that met that."""
        x = self._x
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no listener left
            x.loop.call_soon_threadsafe(lambda: x.emit(Warned(x.clock.wall(), says)))

    async def _main(self) -> T:
        x = self._x
        calls = {call.task_id: call for call in x.calls.values()}
        await x.hooks.recover()
        await x.hooks.run_due(calls, ending=None)
        # Before anything else, so that whoever ends the run knows them, and needs no flow for it.
        await x.hooks.promise(x.run_id, self._flow.on_end)
        arguments = decode_arguments(self._flow.function, x.record.arguments)
        return await self._flow.function(**arguments)

    def _check_keeper(self, task: asyncio.Task[None]) -> None:
        """A run whose keeper died would lose its lease unseen: better to stop at once."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            bug = InternalError(f"The {task.get_name()} raised {type(error).__name__}.")
            bug.__cause__ = error
            self._x.lose(bug)

    # --- around it ----------------------------------------------------------------------------

    async def _watch(self, main: asyncio.Task[T]) -> None:
        """Wait for an interruption, give agents their time, and end the flow."""
        x = self._x
        await x.interrupted.wait()
        why = "" if x.interruption is None else x.interruption.evidence.says
        x.emit(RunStopping(x.clock.wall(), why))
        if not x.lost:
            await first_done(
                x.gate.came_to_rest.wait(), self._hurry.wait(), x.clock.sleep(x.settings.grace)
            )
        if x.interruption is not None and x.interruption.keeps_agents:
            x.left_unfinished = x.gate.agents
        while not main.done():
            main.cancel()
            await first_done(asyncio.wait({main}), x.clock.sleep(_LAST_WAIT))

    async def _keep(self) -> None:
        """Hold the lease, listen for orders, and mind the gate."""
        x = self._x
        while True:
            await first_done(x.gate.changed.wait(), x.clock.sleep(x.settings.poll))
            x.gate.changed.clear()
            try:
                await self._renew()
                order = await x.engine.stop_request(x.run_id)
                if order == "cancel":
                    self.cancel("It was cancelled from another process.")
                elif order == "stop" and x.interruption is None:
                    self.stop("Another process ordered it to stop.")
                if not self._has_ended:
                    await x.cancellations.check()
                await self._check_gate()
            except LeaseLostError as error:
                x.lose(error)
                return
            except JournalError as error:
                if x.clock.monotonic() - self._renewed_at > x.settings.lease:
                    x.lose(error)
                    return

    async def _renew(self) -> None:
        x = self._x
        now = x.clock.monotonic()
        moved = self._clock_watch.look()
        if moved is not None:
            x.gate.follow_clock(moved.by - moved.slept)
        # A lease is saved as a date: once the clock was set, the old one says nothing.
        if moved is not None or now - self._renewed_at >= x.settings.lease / _RENEWALS:
            await x.engine.renew(x.claim, lease=x.settings.lease)
            self._renewed_at = now
            if not self._has_ended:
                await x.accounting.save()
                is_parked = x.gate.state is GateState.PARKED
                # After the clock was set, the record's own date has to follow (`may_wake`).
                is_due = moved is not None or x.record.tokens != x.accounting.account.tokens
                if not is_parked or is_due:
                    await self._change(x.record.state, x.record.why, x.record.wake_at)
        if now - self._reaped_at >= _REAPING:
            self._reaped_at = now
            # Not awaited: a slow release must not cost us the lease.
            x.spawn(x.resources.release_overdue())

    async def _check_gate(self) -> None:
        x = self._x
        if x.gate.state is not GateState.PARKED or self._has_ended:
            return
        record = x.record
        shown = (record.state, record.why, record.wake_at)
        if shown != (RunState.PARKED, x.gate.why, x.gate.wake_at):
            newly = record.state is not RunState.PARKED
            await self._change(RunState.PARKED, x.gate.why, x.gate.wake_at)
            x.emit(RunParked(x.clock.wall(), x.gate.why, x.gate.wake_at))
            if newly:
                x.spawn(x.resources.release_at_park())
            return
        fresh = await x.engine.run(x.run_id)
        if fresh is not None and may_wake(x.clock.now(), fresh, x.settings.wake).now:
            x.wake_ups.now = x.wake_ups.now.woke(by_person=fresh.confirmed)
            await self._change(RunState.RUNNING)
            x.emit(RunWoke(x.clock.wall()))
            x.gate.probe()

    async def _change(self, state: RunState, why: str = "", wake_at: float | None = None) -> None:
        x = self._x
        x.record = replace(
            x.record,
            state=state,
            why=why,
            wake_at=wake_at,
            updated_at=x.clock.wall(),
            tokens=x.accounting.account.tokens,
            cost=x.accounting.account.dollars,
            outcome=encode_outcome(x.outcome_so_far(Ending.CANCELLED, Evidence(says=why))),
        )
        # First: a run that is shown as parked must not have forgotten how often it woke, nor what
        # it may wake with.
        await x.wake_ups.save()
        await x.sources.save()
        await x.engine.change(x.claim, x.record)

    # --- the end ------------------------------------------------------------------------------

    async def _finish(self, main: asyncio.Task[T]) -> Outcome[T]:
        x = self._x
        ended = run_result_of(self._flow, main, x.interruption, x.record, x.wall)
        self.error = ended.error
        await self._end_leftovers()
        if not x.lost:
            await x.accounting.save()
            await x.wake_ups.save()
            await x.sources.save()
        await x.settle()
        if x.lost and x.interruption is not None and x.interruption.error is not None:
            await x.events.settle()
            raise x.interruption.error
        outcome: Outcome[Any] = replace(
            x.outcome_so_far(ended.ending, ended.evidence),
            text=ended.text,
            parked=ended.state is RunState.PARKED,
        )
        await x.settle_registering()
        if ended.state in ENDED:
            calls = {call.task_id: call for call in x.calls.values()}
            # Saved before it is cleaned up after: a process that dies in between must not make the
            # next one run the flow to a second end, with its hooks once more.
            self._has_ended = True
            await x.engine.change(x.claim, self._ended_record(ended, outcome))
            with FlowScope(x, x.accounting.account).entered():
                await x.hooks.run_due(calls, ending=Ending.CANCELLED, run=outcome)
                await x.resources.release_all()
        # Counted again: clean-up may have ended agents, too.
        outcome = replace(outcome, tally=x.tally(), value=ended.value)
        record = self._ended_record(ended, outcome)
        shown = replace(outcome, value=None)
        x.emit(RunEnded(record.updated_at, ended.state, ended.evidence.says, shown))
        await x.events.settle()
        await x.engine.let_go(x.claim, record)
        x.record = record
        return outcome

    def _ended_record(self, ended: RunResult, outcome: Outcome[Any]) -> RunRecord:
        """The run's record as this end leaves it."""
        x = self._x
        now = x.clock.wall()
        plain = None if ended.data is None else json.loads(ended.data)
        return replace(
            x.record,
            state=ended.state,
            why=ended.evidence.says,
            wake_at=x.record.wake_at if ended.state is RunState.PARKED else None,
            updated_at=now,
            ended_at=now if ended.state in ENDED else None,
            outcome=encode_outcome(outcome, plain_value=plain),
            tokens=x.accounting.account.tokens,
            cost=x.accounting.account.dollars,
        )

    async def _end_leftovers(self) -> None:
        """End calls whose tasks the flow has left behind, and name those that it never awaited."""
        x = self._x
        left = set(x.call_tasks)
        if x.interruption is None:
            warnings = [
                f"{name} was written but never awaited, so it did not run."
                for name in x.unawaited.values()
            ]
            if left:
                warnings.append(
                    f"The flow returned while {len(left)} of its calls were underway; they are"
                    " ended."
                )
            for says in warnings:
                x.emit(Warned(x.clock.wall(), says))
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
