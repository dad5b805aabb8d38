"""Let a drill's seconds pass faster than the machine's.

Laws: (1) gateway and clients of a drill live by this clock, and the provider tells its dates in it,
so that all keep their usual settings; (2) nothing else turns the drill's seconds into real ones.
Not here: the provider's own scale (simulator/playing.py), which is the same.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from jackline.clock import SystemClock


class Pace:
    """A clock that starts when it is made; `speed` of its seconds pass in one real second."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self._system = SystemClock()
        self._began = self._system.monotonic()
        self._passed = 0.0
        self._began_wall = self._system.wall()

    def now(self) -> datetime:
        """The drill's wall-clock time, aware, in the host's zone."""
        return datetime.fromtimestamp(self.wall(), self._system.now().tzinfo)

    def wall(self) -> float:
        """The drill's wall-clock time as seconds since the epoch."""
        return self._began_wall + self.monotonic()

    def monotonic(self) -> float:
        """The drill's seconds since the clock was made."""
        return self._passed + (self._system.monotonic() - self._began) * self.speed

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
