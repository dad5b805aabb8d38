"""Give the time, and wait for it: the only source of time in the house.

Laws: (1) wall-clock times are aware and in the host's zone; (2) durations are measured with
`monotonic`, never with the wall clock; (3) the virtual clock moves only when told to.
Not here: what a time in a text means (failures/resets.py).
"""

from __future__ import annotations

import heapq
import itertools
import os
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

if TYPE_CHECKING:
    import asyncio


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

    async def sleep(self, seconds: float) -> None:
        """Wait for at least so long."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        """The wall-clock time, aware, in the host's zone."""
        return self.in_host_zone(datetime.now(UTC))

    def in_host_zone(self, moment: datetime) -> datetime:
        """The same moment in the host's zone; a naive one is taken to be there already."""
        zone = host_zone()
        if zone is None:
            return moment.astimezone()
        return moment.replace(tzinfo=zone) if moment.tzinfo is None else moment.astimezone(zone)

    # Not wrapped in a method: every call asks several times.
    wall = staticmethod(time.time)

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for at least so long."""
        import asyncio  # noqa: PLC0415 -- short commands ask for the time and never wait

        await asyncio.sleep(seconds)


class VirtualClock:
    """Time that stands still until `advance` moves it; sleepers wake in the order of their hour."""

    def __init__(self, start: datetime) -> None:
        if start.tzinfo is None:
            raise ValueError("a virtual clock starts at an aware time")
        self._start = start
        self._elapsed = 0.0
        self._ticket = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """The virtual wall-clock time."""
        return self._start + timedelta(seconds=self._elapsed)

    def wall(self) -> float:
        """Virtual seconds since the epoch."""
        return self._start.timestamp() + self._elapsed

    def monotonic(self) -> float:
        """Virtual seconds since the clock was made."""
        return self._elapsed

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
        await _let_others_run()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._elapsed, _, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                wake.set_result(None)
            await _let_others_run()
        self._elapsed = end


def host_zone() -> tzinfo | None:
    """The host's zone by name, so that summer time is right on other days too; None if unnamed.

    Windows and odd set-ups have no name to find; there the current offset has to do.
    """
    name = os.environ.get("TZ", "").lstrip(":") or _linked_zone()
    if name in ("UTC", "Etc/UTC"):
        return UTC
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _linked_zone() -> str:
    try:
        target = Path("/etc/localtime").readlink()
    except (OSError, NotImplementedError):
        return ""
    return target.as_posix().partition("zoneinfo/")[2]


async def _let_others_run() -> None:
    import asyncio  # noqa: PLC0415

    # A woken task may need a few turns of the loop before it sleeps again; ten is enough for
    # chains of awaits and costs nothing in virtual time.
    for _ in range(10):
        await asyncio.sleep(0)
