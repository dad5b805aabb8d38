"""Order the calls that wait, the most urgent first, so that nobody starves.

Laws: (1) a call keeps its place when it is sent and comes back; (2) every second of waiting counts
as a longer remaining path, the same for all, so the order never changes while they wait; (3) beside
it stands a second order, of those whose clients leave soon, the earliest first; (4) each operation
costs at most the logarithm of the number waiting.
Not here: which order counts (waiting_room.py), whether a call may be sent (lane.py).
"""

from __future__ import annotations

import heapq
import math
from typing import TypeAlias

import msgspec

from jackline.failures import Failure
from jackline.lanes.decision import Call


class Entry(msgspec.Struct):
    """One call, where it stands, and what it has met so far.

    `lanes` are those it may still go to: the call's own, less those that refused it for good.
    """

    call: Call
    lanes: tuple[str, ...]
    urgency: float
    waiting: bool = True
    ticket: int = 0
    # The lanes that it stands in line for, while it waits.
    line: tuple[str, ...] = ()
    attempts: int = 0
    last_failure: Failure | None = None
    alike: int = 0
    # How often in a row the provider failed it, and how often its stream froze.
    outages: int = 0
    freezes: int = 0
    rests_until: float | None = None


_Place: TypeAlias = tuple[float, int, int, Entry]


class Queue:
    """Calls that may go to the same lanes, ordered by urgency; both ends are quick to reach."""

    def __init__(self) -> None:
        self._first: list[_Place] = []
        self._last: list[_Place] = []
        # Those whose clients leave: by when they begin to hurry, and then by when they leave.
        self._patient: list[_Place] = []
        self._hurrying: list[_Place] = []
        self.waiting = 0

    def push(self, entry: Entry) -> None:
        """Let a call wait; the places of its earlier waits become void."""
        entry.waiting = True
        entry.ticket += 1
        self.waiting += 1
        heapq.heappush(self._first, (entry.urgency, entry.call.id, entry.ticket, entry))
        heapq.heappush(self._last, (-entry.urgency, -entry.call.id, entry.ticket, entry))
        if entry.call.hurries_at != math.inf:
            place = (entry.call.hurries_at, entry.call.id, entry.ticket, entry)
            heapq.heappush(self._patient, place)

    def remove(self, entry: Entry) -> None:
        """Take a call out; its places in the heaps are cleared when they come up."""
        entry.waiting = False
        self.waiting -= 1
        self._first = self._tidied(self._first)
        self._last = self._tidied(self._last)
        if self._patient or self._hurrying:
            self._patient = self._tidied(self._patient)
            self._hurrying = self._tidied(self._hurrying)

    def most_urgent(self) -> Entry | None:
        """Whose turn it is."""
        return _head(self._first)

    @property
    def may_hurry(self) -> bool:
        """Whether anyone waits whose client leaves."""
        return bool(self._patient or self._hurrying)

    def leaves_first(self, now: float) -> Entry | None:
        """Whose client leaves first, of those that hurry by now."""
        patient = self._patient
        while patient and patient[0][0] <= now:
            place = heapq.heappop(patient)
            if _stands(place):
                entry = place[3]
                hurrying = (entry.call.leaves_at, entry.call.id, entry.ticket, entry)
                heapq.heappush(self._hurrying, hurrying)
        return _head(self._hurrying)

    def least_urgent(self) -> Entry | None:
        """Who can best be spared for a probe."""
        return _head(self._last)

    def _tidied(self, heap: list[_Place]) -> list[_Place]:
        # A heap whose void places outnumber the living is rebuilt; amortised this costs nothing.
        if len(heap) <= 2 * self.waiting + 64:
            return heap
        living = [place for place in heap if _stands(place)]
        heapq.heapify(living)
        return living


def _stands(place: _Place) -> bool:
    entry = place[3]
    return entry.waiting and entry.ticket == place[2]


def _head(heap: list[_Place]) -> Entry | None:
    while heap and not _stands(heap[0]):
        heapq.heappop(heap)
    return heap[0][3] if heap else None
