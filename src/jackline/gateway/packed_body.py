"""Unpack the body of a model call that came compressed, a slice at a time.

Rules: (1) no turn of the event loop unpacks more than one slice, so that others are served
meanwhile; (2) no more is unpacked than a body may have, nor more than a text can be packed to; (3)
every byte counts as held; (4) a client that goes ends it. What cannot be unpacked here is for the
vendor to judge, and is told as None.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from jackline.gateway.exchange import Exchange
from jackline.upstream.breaks import BadPackingError
from jackline.upstream.unpacking import MOST_RATIO, Unpacking

Plain: TypeAlias = bytearray | None


class Packed(NamedTuple):
    """Whether a body came compressed, and what it holds then; None: that cannot be told."""

    is_packed: bool
    plain: Plain = None


NOT_PACKED = Packed(False)
Then: TypeAlias = Callable[[Packed], None]
Held: TypeAlias = Callable[[int], None]

_GZIP, _ZLIB, _BARE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
# The standard means zlib's wrapping by deflate; some senders leave it out.
_WINDOWS = {b"gzip": (_GZIP,), b"x-gzip": (_GZIP,), b"deflate": (_ZLIB, _BARE)}
_PLAIN = frozenset((b"", b"identity"))
# So much is fed at once: what is behind a member of a body is copied each time.
_PIECE = 64 * 1024


def is_packed(exchange: Exchange) -> bool:
    """Whether a request's body has to be unpacked before it can be read."""
    coding = exchange.header(b"content-encoding")
    return coding is not None and coding.strip().lower() not in _PLAIN


class PackedBody:
    """One body; `then` is told what was packed, unless the client goes before.

    `held` is told by how much more or less is held.
    """

    __slots__ = (
        "_at",
        "_exchange",
        "_held",
        "_holds",
        "_most",
        "_plain",
        "_then",
        "_unpacking",
        "_windows",
    )

    def __init__(self, exchange: Exchange, largest: int, held: Held, then: Then) -> None:
        self._exchange = exchange
        self._most = min(largest, MOST_RATIO * len(exchange.body))
        self._held = held
        self._holds = 0
        self._then = then
        coding = exchange.header(b"content-encoding") or b""
        self._windows = list(_WINDOWS.get(coding.strip().lower(), ()))
        self._plain = bytearray()

    def start(self) -> None:
        """Begin; `then` may be called before this returns."""
        self._hold(len(self._exchange.body))
        self._exchange.on_gone = self._let_go
        self._begin()

    def _begin(self) -> None:
        """Unpack from the start, by the next way that there is."""
        self._hold(-len(self._plain))
        self._plain.clear()
        self._at = 0
        if not self._windows:
            self._end(None)
            return
        self._unpacking = Unpacking(self._windows.pop(0))
        self._turn()

    def _turn(self) -> None:
        exchange = self._exchange
        if exchange.gone:
            self._let_go()
            return
        try:
            found = self._unpacking.next_slice()
            if not found and self._at >= len(exchange.body):
                self._unpacking.end()
                self._end(self._plain)
                return
        except BadPackingError:
            self._begin()
            return
        if found:
            self._plain += found
            self._hold(len(found))
            if len(self._plain) > self._most:
                self._end(None)
                return
        else:
            self._unpacking.feed(bytes(exchange.body[self._at : self._at + _PIECE]))
            self._at += _PIECE
        asyncio.get_running_loop().call_soon(self._turn)

    def _end(self, plain: Plain) -> None:
        self._let_go()
        self._exchange.on_gone = None
        self._then(Packed(True, plain))

    def _hold(self, size: int) -> None:
        self._holds += size
        self._held(size)

    def _let_go(self) -> None:
        self._hold(-self._holds)
