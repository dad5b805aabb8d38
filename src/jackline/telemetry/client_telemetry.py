"""Receive the telemetry that Claude Code exports, sum it up by agent, and forward it.

Rules: (1) only with `[otlp] receive`; clients get the variables for it unless the user has
telemetry of their own; (2) what is saved and forwarded passes export_filter.py, so that no prompt,
answer, tool input or output does; (3) an export that is too large, compressed in an unknown way or
not understood is refused with an OTLP error; parsing raises nothing but ValueError; (4) a client is
answered before its export is forwarded; (5) one export is read at a time, in short turns of the
event loop; (6) the sums are bounded: the agents that were silent for longest are dropped first; so
is the document of them, which lists the latest.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from jackline.control.fleet import Member
from jackline.control.http_handler import ServiceRequest
from jackline.control.open_documents import IsWanted, OpenDocument, Parameters
from jackline.dialects.json_bounds import UNREADABLE, count_values
from jackline.http1.compression import MOST_RATIO, SLICE_BYTES
from jackline.outside_names import cut_name
from jackline.telemetry.export_filter import Document, fit_export
from jackline.telemetry.otlp_export import Forwarder, Tracing
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.spans import ToolRan

Place: TypeAlias = Callable[[str, str], tuple[str, str]]
"""The trace and the span of an agent by its session and id; empty where none is known."""

TOOL_RESULT = "tool_result"
API_REQUEST = "api_request"
API_ERROR = "api_error"
SUB_AGENT = "subagent_completed"

MOST_AGENTS = 5000
MOST_ROWS = 2000
"""Of one document: each agent and each of its tools is one."""
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
# What OTLP's collectors accept by gRPC; a client's batch has 512 records of a few kilobytes.
_LARGEST_EXPORT = 4 << 20
MOST_VALUES = 200_000
_MAX_EXPORTS = 64
_WORK_PER_TURN = 32 * 1024
"""In bytes of an export that are decoded, checked and rebuilt: a few milliseconds."""
_PER_EVENT = 1024
_OFF = (
    "Jackline does not receive clients' telemetry here. Switch it on in your own jackline.toml:"
    " [otlp] receive = true"
)
_ONLY_JSON = "Jackline reads OTLP as JSON only: set OTEL_EXPORTER_OTLP_PROTOCOL=http/json."
# Google's codes, which OTLP's errors have.
_INVALID, _NOT_ALLOWED, _UNAVAILABLE = 3, 7, 14

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


class ReadExport(NamedTuple):
    """The document to forward, and the events of agents in it."""

    document: Document
    events: list[ClientEvent]


def read_export(
    body: bytes, place: Place, *, with_words: bool = False
) -> Generator[int, None, ReadExport]:
    """The export without prompts and answers, its log records in the traces of our own spans.

    It yields a measure of the work of its next step. `with_words` is the user's order to forward
    all that came. ValueError when it is no export, or has more values than one.
    """
    if count_values(body) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES:,} values")
    try:
        fit = yield from fit_export(body)
        document = (yield from fit_export(body, with_words=True)) if with_words else fit
    except msgspec.ValidationError as error:
        raise ValueError("the body is no JSON object") from error
    except UNREADABLE as error:
        raise ValueError("the body is no JSON") from error
    events = []
    for record, forwarded in zip(_log_records(fit), _log_records(document), strict=True):
        yield _PER_EVENT
        about = {
            each["key"]: float(value) if kind in ("intValue", "doubleValue") else value
            for each in record.get("attributes", ())
            for kind, value in each["value"].items()
        }
        session, what, agent = (about.get(n) for n in ("session.id", "event.name", "agent_id"))
        if not isinstance(session, str) or not session:
            continue
        agent = agent if isinstance(agent, str) else ""
        trace = record.get("traceId")
        if isinstance(what, str):
            at = int(record.get("timeUnixNano", 0)) / 1e9
            # OTLP has 64 bits for it.
            at = at if 0 <= at < (1 << 63) / 1e9 else 0.0
            events.append(ClientEvent(at, what, session, agent, about, bool(trace)))
        if not trace:
            forwarded["traceId"], span = place(session, agent)
            if span:
                forwarded["spanId"] = span
    return ReadExport(document, events)


def _log_records(export: Document) -> Iterator[Document]:
    for resource in export.get("resourceLogs", ()):
        for scope in resource.get("scopeLogs", ()):
            yield from scope.get("logRecords", ())


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

    def __init__(self, agent_ended: Callable[[str, str], None] | None = None) -> None:
        """`agent_ended` is called with each sub-agent whose client reports its end."""
        self._agent_ended = agent_ended
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
            if self._agent_ended is not None and event.agent:
                self._agent_ended(event.session, event.agent)
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

    def document(self, session: str, agent: str) -> dict[str, object] | None:
        """The report of one agent as every interface shows it."""
        report = self.of_agent(session, agent)
        return None if report is None else report.to_json()

    def of_session(self, beginning: str) -> dict[Key, ClientReport]:
        """The reports of the agents of sessions whose ids begin so."""
        return {key: each for key, each in self._reports.items() if key[0].startswith(beginning)}


class OtlpReceiver:
    """Where clients send their telemetry, and where their reports are read.

    `member` returns what the gateway itself has observed of an agent. Without `tracing` and
    `forwarder` the reports are only shown.
    """

    def __init__(
        self,
        reports: ClientReports,
        settings: Callable[[], OtlpSettings],
        member: Callable[[str, str], Member | None],
        tracing: Tracing | None,
        forwarder: Forwarder | None,
    ) -> None:
        self._reports = reports
        self._settings = settings
        self._member = member
        self._tracing = tracing
        self._forwarder = forwarder
        self._exports: deque[tuple[ServiceRequest, Iterator[int]]] = deque()

    def knows(self, request: ServiceRequest) -> bool:
        """Whether a client's exporter sends this."""
        return request.path.startswith(PREFIX)

    @property
    def documents(self) -> dict[bytes, OpenDocument]:
        """What is read on which path."""
        return {REPORTS: OpenDocument(self._list_reports, ("session",))}

    def answer(self, request: ServiceRequest) -> None:
        """Receive an export."""
        signal = _SIGNALS.get(request.path)
        if signal is None or request.method != b"POST":
            text = "Jackline takes POST at /v1/logs, /v1/metrics, /v1/traces."
            _refuse(request, 404, _INVALID, text)
        elif not self._settings().receive:
            _refuse(request, 403, _NOT_ALLOWED, _OFF)
        elif not (request.header(b"content-type") or b"").startswith(b"application/json"):
            _refuse(request, 415, _INVALID, _ONLY_JSON)
        elif len(self._exports) >= _MAX_EXPORTS:
            _refuse(request, 503, _UNAVAILABLE, "Jackline is still reading earlier exports.")
        else:
            self._exports.append((request, self._receive(request, signal)))
            if len(self._exports) == 1:
                asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Go on with the first export for a while; one whose client has left is dropped."""
        request, steps = self._exports[0]
        work = 0
        is_over = True
        try:
            while work < _WORK_PER_TURN and not request.gone:
                work += next(steps)
            is_over = request.gone
        except StopIteration:
            pass
        except Exception:
            request.reset()  # the next export's turn comes nevertheless
            raise
        finally:
            if is_over:
                self._exports.popleft()
            if self._exports:
                asyncio.get_running_loop().call_soon(self._turn)

    def _receive(self, request: ServiceRequest, signal: str) -> Iterator[int]:
        tracing = self._tracing
        place = _no_place if tracing is None else tracing.place_of
        try:
            body = yield from _decompressed(request)
            export = yield from read_export(body, place, with_words=self._settings().prompts)
        except ValueError as error:
            _refuse(request, 400, _INVALID, f"Jackline cannot read this: {error}.")
            return
        if self._forwarder is not None:
            try:
                forwarded = msgspec.json.encode(export.document)
            except (OverflowError, ValueError):
                text = "Jackline cannot pass this on: a number in it has more than 64 bits."
                _refuse(request, 400, _INVALID, text)
                return
            self._forwarder.put(signal, forwarded)
        for event in export.events:
            yield _PER_EVENT
            self._reports.add(event)
            if event.what == TOOL_RESULT and not event.traced and tracing is not None:
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
                tracing.tool_ran(tool)
        request.respond(200, [(b"content-type", b"application/json")], b"{}")

    async def _list_reports(self, names: Parameters, _is_wanted: IsWanted) -> bytes:
        """What the clients reported, and what the gateway observed of the same agents."""
        (session,) = names
        agents: list[dict[str, object]] = []
        found = self._reports.of_session(session)
        rows = 0
        for key, report in reversed(found.items()):
            rows += 1 + len(report.tools)
            if rows > MOST_ROWS and agents:
                break
            seen = self._member(*key)
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
        left_out = len(found) - len(agents)
        return msgspec.json.encode({"schema": SCHEMA, "agents": agents[::-1], "left_out": left_out})


def _no_place(_session: str, _agent: str) -> tuple[str, str]:
    return "", ""


def _decompressed(request: ServiceRequest) -> Generator[int, None, bytes]:
    body = bytes(request.body)
    encoding = (request.header(b"content-encoding") or b"identity").lower()
    most = _LARGEST_EXPORT
    if encoding == b"gzip":
        most = min(most, MOST_RATIO * len(body))
        member, plain = zlib.decompressobj(zlib.MAX_WBITS | 16), bytearray()
        try:
            while body and not member.eof and len(plain) <= most:
                yield _WORK_PER_TURN
                plain += member.decompress(body, SLICE_BYTES)
                body = member.unconsumed_tail
        except zlib.error as error:
            raise ValueError("it is no gzip data") from error
        body = bytes(plain)
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
