"""What a part of the running service implements to answer some paths of its port.

Rules: (1) a handler never sees a request that was refused (Host, Origin, token); (2) it answers
every request that it knows, and an answer that streams ends when the client leaves; (3) handlers
know nothing of each other, and nothing of the gateway's sockets.
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
        """End the body."""
        ...

    def reset(self) -> None:
        """Break the connection, so that nobody takes the answer for complete."""
        ...


class HttpHandler(Protocol):
    """Answers some of the service's paths."""

    def knows(self, request: ServiceRequest) -> bool:
        """Whether this handler answers the request."""
        ...

    def answer(self, request: ServiceRequest) -> None:
        """Answer it, now or later."""
        ...
