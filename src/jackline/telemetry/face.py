"""Answer `/metrics` and `/_jackline/fleet` on the service's port.

Laws: (1) reading is open to whoever passed the door; (2) what has to be read from a disk is read
off the event loop, and not more often than every few seconds; (3) whoever asks is answered, also
when that reading fails.
Not here: what is told (scrape.py, control/fleet_reading.py), the door (gateway/doors.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from jackline.clock import Clock
from jackline.control.face import Asked
from jackline.telemetry.exposition import CONTENT_TYPE, render
from jackline.telemetry.scrape import Seen, families

METRICS = b"/metrics"
FLEET = b"/_jackline/fleet"
_REFRESH_EVERY = 2.0


class ReadingsFace:
    """What programs read; `serve` must run for as long as the service does."""

    def __init__(
        self,
        look: Callable[[], Seen],
        fleet: Callable[[], Mapping[str, object]],
        refresh: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._look = look
        self._fleet = fleet
        self._refresh = refresh
        self._clock = clock
        self._refreshed = float("-inf")
        self._answers: set[asyncio.Task[None]] = set()

    def knows(self, asked: Asked) -> bool:
        """Whether this is one of the readings."""
        return asked.path in (METRICS, FLEET)

    def answer(self, asked: Asked) -> None:
        """Tell it."""
        if asked.method not in (b"GET", b"HEAD"):
            asked.respond(405, [(b"content-type", b"text/plain")], b"this is only read\n")
            return
        if self._clock.monotonic() - self._refreshed < _REFRESH_EVERY:
            self._tell(asked)
            return
        task = asyncio.get_running_loop().create_task(self._after_reading(asked))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def serve(self) -> None:
        """See to it that nobody is left waiting when the service ends."""
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._answers:
                task.cancel()
            await asyncio.gather(*self._answers, return_exceptions=True)

    async def _after_reading(self, asked: Asked) -> None:
        try:
            await self._refresh()
            self._refreshed = self._clock.monotonic()
        finally:
            self._tell(asked)

    def _tell(self, asked: Asked) -> None:
        if asked.path == METRICS:
            kind, body = CONTENT_TYPE, render(families(self._look()))
        else:
            kind, body = b"application/json", msgspec.json.encode(self._fleet())
        asked.respond(200, [(b"content-type", kind), (b"cache-control", b"no-store")], body)
