"""The interface of an upstream: start one attempt, receive its answer, and its errors.

Rules: (1) `start` returns at once and never calls the handler before it has returned; (2) a handler
gets at most one `began`, and ends with exactly one of `ended` and `broke`; (3) after `hang_up`
nothing more is reported; (4) bytes are passed on as they came, nothing is interpreted; (5) every
error is a ConnectionError in words that `classify` knows, so that a handler needs to know only
OSError; an answer that had begun differs from one that never came.
The scripted upstream is in jackline.testing.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from jackline.http1.headers import Headers
from jackline.lane_id import LaneId


class UpstreamRequest(NamedTuple):
    """What is sent: end-to-end headers only, in the order in which the client wrote them.

    `target` is path and query as they go on the request line, to be put behind the upstream's own
    path prefix. `body` is complete; its length and the host are written by the upstream. `lines`
    are the result of `request_lines(headers)`, for callers that send the same ones repeatedly.
    `fresh` demands a new connection, because what was sent on a pooled one is not answered.
    `plain` is what a compressed body holds, where that is known: for reading, never to be sent.
    `hour_marks` demands that the cache marks of the rendered request demand an hour.
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


class ResponseHandler(Protocol):
    """Handles the answer to an attempt."""

    @property
    def held(self) -> int:
        """How many bytes of the answer it keeps now, parsed or not."""
        ...

    def began(self, status: int, headers: Headers) -> None:
        """The head of the answer is there, whatever its status; with end-to-end headers only."""
        ...

    def received(self, data: bytes) -> None:
        """Bytes of the answer's body, without transfer coding, with its content coding."""
        ...

    def ended(self) -> None:
        """The HTTP message is complete."""
        ...

    def broke(self, error: OSError) -> None:
        """It will not become complete: no connection, a reset, an early end, nonsense."""
        ...


class UpstreamAttempt(Protocol):
    """One attempt under way."""

    def hang_up(self) -> None:
        """Drop it at once; may be called at any time and any number of times."""
        ...

    def pause(self) -> None:
        """Stop reading: the receiver of the bytes is slow."""
        ...

    def resume(self) -> None:
        """Go on reading."""
        ...


class _SilentHandler:
    """Handles attempts whose answers nobody needs any more."""

    __slots__ = ()
    held = 0

    def began(self, status: int, headers: Headers) -> None: ...

    def received(self, data: bytes) -> None: ...

    def ended(self) -> None: ...

    def broke(self, error: OSError) -> None: ...


SILENT_HANDLER = _SilentHandler()


class Upstream(Protocol):
    """Sends attempts on lanes."""

    def start(
        self, message: UpstreamRequest, lane: LaneId, handler: ResponseHandler
    ) -> UpstreamAttempt:
        """Begin one attempt."""
        ...


class NoAnswerError(ConnectionError):
    """The connection ended before the first byte of an answer."""

    def __init__(self) -> None:
        super().__init__("the server disconnected without sending a response")


class AnswerTooLargeError(ConnectionError):
    """The answer has more bytes, decompressed, than it may have."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the upstream's answer is larger than limits.answer allows: {most} bytes")


class AnswersTooLargeError(ConnectionError):
    """It held most of all answers under way, which hold too much together."""

    def __init__(self, most: int) -> None:
        super().__init__(
            "this answer holds most of those under way, which together hold more than"
            f" limits.held_answers allows: {most} bytes"
        )


class AnswerTooLongError(ConnectionError):
    """The answer goes on for longer than it may take."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the upstream's answer takes longer than limits.answer_time allows: {seconds:g} s"
        )


class ProxyRefusedError(ConnectionError):
    """The proxy would not open a way to the origin."""

    def __init__(self, why: str) -> None:
        super().__init__(f"proxy tunnel refused: {why}")


class NameTimeoutError(TimeoutError):
    """The address of a name was not found in time, so that nothing was tried there."""

    def __init__(self, host: str, seconds: float) -> None:
        super().__init__(f"connect timeout: the name {host} was not resolved within {seconds:g} s")


class ClosedHereError(ConnectionAbortedError):
    """We ended it ourselves: the upstream is closed, or the handler has failed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the connection was aborted on this side: {why}")
