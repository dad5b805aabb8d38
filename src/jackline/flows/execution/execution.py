"""One process's hold on a run: its calls, gate, accounting and interruptions; the scope of code.

Rules: (1) calls are counted by key in the order in which they begin in this execution; (2) a
process that lost the run stops at once, and nothing it does reaches the store; (3) the first
interruption counts, except that losing the run beats all; (4) agents that fail alike, one after
the other, stop the run; quota limits, cancels and limits of the user count neither way; (5) tasks
and threads inherit the scope of the code that starts them, and a call remembers the scope in
which it was made; outside a run there is none, and looking for it is a UsageError.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

from jackline.agents.outcome import Ending, Evidence, Outcome, Tally
from jackline.agents.runner import Runner, StopAgentError
from jackline.budgets.budget import Account
from jackline.errors import JacklineError, JournalError, LeaseLostError, UsageError
from jackline.flows.cleanup.action_runner import ActionRunner
from jackline.flows.cleanup.ledger import Hooks, Resources
from jackline.flows.execution.accounting import RunAccounting
from jackline.flows.execution.agent_cancellation import AgentCancellations, cancelled_by_person
from jackline.flows.execution.gate import Gate, StoredWakeUps
from jackline.flows.flow_sources import SavedSources
from jackline.flows.host import FlowHost
from jackline.flows.records import (
    CallKind,
    CallRecord,
    CallState,
    RunRecord,
    RunState,
    decode_outcome,
    encode_kept_beside,
    session_id_of,
    task_id_of,
)
from jackline.flows.run_events import (
    AgentEnded,
    BudgetNear,
    CleanupEnded,
    GuardTripped,
    Listener,
    RunEventLog,
    Warned,
)
from jackline.flows.settings import RunSettings
from jackline.flows.store.agent_log import AgentUsage
from jackline.flows.store.run_store import Claim
from jackline.user_errors import ErrorTexts

Signature: TypeAlias = tuple[Ending, str | None, str | None, int | None]

_NOT_COUNTED = frozenset(
    {
        Ending.QUOTA,
        Ending.CANCELLED,
        Ending.BUDGET,
        Ending.TURNS,
        Ending.TIMEOUT,
        Ending.DEADLINE,
    }
)


class FailureGuard:
    """Counts agents in a row that failed in the same way."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._signature: Signature | None = None
        self._count = 0

    def ended(self, outcome: Outcome[object]) -> str:
        """Why the run should stop now that this agent has ended; empty when it should not."""
        if outcome.terminated_by in _NOT_COUNTED or not self._limit:
            return ""
        if outcome.ok:
            self._signature, self._count = None, 0
            return ""
        evidence = outcome.evidence
        signature = (outcome.terminated_by, evidence.failure, evidence.sub, evidence.status)
        self._count = self._count + 1 if signature == self._signature else 1
        self._signature = signature
        if self._count < self._limit:
            return ""
        what = evidence.says or evidence.failure or outcome.terminated_by.value
        return (
            f"{self._count} agents in a row failed the same way ({outcome.terminated_by}): {what}"
        )


T = TypeVar("T")

# Steps that block a thread each, at a time.
_MOST_THREADS = 32


@dataclass(frozen=True, slots=True)
class Interruption:
    """Why a run goes no further in this process, and what that makes of it."""

    state: RunState
    ending: Ending
    evidence: Evidence
    error: JacklineError | None = None
    """Set when nothing may be written any more."""

    @property
    def keeps_agents(self) -> bool:
        """Whether agents at work have not ended, and continue in another process."""
        return self.error is not None or self.state in (RunState.STOPPED, RunState.PARKED)


class Execution:
    """One process's hold on one run."""

    level = 1
    """How many agents deep those of this run are: an agent may have started it."""

    def __init__(
        self,
        host: FlowHost,
        claim: Claim,
        record: RunRecord,
        settings: RunSettings,
        *,
        listener: Listener,
        flow_module: Callable[[], ModuleType | None],
        flow_module_name: str,
    ) -> None:
        self.host = host
        self.engine = host.engine
        self.clock = host.clock
        self.claim = claim
        self.record = record
        self.run_id = record.run_id
        self.settings = settings
        self.flow_module_name = flow_module_name
        self.runners: Mapping[str, Runner] = host.runners(record.run_id)
        self.events = RunEventLog(host.engine, record.run_id, listener)
        self.emit = self.events.emit
        self.gate = Gate(host.clock, host.draw)
        self.calls: dict[tuple[str, int], CallRecord] = {}
        """All calls of the run that are saved, by key and occurrence."""
        self.accounting = RunAccounting(
            host.engine,
            claim,
            host.clock,
            self.calls,
            budgets=settings.budgets,
            prices=host.prices,
            warn=lambda says: self.emit(BudgetNear(self.clock.wall(), says)),
            note=lambda says: self.events.warn(self.clock.wall(), says),
        )
        self._slots = asyncio.Semaphore(max(1, settings.at_once))
        self._process_slots = asyncio.Semaphore(max(1, settings.processes_at_once))
        self.blocking_steps = asyncio.Semaphore(_MOST_THREADS)
        actor = ActionRunner(
            host.clock,
            settings.hook_limit,
            record.cwd,
            flow_module,
            trusted=record.trusted,
            allow=host.allow,
        )
        self.break_off_clean_up = actor.hurry.set
        self.hooks = Hooks(host.engine, record.run_id, actor, self._cleaned_up)
        self.resources = Resources(host.engine, record.run_id, actor, self._cleaned_up)
        self.replayed_failures: frozenset[tuple[str, int]] = frozenset()
        """Failed calls that this execution answers with their failure instead of running them."""
        self.interruption: Interruption | None = None
        self.interrupted = asyncio.Event()
        self.wall = (Ending.QUOTA, Evidence())
        """The wall that was met last: what it means, and what was seen of it."""
        self.left_unfinished: int | None = None
        """How many agents had not ended when the flow was interrupted, and continue later."""
        self.wake_ups = StoredWakeUps(host.engine, claim, host.clock)
        self.sources = SavedSources(host.engine, claim, host.clock, flow_module_name)
        self.unawaited: dict[object, str] = {}
        self.loop = asyncio.get_running_loop()
        self.registering: set[asyncio.Task[None]] = set()
        """Resources that are being saved."""
        self._spawned: set[asyncio.Task[Any]] = set()
        self.cancellations = AgentCancellations(host.engine, claim, self.spawn)
        self.call_tasks: set[asyncio.Task[object]] = set()
        """The tasks in which calls run."""
        self._guard = FailureGuard(settings.guard)
        self._occurrences: Counter[str] = Counter()
        self._unnamed = 0
        self._began = host.clock.monotonic()
        self._duration_before = 0.0

    async def load(self, *, duration_before: float = 0.0) -> None:
        """Read what is saved of the run: its calls, what they used, its hooks and resources."""
        calls = await self.engine.calls(self.run_id)
        self.calls |= {(call.key, call.occurrence): call for call in calls}
        # New ones are numbered after all that are saved, so that no two share a name.
        self._unnamed = len(calls)
        self._duration_before = duration_before
        await self.accounting.load(self.record)
        await self.wake_ups.load()
        await self.sources.load()
        await self.cancellations.load()
        await self.hooks.load()
        await self.resources.load()

    def note(self, text: str, detail: Mapping[str, object]) -> None:
        """Write a line to the run's log; on the loop's thread."""
        self.events.log(self.clock.wall(), "note", "", {"says": text, **detail})

    # --- calls --------------------------------------------------------------------------------

    def identify(self, key: str) -> tuple[int, CallRecord | None, str]:
        """Which occurrence of its key a call is, what is saved of it, and its task id."""
        occurrence = self._occurrences[key]
        self._occurrences[key] += 1
        known = self.calls.get((key, occurrence))
        task_id = known.task_id if known else task_id_of(self.run_id, key, occurrence)
        return occurrence, known, task_id

    def answers_from_store(self, call: CallRecord | None) -> bool:
        """Whether this call is not run (again) but answered with what is saved."""
        if call is None:
            return False
        name = (call.key, call.occurrence)
        return call.state is CallState.DONE or name in self.replayed_failures

    @contextmanager
    def running_call(self) -> Iterator[None]:
        """Within this, the current task is known as one that runs a call."""
        task = asyncio.current_task()
        if task is None or task in self.call_tasks:
            yield
            return
        self.call_tasks.add(task)
        try:
            yield
        finally:
            self.call_tasks.discard(task)

    @asynccontextmanager
    async def slot(self, *, process: bool) -> AsyncIterator[None]:
        """Within this, an agent counts among those at work; returns when there is room."""
        # The rarer one first, so that nobody holds the other while waiting for it.
        async with self._process_slots if process else nullcontext(), self._slots:
            yield

    def next_label(self, phase: str, what: str) -> str:
        """A label for a call without one: where it is, and which one."""
        self._unnamed += 1
        return f"{phase or what} {self._unnamed}"

    async def begin(self, call: CallRecord) -> None:
        """Save that a call begins."""
        self.calls[call.key, call.occurrence] = call
        await self._write(self.engine.begin_call, call)

    async def end(self, call: CallRecord) -> None:
        """Save how a call ended."""
        await self._write(self.engine.end_call, call)
        self.calls[call.key, call.occurrence] = call

    async def _write(
        self, write: Callable[[Claim, CallRecord], Awaitable[None]], call: CallRecord
    ) -> None:
        try:
            await write(self.claim, call)
        except JacklineError as error:
            self.lose(error)
            raise

    def emit_ended(self, call: CallRecord, outcome: Outcome[Any]) -> None:
        """An agent has ended: here, or by an order that ended what is saved of it."""
        at = self.clock.wall()
        if outcome.ok and not outcome.text and outcome.value in ("", None):
            self.emit(Warned(at, f"The agent {call.label} completed with nothing to say."))
        self.emit(
            AgentEnded(
                at,
                call.task_id,
                call.label,
                call.phase,
                outcome.terminated_by,
                outcome.evidence.says,
                outcome.usage.total,
                outcome.cost,
                outcome.turns,
                outcome.duration,
                outcome.evidence.private,
            )
        )

    async def cancel_stored_agent(self, call: CallRecord, name: str) -> Outcome[Any]:
        """How this agent ended now that an order of that name has ended it, clean-up included."""
        before: Outcome[Any] = Outcome(Ending.CANCELLED)
        if call.outcome is not None:
            before = decode_outcome(call.outcome)
        used = AgentUsage.of_log(await self.engine.entries(call.task_id))
        known = before.usage.total >= used.usage.total
        outcome = replace(
            before,
            terminated_by=Ending.CANCELLED,
            value=None,
            evidence=cancelled_by_person(self.run_id, name),
            session_id=before.session_id or session_id_of(call.task_id),
            task_id=call.task_id,
            label=call.label,
            usage=before.usage if known else used.usage,
            cost=before.cost if known else used.dollars or None,
            unpriced=before.unpriced if known else used.unpriced,
            turns=max(before.turns, used.turns),
            duration=max(before.duration, used.seconds),
        )
        ended = replace(
            call,
            state=CallState.FAILED,
            value=None,
            outcome=encode_kept_beside(outcome),
            ended_at=self.clock.wall(),
            tokens=max(call.tokens, outcome.usage.total),
            cost=max(call.cost, outcome.cost or 0.0),
            terminated_by=outcome.terminated_by.value,
        )
        await self.end(ended)
        with FlowScope(self, self.accounting.account, call.phase, call.task_id).entered():
            await self.hooks.run_due({call.task_id: ended}, ending=None)
            await self.resources.release_of_agent(call.task_id)
        self.emit_ended(call, outcome)
        return outcome

    async def settle_registering(self) -> None:
        """Returns when every resource that was named so far is saved."""
        if self.registering:
            await asyncio.wait(set(self.registering))

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something to its end, whoever is cancelled meanwhile; the run's end waits for it."""
        task = asyncio.create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned_done)
        return task

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """What this work returns; if the caller is cancelled, the work goes on."""
        return await asyncio.shield(self.spawn(work))

    async def settle(self) -> None:
        """Returns when all that was spawned is done, and every agent's log is written."""
        while self._spawned:
            await asyncio.wait(set(self._spawned))
        for log in self.accounting.logs:
            try:
                await log.settle()
            except JacklineError as error:
                self.lose(error)

    def _spawned_done(self, task: asyncio.Task[Any]) -> None:
        self._spawned.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, LeaseLostError | JournalError):
            self.lose(error)

    # --- sums ---------------------------------------------------------------------------------

    def outcome_so_far(self, ending: Ending, evidence: Evidence) -> Outcome[Any]:
        """The run's outcome if it ended now in this way."""
        here = self.clock.monotonic() - self._began - self.gate.parked_for()
        return replace(
            self.accounting.used_so_far(ending, evidence),
            task_id=self.run_id,
            label=self.record.flow,
            duration=self._duration_before + here,
            tally=self.tally(),
        )

    def tally(self) -> Tally:
        """How the agents ended so far, and how many have not."""
        left = self.gate.agents if self.left_unfinished is None else self.left_unfinished
        return self.accounting.tally(left)

    def count_agent(self, outcome: Outcome[object], *, replayed: bool) -> None:
        """Count an agent that ended; stops the run when too many failed alike."""
        self.accounting.count_ended(outcome, replayed=replayed)
        why = "" if replayed or self.interruption else self._guard.ended(outcome)
        if why:
            self.emit(GuardTripped(self.clock.wall(), why))
            evidence = outcome.evidence
            self.fail(
                outcome.terminated_by,
                Evidence(
                    evidence.status,
                    evidence.failure,
                    evidence.sub,
                    why,
                    private=evidence.private,
                ),
                Ending.CANCELLED,
            )

    def count_saved(self) -> None:
        """Count the agents that ended in earlier processes, where the flow is not run again."""
        for call in self.calls.values():
            if call.kind is CallKind.AGENT and call.outcome is not None:
                self.count_agent(decode_outcome(call.outcome), replayed=True)

    # --- walls --------------------------------------------------------------------------------

    def back_off(self) -> None:
        """A quota wall has parked the run: one that is met again and again is tried rarely."""
        ups, gate, most = self.wake_ups, self.gate, self.settings.wake.max_wakes
        ups.now = ups.now.met_wall()
        wake_at = ups.now.wake_at(self.clock.wall(), gate.wake_at, most)
        if wake_at != gate.wake_at:
            gate.wait_for(ups.now.why(gate.why, most), wake_at)

    # --- interruptions ------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Let agents end their turns and go no further; another process can resume the run."""
        self._interrupt(Interruption(RunState.STOPPED, Ending.CANCELLED, Evidence(says=why)))
        self.gate.close()

    def leave_to_person(self, why: str) -> None:
        """Go no further, and stay parked until a person resumes the run."""
        self.record = replace(self.record, state=RunState.PARKED, why=why, wake_at=None)
        self.stop(why)

    def fail(self, ending: Ending, evidence: Evidence, others: Ending) -> None:
        """End the run as failed; agents that wait or start end with `others`."""
        self._interrupt(Interruption(RunState.FAILED, ending, evidence))
        self.gate.close(StopAgentError(others, evidence))

    def cancel(self, why: str) -> None:
        """End the run and its agents as cancelled."""
        evidence = Evidence(says=why)
        self._interrupt(Interruption(RunState.CANCELLED, Ending.CANCELLED, evidence))
        self.gate.close(StopAgentError(Ending.CANCELLED, evidence))

    def lose(self, error: JacklineError) -> None:
        """The run is not ours any more, or cannot be saved: write nothing, stop at once."""
        if self.interruption is None or self.interruption.error is None:
            evidence = Evidence(says=error.message)
            self.interruption = None
            lost = Interruption(RunState.RUNNING, Ending.CRASH, evidence, error)
            self._interrupt(lost)
            self.gate.close(StopAgentError(Ending.CRASH, evidence))

    @property
    def lost(self) -> bool:
        """Whether nothing may be written any more."""
        return self.interruption is not None and self.interruption.error is not None

    def _interrupt(self, interruption: Interruption) -> None:
        before = self.interruption
        stronger = before is not None and (
            before.state is RunState.STOPPED and interruption.state is not RunState.STOPPED
        )
        if before is None or stronger:
            self.interruption = interruption
            self.interrupted.set()
            self.accounting.interrupt()

    def _cleaned_up(self, what: str, label: str, trouble: ErrorTexts) -> None:
        self.emit(CleanupEnded(self.clock.wall(), what, label, *trouble))


@dataclass(frozen=True, slots=True)
class FlowScope:
    """Where code runs: its run, account, phase and agent."""

    run: Execution
    account: Account
    phase: str = ""
    task_id: str = ""
    """The agent whose tool or hook this is; empty in the flow itself."""

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Code in this block runs in this scope, and so does what it starts."""
        token = CURRENT.set(self)
        try:
            yield
        finally:
            CURRENT.reset(token)


CURRENT: ContextVar[FlowScope | None] = ContextVar("jackline_flow_scope", default=None)


def scope_for(what: str) -> FlowScope:
    """The current scope; UsageError naming `what` outside a run."""
    scope = CURRENT.get()
    if scope is None:
        raise UsageError(
            f"{what} works only inside a flow that is being run.",
            hint="Mark the function with @flow; start it with jackline.run(…) or `jackline run`.",
        )
    return scope


async def first_done(*waits: Coroutine[Any, Any, object]) -> None:
    """Returns when the first of these does; the others are cancelled."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
