"""Send spans, and clients' own telemetry, to a collector as OTLP's JSON, in a thread.

Rules: (1) nothing waits for it: a collector that is away loses spans, never calls; (2) what waits
is bounded, the oldest goes first, and losses are counted; (3) trouble is logged once; (4) JSON by
the mapping that OTLP prescribes: ids in hexadecimal, 64-bit numbers as strings, enumerations as
numbers.
Not here: what spans are made of (spans.py), what may be sent on (client_telemetry.py).
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import msgspec

from jackline.clock import Clock
from jackline.telemetry import span_names as names
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.spans import Attribute, Span, Tracer

_ERROR = 2


def encode_spans(spans: Iterable[Span], version: str) -> bytes:
    """The body of one export."""
    service = {names.SERVICE_NAME: "jackline", names.SERVICE_VERSION: version}
    scope = {"name": "jackline", "version": version}
    told = [_span(span) for span in spans]
    return msgspec.json.encode(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(service)},
                    "scopeSpans": [{"scope": scope, "spans": told}],
                }
            ]
        }
    )


def _span(span: Span) -> dict[str, object]:
    told: dict[str, object] = {
        "traceId": span.trace,
        "spanId": span.span,
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": _nanoseconds(span.begins),
        "endTimeUnixNano": _nanoseconds(max(span.begins, span.ends)),
        "attributes": _attributes(span.attributes),
    }
    if span.parent:
        told["parentSpanId"] = span.parent
    if span.error:
        told["status"] = {"code": _ERROR, "message": span.error}
    return told


def _attributes(attributes: Mapping[str, Attribute]) -> list[dict[str, object]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Attribute) -> dict[str, object]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def _nanoseconds(moment: float) -> str:
    # Not through one multiplication: a float has no room for today's nanoseconds.
    whole = int(moment)
    return str(whole * 1_000_000_000 + round((moment - whole) * 1_000_000_000))


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
            body = encode_spans(batch, self._version)
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


_FORWARD_EVERY = 5.0
_MOST_EXPORTS_WAITING = 500
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
        while len(self._waiting) > _MOST_EXPORTS_WAITING or self._bytes > _MOST_BYTES:
            self._take()
            self.lost += 1

    async def watch(self) -> None:
        """Send again and again; at the end send what is left, once."""
        try:
            while True:
                await self._clock.sleep(_FORWARD_EVERY)
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
