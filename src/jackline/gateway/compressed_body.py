"""Decompress the bodies of model calls, a slice at a time.

Rules: (1) a turn of the event loop decompresses one slice, of however many bodies, so that others
are served meanwhile; bodies take turns, so that a small one does not wait for large ones; (2) the
result is limited by the size of a body and by how well text can be compressed; (3) memory is
reserved before each slice is stored, and released when the body is done in whatever way; (4) a
client that goes ends it; (5) what cannot be decompressed here is for the vendor to judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jackline.gateway.connection import Exchange
from jackline.http1.compression import MOST_RATIO, DecompressionError, decompressors_for
from jackline.upstream.bounded_answers import DecompressionTurns


class _Memory(Protocol):
    """Counts the bytes of all bodies; `take_room` is False where there is no room for more."""

    def take_room(self, size: int, own: int) -> bool: ...

    def hold_more(self, size: int) -> None: ...


# Fed at once: what is behind a member of a body is copied each time.
_PIECE = 64 * 1024


def is_compressed(exchange: Exchange) -> bool:
    """Whether a request's body has to be decompressed before it can be read."""
    coding = exchange.header(b"content-encoding")
    return coding is not None and coding.strip().lower() not in (b"", b"identity")


class CompressedBodies:
    """The bodies of requests that are being decompressed."""

    def __init__(self, memory: _Memory) -> None:
        self._memory = memory
        self._turns = DecompressionTurns()

    def decompress(
        self,
        exchange: Exchange,
        largest: int,
        then: Callable[[bytearray | None], None],
        no_room: Callable[[], None],
    ) -> None:
        """Call `then` with the plain body, or with None if it cannot be read.

        Where there is no room for it, `no_room` is called instead. Neither is called if the client
        goes before; either may be called before this returns.
        """
        body = _CompressedBody(exchange, largest, self._memory, then, no_room)
        if body.start():
            self._turns.wait(body.go_on)


class _CompressedBody:
    """One body."""

    __slots__ = (
        "_at",
        "_decompressors",
        "_exchange",
        "_holds",
        "_memory",
        "_most",
        "_no_room",
        "_plain",
        "_then",
    )

    def __init__(
        self,
        exchange: Exchange,
        largest: int,
        memory: _Memory,
        then: Callable[[bytearray | None], None],
        no_room: Callable[[], None],
    ) -> None:
        self._exchange = exchange
        self._most = min(largest, MOST_RATIO * len(exchange.body))
        self._memory = memory
        self._holds = 0
        self._then = then
        self._no_room = no_room
        # Those that may do it, the current one first.
        coding = exchange.header(b"content-encoding") or b""
        self._decompressors = decompressors_for(coding.decode("latin-1"))
        self._plain = bytearray()
        self._at = 0

    def start(self) -> bool:
        """Whether there is anything to decompress; else a callback was called."""
        if not self._take_room(len(self._exchange.body)):
            self._release()
            self._no_room()
            return False
        self._exchange.on_gone = self._release
        return bool(self._decompressors) or not self._end(None)

    def go_on(self) -> bool:
        """Decompress a slice; whether this body is done."""
        exchange, decompressor = self._exchange, self._decompressors[0]
        if exchange.gone:
            self._release()
            return True
        try:
            found = decompressor.next_slice()
            if not found and self._at >= len(exchange.body):
                decompressor.end()
                return self._end(self._plain)
        except DecompressionError:
            # The next decompressor begins from the start.
            size = len(self._plain)
            self._holds -= size
            self._memory.hold_more(-size)
            self._plain.clear()
            self._at = 0
            del self._decompressors[0]
            return not self._decompressors and self._end(None)
        if not found:
            decompressor.feed(bytes(exchange.body[self._at : self._at + _PIECE]))
            self._at += _PIECE
            return False
        if len(self._plain) + len(found) > self._most:
            return self._end(None)
        if not self._take_room(len(found)):
            self._release()
            exchange.on_gone = None
            self._no_room()
            return True
        self._plain += found
        return False

    def _end(self, plain: bytearray | None) -> bool:
        self._release()
        self._exchange.on_gone = None
        self._then(plain)
        return True

    def _take_room(self, size: int) -> bool:
        if not self._memory.take_room(size, self._holds):
            return False
        self._holds += size
        return True

    def _release(self) -> None:
        holds, self._holds = self._holds, 0
        self._memory.hold_more(-holds)
