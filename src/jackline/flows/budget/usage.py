"""What the agents of a run have used, in tokens, dollars, turns and time, in all processes.

Rules: (1) an agent's own work is the time in which a runner runs it, less what it waits: for the
gate, for room in a budget, for a gateway that is gone, and while the gateway holds its calls; where
the gateway does not say how long it held them, that time counts as work; (2) a deadline is a moment
of the wall clock, and waiting does not move it; (3) what was used once counts for good, also when a
call begins anew; a fork counts nothing that another run has paid; (4) an agent counts once, and its
end adds only what was not saved before; (5) a crash costs a budget no more than what was used since
the last answer.
Not here: limits (budgets/), reserving the next call (flows/budget/reservations.py), ending work in
time (agents/runner.py).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TypeAlias

from jackline.agents.outcome import Ending, Evidence, Outcome, Tally, TokenUsage
from jackline.agents.runner import JsonObject, StopAgentError
from jackline.budgets.budget import Amount, Unit
from jackline.clock import Clock
from jackline.flows.records import (
    CallKind,
    CallRecord,
    CallState,
    EntryRecord,
    call_key,
    decode_outcome,
    task_id_of,
)
from jackline.flows.store.agent_log import AgentUsage, StoredAgentLog, usage_in
from jackline.flows.store.run_store import Claim, RunStore

Held: TypeAlias = Callable[[], Awaitable[float | None]]
"""Gives for how many seconds the gateway has held this agent's calls so far; None: unknown."""

# The gateway looks at its calls once a second: less than that is not worth a question.
_WORTH_ASKING = 1.0
_SHORTEST_LOOK = 0.1
# A wall clock may be set, and a machine may sleep: a deadline is looked at anew after a while.
_LONGEST_LOOK = 60.0


class WorkTime:
    """How long one agent has worked, in all processes."""

    def __init__(
        self,
        clock: Clock,
        held: Held | None,
        charge: Callable[[float], None],
        before: float = 0.0,
    ) -> None:
        """`held` is asked only where it is given: without a limit of time nobody needs it."""
        self._clock = clock
        self._held = held
        self._charge = charge
        self._worked = before
        self._charged = before
        self._since: float | None = None
        self._running = False
        self._waits = 0
        self._runner_waits = False
        self._held_before = 0.0
        self._not_asked = 0.0
        """Of what was worked, how much may still turn out to have been held."""

    async def begin(self) -> None:
        """A runner carries the agent from now on."""
        # Calls of earlier processes may have been held, too, and were counted there.
        self._held_before = await self._held_so_far() or 0.0
        self._running = True
        self._switch()

    def end(self) -> None:
        """The runner has come back."""
        self._running = False
        self._switch()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within this the agent waits, and does not work."""
        self._waits += 1
        self._switch()
        try:
            yield
        finally:
            self._waits -= 1
            self._switch()

    def set_waiting(self, waiting: bool) -> None:
        """The runner itself waits, or goes on."""
        self._runner_waits = waiting
        self._switch()

    async def deduct_held(self) -> None:
        """Ask the gateway how much of the time since the last question was no work."""
        self._add()
        if self._not_asked < _WORTH_ASKING:
            return
        held = await self._held_so_far()
        self._add()
        if held is None:
            return
        # A gateway that was started again counts from nothing.
        new = held - self._held_before if held >= self._held_before else held
        self._worked -= min(new, self._not_asked)
        self._held_before, self._not_asked = held, 0.0

    def count(self) -> float:
        """The seconds worked so far; what is new of them is charged."""
        self._add()
        new = self._worked - self._charged
        if new:
            self._charged = self._worked
            self._charge(new)
        return self._worked

    @property
    def seconds(self) -> float:
        """The seconds worked so far, as far as they are known to be work."""
        self._add()
        return self._worked

    async def _held_so_far(self) -> float | None:
        return None if self._held is None else await self._held()

    def _switch(self) -> None:
        self._add()
        works = self._running and not self._waits and not self._runner_waits
        self._since = self._clock.monotonic() if works else None

    def _add(self) -> None:
        if self._since is None:
            return
        now = self._clock.monotonic()
        self._worked += now - self._since
        self._not_asked += now - self._since
        self._since = now


class Deadline:
    """A moment of the wall clock; an `agents.ports.TimeLimit`."""

    def __init__(self, clock: Clock, due: float) -> None:
        self._clock = clock
        self._due = due

    @property
    def left(self) -> float:
        """Seconds until then."""
        return self._due - self._clock.wall()

    def stop(self) -> StopAgentError:
        """What ends the agent then."""
        moment = datetime.fromtimestamp(self._due, UTC)
        says = f"The agent's deadline has passed: {moment:%Y-%m-%d %H:%M:%S} UTC."
        return StopAgentError(Ending.DEADLINE, Evidence(says=says))

    async def reached(self) -> StopAgentError:
        """Returns at the deadline."""
        while (left := self.left) > 0:
            await self._clock.sleep(min(left, _LONGEST_LOOK))
        return self.stop()


class TimeLimits:
    """All that limits one agent's time; an `agents.ports.TimeLimit`."""

    def __init__(
        self, clock: Clock, work: WorkTime, timeout: float | None, deadline: Deadline | None
    ) -> None:
        self._clock = clock
        self._work = work
        self._timeout = timeout
        self.deadline = deadline

    async def over(self) -> StopAgentError | None:
        """What ends the agent now; None while it may go on."""
        if self.deadline is not None and self.deadline.left <= 0:
            return self.deadline.stop()
        if self._timeout is None or self._work.seconds < self._timeout:
            return None
        await self._work.deduct_held()
        if self._work.seconds < self._timeout:
            return None
        says = f"The agent has worked for {self._timeout:g} s, which is all that it may."
        return StopAgentError(Ending.TIMEOUT, Evidence(says=says))

    async def reached(self) -> StopAgentError:
        """Returns when one of the limits is reached."""
        while True:
            stop = await self.over()
            if stop is not None:
                return stop
            await self._clock.sleep(self._next_look())

    def _next_look(self) -> float:
        look = _LONGEST_LOOK
        if self._timeout is not None:
            look = min(look, max(_SHORTEST_LOOK, self._timeout - self._work.seconds))
        if self.deadline is not None:
            look = min(look, self.deadline.left)
        return look


class AgentTotals:
    """The sums of one run in one process."""

    def __init__(self) -> None:
        self._usage = TokenUsage()
        self._cost: float | None = None
        self._turns = 0
        self._replayed = 0
        self._ok = 0
        self._endings: Counter[Ending] = Counter()

    def ended(self, outcome: Outcome[object], *, replayed: bool) -> None:
        """An agent has ended, here or, `replayed`, in an earlier process."""
        self._replayed += replayed
        self._ok += outcome.ok
        if not outcome.ok:
            self._endings[outcome.terminated_by] += 1
        self._usage += outcome.usage
        self._turns += outcome.turns
        if outcome.cost is not None:
            self._cost = (self._cost or 0.0) + outcome.cost

    def used(self, underway: Iterable[AgentUsage]) -> tuple[TokenUsage, float | None, int]:
        """Tokens, dollars and turns of all that have ended, and of these that have not."""
        usage, cost, turns = self._usage, self._cost, self._turns
        for each in underway:
            usage, turns = usage + each.usage, turns + each.turns
            if each.dollars:
                cost = (cost or 0.0) + each.dollars
        return usage, cost, turns

    def tally(self, unfinished: int) -> Tally:
        """How they ended so far."""
        failed = self._endings.total()
        endings = tuple(self._endings.most_common())
        return Tally(self._ok + failed, self._ok, failed, self._replayed, endings, unfinished)


_ANEW = "flow:anew"


@dataclass(frozen=True, slots=True)
class PastUsage:
    """What was used."""

    tokens: int = 0
    dollars: float = 0.0
    turns: int = 0
    seconds: float = 0.0
    """Of own work."""

    @property
    def amount(self) -> Amount:
        """The same, as accounts count it."""
        return {
            Unit.TOKENS: self.tokens,
            Unit.DOLLARS: self.dollars,
            Unit.TURNS: self.turns,
            Unit.SECONDS: self.seconds,
        }

    def __add__(self, other: PastUsage) -> PastUsage:
        return PastUsage(
            self.tokens + other.tokens,
            self.dollars + other.dollars,
            self.turns + other.turns,
            self.seconds + other.seconds,
        )


class PastUsageByAgent:
    """What the agents of one run used before this process carried it."""

    def __init__(self, engine: RunStore, claim: Claim, clock: Clock) -> None:
        self._engine = engine
        self._claim = claim
        self._clock = clock
        self._name = task_id_of(claim.run_id, call_key(CallKind.STEP, "", "begun anew"), 0)
        self._lines = 0
        self._uses: dict[str, PastUsage] = {}

    async def load(self, calls: Sequence[CallRecord]) -> None:
        """Read it from the run's calls, their notebooks, and what the forgotten ones left."""
        for line in await self._engine.entries(self._name):
            self._lines = line.number
            left = json.loads(line.data)
            # Older versions left no seconds.
            seconds = left.get("seconds", 0.0)
            use = PastUsage(left["tokens"], left["dollars"], left["turns"], seconds)
            self._add(left["task_id"], use)
        for call in calls:
            if call.kind is CallKind.AGENT and call.started_at and self.paid_here(call):
                self._add(call.task_id, await self._of_call(call))

    def paid_here(self, call: CallRecord) -> bool:
        """Whether this run has paid for the call; a fork keeps calls that another run has."""
        return call.task_id == task_id_of(self._claim.run_id, call.key, call.occurrence)

    def of(self, task_id: str) -> PastUsage | None:
        """What this agent has used; None when it has never begun."""
        return self._uses.get(task_id)

    @property
    def agents(self) -> int:
        """How many have begun."""
        return len(self._uses)

    @property
    def whole(self) -> PastUsage:
        """What all of them have used."""
        return sum(self._uses.values(), PastUsage())

    async def forget(self, calls: Iterable[CallRecord]) -> None:
        """Let these calls begin anew; what they have used stays told."""
        given = list(calls)
        lines = []
        for call in given:
            if call.kind is CallKind.AGENT and call.started_at:
                self._lines += 1
                lines.append(self._line(call, self._lines))
        names = [(call.key, call.occurrence) for call in given]
        await self._engine.forget_calls(self._claim, names, leaving=lines)

    def _add(self, task_id: str, use: PastUsage) -> None:
        self._uses[task_id] = self._uses.get(task_id, PastUsage()) + use

    async def _of_call(self, call: CallRecord) -> PastUsage:
        if call.state is CallState.RUNNING:
            # Cut off: its notebook knows what it used up to its last answer.
            used = usage_in(await self._engine.entries(call.task_id))
            tokens, dollars = max(used.usage.total, call.tokens), max(used.dollars, call.cost)
            return PastUsage(tokens, dollars, used.turns, used.seconds)
        return _of_ended(call)

    def _line(self, call: CallRecord, number: int) -> EntryRecord:
        use: JsonObject = asdict(_of_ended(call))
        data = json.dumps({"task_id": call.task_id, **use}).encode()
        return EntryRecord(self._name, number, _ANEW, data, self._clock.wall())


def _of_ended(call: CallRecord) -> PastUsage:
    if call.outcome is None:
        return PastUsage(call.tokens, call.cost)
    outcome = decode_outcome(call.outcome)
    return PastUsage(call.tokens, call.cost, outcome.turns, outcome.duration)


CallName: TypeAlias = tuple[str, int]


class ActiveAgents:
    """The agents of one run that have begun in this process and not ended."""

    def __init__(self, engine: RunStore, claim: Claim, known: dict[CallName, CallRecord]) -> None:
        self._engine = engine
        self._claim = claim
        self._known = known
        self._notebooks: dict[CallName, StoredAgentLog] = {}
        self._timed: dict[StoredAgentLog, WorkTime] = {}

    def add(self, name: CallName, notebook: StoredAgentLog) -> None:
        """An agent has begun."""
        self._notebooks[name] = notebook

    def remove(self, name: CallName) -> StoredAgentLog | None:
        """It ends: what it used is kept with its end."""
        notebook = self._notebooks.pop(name, None)
        if notebook is not None:
            self._timed.pop(notebook, None)
        return notebook

    def time(self, notebook: StoredAgentLog, work: WorkTime) -> None:
        """The time of this one is limited: it is kept now and then."""
        self._timed[notebook] = work

    def is_timed(self, notebook: StoredAgentLog) -> bool:
        """Whether its time is limited."""
        return notebook in self._timed

    async def keep(self) -> None:
        """Keep what all of them have used by now, for other processes and after a crash."""
        await asyncio.gather(*(work.deduct_held() for work in self._timed.values()))
        for timed in self._timed:
            timed.keep_time()
        # All at once, so that they are one write.
        await asyncio.gather(*(self._keep(name) for name in self._notebooks))

    @property
    def books(self) -> Iterable[StoredAgentLog]:
        """All notebooks that are being written."""
        return set(self._notebooks.values())

    @property
    def used(self) -> list[AgentUsage]:
        """What each has used, in all processes."""
        return [notebook.used for notebook in self._notebooks.values()]

    def not_in_ledger(self) -> tuple[int, float]:
        """Tokens and dollars that were used and are not kept yet."""
        tokens, dollars = 0, 0.0
        for name, notebook in self._notebooks.items():
            call = self._known[name]
            tokens += max(0, notebook.used.usage.total - call.tokens)
            dollars += max(0.0, notebook.used.dollars - call.cost)
        return tokens, dollars

    async def _keep(self, name: CallName) -> None:
        notebook, call = self._notebooks.get(name), self._known[name]
        if notebook is None:
            return  # it has just ended, and its end tells all
        tokens, dollars = notebook.used.usage.total, notebook.used.dollars
        if tokens > call.tokens or dollars > call.cost:
            call = self._known[name] = replace(call, tokens=tokens, cost=dollars)
            await self._engine.begin_call(self._claim, call)
