"""Decide what becomes of calls whose attempts are silent: ask beside, wait, or cut.

Rules: (1) an attempt that has not begun to speak is not hung up on unless another attempt of the
same call has, or a quarter of an hour has passed; (2) on a lane that works, hedges are counted
(hedges.py); on one that is silent as a whole, everybody may ask elsewhere; (3) the caller is told
nothing: an attempt that the caller holds a part of is never asked for beside; (4) silent attempts
keep nobody from being sent: their places are lent, and a hedge that finds no room stands in line.
Not here: how long silence may last (patience.py), sending (controller.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from jackline.lanes.attempt import Attempt
from jackline.lanes.deadlines import Deadlines
from jackline.lanes.decision import Abort, Decision, HangUp
from jackline.lanes.lane import Lane
from jackline.lanes.queue import Entry
from jackline.lanes.states import FLOWING
from jackline.lanes.under_way import UnderWay
from jackline.lanes.waiting_room import WaitingRoom

# In seconds: so long after a silent attempt was last looked at, it is looked at again.
_LOOK_AGAIN = 5.0
# A second attempt that has been silent for so long makes way for another; the first one does not.
_SECOND_MAKES_WAY = 60.0


class Launch(Protocol):
    """Sends a call; the controller."""

    def __call__(
        self, entry: Entry, lane: Lane, now: float, decision: Decision, *, probe: bool
    ) -> None:
        """Send it on that lane."""
        ...


class Hedging:
    """The silent attempts of all lanes. Methods return the lanes on which more may be possible."""

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        entries: Mapping[int, Entry],
        under_way: UnderWay,
        room: WaitingRoom,
        launch: Launch,
    ) -> None:
        self._lanes = lanes
        self._entries = entries
        self._under_way = under_way
        self._room = room
        self._launch = launch
        self._deadlines = Deadlines(under_way.attempts, self._limit_of)
        self.watch = self._deadlines.watch
        self.next_at = self._deadlines.next_at

    def _limit_of(self, attempt: Attempt, now: float) -> float:
        return self._lanes[attempt.lane].patience.keeps_place_for(attempt, now)

    # --- time has passed ------------------------------------------------------------------

    def look_at_late(self, now: float, decision: Decision) -> list[str]:
        """Ask beside attempts that have been silent for longer than they may, or give them up."""
        touched: list[str] = []
        while (attempt := self._deadlines.late(now)) is not None:
            lane = self._lanes[attempt.lane]
            longest = lane.patience.given_up_after(attempt, now)
            if now - attempt.heard_at >= longest:
                touched += self._give_up(attempt, now, decision)
                continue
            doubted_at = attempt.heard_at + lane.patience.limit(attempt, now)
            if now < doubted_at:
                look_at = doubted_at
                if lane.pass_on_probe(attempt, now) or lane.lend_place(attempt, now):
                    touched.append(lane.name)
                else:
                    look_at = min(now + _LOOK_AGAIN, doubted_at)
                self._deadlines.look_at(attempt, look_at)
                continue
            if lane.probe == attempt.permit:
                lane.doubt_attempt(attempt, now)
                touched += [lane.name, *self._line_up(attempt)]
            else:
                touched += self._ask_beside(attempt, now, decision)
            self._deadlines.look_at(attempt, min(now + _LOOK_AGAIN, attempt.heard_at + longest))
        return touched

    def look_at_lane(self, lane: Lane, now: float) -> list[str]:
        """Leave a lane alone on which nothing is heard.

        Whoever holds nothing of an answer yet stands in line once more, for another lane.
        """
        if not lane.falls_silent(now):
            return []
        touched = [lane.name]
        for attempt in lane.leave_alone_as_silent(now):
            touched += self._line_up(attempt)
        return touched

    def _ask_beside(self, attempt: Attempt, now: float, decision: Decision) -> tuple[str, ...]:
        """Send a call once more whose first attempt is silent.

        On another lane that has room, or on its own, or as the probe of a lane that is left alone.
        A second attempt that has been silent for long makes way for a third.
        """
        call = attempt.call
        entry = self._entries[call.id]
        if entry.waiting or attempt.committed or self._under_way.first_of(call.id) is not attempt:
            return ()
        second = self._under_way.second_of(call.id)
        if second is not None and now - second.heard_at < _SECOND_MAKES_WAY:
            return ()
        own = self._lanes[attempt.lane]
        lanes = [self._lanes[name] for name in entry.lanes if name != own.name]
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
        self._launch(entry, lane, now, decision, probe=lane.state not in FLOWING)
        return ()

    def _queue_beside(self, attempt: Attempt, own: Lane, now: float) -> tuple[str, ...]:
        """No lane has room: lend the silent attempt's place, and let its call stand in line.

        Streams on a lane that may be silent as a whole are kept as witnesses of that.
        """
        if attempt.call.stream and own.may_be_silent(now):
            return ()
        if not own.lend_place(attempt, now):
            return ()
        if own.hedges.is_open:
            own.hedges.spend()
            return (own.name, *self._line_up(attempt, anywhere=True))
        return (own.name,)

    def _line_up(self, attempt: Attempt, *, anywhere: bool = False) -> tuple[str, ...]:
        """Let a call that is under way stand in line once more, for others than its own lane."""
        entry = self._entries.get(attempt.call.id)
        second = self._under_way.second_of(attempt.call.id)
        if entry is None or attempt.committed or second is not None:
            return ()
        self._room.leave(entry)
        line = tuple(name for name in entry.lanes if anywhere or name != attempt.lane)
        if line:
            self._room.push(entry, line)
            self._room.beside.add(entry.call.id)
        return line

    def _give_up(self, attempt: Attempt, now: float, decision: Decision) -> tuple[str, ...]:
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
            return (lane.name,)
        entry.freezes += attempt.begun
        if entry.call.id not in self._under_way:
            self._room.leave(entry)
            self._room.push(entry)
        return (lane.name, *entry.lanes)

    # --- something was heard --------------------------------------------------------------

    def accept(self, attempt: Attempt, headers: Mapping[str, str], now: float) -> list[str]:
        """The provider has taken the call."""
        touched: list[str] = []
        lane = self._lanes[attempt.lane]
        was_left_alone = lane.state not in FLOWING
        if lane.accepted(attempt, headers, now):
            self.withdraw(lane)
        elif was_left_alone and lane.state in FLOWING:
            # It answers what is asked now, and not what was asked before: that may be asked anew.
            for silent in [each for each in lane.attempts.values() if each.doubted]:
                touched += self._line_up(silent, anywhere=True)
        return touched

    def overtake(self, attempt: Attempt, now: float, decision: Decision) -> list[str]:
        """The model has begun to speak in this attempt: its call needs no other one."""
        call_id = attempt.call.id
        if call_id in self._room.beside:
            self._room.leave(self._entries[call_id])
        other = self._under_way.other_than(attempt)
        if other is None:
            return []
        if other.sent_at < attempt.sent_at:
            self._lanes[other.lane].hedges.needed()
        self._hang_up(other, now, decision)
        return [other.lane]

    def withdraw(self, lane: Lane) -> None:
        """The lane is not silent any more: nobody under way on it needs another."""
        for attempt in lane.attempts.values():
            if attempt.call.id in self._room.beside:
                self._room.leave(self._entries[attempt.call.id])

    def other_failed(self, entry: Entry) -> tuple[str, ...]:
        """One of a call's two attempts has failed; the other may need another beside it."""
        left = self._under_way.first_of(entry.call.id)
        if left is None or not left.doubted:
            return ()
        lane = self._lanes[left.lane]
        if lane.is_silent:
            return self._line_up(left)
        lane.hedges.returned()
        return ()

    def lanes_changed(self, entry: Entry) -> tuple[str, ...]:
        """Other lanes are open to a call that is under way: it may need them at once."""
        attempt = self._under_way.first_of(entry.call.id)
        if attempt is None or not (attempt.doubted or self._lanes[attempt.lane].is_silent):
            return ()
        return self._line_up(attempt)

    def _hang_up(self, attempt: Attempt, now: float, decision: Decision) -> None:
        self._under_way.take(attempt.permit)
        self._lanes[attempt.lane].let_go(attempt, now)
        decision.hang_ups.append(HangUp(attempt.permit))
