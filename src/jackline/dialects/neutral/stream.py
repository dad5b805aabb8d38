"""Translate another vendor's answer stream into Anthropic's events while it arrives.

Rules: (1) how the bytes were cut changes nothing; (2) nothing fed here raises: a stream that
cannot be followed ends with an error event, and after an error nothing follows; (3) the events
form one valid stream: one block is open at a time, in gapless order; the first open block is
written live, later ones wait for their turn; (4) a stream that was cut off never gets a
message_stop; (5) an event without anything to write, such as reasoning, becomes a ping: the other
side is alive.
Not here: what the events of one dialect mean (openai_chat/answer.py, openai_responses/answer.py).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field

import msgspec

from jackline.dialects.answer_facts import PING
from jackline.dialects.anthropic_stream import (
    BLOCK_DELTA,
    BLOCK_START,
    BLOCK_STOP,
    ERROR,
    MESSAGE_DELTA,
    MESSAGE_START,
    MESSAGE_STOP,
)
from jackline.dialects.json_bounds import has_too_many_values
from jackline.dialects.neutral.answer import (
    MOST_CALLS,
    NO_REASONING,
    anthropic_usage,
    error_of,
    is_object,
)
from jackline.dialects.neutral.conversation import ToolIds
from jackline.dialects.neutral.fields import UNREADABLE, TranslationNotes
from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.sse import EventSplitter, event_of, name_and_data
from jackline.dialects.tokens_used import TokensUsed


class UnreadableStreamError(ValueError):
    """The foreign stream says something that no answer can mean."""


# Kept of one answer: arguments, names and ids of calls, and words that wait. The longest answers
# have some 128,000 tokens, which are less than a megabyte in as many pieces.
_MOST_KEPT = 8 * 1024 * 1024
_MOST_PIECES = 500_000
# Of blocks that wait for the end of one before them.
_MOST_WAITING = 2 * MOST_CALLS
# Each mark is a step of Python; beyond, a call counts as open until its server ends it.
_MOST_MARKS = 100_000
# Deeper objects cannot be decoded.
_DEEPEST = 1_000
# What decides where a JSON value ends: in strings, only a quote that nothing escapes.
_MARK = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)


class _ObjectEnd:
    """Finds where arguments that come in pieces close the object that they opened, or gives up."""

    __slots__ = ("_depth", "_is_escaped", "_is_in_string", "_marks", "is_found", "is_given_up")

    def __init__(self) -> None:
        self._depth = 0
        self._marks = 0
        self._is_in_string = False
        # The last piece ended between a backslash and what it escapes.
        self._is_escaped = False
        self.is_found = False
        self.is_given_up = False

    def look_in(self, piece: str) -> None:
        """Go on with the next piece; what stands behind the end changes nothing."""
        if not piece or self.is_found or self.is_given_up:
            return
        start, self._is_escaped = int(self._is_escaped), False
        for mark in _MARK.finditer(piece, start):
            self._marks += 1
            if self._marks > _MOST_MARKS or self._depth > _DEEPEST:
                self.is_given_up = True
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
                    self.is_found = True
                    return


@dataclass(slots=True)
class _Block:
    """One content block; `pieces` is all that came for it, `told` how many were passed on."""

    start: dict[str, object]
    is_text: bool
    pieces: list[str] = field(default_factory=list)
    told: int = 0
    shown: bool = False
    ended: bool = False
    # Where its object ends, how many pieces were searched for that, and what was found there.
    end: _ObjectEnd = field(default_factory=_ObjectEnd)
    searched: int = 0
    is_object: bool | None = None

    @property
    def whole(self) -> str:
        return "".join(self.pieces)

    def is_whole_object(self) -> bool:
        """Whether its arguments are known to be an object, behind which nothing can follow.

        They are checked once, where their outermost bracket closes: if they are no object there,
        nothing that follows makes them one.
        """
        if self.is_object is None:
            for piece in self.pieces[self.searched :]:
                self.end.look_in(piece)
            self.searched = len(self.pieces)
            if self.end.is_found:
                self.is_object = is_object(self.whole)
        return bool(self.is_object)

    def is_malformed(self) -> bool:
        """Whether the arguments of a call that has ended are no object."""
        if self.is_object is None:
            whole = self.whole
            self.is_object = not whole or whole.isspace() or is_object(whole)
        return not self.is_object


class MessageWriter:
    """Takes what a model says piece by piece; `taken()` gives the events since the last time."""

    def __init__(self, face: AnswerOptions) -> None:
        self._face = face
        self._out = bytearray()
        self._blocks: deque[_Block] = deque()
        self._calls: dict[object, _Block] = {}
        self._ids: ToolIds | None = None
        self._index = 0
        self._kept = 0
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

    def taken(self) -> bytes:
        """The events that have not been taken yet."""
        out = bytes(self._out)
        self._out.clear()
        return out

    @property
    def length(self) -> int:
        """How much has not been taken yet."""
        return len(self._out)

    def show_life(self) -> None:
        """The other side works, and has said nothing that can be told."""
        if self.started and not self.closed and not self.over:
            self._out += PING

    def begin(self, message_id: str) -> None:
        """The answer has an id; what it cost is told at its end."""
        self.started = True
        self._ids = ToolIds(message_id)
        message: dict[str, object] = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": self._face.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": anthropic_usage(TokensUsed()),
        }
        self._write(MESSAGE_START, {"message": message})

    def text(self, words: str) -> None:
        """Words behind everything that was said so far."""
        if not words:
            return
        last = self._blocks[-1] if self._blocks else None
        if last is None or not last.is_text or last.ended:
            last = self._open({"type": "text", "text": ""}, is_text=True)
        if len(self._blocks) > 1:
            self.keep(words)
        last.pieces.append(words)
        self._advance()

    def keep(self, words: str) -> None:
        """Count what is kept of the answer; UnfollowableError when no model says so much."""
        self._kept += len(words)
        self._pieces += 1
        if self._kept > _MOST_KEPT or self._pieces > _MOST_PIECES:
            raise UnreadableStreamError("more to keep than an answer has")

    def end_text(self) -> None:
        """Words that come now belong to another block."""
        if self._blocks and self._blocks[-1].is_text:
            self._blocks[-1].ended = True
            self._advance()

    def call(self, key: object, foreign_id: str, name: str) -> str:
        """A tool is called; `key` tells it from other calls of this answer. Its own id."""
        if self._ids is None:
            raise UnreadableStreamError("a call before the answer")
        if len(self._calls) >= MOST_CALLS:
            raise UnreadableStreamError("too many calls")
        self.keep(name)
        own = self._ids.of(foreign_id)
        start: dict[str, object] = {
            "type": "tool_use",
            "id": own,
            "name": self._face.tool_names.get(name, name),
            "input": {},
        }
        self._calls[key] = self._open(start, is_text=False)
        self._advance()
        return own

    def knows(self, key: object) -> bool:
        """Whether such a call has begun."""
        return key in self._calls

    def arguments(self, key: object, piece: str) -> None:
        """More of the arguments of a call."""
        block = self._known(key)
        if not piece or (block.ended and not piece.strip()):
            return
        if block.ended:
            raise UnreadableStreamError("arguments behind the end of a call")
        self.keep(piece)
        block.pieces.append(piece)
        self._advance()

    def end_call(self, key: object, arguments: str | None = None) -> None:
        """A call is whole; what was not told of its arguments before is told now."""
        block = self._known(key)
        if arguments is not None and not block.ended:
            known = block.whole
            if not arguments.startswith(known):
                raise UnreadableStreamError("arguments that differ from what was streamed")
            self.arguments(key, arguments[len(known) :])
        block.ended = True
        self._advance()

    def close_blocks(self) -> None:
        """Nothing more is said."""
        for block in self._blocks:
            block.ended = True
        self._advance()
        self.closed = True

    def end(self, reason: str, sequence: str | None, usage: TokensUsed) -> None:
        """The answer is whole."""
        self.close_blocks()
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        self._write(MESSAGE_DELTA, {"delta": delta, "usage": anthropic_usage(usage)})
        self._write(MESSAGE_STOP, {})
        self.over = True

    def fail(self, error: dict[str, str]) -> None:
        """The answer ends with an error."""
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
        """Tell all that can be told in order."""
        while self._blocks:
            head = self._blocks[0]
            self._show(head)
            if len(self._blocks) > 1 and not head.ended:
                # Nothing can follow a whole object, and words end where something else begins.
                head.ended = head.is_text or head.is_whole_object()
            if not head.ended:
                return
            self._write(BLOCK_STOP, {"index": self._index})
            self._blocks.popleft()
            if not head.is_text and head.is_malformed():
                self.malformed += 1
            # Its call stays known, so that nothing comes behind its end.
            head.pieces = []
            self._index += 1

    def _show(self, head: _Block) -> None:
        if not head.shown:
            self._write(BLOCK_START, {"index": self._index, "content_block": head.start})
            head.shown = True
        fresh = "".join(head.pieces[head.told :])
        head.told = len(head.pieces)
        if fresh:
            kind, name = ("text_delta", "text") if head.is_text else _ARGUMENTS
            self._write(BLOCK_DELTA, {"index": self._index, "delta": {"type": kind, name: fresh}})
            if head.is_text:
                # Nobody asks for words again; a call's arguments are looked at as a whole.
                head.pieces, head.told = [], 0

    def _write(self, name: bytes, fields: dict[str, object]) -> None:
        self._out += event_of(name, msgspec.json.encode({"type": name.decode(), **fields}))


_ARGUMENTS = ("input_json_delta", "partial_json")


# So many objects may be small; beyond, a stream whose objects have a few bytes each is not
# followed. Those of real chunks have some dozens.
_SMALL_OBJECTS = 4096
_LEAST_OBJECT = 16
# In one event, which is read in one go; a whole answer in one chunk has some hundreds.
_MOST_IN_EVENT = 20_000
_UNREADABLE_STREAM = {
    "type": "api_error",
    # In the words by which a garbled stream is known, since it may come whole the next time.
    "message": "error decoding response body: the other side's stream could not be followed",
}


class StreamTranslator(ABC):
    """Bytes of a foreign stream in, bytes of Anthropic's stream out."""

    def __init__(self, face: AnswerOptions) -> None:
        self.face = face
        self.notes = TranslationNotes(_SMALL_OBJECTS)
        self.usage = TokensUsed()
        # message_stop has been written.
        self.whole = False
        # An error event has been written; nothing follows.
        self.broken = False
        self.refused = False
        self.writer = MessageWriter(face)
        self._splitter = EventSplitter()

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, and give the events that they complete."""
        if self.writer.over:
            return b""
        try:
            for event in self._splitter.feed(data):
                self._follow(event)
        except UNREADABLE:
            self._break(_UNREADABLE_STREAM)
        return self.writer.taken()

    def end(self) -> bytes:
        """The foreign stream has ended in order; give what can still be said."""
        if not self.writer.over:
            self._ended()
        return self.writer.taken()

    def _follow(self, event: bytes) -> None:
        if self.writer.over:
            return
        said = self.writer.length
        name, told = name_and_data(event)
        if told:
            if has_too_many_values(told):
                raise UnreadableStreamError("too many values in an event")
            self.notes.allow_objects(len(event) // _LEAST_OBJECT, _MOST_IN_EVENT)
            self._take(name, told)
        if self.writer.length == said:
            self.writer.show_life()

    @abstractmethod
    def _take(self, name: bytes, data: bytes) -> None:
        """One event of the dialect."""

    @abstractmethod
    def _ended(self) -> None:
        """The bytes have ended in order."""

    def _reason(self, words: str, at: str) -> None:
        if not words:
            return
        if self.face.show_reasoning:
            self.writer.text(words)
        else:
            self.notes.add(at, NO_REASONING)

    def _finish(self, reason: str, sequence: str | None = None) -> None:
        self.writer.end(reason, sequence, self.usage)
        self.whole = True
        for _ in range(self.writer.malformed):
            self.notes.add("arguments", "the model wrote no JSON object; told as it wrote it")

    def _fail(self, data: bytes) -> None:
        """The other side has told an error."""
        self._break(error_of(500, data))

    def _break(self, error: dict[str, str]) -> None:
        self.writer.fail(error)
        self.broken = True
