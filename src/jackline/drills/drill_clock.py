"""The clock of a drill: its seconds pass faster than the machine's.

Rules: (1) gateway and clients of a drill use this clock, and the provider announces its dates by
it, so all of them run with their usual settings; (2) no other module converts drill seconds into
real ones; (3) all processes of a drill share it, because Python's monotonic clock is the same in
all processes of a machine.
"""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Self

from jackline.clock import SystemClock
from jackline.errors import InternalError


class DrillClock:
    """A clock that starts when it is made; `speed` of its seconds pass in one real second."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self._system = SystemClock()
        self._began = self._system.monotonic()
        self._passed = 0.0
        self._began_wall = self._system.wall()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The clock that another process of this machine exported with `as_text`."""
        clock = cls()
        clock.speed, clock._began, clock._passed, clock._began_wall = json.loads(text)
        if clock._system.monotonic() < clock._began:
            raise InternalError("two processes of this machine do not count the same seconds")
        return clock

    def as_text(self) -> str:
        """What another process needs to use the same clock."""
        return json.dumps([self.speed, self._began, self._passed, self._began_wall])

    def now(self) -> datetime:
        """The drill's wall-clock time, aware, in the host's zone."""
        return datetime.fromtimestamp(self.wall(), self._system.now().tzinfo)

    def wall(self) -> float:
        """The drill's wall-clock time as seconds since the epoch."""
        return self._began_wall + self.monotonic()

    def monotonic(self) -> float:
        """The drill's seconds since the clock was made."""
        return self._passed + (self._system.monotonic() - self._began) * self.speed

    def steady(self) -> float:
        """The same as the wall clock: nobody sets it in a drill."""
        return self.wall()

    def slept(self) -> float:
        """Nothing: a drill's machine is awake."""
        return 0.0

    def beat(self) -> None:
        """Nothing: a drill's machine is awake."""

    def use_real_time(self) -> None:
        """Let time pass as fast as the machine's from now on; running sleeps do not change."""
        self._passed, self._began = self.monotonic(), self._system.monotonic()
        self.speed = 1.0

    async def sleep(self, seconds: float) -> None:
        """Wait for so many of the drill's seconds."""
        await self._system.sleep(self.real(seconds))

    def real(self, seconds: float) -> float:
        """So many of the drill's seconds, in real seconds."""
        return seconds / self.speed

    def timeout(self, seconds: float) -> asyncio.Timeout:
        """A limit of so many of the drill's seconds, for `async with`."""
        return asyncio.timeout(self.real(seconds))

    def restart_timeout(self, limit: asyncio.Timeout, seconds: float) -> None:
        """Let a limit count from now again."""
        limit.reschedule(asyncio.get_running_loop().time() + self.real(seconds))
