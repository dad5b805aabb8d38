"""A face of the running service: something that answers some paths of its port.

Rules: (1) a face never sees a request that was refused (Host, Origin, token); (2) it answers every
request that it knows, and an answer that streams ends when the client leaves; (3) faces know
nothing of each other, and nothing of the gateway's sockets.
Not here: the faces themselves (dashboard/, mcp_server/, …), who may ask (gateway/access.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class ServiceRequest(Protocol):
    """One request and the means to answer it; the gateway's exchanges are such."""

    method: bytes
    path: bytes
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes | bytearray
    gone: bool
    on_gone: Callable[[], None] | None
    on_resume: Callable[[], None] | None

    @property
    def paused(self) -> bool:
        """Whether the client is behind; then wait for `on_resume`."""
        ...

    def header(self, lowercase_name: bytes) -> bytes | None:
        """The first value under this name."""
        ...

    def respond(
        self, status: int, headers: Headers = (), body: bytes = b"", notes: bytes = b""
    ) -> None:
        """Answer in one piece."""
        ...

    def begin(self, status: int, headers: Headers = (), notes: bytes = b"") -> None:
        """Send the head; the body follows in pieces."""
        ...

    def send(self, data: bytes) -> None:
        """Send a piece of the body."""
        ...

    def finish(self) -> None:
        """The body is complete."""
        ...

    def reset(self) -> None:
        """Break the connection, so that nobody takes the answer for complete."""
        ...


class Face(Protocol):
    """What answers some of the paths."""

    def knows(self, asked: ServiceRequest) -> bool:
        """Whether this request is this face's to answer."""
        ...

    def answer(self, asked: ServiceRequest) -> None:
        """Answer it, now or later."""
        ...
