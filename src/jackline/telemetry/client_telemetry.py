"""Receive the telemetry that Claude Code sends of itself, sum it up by agent, and pass it on.

Rules: (1) only with `[otlp] receive`; clients get the variables for it unless the user has
telemetry of their own; (2) numbers pass, and of words only names, ids and kinds that this file
lists, so that a prompt, an answer, a tool's input or output cannot; (3) an export that is too
large, packed in an unknown way or not understood is refused with an OTLP error; parsing raises
nothing but ValueError; (4) a client is answered at once: sending on happens later; (5) the sums are
bounded: the agents that were silent for longest go first.
Not here: who may ask (gateway/access.py), sending on (otlp_export.py), what the gateway saw
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
from jackline.outside_names import cut_name
from jackline.telemetry.export_filter import Document, fit_attributes, fit_export, fit_integer, maps
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.spans import ToolRan
from jackline.upstream.bounded_answers import MOST_RATIO

Place: TypeAlias = Callable[[str, str], tuple[str, str]]
"""The trace and the span of an agent, given its session and id; empty where none is known."""

TOOL_RESULT = "tool_result"
API_REQUEST = "api_request"
API_ERROR = "api_error"
SUB_AGENT = "subagent_completed"

# Tokens, dollars or milliseconds in one record.
_LARGEST = 1e12


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """One thing that a client tells of an agent; `agent` is empty for a session's main thread."""

    at: float
    what: str
    session: str
    agent: str
    about: Mapping[str, str | float | bool]
    traced: bool
    """Whether the client has a trace of its own, and so tells its tools as spans, too."""

    def number(self, name: str) -> float:
        """A figure; 0 where it is not told, is negative, or too large to be one."""
        try:
            value = float(self.about.get(name, 0))
        except (ValueError, OverflowError):
            return 0.0
        return value if 0.0 <= value <= _LARGEST else 0.0

    def word(self, name: str) -> str:
        """A name or a kind, short and printable; empty where it is not told."""
        value = self.about.get(name, "")
        return cut_name(value) if isinstance(value, str) else ""


def decoded(body: bytes) -> Document:
    """The export's document; ValueError when it is none, or has more values than an export."""
    if has_too_many_values(body, nested=True):
        raise ValueError(f"it has more than {MOST_VALUES:,} values")
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError("the body is no JSON") from error
    if not isinstance(told, dict):
        raise ValueError("the body is no JSON object")  # noqa: TRY004 -- one error for the sender
    return told


def parse_client_events(logs: Document) -> Iterator[ClientEvent]:
    """What an export of logs tells of agents; records of others are passed over."""
    for record in _records(logs, "resourceLogs", "scopeLogs", "logRecords"):
        about = dict(_plain(record.get("attributes")))
        session, what = about.get("session.id"), about.get("event.name")
        if not isinstance(session, str) or not isinstance(what, str) or not session:
            continue
        agent = about.get("agent_id")
        yield ClientEvent(
            _seconds(record.get("timeUnixNano")),
            what,
            session,
            agent if isinstance(agent, str) else "",
            about,
            bool(record.get("traceId")),
        )


def redact_export(told: Document, place: Place, *, with_words: bool = False) -> Document:
    """The export without anybody's words, its records placed in the traces of our own spans.

    `with_words` is the user's order to leave all in.
    """
    fit = told if with_words else fit_export(told)
    for record in _records(fit, "resourceLogs", "scopeLogs", "logRecords"):
        _placed(record, place)
    return fit


def _placed(record: Document, place: Place) -> None:
    about = dict(_plain(record.get("attributes")))
    session, agent = about.get("session.id"), about.get("agent_id")
    if record.get("traceId") or not isinstance(session, str):
        return
    trace, span = place(session, agent if isinstance(agent, str) else "")
    record["traceId"] = trace
    if span:
        record["spanId"] = span


def _plain(attributes: object) -> Iterator[tuple[str, str | float | bool]]:
    """The attributes that are fit to be kept, as plain values."""
    for each in fit_attributes(attributes):
        ((kind, value),) = each["value"].items()
        is_figure = kind in ("intValue", "doubleValue")
        yield each["key"], float(value) if is_figure else value


def _records(told: Document, group: str, scope: str, items: str) -> Iterator[Document]:
    for resource in maps(told.get(group)):
        for each in maps(resource.get(scope)):
            yield from maps(each.get(items))


def _seconds(nanoseconds: object) -> float:
    told = fit_integer(nanoseconds)
    seconds = 0 if told is None else int(told) / 1e9
    # OTLP has 64 bits for it.
    return seconds if 0 <= seconds < (1 << 63) / 1e9 else 0.0


Key: TypeAlias = tuple[str, str]

MOST_AGENTS = 5000
_MOST_TOOLS = 64
_OTHERS = "other-tools"
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")


@dataclass(slots=True)
class ToolSums:
    """What came of one tool's runs."""

    ok: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class ClientReport:
    """What a client told of one agent."""

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
        """As every face shows it."""
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
    """What clients have told of their agents lately."""

    def __init__(self) -> None:
        self._told: OrderedDict[Key, ClientReport] = OrderedDict()

    def heard(self, event: ClientEvent) -> None:
        """Take in one thing that a client told."""
        told = self._of((cut_name(event.session), cut_name(event.agent)))
        told.last = max(told.last, event.at)
        told.name = event.word("agent.name") or event.word("agent_type") or told.name
        if event.what == API_REQUEST:
            told.requests += 1
            told.tokens += int(sum(event.number(name) for name in _TOKENS))
            told.dollars += event.number("cost_usd")
        elif event.what == API_ERROR:
            told.errors += 1
        elif event.what == SUB_AGENT:
            told.ended = True
        elif event.what == TOOL_RESULT:
            name = event.word("tool_name") or _OTHERS
            if name not in told.tools and len(told.tools) >= _MOST_TOOLS:
                name = _OTHERS
            sums = told.tools.setdefault(name, ToolSums())
            sums.seconds += event.number("duration_ms") / 1000
            if succeeded(event):
                sums.ok += 1
            else:
                sums.failed += 1

    def of_agent(self, session: str, agent: str) -> ClientReport | None:
        """What was told of one agent."""
        return self._told.get((cut_name(session), cut_name(agent)))

    def of_session(self, beginning: str) -> dict[Key, ClientReport]:
        """What was told of the agents of sessions whose ids begin so."""
        return {key: told for key, told in self._told.items() if key[0].startswith(beginning)}

    def _of(self, key: Key) -> ClientReport:
        told = self._told.setdefault(key, ClientReport())
        self._told.move_to_end(key)
        while len(self._told) > MOST_AGENTS:
            self._told.popitem(last=False)
        return told


def succeeded(event: ClientEvent) -> bool:
    """Whether the tool did what it was asked to; clients say it as a word or as a boolean."""
    return event.about.get("success") in (True, "true")


PREFIX = b"/_jackline/otlp/"
TOLD = b"/_jackline/clients"
SCHEMA = "jackline.clients/1"
_SIGNALS = {
    b"/_jackline/otlp/v1/traces": "/v1/traces",
    b"/_jackline/otlp/v1/logs": "/v1/logs",
    b"/_jackline/otlp/v1/metrics": "/v1/metrics",
}
_LARGEST_EXPORT = 16 << 20
_OFF = (
    "Jackline takes in no telemetry of clients here. Switch it on in your own jackline.toml:"
    " [otlp] receive = true"
)
_ONLY_JSON = "Jackline reads OTLP as JSON only: set OTEL_EXPORTER_OTLP_PROTOCOL=http/json."
# Google's codes, which OTLP's errors have.
_INVALID, _NOT_ALLOWED = 3, 7


@dataclass(frozen=True, slots=True)
class ReceiverCallbacks:
    """Who is told of what comes in; without an endpoint nobody but the book."""

    settings: Callable[[], OtlpSettings]
    member: Callable[[str, str], Member | None]
    """What the gateway itself has seen of an agent."""
    tool_ran: Callable[[ToolRan], object] | None
    place: Place
    pass_on: Callable[[str, bytes], None] | None


class OtlpReceiver:
    """Where clients send their telemetry, and where it is read again."""

    def __init__(self, book: ClientReports, heard: ReceiverCallbacks) -> None:
        self._book = book
        self._heard = heard

    def knows(self, asked: ServiceRequest) -> bool:
        """Whether this is sent by a client's exporter, or asks what they told."""
        return asked.path == TOLD or asked.path.startswith(PREFIX)

    def answer(self, asked: ServiceRequest) -> None:
        """Take it in, or tell it."""
        if asked.path == TOLD:
            self._tell(asked)
            return
        signal = _SIGNALS.get(asked.path)
        if signal is None or asked.method != b"POST":
            _refuse(
                asked, 404, _INVALID, "Jackline takes POST at /v1/logs, /v1/metrics, /v1/traces."
            )
        elif not self._heard.settings().receive:
            _refuse(asked, 403, _NOT_ALLOWED, _OFF)
        elif not (asked.header(b"content-type") or b"").startswith(b"application/json"):
            _refuse(asked, 415, _INVALID, _ONLY_JSON)
        else:
            self._take(asked, signal)

    def _take(self, asked: ServiceRequest, signal: str) -> None:
        try:
            told = decoded(_unpacked(asked))
        except ValueError as error:
            _refuse(asked, 400, _INVALID, f"Jackline cannot read this: {error}.")
            return
        heard = self._heard
        # Read before it is made fit: that takes words away.
        events = list(parse_client_events(told)) if signal == "/v1/logs" else []
        if heard.pass_on is not None:
            fit = redact_export(told, heard.place, with_words=heard.settings().prompts)
            try:
                passed = msgspec.json.encode(fit)
            except (OverflowError, ValueError):
                words = "Jackline cannot pass this on: a number in it has more than 64 bits."
                _refuse(asked, 400, _INVALID, words)
                return
            heard.pass_on(signal, passed)
        for event in events:
            self._book.heard(event)
            if event.what == TOOL_RESULT and not event.traced and heard.tool_ran is not None:
                heard.tool_ran(_tool(event))
        asked.respond(200, [(b"content-type", b"application/json")], b"{}")

    def _tell(self, asked: ServiceRequest) -> None:
        session = parse_qs(asked.query.decode("latin-1")).get("session", [""])[0]
        agents = [
            _row(key, told, self._heard.member(*key))
            for key, told in self._book.of_session(session).items()
        ]
        body = msgspec.json.encode({"schema": SCHEMA, "agents": agents})
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        asked.respond(200, headers, body)


def _row(key: tuple[str, str], told: ClientReport, seen: Member | None) -> Mapping[str, object]:
    """What the client told, and what the gateway saw of the same agent."""
    return {
        "session": key[0],
        "agent": key[1],
        "told": told.to_json(),
        "seen": None
        if seen is None
        else {
            "calls": seen.calls,
            "failed": seen.failed,
            "tokens": seen.tokens,
            "waited": round(seen.waited, 1),
        },
    }


def _tool(event: ClientEvent) -> ToolRan:
    took = event.number("duration_ms") / 1000
    return ToolRan(
        event.session,
        event.agent,
        event.word("tool_name") or "unknown",
        event.at - took,
        event.at,
        ok=succeeded(event),
        told_by="client",
        call_id=event.word("tool_use_id"),
        error=event.word("error_type"),
    )


def _unpacked(asked: ServiceRequest) -> bytes:
    body = bytes(asked.body)
    packed = (asked.header(b"content-encoding") or b"identity").lower()
    if packed == b"gzip":
        unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
        most = min(_LARGEST_EXPORT, MOST_RATIO * len(body))
        try:
            body = unpacking.decompress(body, most + 1)
        except zlib.error as error:
            raise ValueError("it is not packed as it says") from error
        if len(body) > most:
            raise ValueError("it is too large")
    elif packed != b"identity":
        raise ValueError("it is packed in a way that is not known here")
    if len(body) > _LARGEST_EXPORT:
        raise ValueError("it is too large")
    return body


def _refuse(asked: ServiceRequest, status: int, code: int, words: str) -> None:
    body = msgspec.json.encode({"code": code, "message": words})
    asked.respond(status, [(b"content-type", b"application/json")], body)


_SWITCH = "CLAUDE_CODE_ENABLE_TELEMETRY"
_THEIRS = "OTEL_"
_TOKEN_HEADER = "x-jackline-token"  # noqa: S105 -- the header's name


def telemetry_variables(
    base_url: str, environ: Mapping[str, str], token: str | None = None
) -> dict[str, str]:
    """What to set beside `environ`; nothing where the user has telemetry of their own."""
    if environ.get(_SWITCH) or any(name.startswith(_THEIRS) for name in environ):
        return {}
    chosen = {
        _SWITCH: "1",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"{base_url}{PREFIX.decode().rstrip('/')}",
    }
    if token is not None:
        chosen["OTEL_EXPORTER_OTLP_HEADERS"] = f"{_TOKEN_HEADER}={quote(token, safe='')}"
    return chosen
