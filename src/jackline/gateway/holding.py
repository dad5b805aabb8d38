"""Look after the calls that take long: keep their clients alive, and end hopeless waits.

Laws: (1) one timer for all calls; (2) what is done to a call is decided by the call; (3) that the
wall clock was set, or that the machine slept, is noticed here at the latest.
Not here: how a client is kept alive (messages.py), when waiting is hopeless (calls/walls.py).
"""

from __future__ import annotations

import logging

from jackline.clock import Clock
from jackline.gateway.desk import Desk

EVERY = 1.0
_log = logging.getLogger(__name__)


async def look_after(desk: Desk, clock: Clock, every: float = EVERY) -> None:
    """Go round all calls again and again, until cancelled."""
    while True:
        await clock.sleep(every)
        clock.beat()
        desk.carrier.follow_clock()
        now = clock.steady()
        calls = desk.calls
        desk.held_time.look(calls, now)
        for call in calls:
            try:
                call.keep_alive(now)
            except Exception as error:  # noqa: BLE001 -- the border of one call: the others go on
                _log.error("a bug in Jackline while holding a call", exc_info=error)
        desk.carrier.review()
