"""Decompress the bodies of model calls, a slice at a time.

Rules: (1) a turn of the event loop decompresses one slice, of however many bodies, so that others
are served meanwhile; bodies take turns, so that a small one does not wait for large ones; (2) the
result is limited by the size of a body and by how well text can be compressed; (3) memory is
reserved before each slice is stored, and released when the body is done in whatever way; (4) a
client that goes ends it; (5) what cannot be decompressed here is for the vendor to judge.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from jackline.gateway.connection import Exchange
from jackline.http1.compression import MOST_RATIO, DecompressionError, Decompressor
from jackline.upstream.bounded_answers import DecompressionTurns


class Packed(NamedTuple):
    """Whether a body came compressed, and what it holds then; None: that cannot be told."""

    is_packed: bool
    plain: bytearray | None = None


NOT_PACKED = Packed(False)
WhenUnpacked: TypeAlias = Callable[[Packed | None], None]
"""Is told what was packed; None: there is no room for it beside all that is held."""


class BodyMemory(Protocol):
    """Who counts what all bodies hold."""

    def take_room(self, size: int, own: int) -> bool:
        """Count so many bytes more as held; False, and nothing counted, where that is too much.

        `own` is how much of what is held belongs to the same body.
        """
        ...

    def hold_more(self, size: int) -> None:
        """Count so many bytes more as held, or less."""
        ...


_GZIP, _ZLIB, _BARE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
# The standard means zlib's wrapping by deflate; some senders leave it out.
_WINDOWS = {b"gzip": (_GZIP,), b"x-gzip": (_GZIP,), b"deflate": (_ZLIB, _BARE)}
_PLAIN = frozenset((b"", b"identity"))
# So much is fed at once: what is behind a member of a body is copied each time.
_PIECE = 64 * 1024
_UNREADABLE = Packed(True)


def is_packed(exchange: Exchange) -> bool:
    """Whether a request's body has to be unpacked before it can be read."""
    coding = exchange.header(b"content-encoding")
    return coding is not None and coding.strip().lower() not in _PLAIN


class PackedBodies:
    """The bodies of requests that are being unpacked."""

    def __init__(self, room: BodyMemory) -> None:
        self._room = room
        self._turns = DecompressionTurns()

    def unpack(self, exchange: Exchange, largest: int, then: WhenUnpacked) -> None:
        """Have `then` told what the body holds, unless its client goes before.

        It may be told before this returns.
        """
        body = _PackedBody(exchange, largest, self._room, then)
        if body.start():
            self._turns.wait(body.go_on)


class _PackedBody:
    """One body."""

    __slots__ = (
        "_at",
        "_exchange",
        "_holds",
        "_most",
        "_plain",
        "_room",
        "_then",
        "_unpacking",
        "_windows",
    )

    def __init__(
        self, exchange: Exchange, largest: int, room: BodyMemory, then: WhenUnpacked
    ) -> None:
        self._exchange = exchange
        self._most = min(largest, MOST_RATIO * len(exchange.body))
        self._room = room
        self._holds = 0
        self._then = then
        coding = exchange.header(b"content-encoding") or b""
        self._windows = list(_WINDOWS.get(coding.strip().lower(), ()))
        self._plain = bytearray()

    def start(self) -> bool:
        """Whether there is anything to unpack; else `then` was told."""
        if not self._take_room(len(self._exchange.body)):
            self._end(None)
            return False
        self._exchange.on_gone = self._let_go
        return not self._begin()

    def go_on(self) -> bool:
        """Unpack a slice; whether this body is done with."""
        exchange = self._exchange
        if exchange.gone:
            self._let_go()
            return True
        try:
            found = self._unpacking.next_slice()
            if not found and self._at >= len(exchange.body):
                self._unpacking.end()
                return self._end(Packed(True, self._plain))
        except DecompressionError:
            return self._begin()
        if not found:
            self._unpacking.feed(bytes(exchange.body[self._at : self._at + _PIECE]))
            self._at += _PIECE
            return False
        if len(self._plain) + len(found) > self._most:
            return self._end(_UNREADABLE)
        if not self._take_room(len(found)):
            return self._end(None)
        self._plain += found
        return False

    def _begin(self) -> bool:
        """Begin from the start, by the next way that there is; whether there is none."""
        self._give_room(len(self._plain))
        self._plain.clear()
        self._at = 0
        if not self._windows:
            return self._end(_UNREADABLE)
        self._unpacking = Decompressor(self._windows.pop(0))
        return False

    def _end(self, packed: Packed | None) -> bool:
        self._let_go()
        self._exchange.on_gone = None
        self._then(packed)
        return True

    def _take_room(self, size: int) -> bool:
        if not self._room.take_room(size, self._holds):
            return False
        self._holds += size
        return True

    def _give_room(self, size: int) -> None:
        self._holds -= size
        self._room.hold_more(-size)

    def _let_go(self) -> None:
        self._give_room(self._holds)
