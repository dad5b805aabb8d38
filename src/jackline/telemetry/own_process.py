"""Watch the process itself: how late its event loop wakes, and what it has used.

Laws: (1) watching costs a few wake-ups a second, whatever the load; (2) what a system does not tell
is None.
Not here: rendering (exposition.py).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from jackline.clock import Clock
from jackline.telemetry.exposition import Histogram
from jackline.telemetry.scrape import ProcessTold

_EVERY = 0.25
_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_STATM = Path("/proc/self/statm")


class OwnProcess:
    """The figures of this process; made, watched and asked in the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._delay = Histogram(_BOUNDS)
        # What was computed before, mostly imports, was computed for no call.
        self._begun = time.thread_time()

    async def watch(self) -> None:
        """Measure how late the loop is, again and again."""
        while True:
            due = self._clock.monotonic() + _EVERY
            await self._clock.sleep(_EVERY)
            self._delay.observe(max(0.0, self._clock.monotonic() - due))

    def told(self) -> ProcessTold:
        """The figures of now."""
        loop = time.thread_time() - self._begun
        return ProcessTold(time.process_time(), loop, _memory(), self._delay)


def _memory() -> int | None:
    try:
        pages = int(_STATM.read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None  # only Linux has this file
    return pages * os.sysconf("SC_PAGE_SIZE")
