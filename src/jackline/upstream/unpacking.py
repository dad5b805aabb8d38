"""Unpack a compressed body as it comes, a bounded slice at a time.

Rules: (1) no call makes more than a slice of plain bytes, however well they were packed; (2) what
cannot be unpacked, or ends before its packing does, raises BadPackingError; (3) how the bytes were
cut into packets changes nothing.
"""

from __future__ import annotations

import zlib
from collections import deque

from jackline.upstream.breaks import BadPackingError

SLICE_BYTES = 256 * 1024
MOST_RATIO = 100
"""Of what a client sends. Text packs to a fifth, logs to a fiftieth, a bomb to a thousandth."""
# A body is one member, rarely a few; each further one costs a copy of all that is behind it.
_MOST_MEMBERS = 1000
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": zlib.MAX_WBITS}


class Unpacking:
    """One compressed body."""

    __slots__ = ("_behind", "_is_full", "_member", "_members", "_packed", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._member = zlib.decompressobj(window)
        self._members = 1
        self._packed = b""
        self._behind: deque[bytes] = deque()
        # The last slice was cut off by its size: there may be more without any further input.
        self._is_full = False

    def feed(self, data: bytes) -> None:
        """Take packed bytes; what they hold is then given by `next_slice`."""
        self._behind.append(data)

    def next_slice(self) -> bytes:
        """Some of the plain bytes; nothing when all that was fed is unpacked."""
        try:
            while self._packed or self._behind or self._is_full:
                if not self._packed and not self._is_full:
                    self._packed = self._behind.popleft()
                if self._member.eof:
                    self._begin_member()
                plain = self._member.decompress(self._packed, SLICE_BYTES)
                has_ended = self._member.eof
                self._packed = (
                    self._member.unused_data if has_ended else self._member.unconsumed_tail
                )
                self._is_full = len(plain) >= SLICE_BYTES and not has_ended
                if plain:
                    return plain
        except zlib.error as error:
            raise BadPackingError(str(error)) from error
        return b""

    def end(self) -> None:
        """No more comes."""
        if not self._member.eof:
            raise BadPackingError("it ends too early")

    def _begin_member(self) -> None:
        self._members += 1
        if self._members > _MOST_MEMBERS:
            raise BadPackingError(f"it has more than {_MOST_MEMBERS} parts")
        self._member = zlib.decompressobj(self._window)


def unpacking_for(content_encoding: str | None) -> Unpacking | None:
    """What unpacks such a body; None when it comes plain, or in a way that is not read here."""
    if content_encoding is None:
        return None
    window = _WINDOWS.get(content_encoding.strip().lower())
    return None if window is None else Unpacking(window)
