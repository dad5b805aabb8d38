"""OpenAI's Responses in place of Anthropic's dialect: requests, answers, streams.

Rules: (1) what a request cannot express is refused by name or noted, items and events of an answer
without a counterpart are noted by their type; (2) items are in the order of the conversation, which
is sent whole; nothing is stored at the target; (3) thinking is not sent, and encrypted reasoning
only to the server that made it: for another one it is removed and noted, and everything else stays
as written; (4) nothing in an answer raises: what is no
answer becomes an error document, and a stream that cannot be read is broken and stays so; (5) calls
are distinguished by their place in the output; what was not streamed of an item is written when it
is done, never twice; (6) only `response.completed` and `response.incomplete` end a message; of a
stream that is passed on, only the first and the last events are decoded whole.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import ClassVar

import msgspec

from jackline.dialects.anthropic_stream import StreamReader, Typed
from jackline.dialects.json_bounds import UNREADABLE
from jackline.dialects.neutral.answer import NO_COUNTERPART, MessageBuilder, read_whole_answer
from jackline.dialects.neutral.conversation import (
    ContentPart,
    ConversationTurn,
    DocumentPart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    VisiblePart,
    message_id,
)
from jackline.dialects.neutral.fields import (
    Fields,
    TranslatedDocument,
    TranslationNotes,
    UntranslatableError,
    shown,
)
from jackline.dialects.neutral.options import (
    VENDOR,
    AnswerOptions,
    ReasoningBinder,
    RequestWriter,
    TargetOptions,
    joined_text,
)
from jackline.dialects.neutral.stream import StreamTranslator, UnreadableStreamError
from jackline.dialects.sse import name_and_data
from jackline.dialects.token_usage import TokenUsage


def to_responses(
    body: bytes | bytearray, model: str, options: TargetOptions = VENDOR
) -> TranslatedDocument:
    """The request for `POST /v1/responses`; UntranslatableError for what it cannot say."""
    return _ResponsesWriter(body, options).write(model)


class _ResponsesWriter(RequestWriter):
    longest_id = 64

    def __init__(self, body: bytes | bytearray, target: TargetOptions) -> None:
        super().__init__(body, target)
        self._items: list[dict[str, object] | msgspec.Raw] = []

    def write(self, model: str) -> TranslatedDocument:
        request = self.request
        for turn in request.turns:
            self._write_turn(turn)
        fields = {
            "input": self._items,
            "store": False,
            **self.shared_fields(model, "max_output_tokens"),
        }
        if request.system:
            fields["instructions"] = joined_text(request.system)
        if request.stops:
            raise UntranslatableError("stop_sequences", "OpenAI's Responses have none")
        effort = self.effort()
        if effort is not None:
            fields["reasoning"] = {"effort": effort}
        schema = self.schema()
        if schema is not None:
            fields["text"] = {"format": {"type": "json_schema", **schema}}
        if self.target.recall is not None:
            fields["include"] = ["reasoning.encrypted_content"]
        return self.document(fields)

    def _write_turn(self, turn: ConversationTurn) -> None:
        role = self.role(turn)
        together: list[VisiblePart] = []
        reasoning = self._reasoning_before(turn.parts)
        for place, part in enumerate(turn.parts):
            self._items += reasoning.get(place, ())
            if isinstance(part, TextPart | ImagePart | DocumentPart) and turn.role != "assistant":
                together.append(part)
                continue
            self._write_message(role, together)
            together = []
            self._write_item(part)
        self._write_message(role, together)

    def _reasoning_before(self, parts: Sequence[ContentPart]) -> dict[int, list[msgspec.Raw]]:
        """What this server reasoned before each of the parts, where that is still known."""
        found: dict[int, list[msgspec.Raw]] = {}
        for place, part in enumerate(parts):
            if self.target.recall is None or not isinstance(part, ToolCallPart):
                continue
            for stored in self.target.recall(part.id):
                at = place
                while stored.before_text and at > 0 and isinstance(parts[at - 1], TextPart):
                    at -= 1
                found.setdefault(at, []).append(stored.item)
        return found

    def _write_message(self, role: str, parts: Sequence[VisiblePart]) -> None:
        if parts:
            content = [self._content(part) for part in parts]
            self._items.append({"type": "message", "role": role, "content": content})

    def _write_item(self, part: ContentPart) -> None:
        match part:
            case TextPart():
                self._items.append({"type": "message", "role": "assistant", "content": part.text})
            case ToolCallPart():
                self._items.append(
                    {
                        "type": "function_call",
                        "call_id": self.call_id(part.id, f"{part.at}.id"),
                        "name": self.tool_name(part.name, f"{part.at}.name"),
                        "arguments": part.arguments,
                    }
                )
            case ToolResultPart():
                sent, parts = self.result(part)
                output: object = joined_text(parts)
                if not all(isinstance(each, TextPart) for each in parts):
                    # Not all servers read a list here, so it is written only when it is needed.
                    output = [self._content(each) for each in parts]
                self._items.append(
                    {"type": "function_call_output", "call_id": sent, "output": output}
                )
            case ThinkingPart():
                self.leave_out(part)
            case _:
                raise UntranslatableError(
                    part.at, "the assistant can only write text and call tools"
                )

    def _content(self, part: VisiblePart) -> dict[str, object]:
        match part:
            case TextPart():
                return {"type": "input_text", "text": part.text}
            case ImagePart():
                return {"type": "input_image", "image_url": part.url, "detail": "auto"}
            case DocumentPart():
                if part.inline:
                    return {"type": "input_file", "filename": part.name, "file_data": part.url}
                if part.title:
                    self.notes.add(f"{part.at}.title", "a file by its URL has no name here")
                return {"type": "input_file", "file_url": part.url}

    def _tool(self, tool: ToolDefinition) -> dict[str, object]:
        fields: dict[str, object] = {
            "type": "function",
            "name": self.tool_name(tool.name, f"{tool.at}.name"),
            "parameters": tool.schema,
            # Responses are strict by default, and then refuse most schemas.
            "strict": tool.strict,
        }
        if tool.description is not None:
            fields["description"] = tool.description
        return fields

    def _tool_choice(self, name: str) -> dict[str, object]:
        return {"type": "function", "name": self.tool_name(name, "tool_choice.name")}


class _InputItem(msgspec.Struct):
    type: str | None = None
    encrypted_content: str | None = None


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_input_item = msgspec.json.Decoder(_InputItem)


def without_reasoning(
    body: bytes | bytearray, refused: Container[str] | None = None
) -> TranslatedDocument:
    """The request without its reasoning, or without the reasoning that is known to be `refused`."""
    whole = bytes(body)
    notes = TranslationNotes()
    left: list[msgspec.Raw] = []
    try:
        top = _fields.decode(whole)
        items = _items.decode(top["input"])
        notes.count_objects(len(items))
        for place, raw in enumerate(items):
            item = _input_item.decode(raw)
            is_refused = refused is None or (item.encrypted_content or "") in refused
            if item.type == "reasoning" and is_refused:
                notes.add(f"input[{place}]", "reasoning that another server has encrypted")
            else:
                left.append(raw)
    except (*UNREADABLE, KeyError):
        return TranslatedDocument(whole)
    if len(left) == len(items):
        return TranslatedDocument(whole)
    return TranslatedDocument(msgspec.json.encode({**top, "input": left}), notes.sentences())


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
    return builder.done(ended, None, TokenUsage().updated_from_openai(top.raw("usage")))


def _read_item(item: Fields, builder: MessageBuilder) -> None:
    match item.text("type"):
        case "message":
            for place, raw in enumerate(item.items("content")):
                part = Fields(raw, f"{item.at}.content[{place}]", item.notes)
                kind = part.text("type")
                if kind == "refusal":
                    builder.refusal(part.text("refusal") or "")
                elif kind != "output_text":
                    what = f"content of type {shown(kind or 'none')}"
                    part.notes.add(part.at, f"{what} {NO_COUNTERPART}")
                else:
                    builder.text(part.text("text") or "")
                    for name in filter(part.items, ("annotations", "logprobs")):
                        part.notes.add(part.path(name), NO_COUNTERPART)
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
        self.usage = self.usage.updated_from_openai(response.usage)
        details = response.incomplete_details
        ended = (details.reason if details else None) or event.type.removeprefix("response.")
        self._finish(ended)

    def _on_failure(self, event: _Event, data: bytes) -> None:
        response = event.response
        if response is None:
            self._fail(data)
        else:
            self.usage = self.usage.updated_from_openai(response.usage)
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
            kind = (name.decode() or _typed.decode(data).type).encode()
            self.read(kind, data)
        except UNREADABLE:
            self.broken = True
            return name
        return kind

    def read(self, name: bytes, data: bytes) -> None:
        """Read the data of one event of the type `name`."""
        self.started = self.started or name.startswith(b"response.")
        if name in (b"response.completed", b"response.incomplete"):
            response = _event.decode(data).response
            if response is None:
                raise UnreadableStreamError("an end without a response")
            self.usage = self.usage.updated_from_openai(response.usage)
            details = response.incomplete_details
            self.stop_reason = (details.reason if details else None) or "completed"
            self.whole = True
        elif name in (b"response.failed", b"error"):
            self.error_event = data
            self.broken = True
            response = _event.decode(data).response
            if response is not None:
                self.usage = self.usage.updated_from_openai(response.usage)
