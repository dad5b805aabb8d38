"""What the rest of the house needs of an upstream: start one attempt, and be told what comes of it.

Laws: (1) `start` returns at once and never speaks to the ear before it has returned; (2) an ear
hears at most one `began`, and ends with exactly one of `ended` and `broke`; (3) after `hang_up`
nothing more is heard; (4) bytes are told as they came, nothing is interpreted.
Not here: any real upstream (http_upstream.py), the scripted one (jackline.testing).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class Message(NamedTuple):
    """What is sent: end-to-end headers only, in the order in which the client wrote them.

    `target` is path and query as they go on the request line, to be put behind the upstream's own
    path prefix. `body` is complete; its length and the host are written by the upstream. `lines`
    are the headers as `head.header_lines` wrote them, for whoever sends the same ones repeatedly.
    `fresh` asks for a new connection, because what was sent on a kept one is not answered.
    `plain` is what a compressed body holds, where that is known: for reading, never to be sent.
    `hour_marks` asks whoever renders it for the vendor to have its cache marks ask for an hour.
    """

    method: bytes
    target: bytes
    headers: Headers
    body: bytes | bytearray = b""
    lines: bytes | None = None
    plain: bytes | bytearray | None = None
    fresh: bool = False
    hour_marks: bool = False

    def __repr__(self) -> str:
        # Headers hold credentials, and bodies prompts.
        return f"<Message {self.method!r} {self.target!r}, {len(self.body)} bytes>"


class Ear(Protocol):
    """Who listens to an attempt."""

    def began(self, status: int, headers: Headers) -> None:
        """The head of the answer is there, whatever its status; with end-to-end headers only."""
        ...

    def heard(self, data: bytes) -> None:
        """Bytes of the answer's body, without transfer coding, with its content coding."""
        ...

    def ended(self) -> None:
        """The HTTP message is complete."""
        ...

    def broke(self, error: OSError) -> None:
        """It will not become complete: no connection, a reset, an early end, nonsense."""
        ...


class Attempt(Protocol):
    """One attempt under way."""

    def hang_up(self) -> None:
        """Drop it at once; may be called at any time and any number of times."""
        ...

    def pause(self) -> None:
        """Stop reading: whoever takes the bytes is slow."""
        ...

    def resume(self) -> None:
        """Go on reading."""
        ...


class Upstream(Protocol):
    """Sends attempts on lanes."""

    def start(self, message: Message, lane: str, ear: Ear) -> Attempt:
        """Begin one attempt."""
        ...
