"""Send spans to a collector, in batches and in a thread.

Laws: (1) nothing waits for it; a collector that is away loses spans, never calls; (2) what waits is
bounded, and what is lost is told; (3) trouble is logged once, and once again when it is over.
Not here: what is sent (spans.py, otlp_json.py).
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import urllib.error
import urllib.request
from collections.abc import Callable

from jackline.clock import Clock
from jackline.telemetry.otlp_json import encoded
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.spans import Span, Tracer

_log = logging.getLogger(__name__)
_TRACES = "/v1/traces"
_EVERY = 5.0
_SECONDS = 10.0
_IN_A_BATCH = 512
_MOST_WAITING = 20_000
_NOT_SENT = (OSError, ValueError, http.client.HTTPException)


class SpanSender:
    """Sends what a tracer has made; `watch` must run for as long as the service does."""

    def __init__(
        self,
        tracer: Tracer,
        settings: OtlpSettings,
        version: str,
        clock: Clock,
        settle: Callable[[], object],
    ) -> None:
        self._tracer = tracer
        self._settings = settings
        self._version = version
        self._clock = clock
        # Has the tracer told what was put aside.
        self._settle = settle
        self._waiting: list[Span] = []
        self._in_trouble = False
        self.lost = 0

    async def watch(self) -> None:
        """Send again and again; at the end send what is left, once."""
        try:
            while True:
                await self._clock.sleep(_EVERY)
                await self.send()
        finally:
            await asyncio.shield(self.send(all_of_them=True))

    async def send(self, *, all_of_them: bool = False) -> None:
        """Send what is complete."""
        self._settle()
        self._waiting += self._tracer.take(self._clock.wall(), all_of_them=all_of_them)
        too_many = len(self._waiting) - _MOST_WAITING
        if too_many > 0:
            self.lost += too_many
            del self._waiting[:too_many]
        while self._waiting:
            batch = self._waiting[:_IN_A_BATCH]
            body = encoded(batch, self._version)
            trouble = await asyncio.to_thread(post, self._settings, _TRACES, body)
            self._note(trouble)
            if trouble:
                return
            del self._waiting[: len(batch)]

    def _note(self, trouble: str) -> None:
        if trouble and not self._in_trouble:
            _log.warning("spans are not taken by %s: %s", self._settings.endpoint, trouble)
        elif self._in_trouble and not trouble:
            _log.info("spans are taken again; %d were lost", self.lost + self._tracer.dropped)
        self._in_trouble = bool(trouble)


def post(settings: OtlpSettings, path: str, body: bytes) -> str:
    """Send one export to the collector; what went wrong, in words, or nothing."""
    headers = {"content-type": "application/json"}
    if settings.authorization is not None:
        headers["authorization"] = settings.authorization
    address = f"{(settings.endpoint or '').rstrip('/')}{path}"
    try:
        request = urllib.request.Request(address, body, headers)  # noqa: S310 -- checked to be http
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            answer.read(4096)
    except urllib.error.HTTPError as error:
        with error:
            return f"it answers with HTTP status {error.code}"
    except _NOT_SENT as error:
        return type(error).__name__
    return ""
