"""Order the calls that wait, so that none starves and no prompt cache is lost without need.

Rules: (1) calls with the same lanes in the same order share one queue; on a lane the first of all
its queues goes first; a call that has to wait again has its old place; (2) without caches the most
urgent call goes first: each second of waiting counts as a longer remaining path; (3) with caches
calls go by `Rank`; a warm one that waits too long becomes a lapsed one; (4) calls whose clients
leave soon go first, but at most every second time on a lane; (5) a call that failed is retried at
once, then after ever longer pauses, never the same for two calls; lost answers make them longer,
and none is hopeless: its own hold limits end it; (6) calls with the same prefix wait for the first
byte of the one that writes it to the cache, at most 20 s in all; (7) an operation costs at most the
logarithm of the number of waiting calls.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import msgspec

from jackline.failures import Failure
from jackline.lane_id import LaneId
from jackline.lanes.call import Call
from jackline.lanes.prompt_caches import CacheState, prompt_tokens

# In seconds. Who has waited for so long may go out of turn, and so may a cache that will lapse.
AGED_AFTER = 600.0
CLOSING_WITHIN = 120.0
# Pauses of a call whose answers were lost.
_SHORTEST_PAUSE = 1.0
_LONG_PAUSE = 60.0
_LONGEST_PAUSE = 600.0
# An outage of a minute takes about so many losses.
_MOST_LOSSES = 6
_MOST_PROMPTS = 3.0
# Of tokens: so little is worth another try.
_CHEAP = 50_000


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


class QueueEntry(msgspec.Struct):
    """One call, its place in the queues, and what happened to it so far.

    `lanes` are those it may still go to; those in `refused_by` refused it for good, the last with
    `refusal`, and are never among them again.
    """

    call: Call
    lanes: tuple[LaneId, ...]
    urgency: float
    refused_by: tuple[LaneId, ...] = ()
    refusal: Failure | None = None
    waiting: bool = True
    ticket: int = 0
    # When it was asked for.
    since: float = 0.0
    # What was cached of its conversation when it began to wait, and until when.
    cache_state: CacheState = CacheState.PLAIN
    cached_until: float = 0.0
    # The lanes that it is queued for, while it waits.
    line: tuple[LaneId, ...] = ()
    attempts: int = 0
    last_failure: Failure | None = None
    alike: int = 0
    # How often in a row the provider failed it, and how often its stream froze.
    outages: int = 0
    freezes: int = 0
    # How many of its attempts were accepted and lost, on which lanes, and what they have cost.
    lost: int = 0
    lost_on: tuple[LaneId, ...] = ()
    lost_tokens: int = 0
    rests_until: float | None = None
    # Until when it may be held for the sake of a prefix that a sibling writes.
    sibling_until: float | None = None

    def count_loss(self, lane: LaneId, tokens: int) -> None:
        """An attempt was accepted on that lane, has cost so many tokens, and is lost."""
        self.lost += 1
        self.lost_tokens += tokens
        if lane not in self.lost_on:
            self.lost_on += (lane,)

    @property
    def has_lost_enough(self) -> bool:
        """Whether the next attempts are to be rare, or on another lane."""
        costly = max(_CHEAP, _MOST_PROMPTS * prompt_tokens(self.call))
        return self.lost >= _MOST_LOSSES or self.lost_tokens >= costly

    def pause_after_loss(self, draw: float) -> float:
        """How long the call rests after its latest loss; no two rest for the same time."""
        if self.lost <= 1:
            return 0.0
        shortest = _LONG_PAUSE if self.has_lost_enough else _SHORTEST_PAUSE
        doubled = _SHORTEST_PAUSE * 2.0 ** min(self.lost - 2, 20)
        return min(max(shortest, doubled), _LONGEST_PAUSE) * (0.75 + 0.5 * draw)

    def loss_text(self) -> str:
        """What happened to the call, what that has cost, and what can be done."""
        times = "1 answer" if self.lost == 1 else f"{self.lost} answers"
        paid = f", with {self.lost_tokens:,} tokens" if self.lost_tokens else ""
        lanes = ", ".join(map(str, self.lost_on))
        text = (
            f"{times} to it began on {lanes} and broke off{paid}; it is asked again after a pause"
        )
        if not self.has_lost_enough:
            return text
        return f"{text}; see what cuts the connection, or name another upstream to fall back on"


class QueueHead(NamedTuple):
    """Whose turn it is in a queue; heads of several queues are compared as they are."""

    rank: Rank
    key: float
    id: int
    entry: QueueEntry


_Place: TypeAlias = tuple[float, int, int, QueueEntry]


class SpecialCallCounts:
    """How many calls wait, in all queues of a controller, that do not simply go by urgency."""

    __slots__ = ("leaving", "ranked")

    def __init__(self) -> None:
        # Those that caches have something to do with, and those whose clients leave.
        self.ranked = 0
        self.leaving = 0


class Queue:
    """Calls that may go to the same lanes, in order; both ends are quick to reach."""

    def __init__(self, unusual: SpecialCallCounts | None = None) -> None:
        self._unusual = unusual or SpecialCallCounts()
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

    def push(self, entry: QueueEntry) -> None:
        """Let a call wait; the places of its earlier waits become void."""
        entry.waiting = True
        entry.ticket += 1
        self.waiting += 1
        self._place(entry)
        heapq.heappush(self._last, (-entry.urgency, -entry.call.id, entry.ticket, entry))
        if entry.cache_state is not CacheState.PLAIN:
            self._ranked += 1
            self._unusual.ranked += 1
            heapq.heappush(self._oldest, (entry.since, entry.call.id, entry.ticket, entry))
        if entry.call.hurries_at != math.inf:
            self._unusual.leaving += 1
            place = (entry.call.hurries_at, entry.call.id, entry.ticket, entry)
            heapq.heappush(self._patient, place)

    def remove(self, entry: QueueEntry) -> None:
        """Take a call out; its places in the heaps are cleared when they come up."""
        entry.waiting = False
        self.waiting -= 1
        self._normal = self._tidied(self._normal)
        self._last = self._tidied(self._last)
        if entry.cache_state is not CacheState.PLAIN:
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

    def head(self, now: float, *, aged: bool, crowded: bool) -> QueueHead | None:
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
                return QueueHead(Rank.AGED, oldest.since, oldest.call.id, oldest)
        warm = _head(self._warm)
        if warm is not None and warm.cached_until - now < CLOSING_WITHIN:
            return QueueHead(Rank.CLOSING, warm.cached_until, warm.call.id, warm)
        normal = _ranked(Rank.NORMAL, _head(self._normal))
        new = _head(self._new)
        if new is not None and not crowded:
            fresh = QueueHead(Rank.NORMAL, new.urgency, new.call.id, new)
            return fresh if normal is None or fresh < normal else normal
        return normal or _ranked(Rank.LAPSED, _head(self._lapsed)) or _ranked(Rank.NEW, new)

    def most_urgent(self) -> QueueEntry | None:
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

    def everyone(self) -> list[QueueEntry]:
        """All who wait, in no order; costs as much as there are."""
        return [place[3] for place in self._last if _is_current(place)]

    @property
    def may_hurry(self) -> bool:
        """Whether anyone waits whose client leaves."""
        return bool(self._patient or self._hurrying)

    def leaves_first(self, now: float) -> QueueHead | None:
        """Whose client leaves first, of those that hurry by now."""
        patient = self._patient
        while patient and patient[0][0] <= now:
            place = heapq.heappop(patient)
            if _is_current(place):
                entry = place[3]
                hurrying = (entry.call.leaves_at, entry.call.id, entry.ticket, entry)
                heapq.heappush(self._hurrying, hurrying)
        first = _head(self._hurrying)
        if first is None:
            return None
        return QueueHead(Rank.LEAVING, first.call.leaves_at, first.call.id, first)

    def least_urgent(self) -> QueueEntry | None:
        """Who can best be spared for a probe."""
        return _head(self._last)

    def _place(self, entry: QueueEntry) -> None:
        cache_state = entry.cache_state
        if cache_state is CacheState.LAPSED:
            heap = self._lapsed
        elif cache_state is CacheState.NEW:
            heap = self._new
        else:
            heap = self._normal
            if cache_state is CacheState.WARM:
                heapq.heappush(self._warm, (entry.cached_until, entry.call.id, entry.ticket, entry))
        heapq.heappush(heap, (entry.urgency, entry.call.id, entry.ticket, entry))

    def _let_lapse(self, now: float) -> None:
        while (entry := _head(self._warm)) is not None and entry.cached_until <= now:
            self.remove(entry)
            entry.cache_state = CacheState.LAPSED
            self.push(entry)

    def _tidied(self, heap: list[_Place]) -> list[_Place]:
        # A heap whose void places outnumber the living is rebuilt; amortised this costs nothing.
        if len(heap) <= 2 * self.waiting + 64:
            return heap
        living = [place for place in heap if _is_current(place)]
        heapq.heapify(living)
        return living


def _is_current(place: _Place) -> bool:
    entry = place[3]
    return entry.waiting and entry.ticket == place[2]


def _head(heap: list[_Place]) -> QueueEntry | None:
    while heap and not _is_current(heap[0]):
        heapq.heappop(heap)
    return heap[0][3] if heap else None


def _ranked(rank: Rank, entry: QueueEntry | None) -> QueueHead | None:
    return None if entry is None else QueueHead(rank, entry.urgency, entry.call.id, entry)


class CallQueues:
    """All queues; a lane must be opened before calls can wait for it."""

    def __init__(self) -> None:
        self.queues: dict[tuple[LaneId, ...], Queue] = {}
        self._unusual = SpecialCallCounts()
        self._of_lane: dict[LaneId, list[Queue]] = {}
        # Calls that are under way, silently, and stand in line for another lane.
        self.beside: set[int] = set()
        # Lanes that were last taken by a call that hurries: the next goes by urgency.
        self._owing: set[LaneId] = set()

    def open_lane(self, name: LaneId) -> None:
        """Calls may wait for this lane from now on."""
        self._of_lane[name] = []

    def close_lane(self, name: LaneId) -> None:
        """Nobody waits for this lane, and nobody will."""
        self._owing.discard(name)
        gone = {id(queue) for queue in self._of_lane.pop(name)}
        closed = [lanes for lanes in self.queues if name in lanes]
        for other in {each for lanes in closed for each in lanes} - {name}:
            left = [queue for queue in self._of_lane[other] if id(queue) not in gone]
            self._of_lane[other] = left
        for lanes in closed:
            del self.queues[lanes]

    def queue(self, lanes: tuple[LaneId, ...]) -> Queue:
        """The queue of the calls that may go to these lanes."""
        queue = self.queues.get(lanes)
        if queue is None:
            queue = self.queues[lanes] = Queue(self._unusual)
            for name in lanes:
                self._of_lane[name].append(queue)
        return queue

    def push(self, entry: QueueEntry, line: tuple[LaneId, ...] | None = None) -> None:
        """Let a call wait, for any of its lanes or only for those in `line`."""
        entry.line = entry.lanes if line is None else line
        self.queue(entry.line).push(entry)

    def leave(self, entry: QueueEntry) -> None:
        """Take a call out, if it is queued."""
        if entry.waiting:
            self.queue(entry.line).remove(entry)
            self.beside.discard(entry.call.id)

    def anyone_for(self, name: LaneId) -> bool:
        """Whether anyone waits for the lane."""
        for queue in self._of_lane[name]:  # noqa: SIM110 -- asked three times for every call
            if queue.waiting:
                return True
        return False

    def first(
        self,
        name: LaneId,
        now: float,
        next_aged: float,
        blocked: Container[int] = (),
        *,
        leaving: bool = True,
    ) -> tuple[QueueHead, Queue] | tuple[None, None]:
        """Whose turn it is on the lane; queues whose `id` is blocked are passed over.

        Before `next_aged` nobody goes out of turn for having waited long; without `leaving` nobody
        does because its client leaves.
        """
        queues = self._of_lane[name]
        if not self._unusual.ranked and not self._unusual.leaving:
            return _most_urgent(queues, blocked)
        first: QueueHead | None = None
        its: Queue | None = None
        if leaving and name not in self._owing:
            for queue in queues:
                if not queue.may_hurry or id(queue) in blocked:
                    continue
                head = queue.leaves_first(now)
                if head is not None and (first is None or head < first):
                    first, its = head, queue
            if first is not None and its is not None:
                return first, its
        crowded = self._is_crowded(queues, now)
        for queue in queues:
            if not queue.waiting or id(queue) in blocked:
                continue
            head = queue.head(now, aged=now >= next_aged, crowded=crowded)
            if head is not None and (first is None or head < first):
                first, its = head, queue
        return (None, None) if first is None or its is None else (first, its)

    def admit(self, head: QueueHead, queue: Queue, name: LaneId) -> None:
        """The lane takes the call whose turn it is."""
        queue.remove(head.entry)
        if self._owing and name in self._owing:
            self._owing.remove(name)
        elif head.rank is Rank.LEAVING:
            self._owing.add(name)

    def owes(self, name: LaneId) -> bool:
        """Whether the lane was last taken by a call that hurried: the next goes in order."""
        return name in self._owing

    def changes_at(self, name: LaneId, now: float, next_aged: float) -> float:
        """When the order on the lane may be another one, or infinity."""
        return min(
            (queue.changes_at(now, next_aged) for queue in self._of_lane[name] if queue.waiting),
            default=math.inf,
        )

    def _is_crowded(self, queues: list[Queue], now: float) -> bool:
        for queue in queues:  # noqa: SIM110 -- asked for every call
            if queue.waiting and queue.is_crowded(now):
                return True
        return False

    def everyone_for(self, name: LaneId) -> list[QueueEntry]:
        """All who wait for the lane; costs as much as there are."""
        return [entry for queue in self._of_lane[name] for entry in queue.everyone()]

    def least_urgent(self, name: LaneId) -> tuple[QueueEntry, Queue] | tuple[None, None]:
        """Who can best be spared for a probe of the lane."""
        found = [
            (entry, queue)
            for queue in self._of_lane[name]
            if (entry := queue.least_urgent()) is not None
        ]
        return max(found, key=lambda each: each[0].urgency) if found else (None, None)


def _most_urgent(
    queues: list[Queue], blocked: Container[int]
) -> tuple[QueueHead, Queue] | tuple[None, None]:
    """Whose turn it is by urgency alone: asked several times for every call."""
    first: QueueEntry | None = None
    its: Queue | None = None
    least = math.inf
    for queue in queues:
        if not queue.waiting or id(queue) in blocked:
            continue
        head = queue.most_urgent()
        if head is not None and head.urgency <= least:
            if first is not None and head.urgency == least and head.call.id > first.call.id:
                continue
            first, its, least = head, queue, head.urgency
    if first is None or its is None:
        return None, None
    return QueueHead(Rank.NORMAL, first.urgency, first.call.id, first), its


_SHORTEST = 0.1
_LONGEST = 2.0


class DelayedCalls:
    """The calls that rest, by when they have rested enough."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, QueueEntry]] = []
        # By lane and prefix: who waits for its first byte.
        self._siblings: dict[tuple[LaneId, str], list[QueueEntry]] = {}

    def rest(self, entry: QueueEntry, now: float, draw: float) -> None:
        """Let the call rest after so many failures in a row as it has met."""
        seconds = min(_LONGEST, _SHORTEST * 2.0 ** min(entry.outages - 2, 10))
        self.rest_for(entry, now, seconds * (0.5 + draw))

    def rest_for(self, entry: QueueEntry, now: float, seconds: float) -> None:
        """Let the call rest for so long."""
        entry.rests_until = now + seconds
        heapq.heappush(self._heap, (entry.rests_until, entry.call.id, entry))

    def hold_sibling(self, entry: QueueEntry, lane: LaneId, now: float, until: float) -> bool:
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

    def siblings(self, lane: LaneId, prefix: str) -> list[QueueEntry]:
        """Those who waited for that prefix, now that it is written or will not be."""
        found = []
        for entry in self._siblings.pop((lane, prefix), ()):
            if entry.rests_until is not None and entry.rests_until == entry.sibling_until:
                entry.rests_until = None
                found.append(entry)
        return found

    def next_at(self) -> float:
        """When the next one has rested enough, or infinity."""
        heap = self._heap
        while heap and heap[0][2].rests_until != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def rested(self, now: float) -> list[QueueEntry]:
        """Those who have rested enough."""
        found = []
        while self.next_at() <= now:
            entry = heapq.heappop(self._heap)[2]
            entry.rests_until = None
            if entry.sibling_until is not None:
                for lane in entry.lanes:
                    place = lane, entry.call.prefix
                    waiting = self._siblings.get(place)
                    if waiting and not any(each.rests_until is not None for each in waiting):
                        del self._siblings[place]
            found.append(entry)
        return found
