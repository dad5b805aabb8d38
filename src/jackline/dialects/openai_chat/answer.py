"""Read chat completions, whole or streamed: translated to Anthropic's format, or passed on.

Rules: (1) nothing in an answer raises: what is no answer becomes an error document, and a stream
that cannot be followed is broken and stays so; (2) what has no counterpart is noted by name; (3)
calls of a stream are distinguished by their index, and by their id where a server uses one index
for all; (4) blocks end with the finish reason, the message with `[DONE]`, because usage may come
between; (5) a stream that is passed on is whole only when every choice has its finish reason and
`[DONE]` has come after it.
Not here: writing the message (neutral/answer.py), the order of blocks (neutral/stream.py),
splitting bytes (sse.py).
"""

from __future__ import annotations

import msgspec

from jackline.dialects.json_bounds import has_too_many_values
from jackline.dialects.neutral.answer import (
    MOST_CALLS,
    NO_COUNTERPART,
    MessageBuilder,
    foreign_usage,
    read_whole_answer,
    stop_reason,
)
from jackline.dialects.neutral.conversation import message_id
from jackline.dialects.neutral.fields import (
    Fields,
    TranslatedDocument,
    TranslationNotes,
    UntranslatableError,
    is_text,
    items_of,
    text_of,
)
from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.neutral.stream import StreamTranslator, UnreadableStreamError
from jackline.dialects.sse import name_and_data
from jackline.dialects.tokens_used import TokensUsed

# What says nothing that a client of Anthropic could use.
_FRAME = ("object", "created", "model", "system_fingerprint", "service_tier")
MOST_CHOICES = 128
"""The largest `n` that OpenAI takes."""
REASONING = ("reasoning_content", "reasoning")


def from_chat(body: bytes, face: AnswerOptions) -> TranslatedDocument:
    """The message; with `is_error` when the body is an error, or no chat completion."""
    return read_whole_answer(body, face, _read, "chat completion")


def _read(top: Fields, body: bytes, face: AnswerOptions) -> TranslatedDocument:
    notes = top.notes
    for name in _FRAME:
        top.raw(name)
    choices = top.items("choices")
    if not choices:
        raise UntranslatableError("choices", "is missing")
    if len(choices) > MOST_CHOICES:
        raise UntranslatableError("choices", f"has more than {MOST_CHOICES} items")
    for place in range(1, len(choices)):
        notes.add(f"choices[{place}]", "one answer was asked for; the others are not told")
    choice = Fields(choices[0], "choices[0]", notes)
    choice.raw("index")
    message = choice.inner("message")
    if message is None:
        raise UntranslatableError("choices[0].message", "is missing")
    builder = MessageBuilder(message_id(top.text("id") or "", body), face, notes)
    _read_message(message, builder)
    matched = matched_stop(choice.raw("stop_reason"), face)
    reason = stop_reason(
        choice.text("finish_reason"), calls=builder.calls, refused=builder.refused, notes=notes
    )
    usage = foreign_usage(TokensUsed(), top.raw("usage"))
    choice.note_rest(NO_COUNTERPART)
    top.note_rest(NO_COUNTERPART)
    if matched is not None and reason == "end_turn":
        reason = "stop_sequence"
    return builder.done(reason, matched if reason == "stop_sequence" else None, usage)


def _read_message(message: Fields, builder: MessageBuilder) -> None:
    message.raw("role")
    for name in REASONING:
        at = message.path(name)
        told = message.raw(name)
        if told is not None:
            builder.reasoning(content_text(told, at, message.notes), at)
    content = message.raw("content")
    if content is not None:
        builder.text(content_text(content, message.path("content"), message.notes))
    refusal = message.text("refusal")
    if refusal:
        builder.refusal(refusal)
    for place, item in enumerate(message.items("tool_calls")):
        call = Fields(item, f"{message.at}.tool_calls[{place}]", message.notes)
        foreign = call.text("id") or ""
        call.raw("index")
        if (call.text("type") or "function") != "function":
            raise UntranslatableError(call.at, "a call of an unknown type")
        _read_function(call.inner("function"), call.at, foreign, builder)
        call.note_rest(NO_COUNTERPART)
    old = message.inner("function_call")
    if old is not None:
        _read_function(old, old.at, "", builder)
    message.note_rest(NO_COUNTERPART)


def _read_function(function: Fields | None, at: str, foreign: str, builder: MessageBuilder) -> None:
    if function is None:
        raise UntranslatableError(f"{at}.function", "is missing")
    given = function.raw("arguments")
    arguments = "" if given is None else written(given, function.path("arguments"))
    builder.call(foreign, function.needed_text("name"), arguments, function.path("arguments"))
    function.note_rest(NO_COUNTERPART)


def written(given: msgspec.Raw, at: str) -> str:
    """Arguments as JSON text; some servers give the object itself."""
    return text_of(given, at) if is_text(given) else bytes(given).decode()


def content_text(content: msgspec.Raw, at: str, notes: TranslationNotes) -> str:
    """The words of a content, which some servers give in parts."""
    if is_text(content):
        return text_of(content, at)
    words = []
    for place, item in enumerate(items_of(content, at)):
        part = Fields(item, f"{at}[{place}]", notes)
        part.raw("type")
        words.append(part.text("text") or "")
        part.note_rest(NO_COUNTERPART)
    return "".join(words)


def matched_stop(told: msgspec.Raw | None, face: AnswerOptions) -> str | None:
    """The stop sequence that ended the answer, where the server says so (vLLM does)."""
    if told is None or not is_text(told):
        return None
    sequence = text_of(told, "stop_reason")
    return sequence if sequence in face.stop_sequences else None


DONE = b"[DONE]"


class _Call:
    """What is known of a call whose name has not come yet, or has."""

    __slots__ = ("early", "id", "name")

    def __init__(self, foreign_id: str) -> None:
        self.id = foreign_id
        self.name = ""
        self.early: list[str] = []


# What frames a chunk and says nothing.
_CHUNK_FRAME = ("object", "created", "model", "system_fingerprint", "service_tier", "obfuscation")


class ChatStreamTranslator(StreamTranslator):
    """Bytes of a chat stream in, bytes of Anthropic's stream out."""

    def __init__(self, face: AnswerOptions) -> None:
        super().__init__(face)
        self._finish_reason: str | None = None
        self._matched: str | None = None
        self._calls: list[_Call] = []
        self._nameless = 0
        # Which call an index means now; servers that number all calls 0 change it by the id.
        self._at_index: dict[int, int] = {}
        self._largest_index = 0

    def _take(self, name: bytes, data: bytes) -> None:
        if data.strip() == DONE:
            self._done()
            return
        chunk = Fields(data, "", self.notes)
        if name == b"error" or "error" in chunk.names() or chunk.text("object") == "error":
            self._fail(data)
            return
        for framing in _CHUNK_FRAME:
            chunk.raw(framing)
        self.usage = foreign_usage(self.usage, chunk.raw("usage"))
        foreign_id = chunk.text("id") or ""
        for raw in chunk.items("choices"):
            self._take_choice(raw, foreign_id, data)
        chunk.note_rest(NO_COUNTERPART)

    def _take_choice(self, raw: msgspec.Raw, foreign_id: str, data: bytes) -> None:
        choice = Fields(raw, "choices[*]", self.notes)
        if choice.count("index"):
            self.notes.add("choices[*].index", "one answer was asked for; the others are not told")
            return
        if not self.writer.started:
            self.writer.begin(message_id(foreign_id, data))
        delta = choice.inner("delta")
        if delta is not None:
            self._take_delta(delta)
        self._matched = matched_stop(choice.raw("stop_reason"), self.face) or self._matched
        reason = choice.text("finish_reason")
        choice.note_rest(NO_COUNTERPART)
        if reason:
            self._finish_reason = reason
            self._demand_names()
            self.writer.close_blocks()

    def _take_delta(self, delta: Fields) -> None:
        delta.raw("role")
        for name in REASONING:
            at = delta.path(name)
            told = delta.raw(name)
            if told is not None:
                self._reason(content_text(told, at, self.notes), at)
        content = delta.raw("content")
        if content is not None:
            self.writer.text(content_text(content, delta.path("content"), self.notes))
        refusal = delta.text("refusal")
        if refusal:
            self.refused = True
            self.writer.text(refusal)
        for item in delta.items("tool_calls"):
            self._take_call(Fields(item, "choices[*].delta.tool_calls[*]", self.notes))
        old = delta.inner("function_call")
        if old is not None:
            self._take_function(old, self._place(0, ""))
        delta.note_rest(NO_COUNTERPART)

    def _take_call(self, call: Fields) -> None:
        call.raw("type")
        place = self._place(call.count("index"), call.text("id") or "")
        function = call.inner("function")
        if function is not None:
            self._take_function(function, place)
        call.note_rest(NO_COUNTERPART)

    def _place(self, index: int | None, foreign_id: str) -> int:
        """Which call is meant; a new one when its index, or else its id, is new."""
        if index is None:
            index = self._largest_index
        place = self._at_index.get(index)
        known = None if place is None else self._calls[place]
        if place is None or known is None or (foreign_id and known.id not in ("", foreign_id)):
            place = len(self._calls)
            if place >= MOST_CALLS:
                raise UnreadableStreamError("too many calls")
            self.writer.keep(foreign_id)
            self._calls.append(_Call(foreign_id))
            self._nameless += 1
            self._largest_index = max(index, self._largest_index) if self._at_index else index
            self._at_index[index] = place
        elif foreign_id and not known.id and not self.writer.knows(place):
            self.writer.keep(foreign_id)
            known.id = foreign_id
        return place

    def _take_function(self, function: Fields, place: int) -> None:
        call = self._calls[place]
        name = function.text("name") or ""
        at = function.path("arguments")
        given = function.raw("arguments")
        piece = "" if given is None else written(given, at)
        function.note_rest(NO_COUNTERPART)
        if call.name and name not in ("", call.name):
            raise UnreadableStreamError("a call with two names")
        if name and not call.name:
            call.name = name
            self._nameless -= 1
        if not call.name:
            if piece:
                self.writer.keep(piece)
                call.early.append(piece)
            return
        if not self.writer.knows(place):
            self.writer.call(place, call.id, call.name)
            piece = "".join(call.early) + piece
            call.early.clear()
        self.writer.arguments(place, piece)

    def _demand_names(self) -> None:
        if self._nameless:
            raise UnreadableStreamError("a call without a name")

    def _done(self) -> None:
        if self._finish_reason is None:
            raise UnreadableStreamError("an end without a reason")
        reason = stop_reason(
            self._finish_reason, calls=self.writer.calls, refused=self.refused, notes=self.notes
        )
        if self._matched is not None and reason == "end_turn":
            self._finish("stop_sequence", self._matched)
        else:
            self._finish(reason)

    def _ended(self) -> None:
        # Some servers leave `[DONE]` out; with a finish reason nothing but the bill can be missing.
        if self._finish_reason is not None:
            self._done()


_NULL = b"null"


class _Choice(msgspec.Struct):
    index: int = 0
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    object: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


_chunk = msgspec.json.Decoder(_Chunk)


class ChatStreamReader:
    """What is known about one answer after the events so far."""

    __slots__ = (
        "_finished",
        "_seen",
        "broken",
        "error_event",
        "started",
        "stop_reason",
        "usage",
        "whole",
    )

    def __init__(self) -> None:
        self.started = False
        self.usage = TokensUsed()
        self.stop_reason: str | None = None
        # `[DONE]` has been seen, and every choice was finished.
        self.whole = False
        self.error_event: bytes | None = None
        self.broken = False
        self._seen: set[int] = set()
        self._finished: set[int] = set()

    def feed(self, event: bytes) -> bytes:
        """Take note of one raw event, and give its name, which is empty for nearly all."""
        name, data = name_and_data(event)
        if data and not self.broken:
            try:
                self._take(name, data)
            except (msgspec.DecodeError, ValueError, RecursionError):
                self.broken = True
        return name

    def give_up(self) -> None:
        """Regard the stream as broken, for a reason that lies outside of its events."""
        self.broken = True

    def _take(self, name: bytes, data: bytes) -> None:
        if data.strip() == b"[DONE]":
            self.whole = self.started and self._seen == self._finished
            self.broken = not self.whole
            return
        if has_too_many_values(data):
            self.broken = True
            return
        chunk = _chunk.decode(data)
        if name == b"error" or bytes(chunk.error) != _NULL or chunk.object == "error":
            self.error_event = data
            self.broken = True
            return
        self.usage = foreign_usage(self.usage, chunk.usage)
        for choice in chunk.choices or ():
            self.started = True
            self._seen.add(choice.index)
            if len(self._seen) > MOST_CHOICES:
                self.broken = True
                return
            if choice.finish_reason:
                self.stop_reason = choice.finish_reason
                self._finished.add(choice.index)
