"""Give the time, and wait for it: the only source of time in the package.

Rules: (1) dates (`now`, `wall`) follow the system's wall clock, which people and time servers may
set at any moment, and are aware and in the host's zone; (2) durations and deadlines are measured
with `steady` on the event loop and with `monotonic` elsewhere, never with dates; (3) `steady`
leaves out the time in which the machine was asleep or the process stopped, and `slept` says how
much that was; (4) the virtual clock moves only when a test moves it.
Not here: what a time in a text means (failures/resets.py), how dates are put on the steady time
line and follow the wall clock (lanes/controller.py). docs/decisions/050 says why.
"""

from __future__ import annotations

import heapq
import itertools
import os
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# A process that has not beaten for so long was not running.
_LONGEST_PAUSE = 10.0
# A wall clock that is off by this was set. Time servers' small corrections follow unseen: vendors'
# dates are whole seconds, and probes keep a second's distance from them.
_OFF = 0.5
# By so much a clock is corrected; more is another time, and believed when it has stayed for a day.
CORRECTED = 60.0
_STAYS_FOR = 86_400.0


class Clock(Protocol):
    """What the shells need of time."""

    def now(self) -> datetime:
        """The wall-clock time, aware, in the host's zone."""
        ...

    def wall(self) -> float:
        """The wall-clock time as seconds since the epoch: cheap, for every event of every call."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        ...

    def steady(self) -> float:
        """Seconds on the process's own time line, for durations and deadlines on the event loop.

        It began at the wall clock's time, passes evenly, and is never set.
        """
        ...

    def slept(self) -> float:
        """How many seconds `steady` has left out: the machine slept, or the process was stopped."""
        ...

    def beat(self) -> None:
        """Say about once a second, from the event loop, that the process runs.

        A longer pause between two beats is left out of `steady` as far as it is noticed.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for at least so long."""
        ...


class SystemClock:
    """The machine's own time."""

    def __init__(self, longest_pause: float = _LONGEST_PAUSE) -> None:
        self._longest_pause = longest_pause
        self._began = time.monotonic()
        self._really_began = _counting_sleep()
        self._anchor = time.time() - self._began
        # When the next beat is overdue; only clocks that were ever beaten notice stops.
        self._due = float("inf")
        self._stopped = 0.0

    def now(self) -> datetime:
        """The wall-clock time, aware, in the host's zone."""
        return self.in_host_zone(datetime.now(UTC))

    def in_host_zone(self, moment: datetime) -> datetime:
        """The same moment in the host's zone; a naive one counts as being there already."""
        zone = host_zone()
        if zone is None:
            return moment.astimezone()
        return moment.replace(tzinfo=zone) if moment.tzinfo is None else moment.astimezone(zone)

    # Not wrapped in a method: every call asks several times.
    wall = staticmethod(time.time)

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return time.monotonic()

    def steady(self) -> float:
        """Seconds on the process's own time line."""
        at = time.monotonic()
        if at > self._due:
            # Whatever the system counts (Windows counts sleep, and all count a stopped process):
            # nothing ran, so no duration has passed.
            self._stopped += at - self._due
            self._anchor -= at - self._due
            self._due = at + self._longest_pause
        return at + self._anchor

    def slept(self) -> float:
        """How many seconds `steady` has left out."""
        self.steady()
        asleep = (_counting_sleep() - self._really_began) - (time.monotonic() - self._began)
        return max(0.0, asleep) + self._stopped

    def beat(self) -> None:
        """The process runs."""
        self.steady()
        self._due = time.monotonic() + self._longest_pause

    async def sleep(self, seconds: float) -> None:
        """Wait for at least so long."""
        import asyncio  # noqa: PLC0415 -- short commands ask for the time and never wait

        await asyncio.sleep(seconds)


class VirtualClock:
    """Time that stops until `advance` moves it; sleepers wake in the order of their hour.

    The wall clock can be set alone (`jump_wall`), and the machine be put to sleep (`suspend`).
    """

    def __init__(self, start: datetime) -> None:
        if start.tzinfo is None:
            raise ValueError("a virtual clock starts at an aware time")
        self._start = start
        self._elapsed = 0.0
        self._ahead = 0.0
        self._slept = 0.0
        self._ticket = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """The virtual wall-clock time."""
        return self._start + timedelta(seconds=self._elapsed + self._ahead)

    def wall(self) -> float:
        """Virtual seconds since the epoch."""
        return self._start.timestamp() + self._elapsed + self._ahead

    def monotonic(self) -> float:
        """Virtual seconds since the clock was made."""
        return self._elapsed

    def steady(self) -> float:
        """Virtual seconds since the epoch, as if the wall clock had never been set."""
        return self._start.timestamp() + self._elapsed

    def slept(self) -> float:
        """The seconds of all `suspend`s."""
        return self._slept

    def beat(self) -> None:
        """Nothing: virtual time passes only when a test moves it."""

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back; nothing else notices."""
        self._ahead += seconds

    def suspend(self, seconds: float) -> None:
        """Let the machine sleep: on waking, the wall clock has gone on and nothing else has."""
        self._ahead += seconds
        self._slept += seconds

    async def sleep(self, seconds: float) -> None:
        """Wait until someone advances the clock that far."""
        import asyncio  # noqa: PLC0415

        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._ticket), wake))
        await wake

    async def advance(self, seconds: float) -> None:
        """Move time forward; each sleeper wakes, and runs, at its own hour."""
        end = self._elapsed + seconds
        await self._let_others_run()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._elapsed, _, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                wake.set_result(None)
            await self._let_others_run()
        self._elapsed = end

    async def _let_others_run(self) -> None:
        import asyncio  # noqa: PLC0415

        # A woken task may need a few turns of the loop before it sleeps again; ten is enough for
        # chains of awaits and costs nothing in virtual time.
        for _ in range(10):
            await asyncio.sleep(0)


class Moved(NamedTuple):
    """The wall clock is elsewhere than it was: ahead of the steady time line by so much now.

    That is by so much more (or less) than before, `slept` of it because the machine slept.
    """

    ahead: float
    by: float
    slept: float


class ClockWatch:
    """Notices that the wall clock was set, or that the machine has slept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = clock.wall() - clock.steady()
        self._slept = clock.slept()

    def look(self) -> Moved | None:
        """How the wall clock has moved since the last look; None when it has not."""
        ahead = self._clock.wall() - self._clock.steady()
        by = ahead - self._ahead
        if abs(by) < _OFF:
            return None
        slept = self._clock.slept()
        before, self._slept, self._ahead = self._slept, slept, ahead
        return Moved(ahead, by, slept - before)


class BelievedTime:
    """The wall clock's time for judging what lies long ago; one that was set is believed later.

    `elapsed` are real seconds that nobody sets. Whoever forgets records, or what was spent, by a
    clock that is wrong for an hour cannot undo it: a clock has to stay as it was set for a day.
    It begins at `begins_at` if there is one, and at the wall clock's time otherwise.
    """

    def __init__(
        self,
        wall: Callable[[], float],
        elapsed: Callable[[], float],
        begins_at: float | None = None,
    ) -> None:
        self._wall = wall
        self._elapsed = elapsed
        at = elapsed()
        self._seen = wall() - at
        self._seen_since = at
        self._believed = self._seen if begins_at is None else begins_at - at

    def now(self) -> float:
        """The time that is believed."""
        at = self._elapsed()
        ahead = self._wall() - at
        if abs(ahead - self._seen) > CORRECTED:
            self._seen, self._seen_since = ahead, at
        stays = at - self._seen_since >= _STAYS_FOR
        if stays or abs(ahead - self._believed) <= CORRECTED:
            self._believed = ahead
        return at + self._believed


def _counting_sleep() -> float:
    """Seconds that never go backwards and that pass while the machine sleeps, where known."""
    if sys.platform == "linux":
        try:
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        except OSError:  # an emulated kernel may not know it: there sleep looks like a set clock
            return time.monotonic()
    elif sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
    else:
        # Windows counts sleep in its monotonic clock; of others it is not known.
        return time.monotonic()


def host_zone() -> tzinfo | None:
    """The host's zone by name, so that summer time is right on other days too; None if unnamed.

    Windows and odd set-ups have no name to find; there the current offset has to do.
    """
    name = os.environ.get("TZ", "").lstrip(":")
    if not name:
        with suppress(OSError, NotImplementedError):
            name = Path("/etc/localtime").readlink().as_posix().partition("zoneinfo/")[2]
    if name in ("UTC", "Etc/UTC"):
        return UTC
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
