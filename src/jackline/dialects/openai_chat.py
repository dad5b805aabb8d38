"""OpenAI's Chat Completions in place of Anthropic's dialect: requests, answers, streams.

Rules: (1) what a request or an answer has that the other side cannot express is refused by name or
noted; calls and results keep matching ids; (2) the results of calls directly follow the message
that made the calls; what came before follows them; an image in a result becomes text in the result
and an image of the user right after; (3) nothing in an answer raises: what is no answer becomes an
error document, and a stream that cannot be read is broken and stays so; (4) calls of a stream are
distinguished by their index, and by their id where a server uses one index for all; (5) blocks end
with the finish reason, the message with `[DONE]`, because usage may come between; a stream that is
passed on is whole only when every choice has its finish reason and `[DONE]` has come after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from jackline.dialects.anthropic_stream import StreamReader
from jackline.dialects.json_bounds import has_too_many_values
from jackline.dialects.neutral.answer import (
    MOST_CALLS,
    NO_COUNTERPART,
    MessageBuilder,
    read_whole_answer,
)
from jackline.dialects.neutral.conversation import (
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
    UntranslatableError,
    read_items,
    read_text,
)
from jackline.dialects.neutral.options import (
    VENDOR,
    AnswerOptions,
    RequestWriter,
    TargetOptions,
    joined_text,
)
from jackline.dialects.neutral.stream import StreamTranslator, UnreadableStreamError
from jackline.dialects.token_usage import TokenUsage

_MOST_STOPS = 4
_IMAGE_FOLLOWS = "The result holds what only a user can show here; it follows as a message."


def to_chat(
    body: bytes | bytearray, model: str, options: TargetOptions = VENDOR
) -> TranslatedDocument:
    """The request for `POST /v1/chat/completions`; UntranslatableError for what it cannot say."""
    return _ChatWriter(body, options).write(model)


class _ChatWriter(RequestWriter):
    longest_id = 40

    def __init__(self, body: bytes | bytearray, target: TargetOptions) -> None:
        super().__init__(body, target)
        self._messages: list[dict[str, object]] = []
        # Calls without a result so far, and what has to wait for those results.
        self._open_calls: set[str] = set()
        self._waiting: list[dict[str, object]] = []

    def write(self, model: str) -> TranslatedDocument:
        request = self.request
        if request.system:
            content = joined_text(request.system)
            self._add({"role": "system", "content": content}, "system")
        for turn in request.turns:
            match turn.role:
                case "assistant":
                    self._write_assistant(turn)
                case "system":
                    text = joined_text(turn.parts)
                    self._add({"role": self.role(turn), "content": text}, turn.at)
                case "user":
                    self._write_user(turn)
        fields = {
            "messages": [*self._messages, *self._waiting],
            **self.shared_fields(model, self.target.max_tokens_field),
        }
        if len(request.stops) > _MOST_STOPS:
            raise UntranslatableError("stop_sequences", f"more than {_MOST_STOPS} of them")
        if request.stops:
            fields["stop"] = request.stops
        effort = self.effort()
        if effort is not None:
            fields["reasoning_effort"] = effort
        schema = self.schema()
        if schema is not None:
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.stream:
            fields["stream_options"] = {"include_usage": True}
        return self.document(fields)

    def _write_assistant(self, turn: ConversationTurn) -> None:
        self._end_waiting()
        text = joined_text(turn.parts)
        calls = [part for part in turn.parts if isinstance(part, ToolCallPart)]
        message: dict[str, object] = {"role": "assistant", "content": text or None}
        for part in turn.parts:
            if isinstance(part, ThinkingPart):
                self.leave_out(part)
        if calls:
            for late in turn.parts[turn.parts.index(calls[0]) :]:
                if isinstance(late, TextPart):
                    self.notes.add(late.at, "sent before the tool calls, not after them")
            message["tool_calls"] = [
                {
                    "id": self.call_id(call.id, f"{call.at}.id"),
                    "type": "function",
                    "function": {
                        "name": self.tool_name(call.name, f"{call.at}.name"),
                        "arguments": call.arguments,
                    },
                }
                for call in calls
            ]
            self._open_calls = {self.call_id(call.id, f"{call.at}.id") for call in calls}
        elif not text:
            message["content"] = ""
        self._messages.append(message)

    def _write_user(self, turn: ConversationTurn) -> None:
        visible: list[VisiblePart] = []
        moved: list[VisiblePart] = []
        noted = 0
        for part in turn.parts:
            if isinstance(part, ToolResultPart):
                for early in visible[noted:]:
                    self.notes.add(early.at, "sent after the results of tools")
                noted = len(visible)
                moved += self._write_result(part)
            elif isinstance(part, TextPart | ImagePart | DocumentPart):
                visible.append(part)
        if not self._open_calls:
            self._end_waiting()
        parts = [*moved, *visible]
        if parts and all(isinstance(part, TextPart) for part in parts):
            self._add({"role": "user", "content": joined_text(parts)}, turn.at)
        elif parts:
            self._add({"role": "user", "content": [self._content(part) for part in parts]}, turn.at)

    def _write_result(self, result: ToolResultPart) -> Sequence[VisiblePart]:
        """Write the text of a result, and return the parts that are not text."""
        sent, parts = self.result(result)
        others = [part for part in parts if not isinstance(part, TextPart)]
        if others:
            parts.append(TextPart(result.at, _IMAGE_FOLLOWS))
        for part in others:
            self.notes.add(part.at, "a tool cannot return it here; the user shows it instead")
        content = joined_text(parts)
        self._messages.append({"role": "tool", "tool_call_id": sent, "content": content})
        self._open_calls.discard(sent)
        if not others:
            return others
        return [TextPart(result.at, f"From the result of the tool call {sent}:"), *others]

    def _content(self, part: VisiblePart) -> dict[str, object]:
        match part:
            case TextPart():
                return {"type": "text", "text": part.text}
            case ImagePart():
                return {"type": "image_url", "image_url": {"url": part.url}}
            case DocumentPart():
                if not part.inline:
                    raise UntranslatableError(part.at, "a document that cannot be sent here")
                return {"type": "file", "file": {"filename": part.name, "file_data": part.url}}

    def _add(self, message: dict[str, object], at: str) -> None:
        if self._open_calls:
            self.notes.add(at, "sent after the results of tools")
            self._waiting.append(message)
        else:
            self._messages.append(message)

    def _end_waiting(self) -> None:
        self._messages += self._waiting
        self._waiting = []
        self._open_calls = set()

    def _tool(self, tool: ToolDefinition) -> dict[str, object]:
        function: dict[str, object] = {"name": self.tool_name(tool.name, f"{tool.at}.name")}
        if tool.description is not None:
            function["description"] = tool.description
        function["parameters"] = tool.schema
        if tool.strict:
            function["strict"] = True
        return {"type": "function", "function": function}

    def _tool_choice(self, name: str) -> dict[str, object]:
        function = {"name": self.tool_name(name, "tool_choice.name")}
        return {"type": "function", "function": function}


# Fields that a client of Anthropic could not use.
_FRAME = ("object", "created", "model", "system_fingerprint", "service_tier")
_REASONING = ("reasoning_content", "reasoning")
_ONE_ANSWER = "one answer was requested; the others are left out"
MOST_CHOICES = 128
"""The largest `n` that OpenAI accepts."""


def from_chat(body: bytes, options: AnswerOptions) -> TranslatedDocument:
    """The message; with `is_error` when the body is an error, or no chat completion."""
    return read_whole_answer(body, options, _read, "chat completion")


def _read(top: Fields, body: bytes, options: AnswerOptions) -> TranslatedDocument:
    notes = top.notes
    for name in _FRAME:
        top.raw(name)
    choices = top.items("choices")
    if not choices:
        raise UntranslatableError("choices", "is missing")
    if len(choices) > MOST_CHOICES:
        raise UntranslatableError("choices", f"has more than {MOST_CHOICES} items")
    for place in range(1, len(choices)):
        notes.add(f"choices[{place}]", _ONE_ANSWER)
    choice = Fields(choices[0], "choices[0]", notes)
    choice.raw("index")
    message = choice.inner("message")
    if message is None:
        raise UntranslatableError("choices[0].message", "is missing")
    builder = MessageBuilder(message_id(top.text("id") or "", body), options, notes)
    message.raw("role")
    for name in _REASONING:
        builder.reasoning(_content_text(message, name), message.path(name))
    builder.text(_content_text(message, "content"))
    refusal = message.text("refusal")
    if refusal:
        builder.refusal(refusal)
    for place, item in enumerate(message.items("tool_calls")):
        call = Fields(item, f"{message.at}.tool_calls[{place}]", notes)
        foreign_id = call.text("id") or ""
        call.raw("index")
        if (call.text("type") or "function") != "function":
            raise UntranslatableError(call.at, "a call of an unknown type")
        function = call.inner("function")
        if function is None:
            raise UntranslatableError(f"{call.at}.function", "is missing")
        at = function.path("arguments")
        builder.call(foreign_id, function.needed_text("name"), _arguments(function), at)
        function.note_rest(NO_COUNTERPART)
        call.note_rest(NO_COUNTERPART)
    function = message.inner("function_call")
    if function is not None:
        at = function.path("arguments")
        builder.call("", function.needed_text("name"), _arguments(function), at)
        function.note_rest(NO_COUNTERPART)
    message.note_rest(NO_COUNTERPART)
    stop = _matched_stop(choice, options)
    ended = choice.text("finish_reason")
    usage = TokenUsage().updated_from_openai(top.raw("usage"))
    choice.note_rest(NO_COUNTERPART)
    top.note_rest(NO_COUNTERPART)
    return builder.done(ended, stop, usage)


def _arguments(function: Fields) -> str:
    """Arguments as JSON text; some servers send the object itself."""
    raw = function.raw("arguments")
    if raw is None:
        return ""
    text = read_text(raw, function.path("arguments"))
    return bytes(raw).decode() if text is None else text


def _content_text(fields: Fields, name: str) -> str:
    """The text of a content, which some servers send in parts."""
    content = fields.raw(name)
    if content is None:
        return ""
    at = fields.path(name)
    if (text := read_text(content, at)) is not None:
        return text
    texts = []
    for place, item in enumerate(read_items(content, at)):
        part = Fields(item, f"{at}[{place}]", fields.notes)
        part.raw("type")
        texts.append(part.text("text") or "")
        part.note_rest(NO_COUNTERPART)
    return "".join(texts)


def _matched_stop(choice: Fields, options: AnswerOptions) -> str | None:
    """The stop sequence that ended the answer, where the server reports it (vLLM does)."""
    raw = choice.raw("stop_reason")
    sequence = None if raw is None else read_text(raw, "stop_reason")
    return sequence if sequence in options.stop_sequences else None


@dataclass(slots=True)
class _Call:
    """A call of a stream, whose name may not have come yet."""

    id: str
    name: str = ""
    early: list[str] = field(default_factory=list)


class ChatStreamTranslator(StreamTranslator):
    """Bytes of a chat stream in, bytes of Anthropic's stream out."""

    def __init__(self, options: AnswerOptions) -> None:
        super().__init__(options)
        self._finish_reason: str | None = None
        self._matched: str | None = None
        self._calls: list[_Call] = []
        self._nameless = 0
        # Which call an index means now; servers that number all calls 0 change it by the id.
        self._at_index: dict[int, int] = {}
        self._largest_index = 0

    def _read_event(self, name: bytes, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            self._done()
            return
        chunk = Fields(data, "", self.notes)
        if name == b"error" or "error" in chunk.names() or chunk.text("object") == "error":
            self._fail(data)
            return
        for framing in (*_FRAME, "obfuscation"):
            chunk.raw(framing)
        self.usage = self.usage.updated_from_openai(chunk.raw("usage"))
        foreign_id = chunk.text("id") or ""
        for raw in chunk.items("choices"):
            self._read_choice(raw, foreign_id, data)
        chunk.note_rest(NO_COUNTERPART)

    def _read_choice(self, raw: msgspec.Raw, foreign_id: str, data: bytes) -> None:
        choice = Fields(raw, "choices[*]", self.notes)
        if choice.count("index"):
            self.notes.add("choices[*].index", _ONE_ANSWER)
            return
        if not self.writer.started:
            self.writer.begin(message_id(foreign_id, data))
        delta = choice.inner("delta")
        if delta is not None:
            self._read_delta(delta)
        self._matched = _matched_stop(choice, self.options) or self._matched
        reason = choice.text("finish_reason")
        choice.note_rest(NO_COUNTERPART)
        if reason:
            self._finish_reason = reason
            if self._nameless:
                raise UnreadableStreamError("a call without a name")
            self.writer.close_blocks()

    def _read_delta(self, delta: Fields) -> None:
        delta.raw("role")
        for name in _REASONING:
            self._reasoning(_content_text(delta, name), delta.path(name))
        self.writer.text(_content_text(delta, "content"))
        refusal = delta.text("refusal")
        if refusal:
            self.refused = True
            self.writer.text(refusal)
        for item in delta.items("tool_calls"):
            call = Fields(item, "choices[*].delta.tool_calls[*]", self.notes)
            call.raw("type")
            place = self._place(call.count("index"), call.text("id") or "")
            function = call.inner("function")
            if function is not None:
                self._read_function(function, place)
            call.note_rest(NO_COUNTERPART)
        function = delta.inner("function_call")
        if function is not None:
            self._read_function(function, self._place(0, ""))
        delta.note_rest(NO_COUNTERPART)

    def _place(self, index: int | None, foreign_id: str) -> int:
        """Which call this is; a new one when its index, or else its id, is new."""
        if index is None:
            index = self._largest_index
        place = self._at_index.get(index)
        known = None if place is None else self._calls[place]
        if place is None or known is None or (foreign_id and known.id not in ("", foreign_id)):
            place = len(self._calls)
            if place >= MOST_CALLS:
                raise UnreadableStreamError("too many calls")
            self.writer.count_stored(foreign_id)
            self._calls.append(_Call(foreign_id))
            self._nameless += 1
            self._largest_index = max(index, self._largest_index) if self._at_index else index
            self._at_index[index] = place
        elif foreign_id and not known.id and not self.writer.knows(place):
            self.writer.count_stored(foreign_id)
            known.id = foreign_id
        return place

    def _read_function(self, function: Fields, place: int) -> None:
        call = self._calls[place]
        name = function.text("name") or ""
        piece = _arguments(function)
        function.note_rest(NO_COUNTERPART)
        if call.name and name not in ("", call.name):
            raise UnreadableStreamError("a call with two names")
        if name and not call.name:
            call.name = name
            self._nameless -= 1
        if not call.name:
            if piece:
                self.writer.count_stored(piece)
                call.early.append(piece)
            return
        if not self.writer.knows(place):
            self.writer.call(place, call.id, call.name)
            piece = "".join(call.early) + piece
            call.early.clear()
        self.writer.arguments(place, piece)

    def _done(self) -> None:
        if self._finish_reason is None:
            raise UnreadableStreamError("an end without a reason")
        self._finish(self._finish_reason, self._matched)

    def _read_end(self) -> None:
        # Some servers leave `[DONE]` out; after a finish reason only the usage can be missing.
        if self._finish_reason is not None:
            self._done()


class _Choice(msgspec.Struct):
    index: int = 0
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    object: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


_chunk = msgspec.json.Decoder(_Chunk)


@dataclass(slots=True, eq=False)
class ChatStreamReader(StreamReader):
    """Reads the events of a chat stream that is passed on."""

    _seen: set[int] = field(default_factory=set)
    _finished: set[int] = field(default_factory=set)

    def read(self, name: bytes, data: bytes) -> None:
        """Read the data of one event; nearly all are without a name."""
        if not data:
            return
        if data.strip() == b"[DONE]":
            self.whole = self.started and self._seen == self._finished
            self.broken = not self.whole
            return
        if has_too_many_values(data):
            self.broken = True
            return
        chunk = _chunk.decode(data)
        self.usage = self.usage.updated_from_openai(chunk.usage)
        if name == b"error" or bytes(chunk.error) != b"null" or chunk.object == "error":
            self.error_event = data
            self.broken = True
            return
        for choice in chunk.choices or ():
            self.started = True
            self._seen.add(choice.index)
            if len(self._seen) > MOST_CHOICES:
                self.broken = True
                return
            if choice.finish_reason:
                self.stop_reason = choice.finish_reason
                self._finished.add(choice.index)
