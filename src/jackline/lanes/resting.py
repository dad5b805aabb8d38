"""Let a call rest after its provider failed it, so that it does not fail ten times in a moment.

Rules: (1) the first failure may be chance and is tried again at once; each further one in a row
makes the rest longer, up to some seconds, never the same for two; (2) whoever rests keeps its place
in the order; (3) its siblings do not notice.
Not here: leaving a failing lane alone (health.py, lane.py).
"""

from __future__ import annotations

import heapq
import math

from jackline.lanes.queue import Entry

_SHORTEST = 0.1
_LONGEST = 2.0


class Resting:
    """The calls that rest, by when they have rested enough."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Entry]] = []

    def rest(self, entry: Entry, now: float, draw: float) -> None:
        """Let the call rest after so many failures in a row as it has met."""
        seconds = min(_LONGEST, _SHORTEST * 2.0 ** min(entry.outages - 2, 10))
        entry.rests_until = now + seconds * (0.5 + draw)
        heapq.heappush(self._heap, (entry.rests_until, entry.call.id, entry))

    def leave(self, entry: Entry) -> None:
        """The call is not wanted any more; its place is cleared when it comes up."""
        entry.rests_until = None

    def next_at(self) -> float:
        """When the next one has rested enough, or infinity."""
        heap = self._heap
        while heap and heap[0][2].rests_until != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def rested(self, now: float) -> list[Entry]:
        """Those who have rested enough."""
        found = []
        while self.next_at() <= now:
            entry = heapq.heappop(self._heap)[2]
            entry.rests_until = None
            found.append(entry)
        return found
