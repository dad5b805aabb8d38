"""Make spans of what happened: flow, agent, call, attempt and tool, joined to the client's trace.

Rules: (1) pure: events and the time come in; (2) ids are derived from what they name, so that a
child can be sent before its parent and a restart goes on in the same trace; a client's own
`traceparent` goes before; (3) the span of a flow or an agent is sent when it has been silent for a
while, or at the end; (4) bounded; (5) no prompt, answer, key or token: only fields of events.
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

# OpenTelemetry's names of attributes for generative AI, and ours. They are written here, not
# imported: the conventions are not stable yet, and a change there shall be a decision here.
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.id"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
TOOL = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"

ERROR_TYPE = "error.type"
STATUS_CODE = "http.response.status_code"
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"

CALL = "jackline.call"
RUN = "jackline.run"
LANE = "jackline.lane"
OUTCOME = "jackline.outcome"
ATTEMPTS = "jackline.attempts"
HELD = "jackline.held_seconds"
REPORTED_BY = "jackline.reported_by"
REQUEST_ID = "jackline.upstream_request_id"

K = TypeVar("K")
T = TypeVar("T")
Attribute: TypeAlias = str | int | float | bool

SILENT = 300.0
_MAX_CALLS = 20_000
_MAX_OPEN = 5_000
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}\Z")
_GOOD = ("answered", "shortened")


class SpanKind(IntEnum):
    """OpenTelemetry's numbers for what a span is."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


@dataclass(slots=True)
class Span:
    """One piece of work; ids are hexadecimal, times seconds since the epoch."""

    trace: str
    span: str
    parent: str
    name: str
    kind: SpanKind
    begins: float
    ends: float
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class ToolRan:
    """A tool that an agent ran, without its input and output.

    `reported_by` is who ran it: the client, an agent of ours, or a batch. `error` is a kind.
    """

    session: str
    agent: str
    name: str
    begins: float
    ends: float
    ok: bool
    reported_by: str
    call_id: str = ""
    error: str = ""


def parent_of(traceparent: bytes | None) -> tuple[str, str] | None:
    """The trace and the span that a client named; None if it named no valid one."""
    match = None if traceparent is None else _TRACEPARENT.match(traceparent.strip())
    if match is None or match[1] == b"0" * 32 or match[2] == b"0" * 16:
        return None
    return match[1].decode(), match[2].decode()


class Tracer:
    """Makes spans of events; `take` returns those that are complete."""

    def __init__(self, provider_of: Callable[[str], str]) -> None:
        self._provider_of = provider_of
        self._failed: OrderedDict[str, list[AttemptFailed]] = OrderedDict()
        self._parents: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._open: OrderedDict[str, Span] = OrderedDict()
        # Where the calls of an agent belong: its trace, and the span of the agent itself.
        self._places: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()
        self._done: list[Span] = []
        self.dropped = 0

    def came_with(self, call: str, traceparent: bytes) -> None:
        """The client of this call has a trace of its own."""
        own = parent_of(traceparent)
        if own is not None:
            self._parents[call] = own
            _trim(self._parents, _MAX_CALLS)

    def attempt_failed(self, event: AttemptFailed) -> None:
        """An attempt failed."""
        self._failed.setdefault(event.call, []).append(event)
        _trim(self._failed, _MAX_CALLS)

    def call_ended(self, event: CallEnded) -> None:
        """A call ended: its span and those of its attempts are complete."""
        begins = event.at - event.took
        trace, parent = self._parent(event, begins)
        call = _span_id("call", event.call, repr(begins))
        lane = event.lane
        cached = event.cache_read_tokens + event.cache_write_tokens
        about = _known(
            {
                OPERATION: "chat",
                PROVIDER: self._provider_of("" if lane is None else lane.upstream),
                REQUEST_MODEL: event.model,
                RESPONSE_MODEL: None if lane is None else lane.model or None,
                CONVERSATION: event.session,
                AGENT: event.agent,
                # The conventions count cached tokens as input, and list them besides.
                INPUT_TOKENS: event.input_tokens + cached,
                OUTPUT_TOKENS: event.output_tokens,
                CACHE_READ_TOKENS: event.cache_read_tokens,
                CACHE_WRITE_TOKENS: event.cache_write_tokens,
                CALL: event.call,
                RUN: event.tag,
                LANE: None if lane is None else lane.label,
                OUTCOME: event.outcome,
                ATTEMPTS: event.attempts,
                HELD: round(event.waited, 6),
                STATUS_CODE: event.status,
            }
        )
        error = "" if event.outcome in _GOOD else event.outcome
        where = (trace, call, parent, f"chat {event.model}", SpanKind.SERVER)
        self._finish(
            [
                Span(*where, begins, event.at, about, error=error),
                *self._attempts(event, trace, call),
            ]
        )

    def _attempts(self, event: CallEnded, trace: str, call: str) -> Iterator[Span]:
        for number, each in enumerate(self._failed.pop(event.call, []), 1):
            about = _known(
                {
                    LANE: each.lane.label,
                    ERROR_TYPE: each.kind,
                    STATUS_CODE: each.status,
                    REQUEST_ID: each.request_id,
                }
            )
            span = _span_id("attempt", event.call, str(number), repr(each.at))
            where = (trace, span, call, "attempt", SpanKind.CLIENT)
            yield Span(*where, each.at - each.took, each.at, about, error=each.why)
        if event.outcome in _GOOD:
            span = _span_id("attempt", event.call, "last", repr(event.at))
            begins = min(event.at, event.at - event.took + event.waited)
            lane = None if event.lane is None else event.lane.label
            about = _known({LANE: lane, REQUEST_ID: event.request_id or None})
            yield Span(trace, span, call, "attempt", SpanKind.CLIENT, begins, event.at, about)

    def tool_ran(self, tool: ToolRan) -> None:
        """A tool ended."""
        trace, agent = self.place_of(tool.session, tool.agent)
        span = _span_id(
            "tool", tool.session, tool.agent, tool.name, tool.call_id, repr(tool.begins)
        )
        error = "" if tool.ok else tool.error or "failed"
        about = _known(
            {
                OPERATION: "execute_tool",
                TOOL: tool.name,
                TOOL_CALL: tool.call_id or None,
                CONVERSATION: tool.session or None,
                AGENT: tool.agent or None,
                REPORTED_BY: tool.reported_by,
                ERROR_TYPE: error or None,
            }
        )
        where = (trace, span, agent, f"execute_tool {tool.name}", SpanKind.INTERNAL)
        self._finish([Span(*where, tool.begins, tool.ends, about, error=error)])

    def place_of(self, session: str, agent: str) -> tuple[str, str]:
        """The trace of an agent, and its span as far as one is known."""
        known = self._places.get((session, agent)) or self._places.get((session, ""))
        return known or (_trace_id(session), "")

    def _finish(self, made: list[Span]) -> None:
        if len(self._done) + len(made) > _MAX_CALLS:
            self.dropped += len(made)
        else:
            self._done += made

    def take(self, now: float, *, all_of_them: bool = False) -> list[Span]:
        """The spans that are complete; at the end also those of flows and agents still open."""
        over = [
            key for key, each in self._open.items() if all_of_them or abs(now - each.ends) >= SILENT
        ]
        done, self._done = self._done, []
        return done + [self._open.pop(key) for key in over]

    def _parent(self, event: CallEnded, begins: float) -> tuple[str, str]:
        """The trace and the parent of a call; the spans of its flow and agent are extended."""
        who = (event.session or "", event.agent or "")
        place = self._parents.pop(event.call, None)
        if place is None:
            trace = _trace_id(event.tag or event.session or event.call)
            place = (trace, "")
            if event.tag:
                about: dict[str, Attribute] = {RUN: event.tag}
                flow = Span(trace, "", "", "flow", SpanKind.INTERNAL, begins, event.at, about)
                place = (trace, self._extend(flow, event.tag))
            if event.session or event.agent:
                about = {OPERATION: "invoke_agent"}
                about |= {CONVERSATION: event.session} if event.session else {}
                about |= {AGENT: event.agent} if event.agent else {}
                where = (trace, "", place[1], "invoke_agent", SpanKind.INTERNAL)
                place = (trace, self._extend(Span(*where, begins, event.at, about), *who))
        if who != ("", ""):
            self._places[who] = place
            self._places.move_to_end(who)
            _trim(self._places, _MAX_OPEN)
        return place

    def _extend(self, span: Span, *who: str) -> str:
        """The id of the open span, which now reaches over this one, too."""
        key = " ".join((span.trace, span.name, *who))
        known = self._open.get(key)
        if known is None:
            span.span = _span_id(span.name, *who, repr(span.begins))
            known = self._open[key] = span
            self.dropped += _trim(self._open, _MAX_OPEN)
        known.begins, known.ends = min(known.begins, span.begins), max(known.ends, span.ends)
        self._open.move_to_end(key)
        return known.span


def _known(attributes: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    return {name: value for name, value in attributes.items() if value is not None}


def _trace_id(whole: str) -> str:
    return hashlib.blake2b(f"trace {whole}".encode(), digest_size=16).hexdigest()


def _span_id(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def _trim(saved: OrderedDict[K, T], most: int) -> int:
    """Drop the oldest; how many were dropped."""
    dropped = max(0, len(saved) - most)
    for _ in range(dropped):
        saved.popitem(last=False)
    return dropped
