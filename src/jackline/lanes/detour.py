"""Decide whether a call should take a lane that has room, or wait for one it would rather take.

Laws: (1) another lane than the preferred one costs as much as a short wait; (2) so does a lane that
fails often; (3) a lane that takes no traffic is waited for by nobody.
Not here: whether a lane has room (lane.py), whose turn it is (waiting_room.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from jackline.lanes.lane import Lane
from jackline.lanes.queue import Entry, Queue
from jackline.lanes.settings import RoutingSettings
from jackline.lanes.states import FLOWING

# In seconds of cost: below this, two lanes are equally sound.
_NOTICEABLE = 0.5


class Detour:
    """Compares the lanes of a call by the seconds that each would cost it."""

    def __init__(self, lanes: Mapping[str, Lane], routing: RoutingSettings) -> None:
        self._lanes = lanes
        self._routing = routing

    def is_worth_it(self, entry: Entry, lane: Lane, queue: Queue, now: float) -> bool:
        """Whether the call should take this lane rather than wait for a preferred one."""
        other_lane = self._routing.other_lane_cost
        detour = 0.0 if entry.line[0] == lane.name else other_lane
        mine = detour + self._cost_of_errors(lane, now)
        if mine <= 0:
            return True
        # Only a lane that fails noticeably has to be compared with all others; a sound one is only
        # worse than the preferred one.
        rivals = entry.line if mine - detour >= _NOTICEABLE else entry.line[:1]
        for position, name in enumerate(rivals):
            other = self._lanes[name]
            if other is lane or other.state not in FLOWING:
                continue
            cost = (other_lane if position else 0.0) + self._cost_of_errors(other, now)
            if cost < mine and cost + self._expected_wait(other, entry, queue, now) < mine:
                return False
        return True

    def _expected_wait(self, lane: Lane, entry: Entry, queue: Queue, now: float) -> float:
        """How long the call would wait for a lane; short waits are not worth a detour."""
        if lane.ready_at(entry.call, now) <= now:
            return 0.0
        rate = lane.health.accepts_per_second(now)
        wait = max(queue.waiting / rate if rate > 0 else math.inf, lane.hold_until - now)
        return 0.0 if wait <= self._routing.spill_after else wait

    def _cost_of_errors(self, lane: Lane, now: float) -> float:
        errors = min(lane.health.error_share(now), 0.95)
        return self._routing.error_cost * errors / (1 - errors)
