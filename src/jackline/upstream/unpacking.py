"""Unpack compressed bodies as they come, a bounded slice at a time.

Rules: (1) no call makes more than a slice of plain bytes, however well they were packed; (2) what
cannot be unpacked, or ends before its packing does, raises BadPackingError; (3) how the bytes were
cut into packets changes nothing; (4) bodies that share their turns get one slice of one of them in
each turn of the event loop, so that others are served meanwhile, and a small body does not wait for
large ones.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable

from jackline.upstream.breaks import BadPackingError

SLICE_BYTES = 256 * 1024
FIRST_BYTES = 16 * 1024
"""Unpacked of each packet at once, without waiting for a turn: more than words of a stream take."""
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

    @property
    def may_have_more(self) -> bool:
        """Whether something that was fed may not be unpacked yet."""
        return bool(self._packed or self._behind or self._is_full)

    def next_slice(self, most: int = SLICE_BYTES) -> bytes:
        """Some of the plain bytes; nothing when all that was fed is unpacked."""
        try:
            while self._packed or self._behind or self._is_full:
                if not self._packed and not self._is_full:
                    self._packed = self._behind.popleft()
                if self._member.eof:
                    self._begin_member()
                plain = self._member.decompress(self._packed, most)
                has_ended = self._member.eof
                self._packed = (
                    self._member.unused_data if has_ended else self._member.unconsumed_tail
                )
                self._is_full = len(plain) >= most and not has_ended
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


class UnpackingTurns:
    """The bodies that are being unpacked: one slice of one of them in each turn of the loop."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], bool]] = deque()

    def wait(self, go_on: Callable[[], bool]) -> None:
        """Have this called in turn until it says that its body is done with."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        go_on = self._waiting[0]
        is_done = True
        try:
            is_done = go_on()
        finally:
            # The next one's turn comes even if whoever was told has failed.
            self._waiting.popleft()
            if not is_done:
                self._waiting.append(go_on)
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._turn)


def unpacking_for(content_encoding: str | None) -> Unpacking | None:
    """What unpacks such a body; None when it comes plain, or in a way that is not read here."""
    if content_encoding is None:
        return None
    window = _WINDOWS.get(content_encoding.strip().lower())
    return None if window is None else Unpacking(window)
