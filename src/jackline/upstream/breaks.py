"""Name what can go wrong with an answer on the wire, in words that `classify` knows.

Laws: (1) every one is a ConnectionError, so that an ear needs to know only OSError; (2) an answer
that had begun is told apart from one that never came.
Not here: what follows from it (failures/, calls/).
"""

from __future__ import annotations


class NoAnswerError(ConnectionError):
    """The connection ended before the first byte of an answer."""

    def __init__(self) -> None:
        super().__init__("the server disconnected without sending a response")


class CutShortError(ConnectionError):
    """The answer began, and the connection ended before the answer did."""

    def __init__(self) -> None:
        super().__init__("the connection was closed unexpectedly, before the answer was complete")


class NotHttpError(ConnectionError):
    """What came where the head of an answer should be is none."""

    def __init__(self, why: str) -> None:
        super().__init__(f"protocol error: the answer is not proper HTTP/1.1 ({why})")


class GarbledError(ConnectionError):
    """The head of the answer was right, its body is not."""

    def __init__(self, why: str) -> None:
        super().__init__(f"error decoding response body: its framing is broken ({why})")


class BadPackingError(ConnectionError):
    """The body came as it was framed, and what it is compressed with cannot be undone."""

    def __init__(self, why: str) -> None:
        super().__init__(f"error decoding response body: its compression is broken ({why})")


class AnswerTooLargeError(ConnectionError):
    """The answer has more bytes, unpacked, than it may have."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the upstream's answer is larger than limits.answer allows: {most} bytes")


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


class ClosedHereError(ConnectionAbortedError):
    """We ended it ourselves: the upstream is closed, or whoever listened has failed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the connection was aborted on this side: {why}")
