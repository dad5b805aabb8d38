"""Count what all answers under way hold together, and break off the largest beyond a limit.

Rules: (1) an answer is in the count from its first large step until it is over, then not at all;
(2) beyond the limit, whoever holds most goes, until the others fit; (3) an answer that alone holds
anything is never broken off here: it has a limit of its own; (4) changes of less than a step are
not counted, so that small answers cost nothing.
"""

from __future__ import annotations

from typing import Protocol

STEP = 16 * 1024
_MOST = 512 * 1024 * 1024


class HoldingAnswer(Protocol):
    """An answer under way."""

    def break_off(self, most: int) -> None:
        """End it: all answers together hold more than this."""
        ...


class HeldAnswers:
    """What all answers under way hold; `most` may be changed at any time."""

    __slots__ = ("_sizes", "most", "total")

    def __init__(self, most: int = _MOST) -> None:
        self.most = most
        self.total = 0
        self._sizes: dict[HoldingAnswer, int] = {}

    def count(self, answer: HoldingAnswer, size: int) -> None:
        """An answer holds so much now, 0 once it is over; it may be broken off meanwhile."""
        sizes = self._sizes
        before = sizes.pop(answer, 0)
        self.total += size - before
        if size:
            sizes[answer] = size
        # Whoever lets go breaks nobody off: so no answer is broken off while another one ends.
        while size > before and self.total > self.most and len(sizes) > 1:
            largest = max(sizes, key=sizes.__getitem__)
            self.total -= sizes.pop(largest)
            largest.break_off(self.most)
