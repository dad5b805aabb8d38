"""Know what each agent of a run used in earlier processes, also before it began anew.

Laws: (1) what was used once counts for good: an agent that begins anew leaves what it had used in
the run's own notebook, in the same write that forgets its call; (2) who has begun once is one of
those that may begin, and is not counted again; (3) a fork counts nothing that another run has paid.
Not here: budgets (budgets/), what agents underway use here (underway.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from jackline.agents.task import JsonObject
from jackline.budgets.budget import Amount, Unit
from jackline.clock import Clock
from jackline.flows.engine import Claim, Engine
from jackline.flows.keys import call_key, task_id_of
from jackline.flows.notebook import used_before
from jackline.flows.outcome_json import decode_outcome
from jackline.flows.records import CallKind, CallRecord, CallState, EntryRecord

_ANEW = "flow:anew"


@dataclass(frozen=True, slots=True)
class Use:
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

    def __add__(self, other: Use) -> Use:
        return Use(
            self.tokens + other.tokens,
            self.dollars + other.dollars,
            self.turns + other.turns,
            self.seconds + other.seconds,
        )


class EarlierUse:
    """What the agents of one run used before this process carried it."""

    def __init__(self, engine: Engine, claim: Claim, clock: Clock) -> None:
        self._engine = engine
        self._claim = claim
        self._clock = clock
        self._name = task_id_of(claim.run_id, call_key(CallKind.STEP, "", "begun anew"), 0)
        self._lines = 0
        self._uses: dict[str, Use] = {}

    async def load(self, calls: Sequence[CallRecord]) -> None:
        """Read it from the run's calls, their notebooks, and what the forgotten ones left."""
        for line in await self._engine.entries(self._name):
            self._lines = line.number
            left = json.loads(line.data)
            # Older versions left no seconds.
            seconds = left.get("seconds", 0.0)
            use = Use(left["tokens"], left["dollars"], left["turns"], seconds)
            self._add(left["task_id"], use)
        for call in calls:
            if call.kind is CallKind.AGENT and call.started_at and self.paid_here(call):
                self._add(call.task_id, await self._of_call(call))

    def paid_here(self, call: CallRecord) -> bool:
        """Whether this run has paid for the call; a fork keeps calls that another run has."""
        return call.task_id == task_id_of(self._claim.run_id, call.key, call.occurrence)

    def of(self, task_id: str) -> Use | None:
        """What this agent has used; None when it has never begun."""
        return self._uses.get(task_id)

    @property
    def agents(self) -> int:
        """How many have begun."""
        return len(self._uses)

    @property
    def whole(self) -> Use:
        """What all of them have used."""
        return sum(self._uses.values(), Use())

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

    def _add(self, task_id: str, use: Use) -> None:
        self._uses[task_id] = self._uses.get(task_id, Use()) + use

    async def _of_call(self, call: CallRecord) -> Use:
        if call.state is CallState.RUNNING:
            # Cut off: its notebook knows what it used up to its last answer.
            used = used_before(await self._engine.entries(call.task_id))
            tokens, dollars = max(used.usage.total, call.tokens), max(used.dollars, call.cost)
            return Use(tokens, dollars, used.turns, used.seconds)
        return _of_ended(call)

    def _line(self, call: CallRecord, number: int) -> EntryRecord:
        use: JsonObject = asdict(_of_ended(call))
        data = json.dumps({"task_id": call.task_id, **use}).encode()
        return EntryRecord(self._name, number, _ANEW, data, self._clock.wall())


def _of_ended(call: CallRecord) -> Use:
    if call.outcome is None:
        return Use(call.tokens, call.cost)
    outcome = decode_outcome(call.outcome)
    return Use(call.tokens, call.cost, outcome.turns, outcome.duration)
