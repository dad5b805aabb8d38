"""Decompress bodies within bounds.

Rules: (1) no call decompresses more than a slice, however small the input was; (2) data that cannot
be decompressed, or ends too early, raises DecompressionError; how it was cut into packets changes
nothing.
"""

from __future__ import annotations

import zlib
from collections import deque

SLICE_BYTES = 256 * 1024
MOST_RATIO = 100
"""Of what a client sends. Text compresses to a fifth, logs to a fiftieth, bombs to a thousandth."""
# A body is one member, rarely a few; each further one costs a copy of all that is behind it.
_MOST_MEMBERS = 1000
_GZIP, _ZLIB, _BARE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_WINDOWS = {"gzip": (_GZIP,), "x-gzip": (_GZIP,), "deflate": (_ZLIB, _BARE)}


class DecompressionError(ConnectionError):
    """The body came as it was framed, and cannot be decompressed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"error decoding response body: its compression is broken ({why})")


def decompressors_for(content_encoding: str) -> list[Decompressor]:
    """What may decompress such a body, the standard's way first; none for an unknown encoding.

    The standard requires zlib's wrapping for deflate; some senders leave it out.
    """
    return [Decompressor(each) for each in _WINDOWS.get(content_encoding.strip().lower(), ())]


class Decompressor:
    """One compressed body."""

    __slots__ = ("_input", "_is_full", "_member", "_members", "_waiting", "_window", "held")

    def __init__(self, window: int) -> None:
        self._window = window
        self._member = zlib.decompressobj(window)
        self._members = 1
        self._input = b""
        self._waiting: deque[bytes] = deque()
        # How many bytes were fed and are not looked at yet.
        self.held = 0
        # The last slice was cut off by its size: there may be more without any further input.
        self._is_full = False

    def feed(self, data: bytes) -> None:
        """Add compressed bytes; `next_slice` returns what they hold."""
        self._waiting.append(data)
        self.held += len(data)

    @property
    def may_have_more(self) -> bool:
        """Whether something that was fed may not be decompressed yet."""
        return bool(self._input or self._waiting or self._is_full)

    def next_slice(self, most: int = SLICE_BYTES) -> bytes:
        """Some of the plain bytes; nothing when all that was fed is decompressed."""
        try:
            while self._input or self._waiting or self._is_full:
                if not self._input and not self._is_full:
                    self._input = self._waiting.popleft()
                    self.held -= len(self._input)
                if self._member.eof:
                    self._members += 1
                    if self._members > _MOST_MEMBERS:
                        raise DecompressionError(f"it has more than {_MOST_MEMBERS} parts")
                    self._member = zlib.decompressobj(self._window)
                plain = self._member.decompress(self._input, most)
                has_ended = self._member.eof
                self._input = (
                    self._member.unused_data if has_ended else self._member.unconsumed_tail
                )
                self._is_full = len(plain) >= most and not has_ended
                if plain:
                    return plain
        except zlib.error as error:
            raise DecompressionError(str(error)) from error
        return b""

    def end(self) -> None:
        """No more comes."""
        if not self._member.eof:
            raise DecompressionError("it ends too early")
