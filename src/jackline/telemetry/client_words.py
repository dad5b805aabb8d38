"""Read the telemetry that Claude Code sends of itself, and place it in the traces of our own spans.

Laws: (1) pure; (2) of attributes only those are read that may also be passed on; (3) whatever
comes, nothing but ValueError is raised; (4) an export of more values than a client sends is
not decoded.
Not here: which words pass (export_filter.py), taking it in (otlp_receiving.py), sums
(client_book.py), sending on (otlp_forwarding.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from jackline.dialects.json_bounds import MOST_VALUES, has_too_many_values
from jackline.outside_names import cut_name
from jackline.telemetry.export_filter import (
    Document,
    fit_attributes,
    fit_export,
    fit_integer,
    maps,
)

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
