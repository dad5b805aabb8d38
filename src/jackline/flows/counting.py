"""Count how the agents of a run ended, and what they used.

Laws: (1) an agent counts once, whether it ended here or answers from the store; (2) pure.
Not here: budgets (budgets/), agents underway (underway.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from jackline.agents.outcome import Ending, Outcome, Tally, Usage
from jackline.flows.notebook import Used


class Counting:
    """The sums of one run in one process."""

    def __init__(self) -> None:
        self._usage = Usage()
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

    def used(self, underway: Iterable[Used]) -> tuple[Usage, float | None, int]:
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
