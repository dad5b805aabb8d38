"""Let calls rest outside the line: after failures in a row, and while a sibling writes a cache.

Rules: (1) the first failure may be chance and is tried again at once; each further one in a row
makes the rest longer, up to some seconds, never the same for two; (2) whoever rests keeps its place
in the order; its siblings do not notice; (3) a call whose answers are cut rests for longer
(losses.py), and may go meanwhile to a lane that has cut none of them; (4) calls that begin alike
wait for the first byte of the one that writes their common prefix to the prompt cache, each for
20 s in all at the most.
Not here: leaving a failing lane alone (health.py, lane.py), what is cached (prompt_caches.py).
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
        # By lane and prefix: who waits for its first byte.
        self._siblings: dict[tuple[str, str], list[Entry]] = {}

    def rest(self, entry: Entry, now: float, draw: float) -> None:
        """Let the call rest after so many failures in a row as it has met."""
        seconds = min(_LONGEST, _SHORTEST * 2.0 ** min(entry.outages - 2, 10))
        self.rest_for(entry, now, seconds * (0.5 + draw))

    def rest_for(self, entry: Entry, now: float, seconds: float) -> None:
        """Let the call rest for so long."""
        entry.rests_until = now + seconds
        heapq.heappush(self._heap, (entry.rests_until, entry.call.id, entry))

    def hold_sibling(self, entry: Entry, lane: str, now: float, until: float) -> bool:
        """Let a call wait for the prefix that a sibling writes; False if it has done so already."""
        if entry.sibling_until is not None:
            until = min(until, entry.sibling_until)
        entry.sibling_until = until
        if until <= now:
            return False
        entry.rests_until = until
        heapq.heappush(self._heap, (until, entry.call.id, entry))
        self._siblings.setdefault((lane, entry.call.prefix), []).append(entry)
        return True

    def siblings(self, lane: str, prefix: str) -> list[Entry]:
        """Those who waited for that prefix, now that it is written or will not be."""
        found = []
        for entry in self._siblings.pop((lane, prefix), ()):
            if entry.rests_until is not None and entry.rests_until == entry.sibling_until:
                entry.rests_until = None
                found.append(entry)
        return found

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
            if entry.sibling_until is not None:
                self._forget_sibling(entry)
            found.append(entry)
        return found

    def _forget_sibling(self, entry: Entry) -> None:
        for lane in entry.lanes:
            waiting = self._siblings.get((lane, entry.call.prefix))
            if waiting is not None and not any(each.rests_until is not None for each in waiting):
                del self._siblings[lane, entry.call.prefix]
