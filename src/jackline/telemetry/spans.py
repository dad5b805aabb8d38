"""Make spans of what happened: flow, agent, call, attempt and tool, joined to the client's trace.

Rules: (1) pure: events and the time come in; (2) ids are derived from what they name, so that a
child can be sent before its parent and a restart goes on in the same trace; a client's own
`traceparent` goes before; (3) the span of a flow or an agent is sent when it has been silent for a
while, or at the end; (4) bounded; (5) no prompt, answer, key or token: only fields of events.
Not here: the wire format and sending (otlp_export.py).
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias, TypeVar

from jackline.events import AttemptFailed, CallEnded
from jackline.telemetry import span_names as names

K = TypeVar("K")
T = TypeVar("T")
Attribute: TypeAlias = str | int | float | bool

SILENT = 300.0
_MOST_CALLS = 20_000
_MOST_OPEN = 5_000
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}\Z")
_NO_TRACE, _NO_SPAN = b"0" * 32, b"0" * 16
_GOOD = ("answered", "shortened")


class SpanKind(IntEnum):
    """OpenTelemetry's numbers for what a span is."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of work; ids are hexadecimal, times seconds since the epoch."""

    trace: str
    span: str
    parent: str
    name: str
    kind: SpanKind
    begins: float
    ends: float
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True)
class _Open:
    """A flow or an agent that may still go on."""

    trace: str
    span: str
    parent: str
    name: str
    begins: float
    ends: float
    attributes: dict[str, Attribute]


@dataclass(frozen=True, slots=True)
class ToolRan:
    """A tool that an agent had run; never what it was given or what it gave back.

    `told_by` is who ran it: the client, an agent of ours, or a batch. `error` is a kind, not words.
    """

    session: str
    agent: str
    name: str
    begins: float
    ends: float
    ok: bool
    told_by: str
    call_id: str = ""
    error: str = ""


def parent_of(traceparent: bytes | None) -> tuple[str, str] | None:
    """The trace and the span that a client named; None if it named none that counts."""
    match = None if traceparent is None else _TRACEPARENT.match(traceparent.strip())
    if match is None or match[1] == _NO_TRACE or match[2] == _NO_SPAN:
        return None
    return match[1].decode(), match[2].decode()


class Tracer:
    """Turns events into spans; `take` gives those that are complete."""

    def __init__(self, provider_of: Callable[[str], str]) -> None:
        self._provider_of = provider_of
        self._failed: OrderedDict[str, list[AttemptFailed]] = OrderedDict()
        self._parents: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._open: OrderedDict[str, _Open] = OrderedDict()
        # Where the calls of an agent belong: its trace, and the span of the agent itself.
        self._places: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()
        self._done: list[Span] = []
        self.dropped = 0

    def came_with(self, call: str, traceparent: bytes) -> None:
        """The client of this call has a trace of its own."""
        own = parent_of(traceparent)
        if own is not None:
            self._parents[call] = own
            _trim(self._parents, _MOST_CALLS)

    def attempt_failed(self, event: AttemptFailed) -> None:
        """An attempt did not succeed."""
        self._failed.setdefault(event.call, []).append(event)
        _trim(self._failed, _MOST_CALLS)

    def call_ended(self, event: CallEnded) -> None:
        """A call came to its end."""
        begins = event.at - event.took
        trace, parent = self._place(event, begins)
        call = _span_id("call", event.call, repr(begins))
        failed = self._failed.pop(event.call, [])
        lost = event.outcome not in _GOOD
        made = [
            Span(
                *(trace, call, parent, f"chat {event.model}", SpanKind.SERVER, begins, event.at),
                self._call_attributes(event),
                error=event.outcome if lost else "",
            ),
            *self._attempts(event, failed, trace, call),
        ]
        self._finish(made)

    def tool_ran(self, tool: ToolRan) -> None:
        """A tool came to its end."""
        trace, agent = self.place_of(tool.session, tool.agent)
        span = _span_id(
            "tool", tool.session, tool.agent, tool.name, tool.call_id, repr(tool.begins)
        )
        told: dict[str, Attribute | None] = {
            names.OPERATION: "execute_tool",
            names.TOOL: tool.name,
            names.TOOL_CALL: tool.call_id or None,
            names.CONVERSATION: tool.session or None,
            names.AGENT: tool.agent or None,
            names.TOLD_BY: tool.told_by,
            names.ERROR_TYPE: None if tool.ok else tool.error or "failed",
        }
        about = {name: value for name, value in told.items() if value is not None}
        where = (trace, span, agent, f"execute_tool {tool.name}", SpanKind.INTERNAL)
        error = "" if tool.ok else tool.error or "failed"
        self._finish([Span(*where, tool.begins, tool.ends, about, error=error)])

    def place_of(self, session: str, agent: str) -> tuple[str, str]:
        """The trace of an agent, and its span as far as one is known."""
        known = self._places.get((session, agent)) or self._places.get((session, ""))
        return known or (_trace_id(session), "")

    def _finish(self, made: list[Span]) -> None:
        if len(self._done) + len(made) > _MOST_CALLS:
            self.dropped += len(made)
        else:
            self._done += made

    def take(self, now: float, *, all_of_them: bool = False) -> list[Span]:
        """The spans that are complete; at the end also what might have gone on."""
        over = [
            key for key, each in self._open.items() if all_of_them or abs(now - each.ends) >= SILENT
        ]
        taken, self._done = self._done, []
        for key in over:
            each = self._open.pop(key)
            where = (each.trace, each.span, each.parent, each.name)
            taken.append(Span(*where, SpanKind.INTERNAL, each.begins, each.ends, each.attributes))
        return taken

    # --- where a call belongs -----------------------------------------------------------------

    def _place(self, event: CallEnded, begins: float) -> tuple[str, str]:
        """The trace and the parent of a call; its flow and its agent are kept up with it."""
        who = (event.session or "", event.agent or "")
        own = self._parents.pop(event.call, None)
        if own is not None:
            self._remember(who, own)
            return own
        trace = _trace_id(event.tag or event.session or event.call)
        parent = ""
        if event.tag:
            about: dict[str, Attribute] = {names.RUN: event.tag}
            parent = self._keep(trace, "", "flow", (event.tag,), event, begins, about)
        if event.session or event.agent:
            about = {names.OPERATION: "invoke_agent"}
            about |= {names.CONVERSATION: event.session} if event.session else {}
            about |= {names.AGENT: event.agent} if event.agent else {}
            parent = self._keep(trace, parent, "invoke_agent", who, event, begins, about)
            self._remember(who, (trace, parent))
        return trace, parent

    def _remember(self, who: tuple[str, str], place: tuple[str, str]) -> None:
        if who != ("", ""):
            self._places[who] = place
            self._places.move_to_end(who)
            _trim(self._places, _MOST_OPEN)

    def _keep(
        self,
        trace: str,
        parent: str,
        name: str,
        who: tuple[str, ...],
        event: CallEnded,
        begins: float,
        about: dict[str, Attribute],
    ) -> str:
        key = " ".join((trace, name, *who))
        known = self._open.get(key)
        if known is None:
            span = _span_id(name, *who, repr(begins))
            known = _Open(trace, span, parent, name, begins, event.at, about)
            self._open[key] = known
            self.dropped += _trim(self._open, _MOST_OPEN)
        known.begins, known.ends = min(known.begins, begins), max(known.ends, event.at)
        self._open.move_to_end(key)
        return known.span

    # --- what is told of it -------------------------------------------------------------------

    def _call_attributes(self, event: CallEnded) -> dict[str, Attribute]:
        place, _, model = event.lane.partition("#")[0].partition("/")
        cached = event.cache_read_tokens + event.cache_write_tokens
        told: dict[str, Attribute | None] = {
            names.OPERATION: "chat",
            names.PROVIDER: self._provider_of(place),
            names.REQUEST_MODEL: event.model,
            names.RESPONSE_MODEL: model or None,
            names.CONVERSATION: event.session,
            names.AGENT: event.agent,
            # The conventions count cached tokens as input, and tell them apart besides.
            names.INPUT_TOKENS: event.input_tokens + cached,
            names.OUTPUT_TOKENS: event.output_tokens,
            names.CACHE_READ_TOKENS: event.cache_read_tokens,
            names.CACHE_WRITE_TOKENS: event.cache_write_tokens,
            names.CALL: event.call,
            names.RUN: event.tag,
            names.LANE: event.lane.partition("#")[0] or None,
            names.OUTCOME: event.outcome,
            names.ATTEMPTS: event.attempts,
            names.HELD: round(event.waited, 6),
            names.STATUS_CODE: event.status,
        }
        return {name: value for name, value in told.items() if value is not None}

    def _attempts(
        self, event: CallEnded, failed: list[AttemptFailed], trace: str, call: str
    ) -> Iterator[Span]:
        for number, each in enumerate(failed, 1):
            told: dict[str, Attribute | None] = {
                names.LANE: each.lane.partition("#")[0],
                names.ERROR_TYPE: each.kind,
                names.STATUS_CODE: each.status,
                names.REQUEST_ID: each.request_id,
            }
            about = {name: value for name, value in told.items() if value is not None}
            span = _span_id("attempt", event.call, str(number), repr(each.at))
            began = each.at - each.took
            where = (trace, span, call, "attempt", SpanKind.CLIENT, began, each.at)
            yield Span(*where, about, error=each.why)
        if event.outcome in _GOOD:
            span = _span_id("attempt", event.call, "last", repr(event.at))
            began = min(event.at, event.at - event.took + event.waited)
            about = {names.LANE: event.lane.partition("#")[0]}
            about |= {names.REQUEST_ID: event.request_id} if event.request_id else {}
            yield Span(trace, span, call, "attempt", SpanKind.CLIENT, began, event.at, about)


def _trace_id(whole: str) -> str:
    return hashlib.blake2b(f"trace {whole}".encode(), digest_size=16).hexdigest()


def _span_id(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def _trim(kept: OrderedDict[K, T], most: int) -> int:
    gone = 0
    while len(kept) > most:
        kept.popitem(last=False)
        gone += 1
    return gone
