"""Receive the telemetry that Claude Code exports, sum it up by agent, and forward it.

Rules: (1) only with `[otlp] receive`; clients get the variables for it unless the user has
telemetry of their own; (2) what is saved and forwarded passes export_filter.py, so that no prompt,
answer, tool input or output does; (3) an export that is too large, compressed in an unknown way or
not understood is refused with an OTLP error; parsing raises nothing but ValueError; (4) a client is
answered at once and its export forwarded later; (5) the sums are bounded: the agents that were
silent for longest are dropped first.
Not here: access (gateway/access.py), forwarding (otlp_export.py), what the gateway observed
(control/fleet.py).
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import parse_qs, quote

import msgspec

from jackline.control.fleet import Member
from jackline.control.http_handler import ServiceRequest
from jackline.dialects.json_bounds import MOST_VALUES, has_too_many_values
from jackline.http1.compression import MOST_RATIO
from jackline.outside_names import cut_name
from jackline.telemetry.export_filter import Document, fit_attributes, fit_export, fit_integer, maps
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.spans import ToolRan

Place: TypeAlias = Callable[[str, str], tuple[str, str]]
"""The trace and the span of an agent by its session and id; empty where none is known."""

TOOL_RESULT = "tool_result"
API_REQUEST = "api_request"
API_ERROR = "api_error"
SUB_AGENT = "subagent_completed"

MOST_AGENTS = 5000
_MAX_TOOLS = 64
_OTHER_TOOLS = "other-tools"
# Tokens, dollars or milliseconds in one record.
_LARGEST = 1e12
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")

PREFIX = b"/_jackline/otlp/"
REPORTS = b"/_jackline/clients"
SCHEMA = "jackline.clients/1"
_SIGNALS = {
    b"/_jackline/otlp/v1/traces": "/v1/traces",
    b"/_jackline/otlp/v1/logs": "/v1/logs",
    b"/_jackline/otlp/v1/metrics": "/v1/metrics",
}
_LARGEST_EXPORT = 16 << 20
_OFF = (
    "Jackline does not receive clients' telemetry here. Switch it on in your own jackline.toml:"
    " [otlp] receive = true"
)
_ONLY_JSON = "Jackline reads OTLP as JSON only: set OTEL_EXPORTER_OTLP_PROTOCOL=http/json."
# Google's codes, which OTLP's errors have.
_INVALID, _NOT_ALLOWED = 3, 7

Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """One event of an agent; `agent` is empty for a session's main thread."""

    at: float
    what: str
    session: str
    agent: str
    about: Mapping[str, str | float | bool]
    traced: bool
    """Whether the client has a trace of its own, and so reports its tools as spans, too."""

    def number(self, name: str) -> float:
        """A figure; 0 where it is missing, negative, or too large to be one."""
        try:
            value = float(self.about.get(name, 0))
        except (ValueError, OverflowError):
            return 0.0
        return value if 0.0 <= value <= _LARGEST else 0.0

    def name(self, name: str) -> str:
        """A name or a kind, short and printable; empty where it is missing."""
        value = self.about.get(name, "")
        return cut_name(value) if isinstance(value, str) else ""

    @property
    def succeeded(self) -> bool:
        """Whether the tool succeeded; clients report it as a text or as a boolean."""
        return self.about.get("success") in (True, "true")


def decoded(body: bytes) -> Document:
    """The export's document; ValueError when it is none, or has more values than an export."""
    if has_too_many_values(body, nested=True):
        raise ValueError(f"it has more than {MOST_VALUES:,} values")
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError("the body is no JSON") from error
    if not isinstance(document, dict):
        raise ValueError("the body is no JSON object")  # noqa: TRY004 -- one error for the sender
    return document


def parse_client_events(logs: Document) -> Iterator[ClientEvent]:
    """The events of agents in an export of logs; other records are skipped."""
    for record, about in _log_records(logs):
        session, what, agent = (about.get(n) for n in ("session.id", "event.name", "agent_id"))
        if not isinstance(session, str) or not isinstance(what, str) or not session:
            continue
        nanoseconds = fit_integer(record.get("timeUnixNano"))
        at = 0.0 if nanoseconds is None else int(nanoseconds) / 1e9
        yield ClientEvent(
            # OTLP has 64 bits for it.
            at if 0 <= at < (1 << 63) / 1e9 else 0.0,
            what,
            session,
            agent if isinstance(agent, str) else "",
            about,
            bool(record.get("traceId")),
        )


def redact_export(export: Document, place: Place, *, with_words: bool = False) -> Document:
    """The export without prompts and answers, its log records in the traces of our own spans.

    `with_words` is the user's order to leave all in.
    """
    fit = export if with_words else fit_export(export)
    for record, about in _log_records(fit):
        session, agent = about.get("session.id"), about.get("agent_id")
        if record.get("traceId") or not isinstance(session, str):
            continue
        trace, span = place(session, agent if isinstance(agent, str) else "")
        record["traceId"] = trace
        if span:
            record["spanId"] = span
    return fit


def _log_records(export: Document) -> Iterator[tuple[Document, dict[str, str | float | bool]]]:
    """Each log record, with those of its attributes that may be saved, as plain values."""
    for resource in maps(export.get("resourceLogs")):
        for scope in maps(resource.get("scopeLogs")):
            for record in maps(scope.get("logRecords")):
                about: dict[str, str | float | bool] = {}
                for each in fit_attributes(record.get("attributes")):
                    ((kind, value),) = each["value"].items()
                    is_figure = kind in ("intValue", "doubleValue")
                    about[each["key"]] = float(value) if is_figure else value
                yield record, about


@dataclass(slots=True)
class ToolSums:
    """The runs of one tool."""

    ok: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class ClientReport:
    """What a client reported of one agent."""

    name: str = ""
    """The kind of agent, as the client calls it."""
    requests: int = 0
    errors: int = 0
    tokens: int = 0
    dollars: float = 0.0
    ended: bool = False
    last: float = 0.0
    tools: dict[str, ToolSums] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """As every interface shows it."""
        return {
            "name": self.name,
            "requests": self.requests,
            "errors": self.errors,
            "tokens": self.tokens,
            "dollars": round(self.dollars, 6),
            "ended": self.ended,
            "last": self.last,
            "tools": {
                name: {"ok": each.ok, "failed": each.failed, "seconds": round(each.seconds, 3)}
                for name, each in self.tools.items()
            },
        }


class ClientReports:
    """What clients have reported of their agents lately."""

    def __init__(self) -> None:
        self._reports: OrderedDict[Key, ClientReport] = OrderedDict()

    def add(self, event: ClientEvent) -> None:
        """Add one event."""
        key = (cut_name(event.session), cut_name(event.agent))
        report = self._reports.setdefault(key, ClientReport())
        self._reports.move_to_end(key)
        while len(self._reports) > MOST_AGENTS:
            self._reports.popitem(last=False)
        report.last = max(report.last, event.at)
        report.name = event.name("agent.name") or event.name("agent_type") or report.name
        if event.what == API_REQUEST:
            report.requests += 1
            report.tokens += int(sum(event.number(name) for name in _TOKENS))
            report.dollars += event.number("cost_usd")
        elif event.what == API_ERROR:
            report.errors += 1
        elif event.what == SUB_AGENT:
            report.ended = True
        elif event.what == TOOL_RESULT:
            name = event.name("tool_name") or _OTHER_TOOLS
            if name not in report.tools and len(report.tools) >= _MAX_TOOLS:
                name = _OTHER_TOOLS
            sums = report.tools.setdefault(name, ToolSums())
            sums.seconds += event.number("duration_ms") / 1000
            sums.ok += event.succeeded
            sums.failed += not event.succeeded

    def of_agent(self, session: str, agent: str) -> ClientReport | None:
        """The report of one agent."""
        return self._reports.get((cut_name(session), cut_name(agent)))

    def of_session(self, beginning: str) -> dict[Key, ClientReport]:
        """The reports of the agents of sessions whose ids begin so."""
        return {key: each for key, each in self._reports.items() if key[0].startswith(beginning)}


@dataclass(frozen=True, slots=True)
class ReceiverCallbacks:
    """Who uses what comes in, besides the reports; without an endpoint nobody."""

    settings: Callable[[], OtlpSettings]
    member: Callable[[str, str], Member | None]
    """What the gateway itself has observed of an agent."""
    tool_ran: Callable[[ToolRan], object] | None
    place: Place
    pass_on: Callable[[str, bytes], None] | None


class OtlpReceiver:
    """Where clients send their telemetry, and where their reports are read."""

    def __init__(self, reports: ClientReports, callbacks: ReceiverCallbacks) -> None:
        self._reports = reports
        self._callbacks = callbacks

    def knows(self, request: ServiceRequest) -> bool:
        """Whether a client's exporter sends this, or it asks for the reports."""
        return request.path == REPORTS or request.path.startswith(PREFIX)

    def answer(self, request: ServiceRequest) -> None:
        """Receive an export, or send the reports."""
        signal = _SIGNALS.get(request.path)
        if request.path == REPORTS:
            self._send_reports(request)
        elif signal is None or request.method != b"POST":
            text = "Jackline takes POST at /v1/logs, /v1/metrics, /v1/traces."
            _refuse(request, 404, _INVALID, text)
        elif not self._callbacks.settings().receive:
            _refuse(request, 403, _NOT_ALLOWED, _OFF)
        elif not (request.header(b"content-type") or b"").startswith(b"application/json"):
            _refuse(request, 415, _INVALID, _ONLY_JSON)
        else:
            self._receive(request, signal)

    def _receive(self, request: ServiceRequest, signal: str) -> None:
        try:
            export = decoded(_decompressed(request))
        except ValueError as error:
            _refuse(request, 400, _INVALID, f"Jackline cannot read this: {error}.")
            return
        callbacks = self._callbacks
        # Parsed before anything is redacted.
        events = list(parse_client_events(export)) if signal == "/v1/logs" else []
        if callbacks.pass_on is not None:
            prompts = callbacks.settings().prompts
            fit = redact_export(export, callbacks.place, with_words=prompts)
            try:
                forwarded = msgspec.json.encode(fit)
            except (OverflowError, ValueError):
                text = "Jackline cannot pass this on: a number in it has more than 64 bits."
                _refuse(request, 400, _INVALID, text)
                return
            callbacks.pass_on(signal, forwarded)
        for event in events:
            self._reports.add(event)
            if event.what == TOOL_RESULT and not event.traced and callbacks.tool_ran is not None:
                took = event.number("duration_ms") / 1000
                tool = ToolRan(
                    event.session,
                    event.agent,
                    event.name("tool_name") or "unknown",
                    event.at - took,
                    event.at,
                    ok=event.succeeded,
                    reported_by="client",
                    call_id=event.name("tool_use_id"),
                    error=event.name("error_type"),
                )
                callbacks.tool_ran(tool)
        request.respond(200, [(b"content-type", b"application/json")], b"{}")

    def _send_reports(self, request: ServiceRequest) -> None:
        """What the clients reported, and what the gateway observed of the same agents."""
        session = parse_qs(request.query.decode("latin-1")).get("session", [""])[0]
        agents = []
        for key, report in self._reports.of_session(session).items():
            seen = self._callbacks.member(*key)
            observed = None
            if seen is not None:
                observed = {
                    "calls": seen.calls,
                    "failed": seen.failed,
                    "tokens": seen.tokens,
                    "waited": round(seen.waited, 1),
                }
            row = {"session": key[0], "agent": key[1]}
            agents.append({**row, "reported": report.to_json(), "seen": observed})
        body = msgspec.json.encode({"schema": SCHEMA, "agents": agents})
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        request.respond(200, headers, body)


def _decompressed(request: ServiceRequest) -> bytes:
    body = bytes(request.body)
    encoding = (request.header(b"content-encoding") or b"identity").lower()
    most = _LARGEST_EXPORT
    if encoding == b"gzip":
        most = min(most, MOST_RATIO * len(body))
        try:
            body = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body, most + 1)
        except zlib.error as error:
            raise ValueError("it is no gzip data") from error
    elif encoding != b"identity":
        raise ValueError("it is compressed in a way that is not known here")
    if len(body) > most:
        raise ValueError("it is too large")
    return body


def _refuse(request: ServiceRequest, status: int, code: int, text: str) -> None:
    body = msgspec.json.encode({"code": code, "message": text})
    request.respond(status, [(b"content-type", b"application/json")], body)


def telemetry_variables(
    base_url: str, environ: Mapping[str, str], token: str | None = None
) -> dict[str, str]:
    """What to set beside `environ`; nothing where the user has telemetry of their own."""
    switch = "CLAUDE_CODE_ENABLE_TELEMETRY"
    if environ.get(switch) or any(name.startswith("OTEL_") for name in environ):
        return {}
    chosen = {
        switch: "1",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"{base_url}{PREFIX.decode().rstrip('/')}",
    }
    if token is not None:
        chosen["OTEL_EXPORTER_OTLP_HEADERS"] = f"x-jackline-token={quote(token, safe='')}"
    return chosen
