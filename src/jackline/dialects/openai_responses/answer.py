"""Read OpenAI's Responses, whole or streamed: translated to Anthropic's format, or passed on.

Rules: (1) nothing in an answer raises: what is no answer becomes an error document, and a stream
that cannot be read is broken and stays so; (2) items and events without a counterpart are
noted by their type; (3) calls are distinguished by their place in the output; what was not
streamed of an item is written when it is done, never twice; (4) only `response.completed` and
`response.incomplete` end a message; (5) of a stream that is passed on, only the first and the
last events are decoded whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec

from jackline.dialects.anthropic_stream import StreamReader, Typed
from jackline.dialects.json_bounds import UNREADABLE
from jackline.dialects.neutral.answer import (
    NO_COUNTERPART,
    MessageBuilder,
    foreign_usage,
    read_whole_answer,
)
from jackline.dialects.neutral.conversation import message_id
from jackline.dialects.neutral.fields import Fields, TranslatedDocument, UntranslatableError, shown
from jackline.dialects.neutral.options import AnswerOptions, ReasoningBinder
from jackline.dialects.neutral.stream import StreamTranslator, UnreadableStreamError
from jackline.dialects.sse import name_and_data
from jackline.dialects.tokens_used import TokensUsed


def from_responses(body: bytes, options: AnswerOptions) -> TranslatedDocument:
    """The message; with `is_error` when the response failed, or the body is no response."""
    return read_whole_answer(body, options, _read, "whole response")


def _read(top: Fields, body: bytes, options: AnswerOptions) -> TranslatedDocument:
    notes = top.notes
    status = top.text("status") or "completed"
    if status not in ("completed", "incomplete"):
        raise UntranslatableError("status", shown(status))
    builder = MessageBuilder(message_id(top.text("id") or "", body), options, notes)
    for place, item in enumerate(top.items("output")):
        _read_item(Fields(item, f"output[{place}]", notes), builder)
    details = top.inner("incomplete_details")
    ended = (details.text("reason") if details else None) or status
    # All other fields repeat the request, or frame the answer.
    return builder.done(ended, None, foreign_usage(TokensUsed(), top.raw("usage")))


def _read_item(item: Fields, builder: MessageBuilder) -> None:
    match item.text("type"):
        case "message":
            for place, raw in enumerate(item.items("content")):
                part = Fields(raw, f"{item.at}.content[{place}]", item.notes)
                _read_part(part, builder)
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
            if not builder.binder.reasoning(item.text("id"), summary, encrypted) and encrypted:
                item.notes.add(item.path("encrypted_content"), NO_COUNTERPART)
        case other:
            item.notes.add(item.at, f"an item of type {shown(other or 'none')} {NO_COUNTERPART}")


def _read_part(part: Fields, builder: MessageBuilder) -> None:
    kind = part.text("type")
    if kind == "output_text":
        builder.text(part.text("text") or "")
        for name in ("annotations", "logprobs"):
            if part.items(name):
                part.notes.add(part.path(name), NO_COUNTERPART)
    elif kind == "refusal":
        builder.refusal(part.text("refusal") or "")
    else:
        content = f"content of type {shown(kind or 'none')}"
        part.notes.add(part.at, f"{content} {NO_COUNTERPART}")


# Of items with text; a response has a handful.
_MOST_ITEMS = 10_000
_NOTHING = msgspec.Raw(b"{}")
_NULL = msgspec.Raw(b"null")


class _Part(msgspec.Struct):
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    content: list[_Part] | None = None
    summary: list[msgspec.Raw] | None = None
    encrypted_content: str | None = None


class _Kind(msgspec.Struct):
    type: str | None = None


class _Details(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL
    incomplete_details: _Details | None = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    delta: msgspec.Raw = _NULL
    arguments: str | None = None
    item: msgspec.Raw = _NOTHING
    response: _Response | None = None


_event = msgspec.json.Decoder(_Event)
_kind = msgspec.json.Decoder(_Kind)
_item = msgspec.json.Decoder(_Item)
_string = msgspec.json.Decoder(str)
_typed = msgspec.json.Decoder(Typed)
# Events that only frame others, or repeat them.
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

    def __init__(self, options: AnswerOptions) -> None:
        super().__init__(options)
        self._streamed: set[int] = set()
        self._binder = ReasoningBinder(options.remember)

    def _read_event(self, _name: bytes, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            # Not part of this dialect, but some servers write it after the last event.
            return
        kind = _kind.decode(data).type or ""
        handler = self._HANDLERS.get(kind)
        if handler is not None:
            handler(self, _event.decode(data), data)
        elif kind not in _FRAME:
            self.notes.add(shown(kind) or "an event without a type", NO_COUNTERPART)

    def _read_end(self) -> None:
        """Nothing is left to write after the last event."""

    def _begin(self, event: _Event, data: bytes) -> None:
        if not self.writer.started:
            foreign = (event.response.id if event.response else None) or ""
            self.writer.begin(message_id(foreign, data))

    def _on_item(self, event: _Event, data: bytes) -> None:
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
            self._binder.call(own)

    def _on_item_done(self, event: _Event, data: bytes) -> None:
        self._begin(event, data)
        place = event.output_index
        match _kind.decode(event.item).type:
            case "function_call":
                item = _item.decode(event.item)
                self._begin_call(place, item)
                self.writer.end_call(place, item.arguments)
            case "message":
                if place not in self._streamed:
                    parts = _item.decode(event.item).content or ()
                    self.notes.count_objects(len(parts))
                    self.refused = self.refused or any(each.refusal is not None for each in parts)
                    self.writer.text("".join(each.text or each.refusal or "" for each in parts))
                self.writer.end_text()
                self._binder.text()
            case "reasoning":
                item = _item.decode(event.item)
                encrypted = item.encrypted_content
                is_stored = self._binder.reasoning(item.id, item.summary or [], encrypted)
                if encrypted and not is_stored:
                    self.notes.add("output[*].encrypted_content", NO_COUNTERPART)

    def _on_text(self, event: _Event, data: bytes) -> None:
        self._begin(event, data)
        self._streamed.add(event.output_index)
        if len(self._streamed) > _MOST_ITEMS:
            raise UnreadableStreamError("too many items")
        self.writer.text(_string.decode(event.delta))

    def _on_refusal(self, event: _Event, data: bytes) -> None:
        self.refused = True
        self._on_text(event, data)

    def _on_reasoning(self, event: _Event, data: bytes) -> None:
        self._begin(event, data)
        self._reasoning(_string.decode(event.delta), "output[*].reasoning")

    def _on_arguments(self, event: _Event, _data: bytes) -> None:
        self.writer.arguments(event.output_index, _string.decode(event.delta))

    def _on_arguments_done(self, event: _Event, _data: bytes) -> None:
        self.writer.end_call(event.output_index, event.arguments)

    def _on_end(self, event: _Event, data: bytes) -> None:
        self._begin(event, data)
        response = event.response or _Response()
        self.usage = foreign_usage(self.usage, response.usage)
        details = response.incomplete_details
        ended = (details.reason if details else None) or event.type.removeprefix("response.")
        self._finish(ended)

    def _on_failure(self, event: _Event, data: bytes) -> None:
        response = event.response
        if response is None:
            self._fail(data)
        else:
            self.usage = foreign_usage(self.usage, response.usage)
            self._fail(msgspec.json.encode({"error": response.error}))

    _HANDLERS: ClassVar[
        Mapping[str, Callable[[ResponsesStreamTranslator, _Event, bytes], None]]
    ] = {
        "response.created": _begin,
        "response.in_progress": _begin,
        "response.output_item.added": _on_item,
        "response.output_item.done": _on_item_done,
        "response.output_text.delta": _on_text,
        "response.refusal.delta": _on_refusal,
        "response.reasoning_text.delta": _on_reasoning,
        "response.reasoning_summary_text.delta": _on_reasoning,
        "response.function_call_arguments.delta": _on_arguments,
        "response.function_call_arguments.done": _on_arguments_done,
        "response.completed": _on_end,
        "response.incomplete": _on_end,
        "response.failed": _on_failure,
        "error": _on_failure,
    }


class ResponsesStreamReader(StreamReader):
    """Reads the events of a Responses stream that is passed on."""

    __slots__ = ()

    def feed(self, event: bytes) -> bytes:
        """Read one raw event, and return its type."""
        name, data = name_and_data(event)
        if not data or self.broken or data.strip() == b"[DONE]":
            return name
        try:
            kind = name.decode() or _typed.decode(data).type
            self._read(kind, data)
        except UNREADABLE:
            self.broken = True
            return name
        return kind.encode()

    def _read(self, kind: str, data: bytes) -> None:
        self.started = self.started or kind.startswith("response.")
        if kind in ("response.completed", "response.incomplete"):
            response = _event.decode(data).response
            if response is None:
                raise UnreadableStreamError("an end without a response")
            self.usage = foreign_usage(self.usage, response.usage)
            details = response.incomplete_details
            self.stop_reason = (details.reason if details else None) or "completed"
            self.whole = True
        elif kind in ("response.failed", "error"):
            self.error_event = data
            self.broken = True
