"""Know which attempts have been silent for longer than they may.

Laws: (1) an attempt that was heard meanwhile is not late: it gets a new deadline when the old one
comes; (2) what has ended is forgotten, so that a busy lane does not remember minutes of calls;
(3) hearing something costs nothing here.
Not here: how long an attempt may be silent (attempt.py), giving it up (controller.py).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from jackline.lanes.attempt import Attempt
from jackline.lanes.settings import Patience

_SPARE = 64


class Deadlines:
    """When to look at each attempt; `attempts` are those under way, by permit."""

    def __init__(self, attempts: Mapping[int, Attempt], patience: Patience) -> None:
        self._attempts = attempts
        self._patience = patience
        self._heap: list[tuple[float, int]] = []

    def watch(self, attempt: Attempt) -> None:
        """Look at the attempt when it has been silent for as long as it may be now."""
        patience = self._patience
        if len(self._heap) > _SPARE + 4 * len(self._attempts):
            # Most belong to attempts that have ended.
            self._heap = [(e.deadline(patience), e.permit) for e in self._attempts.values()]
            heapq.heapify(self._heap)
        place = (attempt.heard_at + attempt.patience(patience), attempt.permit)
        heapq.heappush(self._heap, place)

    def next_at(self) -> float:
        """When the next look is due, or infinity."""
        return self._heap[0][0] if self._heap else math.inf

    def late(self, now: float) -> Attempt | None:
        """An attempt that has been silent for too long, or None; to be asked until it is None."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, permit = heapq.heappop(heap)
            attempt = self._attempts.get(permit)
            if attempt is None:
                continue
            deadline = attempt.deadline(self._patience)
            if deadline <= now:
                return attempt
            heapq.heappush(heap, (deadline, permit))
        return None
