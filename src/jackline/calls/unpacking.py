"""Unpack an answer that comes compressed, as it comes.

Laws: (1) what cannot be unpacked is a broken answer of the upstream, never our own fault; (2) one
that ends before its packing does is broken too; (3) how the bytes were chunked changes nothing.
Not here: what a broken answer leads to (hearing.py, carrier.py).
"""

from __future__ import annotations

import zlib

from jackline.upstream.breaks import BadPackingError

_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": zlib.MAX_WBITS}


class Unpacking:
    """One compressed answer; BadPackingError where it is damaged."""

    __slots__ = ("_member", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._member = zlib.decompressobj(window)

    def feed(self, data: bytes) -> bytes:
        """What these bytes hold."""
        plain = b""
        try:
            while data:
                if self._member.eof:
                    self._member = zlib.decompressobj(self._window)
                plain += self._member.decompress(data)
                data = self._member.unused_data
        except zlib.error as error:
            raise BadPackingError(str(error)) from error
        return plain

    def end(self) -> None:
        """No more comes."""
        if not self._member.eof:
            raise BadPackingError("it ends too early")


def unpacking_for(content_encoding: str | None) -> Unpacking | None:
    """What unpacks such an answer; None when it comes plain, or in a way that is not read here."""
    if content_encoding is None:
        return None
    window = _WINDOWS.get(content_encoding.strip().lower())
    return None if window is None else Unpacking(window)
