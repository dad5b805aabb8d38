"""Write one foreign answer as Anthropic's events, while it comes.

Laws: (1) the events form one valid stream: one block is open at a time, in gapless order; (2) the
first open block is told live, what comes for later ones meanwhile waits for its turn; (3) the end
of the message is written only when somebody says that it has ended; (4) after an error nothing
follows; (5) what came before makes nothing that comes later dearer; (6) the number of calls,
what is kept of an answer and the search for the end of a call are bounded.
Not here: reading the foreign stream (openai_chat/stream.py, openai_responses/stream.py).
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

import msgspec

from jackline.dialects.anthropic_answer import PING
from jackline.dialects.anthropic_stream import (
    BLOCK_DELTA,
    BLOCK_START,
    BLOCK_STOP,
    ERROR,
    MESSAGE_DELTA,
    MESSAGE_START,
    MESSAGE_STOP,
)
from jackline.dialects.neutral.answer import MOST_CALLS, is_object
from jackline.dialects.neutral.ids import ToolIds
from jackline.dialects.neutral.options import AnswerAs
from jackline.dialects.neutral.usage import told_usage
from jackline.dialects.sse import event_of
from jackline.dialects.tokens_used import TokensUsed


class UnfollowableError(ValueError):
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

    def __init__(self, face: AnswerAs) -> None:
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
            "usage": told_usage(TokensUsed()),
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
            raise UnfollowableError("more to keep than an answer has")

    def end_text(self) -> None:
        """Words that come now belong to another block."""
        if self._blocks and self._blocks[-1].is_text:
            self._blocks[-1].ended = True
            self._advance()

    def call(self, key: object, foreign_id: str, name: str) -> str:
        """A tool is called; `key` tells it from other calls of this answer. Its own id."""
        if self._ids is None:
            raise UnfollowableError("a call before the answer")
        if len(self._calls) >= MOST_CALLS:
            raise UnfollowableError("too many calls")
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
            raise UnfollowableError("arguments behind the end of a call")
        self.keep(piece)
        block.pieces.append(piece)
        self._advance()

    def end_call(self, key: object, arguments: str | None = None) -> None:
        """A call is whole; what was not told of its arguments before is told now."""
        block = self._known(key)
        if arguments is not None and not block.ended:
            known = block.whole
            if not arguments.startswith(known):
                raise UnfollowableError("arguments that differ from what was streamed")
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
        self._write(MESSAGE_DELTA, {"delta": delta, "usage": told_usage(usage)})
        self._write(MESSAGE_STOP, {})
        self.over = True

    def fail(self, error: dict[str, str]) -> None:
        """The answer ends with an error."""
        self._write(ERROR, {"error": error})
        self.over = True

    def _known(self, key: object) -> _Block:
        block = self._calls.get(key)
        if block is None:
            raise UnfollowableError("arguments of a call that has not begun")
        return block

    def _open(self, start: dict[str, object], *, is_text: bool) -> _Block:
        if self.closed or not self.started:
            raise UnfollowableError("content outside of the answer")
        if len(self._blocks) > _MOST_WAITING:
            raise UnfollowableError("too many blocks that wait")
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
