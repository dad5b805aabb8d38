"""Read the telemetry that Claude Code sends of itself, and leave out what nobody asked to pass on.

Laws: (1) pure; (2) of words only those pass that are names, ids or kinds: what a client says in
numbers passes, what it says in words passes if this file knows the attribute, so that a prompt, an
answer, a tool's input or its output cannot; (3) whatever comes, nothing but ValueError is raised.
Not here: taking it in (otlp_receiving.py), sums (client_book.py), sending on (otlp_forwarding.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

Document: TypeAlias = dict[str, Any]
Place: TypeAlias = Callable[[str, str], tuple[str, str]]
"""The trace and the span of an agent, given its session and id; empty where none is known."""

TOOL_RESULT = "tool_result"
API_REQUEST = "api_request"
API_ERROR = "api_error"
SUB_AGENT = "subagent_completed"

# Seen of 2.1.325; each holds a name, an id or one of a few words.
_NAMES = frozenset(
    (
        "session.id", "agent_id", "agent.name", "agent.source", "agent_type", "event.name",
        "event.timestamp", "prompt.id", "message.uuid", "model", "final_model", "request_id",
        "tool_name", "tool_name_safe", "tool_use_id", "tool_source", "decision", "source",
        "success", "error_type", "error.type", "query_source", "query_source_safe", "speed",
        "effort", "terminal.type", "anthropic.provider", "permission_mode", "span.type",
        "stop_reason", "start_type", "type", "llm_request.context", "parent.source",
        "service.name", "service.version", "os.type", "host.arch", "user.id",
        "gen_ai.provider.name", "gen_ai.system", "gen_ai.operation.name",
        "gen_ai.conversation.id", "gen_ai.tool.name", "gen_ai.tool.call.id",
        "gen_ai.request.model", "gen_ai.response.id",
    )
)  # fmt: skip
_LONGEST = 200
# Tokens, dollars or milliseconds in one record.
_LARGEST = 1e12
_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,9})?\Z")
_KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,60}\Z")
_CLIENTS = "claude_code."
_KINDS_OF_POINTS = ("sum", "gauge", "histogram", "exponentialHistogram", "summary")


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
        """A name or a kind; empty where it is not told."""
        value = self.about.get(name, "")
        return value if isinstance(value, str) else ""


def decoded(body: bytes) -> Document:
    """The export's document; ValueError when it is none."""
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError("the body is no JSON") from error
    if not isinstance(told, dict):
        raise ValueError("the body is no JSON object")  # noqa: TRY004 -- one error for the sender
    return told


def events_of(logs: Document) -> Iterator[ClientEvent]:
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


def fit_to_pass_on(told: Document, place: Place, *, with_words: bool = False) -> Document:
    """The export without anybody's words, its records placed in the traces of our own spans.

    `with_words` is the user's order to leave all in.
    """
    for group, scope, items in (
        ("resourceLogs", "scopeLogs", "logRecords"),
        ("resourceSpans", "scopeSpans", "spans"),
        ("resourceMetrics", "scopeMetrics", "metrics"),
    ):
        for resource in _maps(told.get(group)):
            if not with_words and isinstance(about := resource.get("resource"), dict):
                about["attributes"] = _fit(about.get("attributes"))
        for item in _records(told, group, scope, items):
            if items == "logRecords":
                _placed(item, place)
            if not with_words:
                _without_words(item)
    return told


def _placed(record: Document, place: Place) -> None:
    about = dict(_plain(record.get("attributes")))
    session, agent = about.get("session.id"), about.get("agent_id")
    if record.get("traceId") or not isinstance(session, str):
        return
    trace, span = place(session, agent if isinstance(agent, str) else "")
    record["traceId"] = trace
    if span:
        record["spanId"] = span


def _without_words(item: Document) -> None:
    if "attributes" in item:
        item["attributes"] = _fit(item["attributes"])
    body = item.get("body")
    if body is not None and not _is_clients_name(body):
        del item["body"]
    if "name" in item and not str(item["name"]).startswith((_CLIENTS, "gen_ai.")):
        item["name"] = "unknown"
    status = item.get("status")
    if isinstance(status, dict) and not _KIND.match(str(status.get("message", ""))):
        status.pop("message", None)
    for event in _maps(item.get("events")):
        _without_words(event)
    for link in _maps(item.get("links")):
        link["attributes"] = _fit(link.get("attributes"))
    for kind in _KINDS_OF_POINTS:
        points = item.get(kind)
        for point in _maps(points.get("dataPoints") if isinstance(points, dict) else None):
            point["attributes"] = _fit(point.get("attributes"))
            point.pop("exemplars", None)


def _is_clients_name(body: object) -> bool:
    words = body.get("stringValue") if isinstance(body, dict) else None
    return isinstance(words, str) and words.startswith(_CLIENTS) and bool(_KIND.match(words))


def _fit(attributes: object) -> list[Document]:
    return [each for each in _maps(attributes) if _is_fit(each.get("key"), each.get("value"))]


def _is_fit(name: object, value: object) -> bool:
    if not isinstance(name, str) or not isinstance(value, dict):
        return False
    if any(kind in value for kind in ("intValue", "doubleValue", "boolValue")):
        return True
    words = value.get("stringValue")
    if not isinstance(words, str) or len(words) > _LONGEST:
        return False
    return name in _NAMES or bool(_NUMBER.match(words))


def _plain(attributes: object) -> Iterator[tuple[str, str | float | bool]]:
    """The attributes that are fit to be kept, as plain values."""
    for each in _fit(attributes):
        value = each["value"]
        if "stringValue" in value:
            yield each["key"], value["stringValue"]
        elif "boolValue" in value:
            yield each["key"], bool(value["boolValue"])
        else:
            try:
                yield each["key"], float(value.get("intValue", value.get("doubleValue")))
            except (TypeError, ValueError, OverflowError):
                continue  # a figure that is none


def _records(told: Document, group: str, scope: str, items: str) -> Iterator[Document]:
    for resource in _maps(told.get(group)):
        for each in _maps(resource.get(scope)):
            yield from _maps(each.get(items))


def _maps(value: object) -> Iterator[Document]:
    return (
        (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())
    )


def _seconds(nanoseconds: object) -> float:
    try:
        told = int(str(nanoseconds))
    except ValueError:
        return 0.0
    # OTLP has 64 bits for it.
    return told / 1e9 if 0 <= told < 1 << 63 else 0.0
