"""The clock of a drill: its seconds pass faster than the machine's.

Rules: (1) gateway and clients of a drill use this clock, and the provider announces its dates by
it, so all of them run with their usual settings; (2) no other module converts drill seconds into
real ones; (3) all processes of a drill share it, because Python's monotonic clock is the same in
all processes of a machine.
Not here: the provider's own scale (simulator/live_provider.py), which is the same.
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
    def joined(cls, told: str) -> Self:
        """The clock that another process of this machine has told of."""
        pace = cls()
        pace.speed, pace._began, pace._passed, pace._began_wall = json.loads(told)
        if pace._system.monotonic() < pace._began:
            raise InternalError("two processes of this machine do not count the same seconds")
        return pace

    def told(self) -> str:
        """What another process needs for the same clock, as it goes now."""
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

    def ease(self) -> None:
        """Let time pass as fast as the machine's from now on; who sleeps wakes as was said."""
        self._passed, self._began = self.monotonic(), self._system.monotonic()
        self.speed = 1.0

    async def sleep(self, seconds: float) -> None:
        """Wait for so many of the drill's seconds."""
        await self._system.sleep(self.real(seconds))

    def real(self, seconds: float) -> float:
        """How long the machine takes for so many of the drill's seconds."""
        return seconds / self.speed

    def timeout(self, seconds: float) -> asyncio.Timeout:
        """A limit of so many of the drill's seconds, for `async with`."""
        return asyncio.timeout(self.real(seconds))

    def push_back(self, limit: asyncio.Timeout, seconds: float) -> None:
        """Let a limit count from now again."""
        limit.reschedule(asyncio.get_running_loop().time() + self.real(seconds))
