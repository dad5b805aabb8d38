"""Hold one attempt from its start to its end.

Laws: (1) an attempt that is over holds neither its ear nor its body nor a connection; (2) after
`hang_up` its ear is nobody, so that nothing can be heard.
Not here: who sends it (pool.py) and who receives its answer (connection.py).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from jackline.upstream.port import Ear, Headers


class Line(Protocol):
    """The connection, as far as an attempt may touch it."""

    def drop(self) -> None:
        """End the connection at once."""
        ...

    def pause(self) -> None:
        """Stop reading."""
        ...

    def resume(self) -> None:
        """Go on reading."""
        ...


class Nobody:
    """Listens to attempts that nobody listens to any more."""

    __slots__ = ()

    def began(self, status: int, headers: Headers) -> None:
        """Hear nothing."""

    def heard(self, data: bytes) -> None:
        """Hear nothing."""

    def ended(self) -> None:
        """Hear nothing."""

    def broke(self, error: OSError) -> None:
        """Hear nothing."""


NOBODY = Nobody()


class HttpAttempt:
    """One request and whatever comes of it."""

    __slots__ = ("body", "dialling", "ear", "head", "is_head", "is_over", "is_paused", "line")

    def __init__(self, head: bytes, body: bytes | bytearray, is_head: bool, ear: Ear) -> None:
        self.head = head
        self.body = body
        self.is_head = is_head
        self.ear = ear
        self.is_over = False
        self.is_paused = False
        self.line: Line | None = None
        self.dialling: asyncio.Task[None] | None = None

    def hang_up(self) -> None:
        """Drop it at once; may be called at any time and any number of times."""
        line, dialling = self.line, self.dialling
        self.end()
        if line is not None:
            line.drop()
        if dialling is not None:
            dialling.cancel()

    def pause(self) -> None:
        """Stop reading: whoever takes the bytes is slow."""
        self.is_paused = True
        if self.line is not None:
            self.line.pause()

    def resume(self) -> None:
        """Go on reading."""
        self.is_paused = False
        if self.line is not None:
            self.line.resume()

    def end(self) -> Ear:
        """Let go of everything; the ear, for its last word."""
        ear = self.ear
        self.is_over = True
        self.ear = NOBODY
        self.line = self.dialling = None
        self.head = self.body = b""
        return ear

    def break_off(self, error: OSError) -> None:
        """End it and tell the ear, unless it is over."""
        if not self.is_over:
            self.end().broke(error)
