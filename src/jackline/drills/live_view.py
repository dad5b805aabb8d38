"""Let people watch Jackline's side of a drill while it runs, and keep it open afterwards.

Rules: (1) every gateway of a watched drill listens at the same address, so that a page stays open
from part to part; (2) a drill that nobody watches waits for nothing; (3) while people look at the
end, time passes at the machine's own speed.
Not here: opening gateways (environment.py), what is shown (dashboard/, cli/status.py).
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

from jackline.drills.drill_clock import DrillClock
from jackline.errors import UsageError

Teller = Callable[[str], None]
LOOPBACK = "127.0.0.1"


async def _at_once() -> None:
    """Nobody looks: there is nothing to wait for."""


@dataclass(slots=True, eq=False)
class LiveView:
    """Where a drill is watched, and until when; `NOBODY` watches none."""

    port: int = 0
    tell: Teller = lambda _line: None
    until: Callable[[], Awaitable[None]] = _at_once
    """Waits until whoever looks has seen enough."""
    watching: bool = True
    state: Path | None = None
    """The state folder of the gateway that was opened last."""

    def opened(self, url: str, state: Path) -> None:
        """A gateway is open: say where to look."""
        if self.watching:
            self.state = state
            self.tell(f"watch it: {url} in a browser, or jackline top --state {state}")
            self.tell(f"to give orders, too: jackline open --state {state}")

    async def linger(self, name: str, pace: DrillClock) -> None:
        """Keep open what is shown, at the machine's own pace, until it was seen."""
        if self.watching:
            pace.ease()
            self.tell(f"{name} is over; what is shown stays until you press Ctrl-C")
            await self.until()


NOT_WATCHED = LiveView(watching=False)


def live_view_at(port: int | None, tell: Teller) -> LiveView:
    """One at this port, or at a free one, that is left with Ctrl-C."""
    try:
        with socket.create_server((LOOPBACK, port or 0)) as tried:
            found = int(tried.getsockname()[1])
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be had: {error.strerror or error}",
            next="name another one with --port, or leave it out to take a free one",
        ) from error
    return LiveView(found, tell, until_interrupted)


async def until_interrupted() -> None:
    """Wait for Ctrl-C, which then interrupts nothing else."""
    loop, pressed = asyncio.get_running_loop(), asyncio.Event()

    def heard(_number: int, _frame: FrameType | None) -> None:
        # The loop's own handlers are not to be had on Windows.
        with suppress(RuntimeError):  # it was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(pressed.set)

    before = signal.signal(signal.SIGINT, heard)
    try:
        await pressed.wait()
    finally:
        signal.signal(signal.SIGINT, before)
