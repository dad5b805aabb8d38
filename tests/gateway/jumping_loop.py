"""A loop on which a test decides what time it is, and whether this process stood still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

from tests.upstream.loopback import PATIENCE

T = TypeVar("T")


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose time is moved on by hand: by much at once it stood still, by little it did not.

    As after a real standstill, timers are due at once, and what came meanwhile is still unread.
    """

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    async def run_on_time(self, seconds: float) -> None:
        """Let time pass in small steps, each timer in its turn."""
        end = self.ahead + seconds
        while self.ahead < end:
            self.ahead += 0.05
            await asyncio.sleep(0)


def on_jumping_loop(play: Callable[[JumpingLoop], Coroutine[object, object, T]]) -> T:
    loop = JumpingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(asyncio.wait_for(play(loop), 100 * PATIENCE))
