"""Let people watch Jackline's side of a drill while it runs, and keep it open afterwards.

Rules: (1) every gateway of a watched drill listens at the same address, so that a page stays open
from part to part; (2) a drill that nobody watches waits for nothing; (3) while people look at the
end, time passes at the machine's own speed.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Self, TypeAlias

from jackline.drills.drill_clock import DrillClock
from jackline.errors import UsageError

ProgressLine: TypeAlias = Callable[[str], None]
"""Prints one line about how far a drill is."""


async def until_interrupted() -> None:
    """Wait for Ctrl-C, which then interrupts nothing else."""
    loop, pressed = asyncio.get_running_loop(), asyncio.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        # Windows has no handlers of the loop's own.
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(pressed.set)

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        await pressed.wait()
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(slots=True, eq=False)
class LiveView:
    """Where a drill is watched, and until when."""

    port: int = 0
    progress: ProgressLine = lambda _line: None
    until: Callable[[], Awaitable[None]] = until_interrupted
    """Waits until the viewer has seen enough."""
    watching: bool = True
    state: Path | None = None
    """The state folder of the gateway that was opened last."""

    @classmethod
    def at(cls, port: int | None, progress: ProgressLine) -> Self:
        """One at this port, or at a free one, until Ctrl-C."""
        try:
            with socket.create_server(("127.0.0.1", port or 0)) as probe:
                found = int(probe.getsockname()[1])
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used: {error.strerror or error}",
                hint="name another one with --port, or leave it out to use a free one",
            ) from error
        return cls(found, progress)

    def opened(self, url: str, state: Path) -> None:
        """A gateway is open: print where to look."""
        if self.watching:
            self.state = state
            self.progress(
                f"watch it: {url} in a browser, or jackline status --watch --state {state}"
            )
            self.progress(f"to control it as well: jackline open --state {state}")

    async def wait_for_viewer(self, name: str, clock: DrillClock) -> None:
        """Keep the page open, in real time, until the viewer has seen enough."""
        if self.watching:
            clock.use_real_time()
            self.progress(f"{name} has ended; the page stays open until you press Ctrl-C")
            await self.until()


NOT_WATCHED = LiveView(watching=False)
