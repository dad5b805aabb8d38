"""Know which attempts have been silent for longer than they may.

Rules: (1) an attempt that was heard meanwhile is not late: it gets a new deadline when the old one
comes; (2) what has ended is forgotten, so that a busy lane does not remember minutes of calls;
(3) hearing something costs nothing here.
Not here: how long an attempt may be silent (patience.py), what follows (controller.py).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping

from jackline.lanes.attempt import Attempt

_SPARE = 64


class Deadlines:
    """When to look at each attempt.

    `attempts` are those under way, by permit; `limit` says how long one may be silent by now.
    """

    def __init__(
        self, attempts: Mapping[int, Attempt], limit: Callable[[Attempt, float], float]
    ) -> None:
        self._attempts = attempts
        self._limit = limit
        self._heap: list[tuple[float, int]] = []

    def watch(self, attempt: Attempt, now: float) -> None:
        """Look at the attempt when it has been silent for as long as it may be now."""
        self.look_at(attempt, attempt.heard_at + self._limit(attempt, now))

    def look_at(self, attempt: Attempt, at: float) -> None:
        """Look at the attempt at that time, if it is still late then."""
        heap = self._heap
        if len(heap) > _SPARE + 4 * len(self._attempts):
            # Most belong to attempts that have ended, or were heard since.
            earliest: dict[int, float] = {}
            for due, permit in heap:
                if permit in self._attempts and due < earliest.get(permit, math.inf):
                    earliest[permit] = due
            self._heap = heap = [(due, permit) for permit, due in earliest.items()]
            heapq.heapify(heap)
        heapq.heappush(heap, (at, attempt.permit))

    def next_at(self) -> float:
        """When the next look is due, or infinity."""
        return self._heap[0][0] if self._heap else math.inf

    def late(self, now: float) -> Attempt | None:
        """An attempt that has been silent for too long, or None; to be asked until it is None.

        It is not looked at again unless somebody says when.
        """
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, permit = heapq.heappop(heap)
            attempt = self._attempts.get(permit)
            if attempt is None:
                continue
            deadline = attempt.heard_at + self._limit(attempt, now)
            if deadline <= now:
                return attempt
            heapq.heappush(heap, (deadline, permit))
        return None
