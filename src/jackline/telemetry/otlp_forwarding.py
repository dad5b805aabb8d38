"""Send on to a collector what clients have told, in a thread.

Laws: (1) nothing waits for it; (2) what waits is bounded, the oldest goes first; (3) a collector
that is away, or wants none of it, is told in the log once.
Not here: what may be sent on (export_filter.py), our own spans (otlp_sending.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from jackline.clock import Clock
from jackline.telemetry.otlp_sending import post
from jackline.telemetry.settings import OtlpSettings

_log = logging.getLogger(__name__)
_EVERY = 5.0
_MOST_WAITING = 500
_MOST_BYTES = 32 << 20


class Forwarder:
    """Sends on what it is given; `watch` must run for as long as the service does."""

    def __init__(self, settings: OtlpSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._bytes = 0
        self._in_trouble = False
        self.lost = 0

    def put(self, path: str, body: bytes) -> None:
        """Have this sent to the collector's path."""
        self._waiting.append((path, body))
        self._bytes += len(body)
        while len(self._waiting) > _MOST_WAITING or self._bytes > _MOST_BYTES:
            self._take()
            self.lost += 1

    async def watch(self) -> None:
        """Send again and again; at the end send what is left, once."""
        try:
            while True:
                await self._clock.sleep(_EVERY)
                await self.send()
        finally:
            await asyncio.shield(self.send())

    async def send(self) -> None:
        """Send what waits; what is not taken is lost, for the next export comes soon."""
        while self._waiting:
            path, body = self._take()
            trouble = await asyncio.to_thread(post, self._settings, path, body)
            if trouble:
                self.lost += 1
            if trouble and not self._in_trouble:
                where = self._settings.endpoint
                _log.warning("what clients tell is not taken by %s%s: %s", where, path, trouble)
            self._in_trouble = bool(trouble)

    def _take(self) -> tuple[str, bytes]:
        path, body = self._waiting.popleft()
        self._bytes -= len(body)
        return path, body
