"""Follow one chat stream that is passed on as it is: what has begun, what is whole, what it cost.

Laws: (1) nothing fed here raises: a stream that cannot be followed is broken, and stays so; (2) an
answer is whole only when every choice has its finish reason and `[DONE]` has come behind it;
(3) unknown fields change nothing; (4) an event of more values than an answer has is not decoded;
(5) a stream of more choices than can be asked for is broken.
Not here: cutting bytes into events (sse.py), telling it in another dialect (stream.py).
"""

from __future__ import annotations

import msgspec

from jackline.dialects.json_bounds import has_too_many_values
from jackline.dialects.neutral.usage import foreign_usage
from jackline.dialects.openai_chat.answer import MOST_CHOICES
from jackline.dialects.sse import name_and_data
from jackline.dialects.tokens_used import TokensUsed

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
