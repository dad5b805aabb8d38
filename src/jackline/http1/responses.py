"""Parse the responses that come on one connection.

Rules: (1) where a response ends is never in doubt: one with two framings, or an unknown one, is
refused before its head is reported; (2) headers that concern one connection or browsers are dropped
(headers.py); (3) the memory in use is bounded.
"""

from __future__ import annotations

from collections.abc import Callable

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from jackline.http1.headers import RESPONSE_FILTER, Headers


class CutShortError(ConnectionError):
    """The response began, and the connection ended before the response did."""

    def __init__(self) -> None:
        super().__init__("the connection was closed unexpectedly, before the answer was complete")


class NotHttpError(ConnectionError):
    """What came instead of the head of a response is none."""

    def __init__(self, why: str) -> None:
        super().__init__(f"protocol error: the answer is not proper HTTP/1.1 ({why})")


class GarbledError(ConnectionError):
    """The head of the response was right, its body is not."""

    def __init__(self, why: str) -> None:
        super().__init__(f"error decoding response body: its framing is broken ({why})")


# The longest head, and the longest stretch of framing (trailers, chunk sizes) without content.
FRAMING_BYTES = 256 * 1024
# Each takes many times its bytes once it is parsed; vendors send some thirty.
MOST_HEADERS = 512


class ResponseParser:
    """The responses of one connection.

    After each `feed` the owner checks `new_head`, `parts`, `is_complete`, `fault`, in this order.
    `can_go_on` is whether another response may follow a complete one on the connection.
    """

    __slots__ = (
        "_feed",
        "_framing",
        "_has_no_body",
        "_headers",
        "_is_head_reported",
        "_parser",
        "can_go_on",
        "fault",
        "has_begun",
        "is_complete",
        "new_head",
        "on_body",
        "parts",
        "status",
    )

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        # The parser calls this for every stretch of content; a bound builtin costs no frame.
        self.on_body: Callable[[bytes], None] = self.parts.append
        self._new_parser()
        self.expect(has_no_body=False)

    def _new_parser(self) -> None:
        self._parser = HttpResponseParser(self)
        self._feed = self._parser.feed_data

    def expect(self, *, has_no_body: bool) -> None:
        """Prepare for the next response; one to HEAD or CONNECT has no body, whatever it says."""
        self.status = 0
        self.new_head: Headers | None = None
        self.is_complete = False
        self.can_go_on = False
        self.fault: OSError | None = None
        self.has_begun = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_head_reported = False
        self._has_no_body = has_no_body
        self._framing = 0

    def feed(self, data: bytes) -> None:
        """Parse the next bytes."""
        self.has_begun = True
        self._framing += len(data)
        try:
            self._feed(data)
        except HttpParserUpgrade:
            self._fail("it switches to another protocol")
        except HttpParserError as error:
            self._fail(str(error))
        if self.status and not self._is_head_reported:
            self._judge_head(data)
        if self.parts:
            self._framing = 0
        elif self._framing > FRAMING_BYTES and not self.is_complete and self.fault is None:
            self._fail(f"more than {FRAMING_BYTES} bytes of headers or framing")

    def take_content(self) -> bytes:
        """The content that came with the last bytes."""
        parts = self.parts
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        return content

    def end_of_connection(self) -> OSError | None:
        """The error of a response that is incomplete at this end; None if this end completes it."""
        framing = (b"content-length", b"transfer-encoding")
        if self.status and not any(name.lower() in framing for name, _ in self._headers):
            return None
        return CutShortError()

    def close(self) -> None:
        """Drop the parser: the two hold each other."""
        del self._parser, self._feed

    def _judge_head(self, data: bytes) -> None:
        headers, dropped = RESPONSE_FILTER.split(self._headers)
        codings = [
            value.lower()
            for name, value in dropped
            if len(name) == 17 and name.lower() == b"transfer-encoding"
        ]
        if codings not in ([], [b"chunked"]):
            self._refuse("a transfer coding other than chunked")
        elif (
            self._framing > FRAMING_BYTES
            and sum(len(name) + len(value) + 4 for name, value in self._headers) > FRAMING_BYTES
        ):
            self._refuse(f"more than {FRAMING_BYTES} bytes of headers")
        elif len(self._headers) > MOST_HEADERS:
            self._refuse(f"more than {MOST_HEADERS} headers")
        else:
            self.new_head = headers
            self._is_head_reported = True
            self._framing = 0
            if self._has_no_body and (self.parts or not self.is_complete):
                # The parser has no way to expect no body, so it is replaced; whether anything
                # follows the head is seen from the bytes themselves.
                self.is_complete = True
                self.fault = None
                goes_on = self._parser.should_keep_alive()
                self.can_go_on = data.endswith(b"\r\n\r\n") and not self.parts and goes_on
                self.parts.clear()
                self._new_parser()

    def _refuse(self, why: str) -> None:
        """Forget what the head said: such a response is not reported at all."""
        self.status = 0
        self.is_complete = False
        self.parts.clear()
        self._fail(why)

    def _fail(self, why: str) -> None:
        self.can_go_on = False
        if not self.is_complete:
            self.fault = GarbledError(why) if self.status else NotHttpError(why)

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        """Another message begins; after a complete response there should be none."""
        if self.is_complete:
            raise ValueError("bytes beyond the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; what comes after the head is a trailer."""
        if not self.status:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Store the status; an interim response is dropped."""
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
        elif status >= 100:
            self._headers.clear()
        else:
            raise ValueError("no such status")

    def on_message_complete(self) -> None:
        """The response is complete, if it was not an interim one."""
        if self.status:
            self.is_complete = True
            self.can_go_on = self._parser.should_keep_alive()
