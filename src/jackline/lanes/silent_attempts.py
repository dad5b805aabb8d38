"""Track the attempts in flight, and decide what happens to silent ones: hedge, wait, or cut.

Rules: (1) a call has at most two attempts in flight; when the first ends, the second takes its
role; (2) an attempt with new bytes is not late: it gets a new deadline when the old one comes, and
receiving bytes costs nothing here; (3) an attempt that has not begun to answer is dropped only if
another attempt of the same call has begun, or after a quarter of an hour; (4) on a lane that works,
hedges are limited by a budget (estimators.py); on a lane that is silent as a whole, every call may
go elsewhere; (5) an attempt whose bytes were already delivered to the caller is never hedged; (6)
silent attempts block nobody: their places are lent, and a hedge that finds no room is queued.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping

from jackline.lane_id import LaneId
from jackline.lanes.breaker import FLOWING
from jackline.lanes.call import Abort, LaneAttempt, LaneDecision
from jackline.lanes.lane import Lane
from jackline.lanes.queue import CallQueues, QueueEntry


class AttemptsInFlight:
    """All attempts by permit; `calls` counts the calls they belong to."""

    __slots__ = ("_first", "_second", "attempts")

    def __init__(self) -> None:
        self.attempts: dict[int, LaneAttempt] = {}
        self._first: dict[int, int] = {}
        self._second: dict[int, int] = {}

    @property
    def calls(self) -> int:
        """How many calls have an attempt under way."""
        return len(self._first)

    def __contains__(self, call_id: int) -> bool:
        return call_id in self._first

    def add(self, attempt: LaneAttempt) -> None:
        """An attempt was sent: the call's first, or its second."""
        self.attempts[attempt.permit] = attempt
        call_id = attempt.call.id
        (self._second if call_id in self._first else self._first)[call_id] = attempt.permit

    def take(self, permit: int) -> LaneAttempt | None:
        """An attempt has ended; None if it had ended before."""
        attempt = self.attempts.pop(permit, None)
        if attempt is None:
            return None
        call_id = attempt.call.id
        second = self._second.pop(call_id, None) if self._second else None
        if second is None:
            del self._first[call_id]
        elif second != permit:
            self._first[call_id] = second
        return attempt

    def first_of(self, call_id: int) -> LaneAttempt | None:
        """The call's first attempt that is still under way."""
        permit = self._first.get(call_id)
        return None if permit is None else self.attempts[permit]

    def second_of(self, call_id: int) -> LaneAttempt | None:
        """The attempt beside the first."""
        permit = self._second.get(call_id) if self._second else None
        return None if permit is None else self.attempts[permit]


_SPARE = 64


# In seconds: so long after a silent attempt was last looked at, it is looked at again.
_LOOK_AGAIN = 5.0
# A second attempt that has been silent for so long makes way for another; the first one does not.
_SECOND_MAKES_WAY = 60.0


class SilentAttempts:
    """The silent attempts of all lanes. Methods return the lanes on which more may be possible.

    `launch` sends a call on a lane, as a probe or not.
    """

    def __init__(
        self,
        lanes: Mapping[LaneId, Lane],
        entries: Mapping[int, QueueEntry],
        under_way: AttemptsInFlight,
        queues: CallQueues,
        launch: Callable[[QueueEntry, Lane, float, LaneDecision, bool], None],
    ) -> None:
        self._lanes = lanes
        self._entries = entries
        self._under_way = under_way
        self._queues = queues
        self._launch = launch
        # When to look at which attempt, by permit.
        self._deadlines: list[tuple[float, int]] = []

    # --- deadlines ------------------------------------------------------------------------

    def watch(self, attempt: LaneAttempt, now: float) -> None:
        """Look at the attempt when it has been silent for as long as it may be now."""
        patience = self._lanes[attempt.lane].patience
        self._look_at(attempt, attempt.received_at + patience.keeps_place_for(attempt, now))

    def _look_at(self, attempt: LaneAttempt, at: float) -> None:
        """Look at the attempt at that time, if it is still late then."""
        heap, attempts = self._deadlines, self._under_way.attempts
        if len(heap) > _SPARE + 4 * len(attempts):
            # Most belong to attempts that have ended, or sent something since.
            earliest: dict[int, float] = {}
            for due, permit in heap:
                if permit in attempts and due < earliest.get(permit, math.inf):
                    earliest[permit] = due
            self._deadlines = heap = [(due, permit) for permit, due in earliest.items()]
            heapq.heapify(heap)
        heapq.heappush(heap, (at, attempt.permit))

    def next_at(self) -> float:
        """When the next look is due, or infinity."""
        return self._deadlines[0][0] if self._deadlines else math.inf

    def _late(self, now: float) -> LaneAttempt | None:
        """An attempt that has been silent for too long, or None; call it until it is None.

        It is not looked at again unless somebody says when.
        """
        heap = self._deadlines
        while heap and heap[0][0] <= now:
            _, permit = heapq.heappop(heap)
            attempt = self._under_way.attempts.get(permit)
            if attempt is None:
                continue
            patience = self._lanes[attempt.lane].patience
            deadline = attempt.received_at + patience.keeps_place_for(attempt, now)
            if deadline <= now:
                return attempt
            heapq.heappush(heap, (deadline, permit))
        return None

    # --- time has passed ------------------------------------------------------------------

    def look_at_late(self, now: float, decision: LaneDecision) -> list[LaneId]:
        """Ask beside attempts that have been silent for longer than they may, or give them up."""
        touched: list[LaneId] = []
        while (attempt := self._late(now)) is not None:
            lane = self._lanes[attempt.lane]
            longest = lane.patience.given_up_after(attempt, now)
            if now - attempt.received_at >= longest:
                touched += self._give_up(attempt, now, decision)
                continue
            doubted_at = attempt.received_at + lane.patience.limit(attempt, now)
            if now < doubted_at:
                look_at = doubted_at
                if lane.pass_on_probe(attempt, now) or lane.lend_place(attempt, now):
                    touched.append(lane.id)
                else:
                    look_at = min(now + _LOOK_AGAIN, doubted_at)
                self._look_at(attempt, look_at)
                continue
            if lane.probe == attempt.permit:
                lane.doubt_attempt(attempt, now)
                touched += [lane.id, *self._line_up(attempt)]
            else:
                touched += self._ask_beside(attempt, now, decision)
            self._look_at(attempt, min(now + _LOOK_AGAIN, attempt.received_at + longest))
        return touched

    def look_at_lane(self, lane: Lane, now: float) -> list[LaneId]:
        """Leave a lane alone on which nothing comes.

        Whoever holds nothing of an answer yet is queued once more, for another lane.
        """
        if not lane.falls_silent(now):
            return []
        touched = [lane.id]
        for attempt in lane.leave_alone_as_silent(now):
            touched += self._line_up(attempt)
        return touched

    def _ask_beside(
        self, attempt: LaneAttempt, now: float, decision: LaneDecision
    ) -> tuple[LaneId, ...]:
        """Send a call once more whose first attempt is silent.

        On another lane that has room, or on its own, or as the probe of a lane that is left alone.
        A second attempt that has been silent for long makes way for a third.
        """
        call = attempt.call
        entry = self._entries[call.id]
        if entry.waiting or attempt.committed or self._under_way.first_of(call.id) is not attempt:
            return ()
        second = self._under_way.second_of(call.id)
        if second is not None and now - second.received_at < _SECOND_MAKES_WAY:
            return ()
        own = self._lanes[attempt.lane]
        lanes = [self._lanes[name] for name in entry.lanes if name != own.id]
        if not own.is_local:
            # What a server of the user's own works at would only take twice as long.
            lanes.append(own)
        for lane in lanes:
            if lane.state in FLOWING and lane.ready_at(call, now) <= now:
                if not own.hedges.is_open:
                    return ()
                own.hedges.spend()
                break
        else:
            probed = next((each for each in lanes if each.probe_due(now)), None)
            if probed is None:
                return self._queue_beside(attempt, own, now) if second is None else ()
            lane = probed
        if second is not None:
            self._hang_up(second, now, decision)
        self._launch(entry, lane, now, decision, lane.state not in FLOWING)
        return ()

    def _queue_beside(self, attempt: LaneAttempt, own: Lane, now: float) -> tuple[LaneId, ...]:
        """No lane has room: lend the silent attempt's place, and let its call stand in line.

        Streams on a lane that may be silent as a whole are kept as witnesses of that.
        """
        if attempt.call.stream and own.may_be_silent(now):
            return ()
        if not own.lend_place(attempt, now):
            return ()
        if own.hedges.is_open:
            own.hedges.spend()
            return (own.id, *self._line_up(attempt, anywhere=True))
        return (own.id,)

    def _line_up(self, attempt: LaneAttempt, *, anywhere: bool = False) -> tuple[LaneId, ...]:
        """Let a call that is under way stand in line once more, for others than its own lane."""
        entry = self._entries.get(attempt.call.id)
        second = self._under_way.second_of(attempt.call.id)
        if entry is None or attempt.committed or second is not None:
            return ()
        self._queues.leave(entry)
        line = tuple(name for name in entry.lanes if anywhere or name != attempt.lane)
        if line:
            self._queues.push(entry, line)
            self._queues.beside.add(entry.call.id)
        return line

    def _give_up(
        self, attempt: LaneAttempt, now: float, decision: LaneDecision
    ) -> tuple[LaneId, ...]:
        self._under_way.take(attempt.permit)
        lane = self._lanes[attempt.lane]
        if attempt.begun:
            lane.cut(attempt, None, now)
        else:
            # What was asked a quarter of an hour ago says nothing about the lane of now.
            lane.let_go(attempt, now)
        decision.aborts.append(Abort(attempt.permit, attempt.call.id, "it was silent for too long"))
        entry = self._entries.get(attempt.call.id)
        if entry is None:
            return (lane.id,)
        entry.freezes += attempt.begun
        if entry.call.id not in self._under_way:
            self._queues.leave(entry)
            self._queues.push(entry)
        return (lane.id, *entry.lanes)

    # --- something was received -----------------------------------------------------------

    def accept(self, attempt: LaneAttempt, headers: Mapping[str, str], now: float) -> list[LaneId]:
        """The provider has taken the call."""
        touched: list[LaneId] = []
        lane = self._lanes[attempt.lane]
        was_left_alone = lane.state not in FLOWING
        if lane.accepted(attempt, headers, now):
            self.withdraw(lane)
        elif was_left_alone and lane.state in FLOWING:
            # It answers what is asked now, and not what was asked before: that may be asked anew.
            for silent in [each for each in lane.attempts.values() if each.doubted]:
                touched += self._line_up(silent, anywhere=True)
        return touched

    def overtake(self, attempt: LaneAttempt, now: float, decision: LaneDecision) -> list[LaneId]:
        """The model has begun to speak in this attempt: its call needs no other one."""
        call_id = attempt.call.id
        if call_id in self._queues.beside:
            self._queues.leave(self._entries[call_id])
        second = self._under_way.second_of(call_id)
        other = self._under_way.first_of(call_id) if second is attempt else second
        if other is None:
            return []
        if other.sent_at < attempt.sent_at:
            self._lanes[other.lane].hedges.needed()
        self._hang_up(other, now, decision)
        return [other.lane]

    def withdraw(self, lane: Lane) -> None:
        """The lane is not silent any more: nobody under way on it needs another."""
        for attempt in lane.attempts.values():
            if attempt.call.id in self._queues.beside:
                self._queues.leave(self._entries[attempt.call.id])

    def other_failed(self, entry: QueueEntry) -> tuple[LaneId, ...]:
        """One of a call's two attempts has failed; the other may need another beside it."""
        left = self._under_way.first_of(entry.call.id)
        if left is None or not left.doubted:
            return ()
        lane = self._lanes[left.lane]
        if lane.is_silent:
            return self._line_up(left)
        lane.hedges.returned()
        return ()

    def lanes_changed(self, entry: QueueEntry) -> tuple[LaneId, ...]:
        """Other lanes are open to a call that is under way: it may need them at once."""
        attempt = self._under_way.first_of(entry.call.id)
        if attempt is None or not (attempt.doubted or self._lanes[attempt.lane].is_silent):
            return ()
        return self._line_up(attempt)

    def _hang_up(self, attempt: LaneAttempt, now: float, decision: LaneDecision) -> None:
        self._under_way.take(attempt.permit)
        self._lanes[attempt.lane].let_go(attempt, now)
        decision.hang_ups.append(attempt.permit)
