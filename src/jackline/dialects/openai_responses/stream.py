"""Turn the events of OpenAI's Responses into Anthropic's.

Laws: (1) calls are told apart by their place in the output; (2) what was not streamed of an item is
told when it is done, never twice; (3) only `response.completed` and `response.incomplete` end a
message; (4) events and items without a counterpart are noted by their type.
Not here: the order of blocks (neutral/message_writer.py), whole answers (answer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec

from jackline.dialects.neutral.account import shown
from jackline.dialects.neutral.answer import NOT_TOLD
from jackline.dialects.neutral.following import StreamTranslator
from jackline.dialects.neutral.ids import message_id
from jackline.dialects.neutral.message_writer import UnfollowableError
from jackline.dialects.neutral.options import AnswerAs
from jackline.dialects.neutral.reasoning import ReasoningBinder
from jackline.dialects.neutral.stopping import stop_reason
from jackline.dialects.neutral.usage import foreign_usage

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

    def __init__(self, face: AnswerAs) -> None:
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
            self.notes.add(shown(kind) or "an event without a type", NOT_TOLD)

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
            self.notes.add("output[*]", f"an item of type {shown(kind)} {NOT_TOLD}")

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
                    self.notes.add("output[*].encrypted_content", NOT_TOLD)

    def _say_whole(self, item: _Item) -> None:
        for part in item.content or ():
            self.refused = self.refused or part.refusal is not None
            self.writer.text(part.text or part.refusal or "")

    def _take_text(self, event: _Event, data: bytes) -> None:
        self._begin(event, data)
        self._streamed.add(event.output_index)
        if len(self._streamed) > _MOST_ITEMS:
            raise UnfollowableError("too many items")
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
