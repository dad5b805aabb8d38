"""One process's hold on a run: calls, gate, accounts, sums, interruptions; the scope of code.

Rules: (1) calls are counted by key in the order in which they begin in this execution; (2) a
process that lost the run stops at once, and nothing it does reaches the store; (3) the first
interruption counts, except that losing the run beats all; (4) agents that fail alike, one after
the other, stop the run; quota limits, cancels and limits of the user count neither way; (5) tasks
and threads inherit the scope of the code that starts them, and a call remembers the scope in
which it was made; outside a run there is none, and looking for it is a UsageError.
Not here: single calls (agent_execution.py, step_execution.py), the run's life (flow_run.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

from jackline.agents.outcome import Ending, Evidence, Outcome, Tally, TokenUsage
from jackline.agents.runner import Runner, StopAgentError
from jackline.budgets.budget import Account, Amount, Budget, Unit
from jackline.budgets.ledger import Reservation
from jackline.errors import JacklineError, JournalError, LeaseLostError, UsageError
from jackline.flows.budget.reservations import Reservations, RollingWindow, nearly_used
from jackline.flows.budget.usage import ActiveAgents, AgentTotals, PastUsageByAgent
from jackline.flows.cleanup.action_runner import ActionRunner
from jackline.flows.cleanup.ledger import Hooks, Resources
from jackline.flows.execution.agent_cancellation import AgentCancellations
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
    task_id_of,
)
from jackline.flows.run_events import (
    BudgetNear,
    CleanupEnded,
    GuardTripped,
    Listener,
    RunEventLog,
)
from jackline.flows.settings import RunSettings
from jackline.flows.store.run_store import Claim

Signature: TypeAlias = tuple[Ending, str | None, str | None, int | None]

_SAYS_NOTHING = frozenset(
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
        if outcome.terminated_by in _SAYS_NOTHING or not self._limit:
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

_MOST_THREADS = 32
"""Steps that block a thread each, at a time."""


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
        """Whether agents underway have not ended, and will go on in another process."""
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
        self.telling = RunEventLog(host.engine, record.run_id, listener)
        self.tell = self.telling.tell
        self.gate = Gate(host.clock, host.draw)
        self.account = Account("The run", settings.budgets)
        self.reservations = Reservations()
        self.windows: dict[Budget, RollingWindow] = {}
        for budget in settings.budgets:
            self.heed_window(budget)
        self._slots = asyncio.Semaphore(max(1, settings.at_once))
        self.blocking_steps = asyncio.Semaphore(_MOST_THREADS)
        self._process_slots = asyncio.Semaphore(max(1, settings.processes_at_once))
        actor = ActionRunner(
            host.clock, settings.hook_limit, record.cwd, flow_module, trusted=record.trusted
        )
        self.break_off_clean_up = actor.hurry.set
        self.hooks = Hooks(host.engine, record.run_id, actor, self._cleaned_up)
        self.resources = Resources(host.engine, record.run_id, actor, self._cleaned_up)
        self.kept_failures: frozenset[tuple[str, int]] = frozenset()
        """Failed calls that this execution answers with their failure instead of running them."""
        self.interruption: Interruption | None = None
        self.interrupted = asyncio.Event()
        self.wall = (Ending.QUOTA, Evidence())
        """The wall that was met last: what it means, and what was seen of it."""
        self.left_unfinished: int | None = None
        """How many agents had not ended when the flow was interrupted, and go on later."""
        self.known: dict[tuple[str, int], CallRecord] = {}
        self.underway = ActiveAgents(host.engine, claim, self.known)
        self.earlier = PastUsageByAgent(host.engine, claim, host.clock)
        self.wake_ups = StoredWakeUps(host.engine, claim, host.clock)
        self.sources = SavedSources(host.engine, claim, host.clock, flow_module_name)
        self.unawaited: dict[object, str] = {}
        self.loop = asyncio.get_running_loop()
        self.registering: set[asyncio.Task[None]] = set()
        """Resources that are being put on the ledger."""
        self._aside: set[asyncio.Task[Any]] = set()
        self.orders = AgentCancellations(host.engine, claim, self.aside)
        self.carriers: set[asyncio.Task[object]] = set()
        """The tasks in which calls are underway."""
        self._guard = FailureGuard(settings.guard)
        self._occurrences: Counter[str] = Counter()
        self._unnamed = 0
        self._began = host.clock.monotonic()
        self._duration_before = 0.0
        self._counting = AgentTotals()

    async def load(self, *, duration_before: float = 0.0) -> None:
        """Read what is kept of the run: its calls, sums, hooks and resources."""
        calls = await self.engine.calls(self.run_id)
        self.known |= {(call.key, call.occurrence): call for call in calls}
        # Those that come are numbered after all that are kept, so that no two share a name.
        self._unnamed = len(calls)
        await self.earlier.load(calls)
        used = self.earlier.whole
        self.account.add(
            {
                **used.amount,
                Unit.AGENTS: self.earlier.agents,
                Unit.TOKENS: max(self.record.tokens, used.tokens),
                Unit.DOLLARS: max(self.record.cost, used.dollars),
            }
        )
        self._duration_before = duration_before
        await self.wake_ups.load()
        await self.sources.load()
        await self.orders.load()
        await self.hooks.load()
        await self.resources.load()

    # --- calls --------------------------------------------------------------------------------

    def identify(self, key: str) -> tuple[int, CallRecord | None, str]:
        """Which occurrence of its key a call is, what is kept of it, and its task id."""
        occurrence = self._occurrences[key]
        self._occurrences[key] += 1
        known = self.known.get((key, occurrence))
        return (
            occurrence,
            known,
            known.task_id if known else task_id_of(self.run_id, key, occurrence),
        )

    def answers_from_store(self, call: CallRecord | None) -> bool:
        """Whether this call is not run (again) but answered with what is kept."""
        if call is None:
            return False
        return call.state is CallState.DONE or (call.key, call.occurrence) in self.kept_failures

    @contextmanager
    def carried_here(self) -> Iterator[None]:
        """Within this, the current task is known as one that carries a call."""
        task = asyncio.current_task()
        if task is None or task in self.carriers:
            yield
            return
        self.carriers.add(task)
        try:
            yield
        finally:
            self.carriers.discard(task)

    @asynccontextmanager
    async def slot(self, *, process: bool) -> AsyncIterator[None]:
        """Within this, an agent counts among those at work; returns when there is room."""
        if not process:
            async with self._slots:
                yield
            return
        # The rarer one first, so that nobody holds the other while waiting for it.
        async with self._process_slots, self._slots:
            yield

    def next_label(self, phase: str, what: str) -> str:
        """A name for a call that was given none: where it is, and which one."""
        self._unnamed += 1
        return f"{phase or what} {self._unnamed}"

    async def begin(self, call: CallRecord) -> None:
        """Keep that a call begins."""
        self.known[call.key, call.occurrence] = call
        await self._kept(self.engine.begin_call, call)

    async def end(self, call: CallRecord) -> None:
        """Keep how a call ended."""
        await self._kept(self.engine.end_call, call)
        self.known[call.key, call.occurrence] = call

    async def _kept(
        self, write: Callable[[Claim, CallRecord], Awaitable[None]], call: CallRecord
    ) -> None:
        try:
            await write(self.claim, call)
        except JacklineError as error:
            self.lose(error)
            raise

    async def settle_registering(self) -> None:
        """Returns when every resource that was named so far is on the ledger."""
        if self.registering:
            await asyncio.wait(set(self.registering))

    def aside(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something to its end, whoever is cancelled meanwhile; the run's end waits for it."""
        task = asyncio.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._done_aside)
        return task

    async def whole(self, work: Coroutine[Any, Any, T]) -> T:
        """What this work gives; being cancelled here leaves it going."""
        return await asyncio.shield(self.aside(work))

    async def settle(self) -> None:
        """Returns when all that is done aside is done, and every notebook is written."""
        while self._aside:
            await asyncio.wait(set(self._aside))
        for notebook in self.underway.books:
            try:
                await notebook.settle()
            except JacklineError as error:
                self.lose(error)

    def _done_aside(self, task: asyncio.Task[Any]) -> None:
        self._aside.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, LeaseLostError | JournalError):
            self.lose(error)

    # --- sums ---------------------------------------------------------------------------------

    def duration(self) -> float:
        """Seconds that the run took so far, in all processes, without those it was parked."""
        here = self.clock.monotonic() - self._began - self.gate.parked_for()
        return self._duration_before + here

    def accounts(self, account: Account) -> list[Account]:
        """All that pay for a call of this account: those above it, and the windows."""
        return [*account.chain(), *(window.account for window in self.windows.values())]

    def charge(
        self, account: Account, tokens: int, dollars: float, request: Reservation | None = None
    ) -> None:
        """Something was paid for, and had `request` reserved; tells if a budget is nearly used."""
        amount: Amount = {Unit.TOKENS: tokens, Unit.DOLLARS: dollars}
        for window in self.windows.values():
            window.record(amount)
        if request is None:
            self.reservations.charge(self.accounts(account), amount)
        else:
            self.reservations.settle(request, amount, self.accounts(account))
        near = account.nearly_used()
        if near is not None:
            self.tell(BudgetNear(self.clock.wall(), nearly_used(near)))

    def charge_seconds(self, account: Account, seconds: float) -> None:
        """So much more was worked; less than nothing where time turned out to be no work."""
        self.reservations.charge(account.chain(), {Unit.SECONDS: seconds})

    def heed_window(self, budget: Budget | None) -> None:
        """Wait for this budget's window from now on, if it has one: it is over all runs."""
        if budget is not None and budget.window is not None and budget not in self.windows:
            window = RollingWindow(budget, self.engine, self.clock, self._not_in_ledger)
            self.windows[budget] = window

    def count_agent(self, outcome: Outcome[object], *, replayed: bool) -> None:
        """Count an agent that ended; stops the run when too many failed alike."""
        self._counting.ended(outcome, replayed=replayed)
        why = "" if replayed or self.interruption else self._guard.ended(outcome)
        if why:
            self.tell(GuardTripped(self.clock.wall(), why))
            evidence = outcome.evidence
            self.fail(
                outcome.terminated_by,
                Evidence(evidence.status, evidence.failure, evidence.sub, why),
                Ending.CANCELLED,
            )

    def count_kept(self) -> None:
        """Count the agents that ended in earlier processes, where the flow is not run to tell."""
        for call in self.known.values():
            if call.kind is CallKind.AGENT and call.outcome is not None:
                self.count_agent(decode_outcome(call.outcome), replayed=True)

    def used_so_far(self) -> tuple[TokenUsage, float | None, int]:
        """Tokens, dollars and turns of the agents that ended here, and of those underway."""
        return self._counting.used(self.underway.used)

    def tally(self) -> Tally:
        """How the agents ended so far, and how many have not."""
        left = self.gate.agents if self.left_unfinished is None else self.left_unfinished
        return self._counting.tally(left)

    def _not_in_ledger(self) -> tuple[int, float]:
        return self.underway.not_in_ledger()

    # --- walls --------------------------------------------------------------------------------

    def back_off(self) -> None:
        """A quota wall has parked the run: a wall that is met again and again is asked rarely."""
        ups, gate, most = self.wake_ups, self.gate, self.settings.wake.max_wakes
        ups.now = ups.now.met_wall()
        wake_at = ups.now.wake_at(self.clock.wall(), gate.wake_at, most)
        if wake_at != gate.wake_at:
            gate.wait_for(ups.now.why(gate.why, most), wake_at)

    def progressed(self) -> None:
        """A call of an agent was answered."""
        self.wake_ups.now = self.wake_ups.now.answered()

    # --- interruptions ------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Let agents end their turns and go no further; another process can go on."""
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
        """The run is not ours any more, or cannot be kept: write nothing, stop at once."""
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
            self.reservations.interrupt()

    def _cleaned_up(self, what: str, label: str, trouble: str) -> None:
        self.tell(CleanupEnded(self.clock.wall(), what, label, trouble))


@dataclass(frozen=True, slots=True)
class FlowScope:
    """Where code stands."""

    run: Execution
    account: Account
    phase: str = ""
    task_id: str = ""
    """The agent whose tool or hook this is; empty in the flow itself."""


CURRENT: ContextVar[FlowScope | None] = ContextVar("jackline_flow_scope", default=None)


@contextmanager
def inside(scope: FlowScope) -> Iterator[None]:
    """Code in this block stands there, and so does what it starts."""
    token = CURRENT.set(scope)
    try:
        yield
    finally:
        CURRENT.reset(token)


def scope_for(what: str) -> FlowScope:
    """The current scope; UsageError naming `what` when no run is being carried here."""
    scope = CURRENT.get()
    if scope is None:
        raise UsageError(
            f"{what} works only inside a flow that is being run.",
            next="Mark the function with @flow; start it with jackline.run(…) or `jackline run`.",
        )
    return scope
