"""Let the events of a continued answer follow on those that the client already has.

Laws: (1) the client sees one message: one start, block indexes without a gap; (2) only the index of
an event is changed, all else is carried as it was written; (3) white space that was cut off the
prefill is not said twice.
Not here: deciding to continue (stitching.py), asking for it (continuation.py).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from jackline.calls.client_view import words_in
from jackline.dialects.anthropic_answer import block_stop
from jackline.dialects.anthropic_stream import (
    BLOCK_DELTA,
    BLOCK_START,
    BLOCK_STOP,
    MESSAGE_DELTA,
    MESSAGE_START,
)
from jackline.dialects.sse import data_of, event_of

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Item(NamedTuple):
    """An event on its way to the client, with the type of the block that it belongs to."""

    name: bytes
    event: bytes
    block_type: str


class Renumbering:
    """Changes the events of one attempt; `given` blocks are there, the last perhaps still open."""

    __slots__ = ("_open", "_shift", "_tail", "_tail_at")

    def __init__(self, given: int, *, text_open: bool, tail: str) -> None:
        self._open: int | None = given - 1 if text_open else None
        self._shift = given
        # White space that the client has and the model may say again, and how much it has said.
        self._tail = tail
        self._tail_at = 0

    def translate(self, item: Item) -> list[Item]:
        """What goes on in its place; raises one of UNREADABLE when it cannot be read."""
        name, event, block_type = item
        if name == MESSAGE_START:
            return []
        if name == BLOCK_START:
            if self._open is not None and block_type == "text":
                return self._join(event)
            return [*self._close(), Item(name, self._numbered(name, event), block_type)]
        if name == BLOCK_DELTA:
            return self._delta(item)
        if name == BLOCK_STOP:
            return [Item(name, self._numbered(name, event), block_type)]
        if name == MESSAGE_DELTA:
            return [*self._close(), item]
        return [item]

    def _join(self, event: bytes) -> list[Item]:
        """The first text goes on in the open block, so that its start is left out."""
        index, self._open = self._open, None
        self._shift -= 1
        words = self._untold(words_in(event))
        return [Item(BLOCK_DELTA, _text_delta(index or 0, words), "text")] if words else []

    def _close(self) -> list[Item]:
        """Anything but text ends the block that was left open."""
        if self._open is None:
            return []
        index, self._open = self._open, None
        self._tail = ""
        return [Item(BLOCK_STOP, block_stop(index), "text")]

    def _delta(self, item: Item) -> list[Item]:
        numbered = self._numbered(item.name, item.event)
        words = words_in(item.event) if self._tail else ""
        if words:
            untold = self._untold(words)
            if not untold:
                return []
            if untold != words:
                index = int(bytes(_fields.decode(data_of(numbered))["index"]))
                numbered = _text_delta(index, untold)
        return [Item(item.name, numbered, item.block_type)]

    def _untold(self, words: str) -> str:
        """The words without the white space that the client has already."""
        tail, at, same = self._tail, self._tail_at, 0
        most = min(len(words), len(tail) - at)
        while same < most and words[same] == tail[at + same]:
            same += 1
        self._tail_at = at + same
        if same < len(words) or self._tail_at == len(tail):
            self._tail, self._tail_at = "", 0
        return words[same:]

    def _numbered(self, name: bytes, event: bytes) -> bytes:
        fields = _fields.decode(data_of(event))
        index = int(bytes(fields.get("index", b"")))
        fields["index"] = msgspec.Raw(str(index + self._shift).encode())
        return event_of(name, b" ".join(msgspec.json.encode(fields).splitlines()))


def _text_delta(index: int, words: str) -> bytes:
    delta = {"type": "text_delta", "text": words}
    data = {"type": "content_block_delta", "index": index, "delta": delta}
    return event_of(BLOCK_DELTA, msgspec.json.encode(data))
