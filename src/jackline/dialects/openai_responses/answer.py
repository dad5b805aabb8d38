"""Read OpenAI's Responses, whole or streamed: translated to Anthropic's format, or passed on.

Rules: (1) nothing in an answer raises: what is no answer becomes an error document, and a stream
that cannot be followed is broken and stays so; (2) items and events without a counterpart are
noted by their type; (3) calls are distinguished by their place in the output; what was not
streamed of an item is written when it is done, never twice; (4) only `response.completed` and
`response.incomplete` end a message; (5) of a stream that is passed on, only the first and the
last events are decoded whole.
Not here: writing the message (neutral/answer.py), the order of blocks (neutral/stream.py),
splitting bytes (sse.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec

from jackline.dialects.neutral.answer import (
    NO_COUNTERPART,
    MessageBuilder,
    foreign_usage,
    read_whole_answer,
    stop_reason,
)
from jackline.dialects.neutral.conversation import message_id
from jackline.dialects.neutral.fields import Fields, TranslatedDocument, UntranslatableError, shown
from jackline.dialects.neutral.options import AnswerOptions, ReasoningBinder
from jackline.dialects.neutral.stream import StreamTranslator, UnreadableStreamError
from jackline.dialects.sse import name_and_data
from jackline.dialects.tokens_used import TokensUsed

_ENDED = ("completed", "incomplete")


def from_responses(body: bytes, face: AnswerOptions) -> TranslatedDocument:
    """The message; with `is_error` when the response failed, or the body is no response."""
    return read_whole_answer(body, face, _read, "whole response")


def _read(top: Fields, body: bytes, face: AnswerOptions) -> TranslatedDocument:
    notes = top.notes
    status = top.text("status") or "completed"
    if status not in _ENDED:
        raise UntranslatableError("status", shown(status))
    builder = MessageBuilder(message_id(top.text("id") or "", body), face, notes)
    items = top.items("output")
    for place, item in enumerate(items):
        _read_item(Fields(item, f"output[{place}]", notes), builder)
    details = top.inner("incomplete_details")
    ended = (details.text("reason") if details else None) or status
    reason = stop_reason(ended, calls=builder.calls, refused=builder.refused, notes=notes)
    # All other fields repeat the request, or frame the answer.
    return builder.done(reason, None, foreign_usage(TokensUsed(), top.raw("usage")))


def _read_item(item: Fields, builder: MessageBuilder) -> None:
    match item.text("type"):
        case "message":
            for place, raw in enumerate(item.items("content")):
                _read_part(Fields(raw, f"{item.at}.content[{place}]", item.notes), builder)
        case "function_call":
            builder.call(
                item.text("call_id") or item.text("id") or "",
                item.needed_text("name"),
                item.text("arguments") or "",
                item.path("arguments"),
            )
        case "reasoning":
            summary = item.items("summary")
            for name, parts in (("summary", summary), ("content", item.items("content"))):
                for place, raw in enumerate(parts):
                    part = Fields(raw, f"{item.at}.{name}[{place}]", item.notes)
                    builder.reasoning(part.text("text") or "", part.at)
            encrypted = item.text("encrypted_content")
            if not builder.thoughts.thought(item.text("id"), summary, encrypted) and encrypted:
                item.notes.add(item.path("encrypted_content"), NO_COUNTERPART)
        case other:
            item.notes.add(item.at, f"an item of type {shown(other or 'none')} {NO_COUNTERPART}")


def _read_part(part: Fields, builder: MessageBuilder) -> None:
    match part.text("type"):
        case "output_text":
            builder.text(part.text("text") or "")
            for name in ("annotations", "logprobs"):
                if part.items(name):
                    part.notes.add(part.path(name), NO_COUNTERPART)
        case "refusal":
            builder.refusal(part.text("refusal") or "")
        case other:
            part.notes.add(part.at, f"content of type {shown(other or 'none')} {NO_COUNTERPART}")


# Of items that said something; a response has a handful.
_MOST_ITEMS = 10_000
_NOTHING = msgspec.Raw(b"{}")
_NULL = msgspec.Raw(b"null")


class _Part(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    content: list[_Part] | None = None


class _Thought(msgspec.Struct):
    id: str | None = None
    summary: list[msgspec.Raw] | None = None
    encrypted_content: str | None = None


class _Kind(msgspec.Struct):
    type: str | None = None


class _Details(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    status: str | None = None
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL
    incomplete_details: _Details | None = None


class _Event(msgspec.Struct):
    type: str
    output_index: int = 0
    content_index: int = 0
    delta: msgspec.Raw = _NULL
    arguments: str | None = None
    item: msgspec.Raw = _NOTHING
    response: _Response | None = None


_event = msgspec.json.Decoder(_Event)
_kind = msgspec.json.Decoder(_Kind)
_item = msgspec.json.Decoder(_Item)
_thought = msgspec.json.Decoder(_Thought)
_string = msgspec.json.Decoder(str)
# Events that only frame others, or repeat what was told.
_FRAME = frozenset(
    f"response.{name}"
    for name in (
        "queued",
        "content_part.added",
        "content_part.done",
        "output_text.done",
        "refusal.done",
        "reasoning_summary_part.added",
        "reasoning_summary_part.done",
        "reasoning_summary_text.done",
        "reasoning_text.done",
    )
)


class ResponsesStreamTranslator(StreamTranslator):
    """Bytes of a Responses stream in, bytes of Anthropic's stream out."""

    def __init__(self, face: AnswerOptions) -> None:
        super().__init__(face)
        self._streamed: set[int] = set()
        self._thoughts = ReasoningBinder(face.remember)

    def _take(self, _name: bytes, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            # Not part of this dialect, but some servers write it behind the last event.
            return
        kind = _kind.decode(data).type or ""
        take = self._TAKING.get(kind)
        if take is not None:
            take(self, _event.decode(data), data)
        elif kind not in _FRAME:
            self.notes.add(shown(kind) or "an event without a type", NO_COUNTERPART)

    def _ended(self) -> None:
        """Nothing can be said that the last event did not say."""

    def _begin(self, event: _Event, data: bytes) -> None:
        if not self.writer.started:
            foreign = (event.response.id if event.response else None) or ""
            self.writer.begin(message_id(foreign, data))

    def _take_item(self, event: _Event, data: bytes) -> None:
        self._begin(event, data)
        kind = _kind.decode(event.item).type or "none"
        if kind == "function_call":
            self._begin_call(event.output_index, _item.decode(event.item))
        elif kind == "message":
            self.writer.end_text()
        elif kind != "reasoning":
            self.notes.add("output[*]", f"an item of type {shown(kind)} {NO_COUNTERPART}")

    def _begin_call(self, place: int, item: _Item) -> None:
        if not self.writer.knows(place):
            own = self.writer.call(place, item.call_id or item.id or "", item.name or "")
            self._thoughts.call(own)

    def _take_item_done(self, event: _Event, data: bytes) -> None:
        self._begin(event, data)
        place = event.output_index
        match _kind.decode(event.item).type:
            case "function_call":
                item = _item.decode(event.item)
                self._begin_call(place, item)
                self.writer.end_call(place, item.arguments)
            case "message":
                if place not in self._streamed:
                    self._say_whole(_item.decode(event.item))
                self.writer.end_text()
                self._thoughts.words()
            case "reasoning":
                item_done = _thought.decode(event.item)
                encrypted = item_done.encrypted_content
                kept = self._thoughts.thought(item_done.id, item_done.summary or [], encrypted)
                if encrypted and not kept:
                    self.notes.add("output[*].encrypted_content", NO_COUNTERPART)

    def _say_whole(self, item: _Item) -> None:
        for part in item.content or ():
            self.refused = self.refused or part.refusal is not None
            self.writer.text(part.text or part.refusal or "")

    def _take_text(self, event: _Event, data: bytes) -> None:
        self._begin(event, data)
        self._streamed.add(event.output_index)
        if len(self._streamed) > _MOST_ITEMS:
            raise UnreadableStreamError("too many items")
        self.writer.text(_words(event))

    def _take_refusal(self, event: _Event, data: bytes) -> None:
        self.refused = True
        self._take_text(event, data)

    def _take_reasoning(self, event: _Event, data: bytes) -> None:
        self._begin(event, data)
        self._reason(_words(event), "output[*].reasoning")

    def _take_arguments(self, event: _Event, _data: bytes) -> None:
        self.writer.arguments(event.output_index, _words(event))

    def _take_arguments_done(self, event: _Event, _data: bytes) -> None:
        self.writer.end_call(event.output_index, event.arguments)

    def _take_end(self, event: _Event, data: bytes) -> None:
        self._begin(event, data)
        response = event.response or _Response()
        self.usage = foreign_usage(self.usage, response.usage)
        details = response.incomplete_details
        ended = (details.reason if details else None) or event.type.removeprefix("response.")
        self._finish(
            stop_reason(ended, calls=self.writer.calls, refused=self.refused, notes=self.notes)
        )

    def _take_failure(self, event: _Event, data: bytes) -> None:
        response = event.response
        if response is None:
            self._fail(data)
        else:
            self.usage = foreign_usage(self.usage, response.usage)
            self._fail(msgspec.json.encode({"error": response.error}))

    _TAKING: ClassVar[Mapping[str, Callable[[ResponsesStreamTranslator, _Event, bytes], None]]] = {
        "response.created": _begin,
        "response.in_progress": _begin,
        "response.output_item.added": _take_item,
        "response.output_item.done": _take_item_done,
        "response.output_text.delta": _take_text,
        "response.refusal.delta": _take_refusal,
        "response.reasoning_text.delta": _take_reasoning,
        "response.reasoning_summary_text.delta": _take_reasoning,
        "response.function_call_arguments.delta": _take_arguments,
        "response.function_call_arguments.done": _take_arguments_done,
        "response.completed": _take_end,
        "response.incomplete": _take_end,
        "response.failed": _take_failure,
        "error": _take_failure,
    }


def _words(event: _Event) -> str:
    return _string.decode(event.delta)


class _EventType(msgspec.Struct):
    type: str


class _EndDetails(msgspec.Struct):
    reason: str | None = None


class _EndedResponse(msgspec.Struct):
    usage: msgspec.Raw = msgspec.Raw(b"null")
    incomplete_details: _EndDetails | None = None


class _Last(msgspec.Struct):
    response: _EndedResponse


_event_type = msgspec.json.Decoder(_EventType)
_last = msgspec.json.Decoder(_Last)
_ENDS = ("response.completed", "response.incomplete")
_FAILURES = ("response.failed", "error")


class ResponsesStreamReader:
    """What is known about one answer after the events so far."""

    __slots__ = ("broken", "error_event", "started", "stop_reason", "usage", "whole")

    def __init__(self) -> None:
        self.started = False
        self.usage = TokensUsed()
        self.stop_reason: str | None = None
        self.whole = False
        self.error_event: bytes | None = None
        self.broken = False

    def feed(self, event: bytes) -> bytes:
        """Take note of one raw event, and give the name of what it says."""
        name, data = name_and_data(event)
        if not data or self.broken or data.strip() == b"[DONE]":
            return name
        try:
            kind = name.decode() or _event_type.decode(data).type
            self._take(kind, data)
        except (msgspec.DecodeError, ValueError, RecursionError):
            self.broken = True
            return name
        return kind.encode()

    def give_up(self) -> None:
        """Regard the stream as broken, for a reason that lies outside of its events."""
        self.broken = True

    def _take(self, kind: str, data: bytes) -> None:
        self.started = self.started or kind.startswith("response.")
        if kind in _ENDS:
            response = _last.decode(data).response
            self.usage = foreign_usage(self.usage, response.usage)
            details = response.incomplete_details
            self.stop_reason = (details.reason if details else None) or "completed"
            self.whole = True
        elif kind in _FAILURES:
            self.error_event = data
            self.broken = True
