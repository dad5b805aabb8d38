"""Remember what the vendor said at a quota wall, and judge which calls it makes hopeless.

Laws: (1) a call is refused only for what its own limits say is too long a wait; (2) who is refused
at a wall hears the vendor's own words, also when another call ran into it; (3) a throttle is never
told as a quota, nor the reverse; (4) whoever is held for a reset is not refused because the wall
clock was set and the same reset seems farther away: it is held for as long as was expected.
Not here: parking the lane (lanes/), refusing (carrier.py).
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace

from jackline.calls.carried import Carried
from jackline.calls.request import Rejection
from jackline.failures import Failure, Json
from jackline.lanes import LaneController
from jackline.lanes.states import State

# Of one answer only: they would mislead whoever hears the wall's words later.
_OF_ONE_ANSWER = (
    b"request-id",
    b"date",
    b"retry-after",
    b"content-length",
    b"cf-ray",
    b"set-cookie",
)


@dataclass(frozen=True, slots=True)
class Hopeless:
    """Why a call need not wait any longer."""

    why: str
    until: float | None = None
    failure: Failure | None = None
    rejection: Rejection | None = None


class Walls:
    """The last words at each lane's wall."""

    def __init__(self, controller: LaneController) -> None:
        self._controller = controller
        self._words: dict[str, Rejection] = {}

    def remember(self, lane: str, failure: Failure, rejection: Rejection | None) -> None:
        """Keep what was said to one call, for the others that wait for the same account."""
        if rejection is None:
            return
        lasting = [(n, v) for n, v in rejection.headers if n.lower() not in _OF_ONE_ANSWER]
        words = Rejection(rejection.status, lasting, rejection.body, lane)
        lanes = self._controller.lanes
        self._words = {name: known for name, known in self._words.items() if name in lanes}
        account = lanes[lane].account
        for each in self._controller.lanes.values():
            if each.name == lane or (each.account == account and each.cause is failure):
                self._words[each.name] = words

    def hopeless(self, carried: Carried, now: float) -> Hopeless | None:
        """Why waiting is hopeless for this call; None while it is not."""
        lanes = [self._controller.lanes[name] for name in carried.request.lanes]
        waited = now - carried.submitted
        if all(lane.state is State.PARKED for lane in lanes):
            nearest = min(lanes, key=lambda lane: lane.reset_at or math.inf)
            left = math.inf if nearest.reset_at is None else nearest.reset_at - now
            limit = carried.request.hold.quota
            # An unknown reset is waited for as long as a known one may be away.
            if (left if math.isfinite(left) else waited) <= limit:
                self._held(carried, nearest.reset_at)
                return None
            if self._is_held(carried, nearest.reset_at, now):
                return None
            why = f"{nearest.name} is parked: its limit is used up"
            words = self._words.get(nearest.name)
            return Hopeless(why, nearest.reset_at, nearest.cause, words)
        if waited <= carried.request.hold.other:
            return None
        waiting = self._controller.waiting(now, carried.number)
        why = "it waited for too long" if waiting is None else waiting.why
        return Hopeless(why, None if waiting is None else waiting.until)

    def _held(self, carried: Carried, reset_at: float | None) -> None:
        date = self._controller.date_of(reset_at)
        if date is not None and reset_at is not None and not _is_same(carried.held_for, date):
            carried.held_for = (date, reset_at)

    def _is_held(self, carried: Carried, reset_at: float | None, now: float) -> bool:
        date, held = self._controller.date_of(reset_at), carried.held_for
        if date is None or held is None:
            return False
        return _is_same(held, date) and now <= held[1]

    # --- over a restart -----------------------------------------------------------------------

    def export(self) -> dict[str, Json]:
        """What to keep over a restart, as JSON."""
        parked = [
            (name, words)
            for name, words in self._words.items()
            if name in self._controller.lanes and self._controller.lanes[name].state is State.PARKED
        ]
        return {name: _told(words) for name, words in parked}

    def restore(self, memory: Json) -> None:
        """Take back what was exported; anything odd in it is left out."""
        if not isinstance(memory, dict):
            return
        for name, told in memory.items():
            words = _heard(told)
            if words is not None and name in self._controller.lanes:
                self._words[name] = replace(words, lane=name)


def _is_same(held: tuple[float, float] | None, date: float) -> bool:
    # A clock that is corrected little by little may have moved it by less than a second.
    return held is not None and abs(held[0] - date) <= 1.0


def _told(words: Rejection) -> Json:
    headers: list[Json] = [[n.decode("latin-1"), v.decode("latin-1")] for n, v in words.headers]
    return {"status": words.status, "headers": headers, "body": b64encode(words.body).decode()}


def _heard(told: Json) -> Rejection | None:
    match told:
        case {"status": int(status), "headers": list(pairs), "body": str(body)}:
            headers = [
                (str(pair[0]).encode("latin-1"), str(pair[1]).encode("latin-1"))
                for pair in pairs
                if isinstance(pair, list) and len(pair) == 2
            ]
            return Rejection(status, headers, b64decode(body))
    return None
