"""Translate another vendor's answer stream into Anthropic's events while it arrives.

Rules: (1) how the bytes were cut changes nothing; (2) nothing fed here raises: a stream that
cannot be read ends with an error event, and after an error nothing follows; (3) the events form
one valid stream: one block is open at a time, in gapless order; the first open block is written
live, later ones wait for their turn; (4) a stream that was cut off never gets a message_stop; (5)
an event without anything to write, such as reasoning, becomes a ping: the server is alive.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field

from jackline.dialects.answer_facts import PING, message_document
from jackline.dialects.anthropic_stream import (
    BLOCK_DELTA,
    BLOCK_START,
    BLOCK_STOP,
    ERROR,
    MESSAGE_DELTA,
    MESSAGE_START,
    MESSAGE_STOP,
)
from jackline.dialects.json_bounds import UNREADABLE, count_values
from jackline.dialects.neutral.answer import (
    MOST_CALLS,
    NO_REASONING,
    error_of,
    is_object,
    stop_reason,
)
from jackline.dialects.neutral.conversation import ToolIds
from jackline.dialects.neutral.fields import TranslationNotes
from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.sse import EventSplitter, json_event, name_and_data
from jackline.dialects.token_usage import TokenUsage


class UnreadableStreamError(ValueError):
    """The foreign stream has an event that no answer can have."""


# Stored of one answer: arguments, names and ids of calls, and text that waits. The longest answers
# have some 128,000 tokens, which are less than a megabyte in as many pieces.
_MOST_STORED = 8 * 1024 * 1024
_MOST_PIECES = 500_000
# Of blocks that wait for the end of one before them.
_MOST_WAITING = 2 * MOST_CALLS
# Each mark is a step of Python; beyond, a call counts as open until its server ends it.
_MOST_MARKS = 100_000
# Deeper objects cannot be decoded.
_DEEPEST = 1_000
# What decides where a JSON value ends: in strings, only a quote that nothing escapes.
_MARK = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)


@dataclass(slots=True)
class _Block:
    """One content block; `pieces` is all that came for it, `sent` how many were written."""

    start: dict[str, object]
    is_text: bool
    pieces: list[str] = field(default_factory=list)
    sent: int = 0
    started: bool = False
    ended: bool = False
    is_object: bool | None = None
    # The search for the place where its arguments close their object: how many pieces and marks
    # were searched, and whether the last piece ended between a backslash and what it escapes.
    _searched: int = 0
    _marks: int = 0
    _depth: int = 0
    _is_in_string: bool = False
    _is_escaped: bool = False
    _is_found: bool = False
    _has_given_up: bool = False

    @property
    def whole(self) -> str:
        return "".join(self.pieces)

    def is_whole_object(self) -> bool:
        """Whether its arguments are known to be a whole object.

        They are checked once, where their outermost bracket closes: if they are no object there,
        nothing that follows makes them one.
        """
        if self.is_object is None:
            for piece in self.pieces[self._searched :]:
                self._search(piece)
            self._searched = len(self.pieces)
            if self._is_found:
                self.is_object = is_object(self.whole)
        return bool(self.is_object)

    def is_malformed(self) -> bool:
        """Whether the arguments of a call that has ended are no object."""
        if self.is_object is None:
            whole = self.whole
            self.is_object = not whole or whole.isspace() or is_object(whole)
        return not self.is_object

    def _search(self, piece: str) -> None:
        """Search the next piece for the end of the object; what comes after it changes nothing."""
        if not piece or self._is_found or self._has_given_up:
            return
        start, self._is_escaped = int(self._is_escaped), False
        for mark in _MARK.finditer(piece, start):
            self._marks += 1
            if self._marks > _MOST_MARKS or self._depth > _DEEPEST:
                self._has_given_up = True
                return
            sign = mark[0]
            if sign == '"':
                self._is_in_string = not self._is_in_string
            elif sign == "\\":
                self._is_escaped = True
            elif self._is_in_string or sign[0] == "\\":
                continue
            elif sign in "{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth <= 0:
                    self._is_found = True
                    return


class MessageWriter:
    """Writes what a model sends piece by piece as events; `take_output()` returns them."""

    def __init__(self, options: AnswerOptions) -> None:
        self._options = options
        self._out = bytearray()
        self._blocks: deque[_Block] = deque()
        self._calls: dict[object, _Block] = {}
        self._ids: ToolIds | None = None
        self._index = 0
        # How many letters have had to wait for other blocks so far.
        self.stored = 0
        self._pieces = 0
        self.started = False
        # All blocks have been closed; only the end of the message is missing.
        self.closed = False
        # message_stop or an error has been written.
        self.over = False
        # How many calls ended with arguments that are no JSON object.
        self.malformed = 0

    @property
    def calls(self) -> bool:
        """Whether a tool was called."""
        return bool(self._calls)

    def take_output(self) -> bytes:
        """The events since the last time."""
        out = bytes(self._out)
        self._out.clear()
        return out

    @property
    def length(self) -> int:
        """The size of the events since the last time."""
        return len(self._out)

    def ping(self) -> None:
        """Show the client that the server works, while an answer is open."""
        if self.started and not self.closed and not self.over:
            self._out += PING

    def begin(self, message_id: str) -> None:
        """Start the message; its usage comes at the end."""
        self.started = True
        self._ids = ToolIds(message_id)
        message = message_document(message_id, self._options.model, TokenUsage().to_anthropic())
        self._write(MESSAGE_START, {"message": message})

    def text(self, text: str) -> None:
        """Add text after everything so far."""
        if not text:
            return
        last = self._blocks[-1] if self._blocks else None
        if last is None or not last.is_text or last.ended:
            last = self._open({"type": "text", "text": ""}, is_text=True)
        if len(self._blocks) > 1:
            self.count_stored(text)
        last.pieces.append(text)
        self._advance()

    def count_stored(self, text: str) -> None:
        """Count what is stored of the answer; UnreadableStreamError when it is too much."""
        self.stored += len(text)
        self._pieces += 1
        if self.stored > _MOST_STORED or self._pieces > _MOST_PIECES:
            raise UnreadableStreamError("more to store than an answer has")

    def end_text(self) -> None:
        """End the text block: later text belongs to another one."""
        if self._blocks and self._blocks[-1].is_text:
            self._blocks[-1].ended = True
            self._advance()

    def call(self, key: object, foreign_id: str, name: str) -> str:
        """Begin a tool call, `key` among the calls of this answer; returns its own id."""
        if self._ids is None:
            raise UnreadableStreamError("a call before the answer")
        if len(self._calls) >= MOST_CALLS:
            raise UnreadableStreamError("too many calls")
        self.count_stored(name)
        own = self._ids.of(foreign_id)
        start: dict[str, object] = {
            "type": "tool_use",
            "id": own,
            "name": self._options.tool_names.get(name, name),
            "input": {},
        }
        self._calls[key] = self._open(start, is_text=False)
        self._advance()
        return own

    def knows(self, key: object) -> bool:
        """Whether such a call has begun."""
        return key in self._calls

    def arguments(self, key: object, piece: str) -> None:
        """Add to the arguments of a call."""
        block = self._known(key)
        if not piece or (block.ended and not piece.strip()):
            return
        if block.ended:
            raise UnreadableStreamError("arguments after the end of a call")
        self.count_stored(piece)
        block.pieces.append(piece)
        self._advance()

    def end_call(self, key: object, arguments: str | None = None) -> None:
        """End a call; `arguments` are all of them, and what was not written yet is written."""
        block = self._known(key)
        if arguments is not None and not block.ended:
            known = block.whole
            if not arguments.startswith(known):
                raise UnreadableStreamError("arguments that differ from what was streamed")
            self.arguments(key, arguments[len(known) :])
        block.ended = True
        self._advance()

    def close_blocks(self) -> None:
        """End the content."""
        for block in self._blocks:
            block.ended = True
        self._advance()
        self.closed = True

    def end(self, reason: str, sequence: str | None, usage: TokenUsage) -> None:
        """End the answer."""
        self.close_blocks()
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        self._write(MESSAGE_DELTA, {"delta": delta, "usage": usage.to_anthropic()})
        self._write(MESSAGE_STOP, {})
        self.over = True

    def fail(self, error: dict[str, str]) -> None:
        """End the answer with an error."""
        self._write(ERROR, {"error": error})
        self.over = True

    def _known(self, key: object) -> _Block:
        block = self._calls.get(key)
        if block is None:
            raise UnreadableStreamError("arguments of a call that has not begun")
        return block

    def _open(self, start: dict[str, object], *, is_text: bool) -> _Block:
        if self.closed or not self.started:
            raise UnreadableStreamError("content outside of the answer")
        if len(self._blocks) > _MOST_WAITING:
            raise UnreadableStreamError("too many blocks that wait")
        block = _Block(start, is_text)
        self._blocks.append(block)
        return block

    def _advance(self) -> None:
        """Write all that can be written in order."""
        while self._blocks:
            head = self._blocks[0]
            if not head.started:
                self._write(BLOCK_START, {"index": self._index, "content_block": head.start})
                head.started = True
            new = "".join(head.pieces[head.sent :])
            head.sent = len(head.pieces)
            kind, field_name = "input_json_delta", "partial_json"
            if head.is_text:
                kind, field_name = "text_delta", "text"
                # Text is not needed again; a call's arguments are checked as a whole.
                head.pieces, head.sent = [], 0
            if new:
                delta = {"type": kind, field_name: new}
                self._write(BLOCK_DELTA, {"index": self._index, "delta": delta})
            if len(self._blocks) > 1 and not head.ended:
                # Nothing can follow a whole object, and text ends where something else begins.
                head.ended = head.is_text or head.is_whole_object()
            if not head.ended:
                return
            self._write(BLOCK_STOP, {"index": self._index})
            self._blocks.popleft()
            if not head.is_text and head.is_malformed():
                self.malformed += 1
            # Its call stays known, so that nothing is added after its end.
            head.pieces = []
            self._index += 1

    def _write(self, name: bytes, fields: dict[str, object]) -> None:
        self._out += json_event(name, fields)


# So many objects may be small; beyond, a stream whose objects have a few bytes each is broken.
# Those of real chunks have some dozens.
_SMALL_OBJECTS = 4096
_LEAST_OBJECT = 16
# In one event, which is read at once; a whole answer in one chunk has some hundreds.
_MOST_IN_EVENT = 20_000
# A value takes more memory than its bytes. The longest answers, whole in one event, have some
# 128,000 tokens, each of a few signs at most.
_MANY_VALUES = 500_000
_UNREADABLE_STREAM = {
    "type": "api_error",
    # With the text by which a garbled stream is known, since it may come whole the next time.
    "message": "error decoding response body: the other side's stream could not be followed",
}


class StreamTranslator(ABC):
    """Bytes of a foreign stream in, bytes of Anthropic's stream out."""

    def __init__(self, options: AnswerOptions) -> None:
        self.options = options
        self.notes = TranslationNotes(_SMALL_OBJECTS)
        self.usage = TokenUsage()
        # message_stop has been written.
        self.whole = False
        # An error event has been written; nothing follows.
        self.broken = False
        self.refused = False
        self.writer = MessageWriter(options)
        self._splitter = EventSplitter()

    @property
    def held(self) -> int:
        """How much it keeps at most: an event that is not complete, and blocks out of turn."""
        return len(self._splitter.pending) + self.writer.stored

    def feed(self, data: bytes) -> bytes:
        """Read the next bytes, and return the events that they complete."""
        if self.writer.over:
            return b""
        try:
            for event in self._splitter.feed(data):
                self._read(event)
        except UNREADABLE:
            self._break(_UNREADABLE_STREAM)
        return self.writer.take_output()

    def end(self) -> bytes:
        """End the stream in order, and return what can still be written."""
        if not self.writer.over:
            self._read_end()
        return self.writer.take_output()

    def _read(self, event: bytes) -> None:
        if self.writer.over:
            return
        before = self.writer.length
        name, data = name_and_data(event)
        if data:
            if len(data) > _MANY_VALUES and count_values(data) > _MANY_VALUES:
                raise UnreadableStreamError("too many values in an event")
            self.notes.allow_objects(len(event) // _LEAST_OBJECT, _MOST_IN_EVENT)
            self._read_event(name, data)
        if self.writer.length == before:
            self.writer.ping()

    @abstractmethod
    def _read_event(self, name: bytes, data: bytes) -> None: ...

    @abstractmethod
    def _read_end(self) -> None: ...

    def _reasoning(self, text: str, at: str) -> None:
        if text:
            self.notes.add(at, NO_REASONING)

    def _finish(self, ended: str, stop: str | None = None) -> None:
        """Write the end; `ended` is the foreign stop reason, `stop` the sequence that ended it."""
        reason = stop_reason(ended, calls=self.writer.calls, refused=self.refused, notes=self.notes)
        if stop is not None and reason == "end_turn":
            self.writer.end("stop_sequence", stop, self.usage)
        else:
            self.writer.end(reason, None, self.usage)
        self.whole = True
        for _ in range(self.writer.malformed):
            self.notes.add("arguments", "the model wrote no JSON object; sent as written")

    def _fail(self, data: bytes) -> None:
        """The server has sent an error."""
        self._break(error_of(500, data))

    def _break(self, error: dict[str, str]) -> None:
        self.writer.fail(error)
        self.broken = True
