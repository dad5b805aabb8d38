"""Order the calls that wait, so that nobody starves and no prompt cache is lost for nothing.

Rules: (1) a call keeps its place when it is sent and comes back; (2) where nothing is known of
caches the most urgent goes first: every second of waiting counts as a longer remaining path, the
same for all, so the order never changes while they wait; (3) where caches are in use, calls go by
class: those that have waited for very long, then those whose cache is about to lapse, then the warm
ones, then those that lost theirs, then new conversations; (4) a warm call that waits for too long
becomes a lapsed one; (5) beside it stands a second order, of those whose clients leave soon, the
earliest first; (6) each operation costs at most the logarithm of the number waiting.
Not here: which order counts (waiting_room.py), whether a call may be sent (lane.py), what is cached
(prompt_caches.py).
"""

from __future__ import annotations

import heapq
import math
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import msgspec

from jackline.failures import Failure
from jackline.lanes.decision import Call
from jackline.lanes.prompt_caches import Standing

# In seconds. Who has waited for so long may go out of turn, and so may a cache that will lapse.
AGED_AFTER = 600.0
CLOSING_WITHIN = 120.0


class Rank(IntEnum):
    """The class of a waiting call; smaller goes first.

    Where no prompt caches are in use all are NORMAL, but for those whose clients leave soon.
    """

    LEAVING = 0
    AGED = 1
    CLOSING = 2
    NORMAL = 3
    LAPSED = 4
    NEW = 5


class Entry(msgspec.Struct):
    """One call, where it stands, and what it has met so far.

    `lanes` are those it may still go to: the call's own, less those that refused it for good.
    """

    call: Call
    lanes: tuple[str, ...]
    urgency: float
    waiting: bool = True
    ticket: int = 0
    # When it was asked for.
    since: float = 0.0
    # What was cached of its conversation when it began to wait, and until when.
    standing: Standing = Standing.PLAIN
    cached_until: float = 0.0
    # The lanes that it stands in line for, while it waits.
    line: tuple[str, ...] = ()
    attempts: int = 0
    last_failure: Failure | None = None
    alike: int = 0
    # How often in a row the provider failed it, and how often its stream froze.
    outages: int = 0
    freezes: int = 0
    # How many of its attempts were accepted and lost, on which lanes, and what they have cost.
    lost: int = 0
    lost_on: tuple[str, ...] = ()
    lost_tokens: int = 0
    rests_until: float | None = None
    # Until when it may be held for the sake of a prefix that a sibling writes.
    sibling_until: float | None = None


class Head(NamedTuple):
    """Whose turn it is in a queue; heads of several queues are compared as they are."""

    rank: Rank
    key: float
    id: int
    entry: Entry


_Place: TypeAlias = tuple[float, int, int, Entry]


class Unusual:
    """How many calls wait, in all queues of a room, that do not simply go by urgency."""

    __slots__ = ("leaving", "ranked")

    def __init__(self) -> None:
        # Those that caches have something to do with, and those whose clients leave.
        self.ranked = 0
        self.leaving = 0


class Queue:
    """Calls that may go to the same lanes, in order; both ends are quick to reach."""

    def __init__(self, unusual: Unusual | None = None) -> None:
        self._unusual = unusual or Unusual()
        # By urgency: all calls of the rank NORMAL, those that lost their cache, and new ones.
        self._normal: list[_Place] = []
        self._lapsed: list[_Place] = []
        self._new: list[_Place] = []
        # By the end of their cache, and by when they were asked for; plain calls are in neither.
        self._warm: list[_Place] = []
        self._oldest: list[_Place] = []
        self._last: list[_Place] = []
        # Those whose clients leave: by when they begin to hurry, and then by when they leave.
        self._patient: list[_Place] = []
        self._hurrying: list[_Place] = []
        self.waiting = 0
        # How many of those that wait are not plain.
        self._ranked = 0

    def push(self, entry: Entry) -> None:
        """Let a call wait; the places of its earlier waits become void."""
        entry.waiting = True
        entry.ticket += 1
        self.waiting += 1
        self._place(entry)
        heapq.heappush(self._last, (-entry.urgency, -entry.call.id, entry.ticket, entry))
        if entry.standing is not Standing.PLAIN:
            self._ranked += 1
            self._unusual.ranked += 1
            heapq.heappush(self._oldest, (entry.since, entry.call.id, entry.ticket, entry))
        if entry.call.hurries_at != math.inf:
            self._unusual.leaving += 1
            place = (entry.call.hurries_at, entry.call.id, entry.ticket, entry)
            heapq.heappush(self._patient, place)

    def remove(self, entry: Entry) -> None:
        """Take a call out; its places in the heaps are cleared when they come up."""
        entry.waiting = False
        self.waiting -= 1
        self._normal = self._tidied(self._normal)
        self._last = self._tidied(self._last)
        if entry.standing is not Standing.PLAIN:
            self._ranked -= 1
            self._unusual.ranked -= 1
            self._lapsed = self._tidied(self._lapsed)
            self._new = self._tidied(self._new)
            self._warm = self._tidied(self._warm)
            self._oldest = self._tidied(self._oldest)
        if entry.call.hurries_at != math.inf:
            self._unusual.leaving -= 1
            self._patient = self._tidied(self._patient)
            self._hurrying = self._tidied(self._hurrying)

    def head(self, now: float, *, aged: bool, crowded: bool) -> Head | None:
        """Whose turn it is.

        `aged` lets those go first that have waited for very long; `crowded` says that on the same
        lane some wait, here or in another queue, that new conversations must not go before.
        """
        if not self._ranked:
            return _ranked(Rank.NORMAL, _head(self._normal))
        self._let_lapse(now)
        if aged:
            oldest = _head(self._oldest)
            if oldest is not None and oldest.since <= now - AGED_AFTER:
                return Head(Rank.AGED, oldest.since, oldest.call.id, oldest)
        warm = _head(self._warm)
        if warm is not None and warm.cached_until - now < CLOSING_WITHIN:
            return Head(Rank.CLOSING, warm.cached_until, warm.call.id, warm)
        normal = _ranked(Rank.NORMAL, _head(self._normal))
        new = _head(self._new)
        if new is not None and not crowded:
            fresh = Head(Rank.NORMAL, new.urgency, new.call.id, new)
            return fresh if normal is None or fresh < normal else normal
        return normal or _ranked(Rank.LAPSED, _head(self._lapsed)) or _ranked(Rank.NEW, new)

    def most_urgent(self) -> Entry | None:
        """Whose turn it is while nobody waits that does not simply go by urgency."""
        return _head(self._normal)

    def is_crowded(self, now: float) -> bool:
        """Whether a call waits whose cache is about to lapse, or has."""
        if not self._ranked:
            return False
        self._let_lapse(now)
        if _head(self._lapsed) is not None:
            return True
        warm = _head(self._warm)
        return warm is not None and warm.cached_until - now < CLOSING_WITHIN

    def changes_at(self, now: float, next_aged: float) -> float:
        """When somebody's class will be another one; infinity if only an event can change it."""
        if not self._ranked:
            return math.inf
        at = math.inf
        warm = _head(self._warm)
        if warm is not None:
            closing_at = warm.cached_until - CLOSING_WITHIN
            at = closing_at if closing_at > now else warm.cached_until
        oldest = _head(self._oldest)
        if oldest is not None:
            at = min(at, max(oldest.since + AGED_AFTER, next_aged))
        return at if at > now else math.inf

    def everyone(self) -> list[Entry]:
        """All who wait, in no order; costs as much as there are."""
        return [place[3] for place in self._last if _stands(place)]

    @property
    def may_hurry(self) -> bool:
        """Whether anyone waits whose client leaves."""
        return bool(self._patient or self._hurrying)

    def leaves_first(self, now: float) -> Head | None:
        """Whose client leaves first, of those that hurry by now."""
        patient = self._patient
        while patient and patient[0][0] <= now:
            place = heapq.heappop(patient)
            if _stands(place):
                entry = place[3]
                hurrying = (entry.call.leaves_at, entry.call.id, entry.ticket, entry)
                heapq.heappush(self._hurrying, hurrying)
        first = _head(self._hurrying)
        if first is None:
            return None
        return Head(Rank.LEAVING, first.call.leaves_at, first.call.id, first)

    def least_urgent(self) -> Entry | None:
        """Who can best be spared for a probe."""
        return _head(self._last)

    def _place(self, entry: Entry) -> None:
        standing = entry.standing
        if standing is Standing.LAPSED:
            heap = self._lapsed
        elif standing is Standing.NEW:
            heap = self._new
        else:
            heap = self._normal
            if standing is Standing.WARM:
                heapq.heappush(self._warm, (entry.cached_until, entry.call.id, entry.ticket, entry))
        heapq.heappush(heap, (entry.urgency, entry.call.id, entry.ticket, entry))

    def _let_lapse(self, now: float) -> None:
        while (entry := _head(self._warm)) is not None and entry.cached_until <= now:
            self.remove(entry)
            entry.standing = Standing.LAPSED
            self.push(entry)

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


def _ranked(rank: Rank, entry: Entry | None) -> Head | None:
    return None if entry is None else Head(rank, entry.urgency, entry.call.id, entry)
