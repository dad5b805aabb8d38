"""Decide which waiting calls may go on or are hopeless: caps, quota limits, lane changes.

Rules: (1) a call that would exceed one of its caps waits; it is admitted as soon as there is room,
in order of arrival among those that fit; (2) a call is refused only if its own limits say that the
wait is too long; (3) a refusal at a quota limit has the vendor's own words, also when another call
met it; (4) a throttle is never reported as a quota, nor the reverse; (5) a call that is held for a
reset is not refused because the wall clock was set and the same reset seems farther away; (6) each
change of a lane's state is emitted once, with its reason and its end, and looking for changes costs
next to nothing while there are none.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable

from jackline.calls.pending_call import PendingCall
from jackline.calls.request import CallRefusal, Cap, VendorRejection
from jackline.events import Announce, LaneChanged
from jackline.failures import Failure, Json
from jackline.lane_id import LaneId
from jackline.lanes import Call, LaneController, saved_lane
from jackline.lanes.breaker import FLOWING
from jackline.lanes.reactions import Reaction, reaction_to
from jackline.states import LaneState


class CapGate:
    """Counts calls per key and keeps a line of those that have to wait."""

    def __init__(self) -> None:
        self._under_way: Counter[tuple[str, str]] = Counter()
        self._entered: set[int] = set()
        self._line: dict[int, PendingCall] = {}

    def __len__(self) -> int:
        return len(self._line)

    def __contains__(self, number: int) -> bool:
        """Whether the call waits for a cap."""
        return number in self._line

    def enter(self, call: PendingCall) -> bool:
        """Whether the call may go on; if not, it is queued."""
        caps = call.request.caps
        if all(self._under_way[key] < limit for key, limit in caps):
            self._count(caps, 1)
            self._entered.add(call.number)
            self._line.pop(call.number, None)
            return True
        self._line[call.number] = call
        return False

    def leave(self, call: PendingCall) -> list[PendingCall]:
        """A call is over: who may go on instead; nobody when it has left before."""
        if self._line.pop(call.number, None) is not None or call.number not in self._entered:
            return []
        self._entered.discard(call.number)
        self._count(call.request.caps, -1)
        return [each for each in list(self._line.values()) if self.enter(each)]

    def _count(self, caps: tuple[Cap, ...], step: int) -> None:
        for key, _ in caps:
            self._under_way[key] += step
            if not self._under_way[key]:
                del self._under_way[key]


# Of one answer only: they would mislead whoever gets the rejection later.
_OF_ONE_ANSWER = (
    b"request-id",
    b"date",
    b"retry-after",
    b"content-length",
    b"cf-ray",
    b"set-cookie",
)
# A vendor's takes some hundred bytes. Longer ones would be stored for each lane of an account, and
# saved with each change of any lane.
_LONGEST_WORDS = 4096


class QuotaWalls:
    """The vendor's last rejection at each lane's quota limit."""

    def __init__(self, controller: LaneController) -> None:
        self._controller = controller
        self._words: dict[LaneId, VendorRejection] = {}

    def remember(self, lane: LaneId, failure: Failure, rejection: VendorRejection | None) -> None:
        """Save the rejection of one call, for the others that wait for the same account."""
        if rejection is None or rejection.status < 400 or len(rejection.body) > _LONGEST_WORDS:
            return
        lasting = [(n, v) for n, v in rejection.headers if n.lower() not in _OF_ONE_ANSWER]
        words = VendorRejection(rejection.status, lasting, rejection.body, lane, is_repeated=True)
        lanes = self._controller.lanes
        self._words = {name: known for name, known in self._words.items() if name in lanes}
        account = lane.account
        for each in self._controller.lanes.values():
            if each.id == lane or (each.id.account == account and each.cause is failure):
                self._words[each.id] = words

    def refusal(self, call: PendingCall, names: Iterable[LaneId], now: float) -> CallRefusal | None:
        """Why waiting is hopeless for a call with these lanes left; None while it is not."""
        last = call.story[-1].failure if call.story else None
        lanes = [self._controller.lanes[name] for name in names]
        waited = now - call.submitted
        if all(lane.state is LaneState.PARKED for lane in lanes):
            nearest = min(lanes, key=lambda lane: lane.reset_at or math.inf)
            left = math.inf if nearest.reset_at is None else nearest.reset_at - now
            limit = call.request.hold.quota
            date, held = self._controller.date_of(nearest.reset_at), call.held_for
            # A clock that is corrected little by little may have moved it by less than a second.
            is_same = date is not None and held is not None and abs(held[0] - date) <= 1.0
            # An unknown reset is waited for as long as a known one may be away.
            if left >= 0 and (left if math.isfinite(left) else waited) <= limit:
                if date is not None and nearest.reset_at is not None and not is_same:
                    call.held_for = (date, nearest.reset_at)
                return None
            if left >= 0:
                if is_same and held is not None and now <= held[1]:
                    return None
                why = f"{nearest.label} is parked: its limit is used up"
                words = self._words.get(nearest.id)
                if words is None or (last is not None and reaction_to(last) is Reaction.PARK):
                    # It has met the wall itself.
                    words = call.rejection or words
                return CallRefusal(why, nearest.cause or last, words, date, call.story)
            # The reset has passed and no probe was sent, as on a lane that is paused by hand.
            waited = min(waited, -left)
        if waited <= call.request.hold.other:
            return None
        waiting = self._controller.waiting(now, call.number)
        why = "it waited for too long" if waiting is None else waiting.why
        until = None if waiting is None else self._controller.date_of(waiting.until)
        return CallRefusal(why, last, call.rejection, until, call.story)

    # --- over a restart -----------------------------------------------------------------------

    def export(self) -> list[Json]:
        """What outlives a restart, as JSON."""
        lanes = self._controller.lanes
        return [
            {
                **lane_id._asdict(),
                "status": words.status,
                "headers": [[n.decode("latin-1"), v.decode("latin-1")] for n, v in words.headers],
                "body": b64encode(words.body).decode(),
            }
            for lane_id, words in self._words.items()
            if lane_id in lanes and lanes[lane_id].state is LaneState.PARKED
        ]

    def restore(self, memory: Json) -> None:
        """Restore what was exported; anything odd in it is left out."""
        for saved in memory if isinstance(memory, list) else ():
            lane_id = saved_lane(saved)
            match saved:
                case {"status": int(status), "headers": list(pairs), "body": str(body)}:
                    headers = [
                        (str(pair[0]).encode("latin-1"), str(pair[1]).encode("latin-1"))
                        for pair in pairs
                        if isinstance(pair, list) and len(pair) == 2
                    ]
                    words = VendorRejection(
                        status, headers, b64decode(body), lane_id, is_repeated=True
                    )
                    if lane_id is not None and lane_id in self._controller.lanes:
                        self._words[lane_id] = words


_ANY_CALL = Call(0, ())
_OPEN = LaneState.OPEN


class LaneChanges:
    """Emits an event when the state of a lane has changed."""

    def __init__(
        self, controller: LaneController, announce: Announce, wall: Callable[[], float]
    ) -> None:
        self._controller = controller
        self._announce = announce
        self._wall = wall
        self._emitted: dict[LaneId, LaneState] = {}

    def look(self, now: float) -> bool:
        """Whether anything has changed on any lane; it has been announced then."""
        changed = False
        if len(self._emitted) > len(self._controller.lanes):
            self._emitted = {n: s for n, s in self._emitted.items() if n in self._controller.lanes}
        for name in self._controller.lanes:
            changed |= self.look_at(name, now)
        return changed

    def look_at(self, name: LaneId, now: float) -> bool:
        """The same for one lane."""
        lane = self._controller.lanes[name]
        state = lane.state
        if self._emitted.get(name, _OPEN) is state:
            return False
        self._emitted[name] = state
        if state in FLOWING:
            self._announce(LaneChanged(self._wall(), name, state.value, "", None))
        else:
            wait = lane.waiting(_ANY_CALL, now)
            until = self._controller.date_of(wait.until)
            self._announce(LaneChanged(self._wall(), name, state.value, wait.why, until))
        return True
