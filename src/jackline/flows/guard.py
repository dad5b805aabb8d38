"""Notice that agents fail alike, again and again, so that no more work is wasted on it.

Laws: (1) pure; (2) a success between two failures starts the count anew; (3) quota walls, cancels
and every limit that the user has set count neither way: they say nothing about the work.
Not here: stopping the run (execution.py).
"""

from __future__ import annotations

from typing import TypeAlias

from jackline.agents.outcome import Ending, Outcome

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


class Guard:
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
