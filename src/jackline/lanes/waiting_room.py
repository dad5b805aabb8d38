"""Keep the calls that wait, by the lanes they may go to, and say whose turn it is on a lane.

Laws: (1) calls that may go to the same lanes in the same order share one queue; (2) on a lane the
first of all its queues comes first; (3) before it goes whoever leaves first of those whose clients
leave soon, but at most every second time on a lane: the other half goes in order, so nobody waits
for more than twice as many as without; (4) asking costs nothing per waiting call.
Not here: the order within a queue (queue.py), whether a lane has room (lane.py).
"""

from __future__ import annotations

import math
from collections.abc import Container

from jackline.lanes.queue import Entry, Head, Queue, Rank, Unusual


class WaitingRoom:
    """All queues; a lane must be opened before calls can wait for it."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, ...], Queue] = {}
        self._unusual = Unusual()
        self._of_lane: dict[str, list[Queue]] = {}
        # Calls that are under way, silently, and stand in line for another lane.
        self.beside: set[int] = set()
        # Lanes that were last taken by a call that hurries: the next goes by urgency.
        self._owing: set[str] = set()

    def open_lane(self, name: str) -> None:
        """Calls may wait for this lane from now on."""
        self._of_lane[name] = []

    def close_lane(self, name: str) -> None:
        """Nobody waits for this lane, and nobody will."""
        self._owing.discard(name)
        gone = {id(queue) for queue in self._of_lane.pop(name)}
        closed = [lanes for lanes in self.queues if name in lanes]
        for other in {each for lanes in closed for each in lanes} - {name}:
            kept = [queue for queue in self._of_lane[other] if id(queue) not in gone]
            self._of_lane[other] = kept
        for lanes in closed:
            del self.queues[lanes]

    def queue(self, lanes: tuple[str, ...]) -> Queue:
        """The queue of the calls that may go to these lanes."""
        queue = self.queues.get(lanes)
        if queue is None:
            queue = self.queues[lanes] = Queue(self._unusual)
            for name in lanes:
                self._of_lane[name].append(queue)
        return queue

    def push(self, entry: Entry, line: tuple[str, ...] | None = None) -> None:
        """Let a call wait, for any of its lanes or only for those in `line`."""
        entry.line = entry.lanes if line is None else line
        self.queue(entry.line).push(entry)

    def leave(self, entry: Entry) -> None:
        """Take a call out, if it stands in line."""
        if entry.waiting:
            self.queue(entry.line).remove(entry)
            self.beside.discard(entry.call.id)

    def anyone_for(self, name: str) -> bool:
        """Whether anyone waits for the lane."""
        for queue in self._of_lane[name]:  # noqa: SIM110 -- asked three times for every call
            if queue.waiting:
                return True
        return False

    def first(
        self,
        name: str,
        now: float,
        next_aged: float,
        blocked: Container[int] = (),
        *,
        leaving: bool = True,
    ) -> tuple[Head, Queue] | tuple[None, None]:
        """Whose turn it is on the lane; queues whose `id` is blocked are passed over.

        Before `next_aged` nobody goes out of turn for having waited long; without `leaving` nobody
        does because its client leaves.
        """
        queues = self._of_lane[name]
        if not self._unusual.ranked and not self._unusual.leaving:
            return _most_urgent(queues, blocked)
        first: Head | None = None
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

    def admit(self, head: Head, queue: Queue, name: str) -> None:
        """The lane takes the call whose turn it is."""
        queue.remove(head.entry)
        if self._owing and name in self._owing:
            self._owing.remove(name)
        elif head.rank is Rank.LEAVING:
            self._owing.add(name)

    def owes(self, name: str) -> bool:
        """Whether the lane was last taken by a call that hurried: the next goes in order."""
        return name in self._owing

    def changes_at(self, name: str, now: float, next_aged: float) -> float:
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

    def everyone_for(self, name: str) -> list[Entry]:
        """All who wait for the lane; costs as much as there are."""
        return [entry for queue in self._of_lane[name] for entry in queue.everyone()]

    def least_urgent(self, name: str) -> tuple[Entry, Queue] | tuple[None, None]:
        """Who can best be spared for a probe of the lane."""
        found = [
            (entry, queue)
            for queue in self._of_lane[name]
            if (entry := queue.least_urgent()) is not None
        ]
        return max(found, key=lambda each: each[0].urgency) if found else (None, None)


def _most_urgent(
    queues: list[Queue], blocked: Container[int]
) -> tuple[Head, Queue] | tuple[None, None]:
    """Whose turn it is by urgency alone: asked several times for every call."""
    first: Entry | None = None
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
    return Head(Rank.NORMAL, first.urgency, first.call.id, first), its
