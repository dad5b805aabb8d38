"""Send a service's spans and clients' telemetry to a collector, in a thread.

Rules: (1) nothing waits for it: a collector that is away loses spans, never calls; (2) what waits
is bounded, the oldest goes first, and losses are counted; (3) trouble is logged once; (4) JSON by
the mapping that OTLP prescribes: ids in hexadecimal, 64-bit numbers as strings, enumerations as
numbers; (5) a tool is reported once: by the client's own span, or by ours.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import urllib.error
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from jackline import __version__
from jackline.agents.runner import parse_tool_runs
from jackline.batches.tool import BatchCall, CallResult
from jackline.clock import Clock
from jackline.control.observatory import Observatory
from jackline.events import AttemptFailed, CallEnded, Event
from jackline.providers.settings import UpstreamSettings
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.spans import (
    SERVICE_NAME,
    SERVICE_VERSION,
    Attribute,
    Span,
    ToolRan,
    Tracer,
)
from jackline.upstream.single_post import post

_log = logging.getLogger(__name__)
_SEND_EVERY = 5.0
_TIMEOUT = 10.0
_BATCH = 512
_MAX_SPANS_WAITING = 20_000
_MAX_EXPORTS_WAITING = 500
_MAX_BYTES_WAITING = 32 << 20
_ERROR_STATUS = 2


def encode_spans(spans: Iterable[Span], version: str) -> bytes:
    """The body of one export."""
    service = {SERVICE_NAME: "jackline", SERVICE_VERSION: version}
    scope = {"name": "jackline", "version": version}
    encoded = []
    for span in spans:
        each: dict[str, object] = {
            "traceId": span.trace,
            "spanId": span.span,
            "name": span.name,
            "kind": int(span.kind),
            "startTimeUnixNano": _nanoseconds(span.begins),
            "endTimeUnixNano": _nanoseconds(max(span.begins, span.ends)),
            "attributes": _attributes(span.attributes),
        }
        if span.parent:
            each["parentSpanId"] = span.parent
        if span.error:
            each["status"] = {"code": _ERROR_STATUS, "message": span.error}
        encoded.append(each)
    group = {
        "resource": {"attributes": _attributes(service)},
        "scopeSpans": [{"scope": scope, "spans": encoded}],
    }
    return msgspec.json.encode({"resourceSpans": [group]})


def _attributes(attributes: Mapping[str, Attribute]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name, value in attributes.items():
        if isinstance(value, bool):
            typed: dict[str, object] = {"boolValue": value}
        elif isinstance(value, int):
            typed = {"intValue": str(value)}
        else:
            typed = {"doubleValue" if isinstance(value, float) else "stringValue": value}
        found.append({"key": name, "value": typed})
    return found


def _nanoseconds(moment: float) -> str:
    # Not in one multiplication: a float is too small for today's nanoseconds.
    whole = int(moment)
    return str(whole * 1_000_000_000 + round((moment - whole) * 1_000_000_000))


def export(settings: OtlpSettings, path: str, body: bytes) -> str:
    """Send one export to the collector; what went wrong, or nothing."""
    headers = {"content-type": "application/json"}
    if settings.authorization is not None:
        headers["authorization"] = settings.authorization
    address = f"{(settings.endpoint or '').rstrip('/')}{path}"
    try:
        post(address, body, headers, _TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            return f"it answers with HTTP status {error.code}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return type(error).__name__
    return ""


class Tracing:
    """The spans of one service; `watch` must run for as long as it does."""

    def __init__(
        self,
        settings: OtlpSettings,
        upstreams: Callable[[], Sequence[UpstreamSettings]],
        observatory: Observatory,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._upstreams = upstreams
        self._clock = clock
        self._settle = observatory.settle
        self._tracer = Tracer(self._provider_of)
        observatory.also = self._on_event
        self._waiting: list[Span] = []
        self._is_failing = False
        self.lost = 0

    def trace_named(self, call: str, traceparent: bytes) -> None:
        """The client of this call has a trace of its own."""
        self._tracer.came_with(call, traceparent)

    def tool_ran(self, tool: ToolRan) -> None:
        """A tool ended; queued calls of its agent come before it."""
        self._settle()
        self._tracer.tool_ran(tool)

    def tools_reported(self, session: str, agent: str, header: bytes) -> None:
        """An agent of ours reports, with its next call, which tools it ran."""
        for tool in parse_tool_runs(header):
            ends = tool.begins + tool.seconds
            self.tool_ran(
                ToolRan(
                    session,
                    agent,
                    tool.name,
                    tool.begins,
                    ends,
                    ok=tool.ok,
                    reported_by="agent",
                    error=tool.ended_by,
                )
            )

    def batch_call_ran(self, call: BatchCall, result: CallResult, session: str) -> None:
        """A call of a batch ended, in the session that ordered it."""
        ends = self._clock.wall()
        self.tool_ran(
            ToolRan(
                session,
                "",
                call.tool.name,
                ends - result.seconds,
                ends,
                ok=result.ok,
                reported_by="batch",
                call_id=call.id,
                error=result.ended_by,
            )
        )

    def place_of(self, session: str, agent: str) -> tuple[str, str]:
        """The trace and the span of an agent, as of now."""
        self._settle()
        return self._tracer.place_of(session, agent)

    def take(self, *, all_of_them: bool = False) -> list[Span]:
        """The spans that are complete; with `all_of_them` also those that are still open."""
        self._settle()
        return self._tracer.take(self._clock.wall(), all_of_them=all_of_them)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, CallEnded):
            self._tracer.call_ended(event)
        elif isinstance(event, AttemptFailed):
            self._tracer.attempt_failed(event)

    def _provider_of(self, upstream: str) -> str:
        names = {each.name: each.kind.facts.telemetry_name for each in self._upstreams()}
        return names.get(upstream, upstream or "unknown")

    async def watch(self) -> None:
        """Send again and again; at the end send what is left, once."""
        try:
            while True:
                await self._clock.sleep(_SEND_EVERY)
                await self.send()
        finally:
            await asyncio.shield(self.send(all_of_them=True))

    async def send(self, *, all_of_them: bool = False) -> None:
        """Send what is complete."""
        self._waiting += self.take(all_of_them=all_of_them)
        too_many = len(self._waiting) - _MAX_SPANS_WAITING
        if too_many > 0:
            self.lost += too_many
            del self._waiting[:too_many]
        while self._waiting:
            batch = self._waiting[:_BATCH]
            body = encode_spans(batch, __version__)
            trouble = await asyncio.to_thread(export, self._settings, "/v1/traces", body)
            if trouble and not self._is_failing:
                _log.warning("%s does not accept spans: %s", self._settings.endpoint, trouble)
            elif self._is_failing and not trouble:
                lost = self.lost + self._tracer.dropped
                _log.info("spans are accepted again; %d were lost", lost)
            self._is_failing = bool(trouble)
            if trouble:
                return
            del self._waiting[: len(batch)]


class Forwarder:
    """Sends clients' exports on; `watch` must run for as long as the service does."""

    def __init__(self, settings: OtlpSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._bytes = 0
        self._is_failing = False
        self.lost = 0

    def put(self, path: str, body: bytes) -> None:
        """Have this sent to the collector's path."""
        self._waiting.append((path, body))
        self._bytes += len(body)
        while len(self._waiting) > _MAX_EXPORTS_WAITING or self._bytes > _MAX_BYTES_WAITING:
            self._take()
            self.lost += 1

    async def watch(self) -> None:
        """Send again and again; at the end send what is left, once."""
        try:
            while True:
                await self._clock.sleep(_SEND_EVERY)
                await self.send()
        finally:
            await asyncio.shield(self.send())

    async def send(self) -> None:
        """Send what waits; what is not accepted is lost, since the next export comes soon."""
        while self._waiting:
            path, body = self._take()
            trouble = await asyncio.to_thread(export, self._settings, path, body)
            self.lost += bool(trouble)
            if trouble and not self._is_failing:
                where = f"{self._settings.endpoint}{path}"
                _log.warning("%s does not accept clients' telemetry: %s", where, trouble)
            self._is_failing = bool(trouble)

    def _take(self) -> tuple[str, bytes]:
        path, body = self._waiting.popleft()
        self._bytes -= len(body)
        return path, body
