"""Read one answer after another from the bytes of a connection.

Laws: (1) no I/O and no callbacks out of here: bytes go in, what they held is then there to be
taken; (2) where one answer ends is never in doubt: what has two framings, or a strange one, is
refused before its head is told; (3) what is held at any time is bounded.
Not here: who is told (connection.py).
"""

from __future__ import annotations

from collections.abc import Callable

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from jackline.upstream.breaks import CutShortError, GarbledError, NotHttpError
from jackline.upstream.hop_by_hop import OF_ANSWERS
from jackline.upstream.port import Headers

# The longest head, and the longest stretch of framing (trailers, chunk sizes) without content.
FRAMING_BYTES = 256 * 1024
# Each takes many times its bytes once it is read; vendors send some thirty.
MOST_HEADERS = 512


class AnswerReader:
    """Reads the answers that come on one connection.

    After each `feed` the owner looks, in this order, at `new_head`, `parts`, `is_complete` and
    `fault`. `can_go_on` says of a complete answer whether another may follow on the connection.
    """

    __slots__ = (
        "_feed",
        "_framing",
        "_headers",
        "_is_head_told",
        "_is_to_head",
        "_parser",
        "can_go_on",
        "fault",
        "has_spoken",
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
        self.expect(is_to_head=False)

    def _new_parser(self) -> None:
        self._parser = HttpResponseParser(self)
        self._feed = self._parser.feed_data

    def expect(self, *, is_to_head: bool) -> None:
        """Make ready for the next answer; one to a HEAD request has no body, whatever it says."""
        self.status = 0
        self.new_head: Headers | None = None
        self.is_complete = False
        self.can_go_on = False
        self.fault: OSError | None = None
        self.has_spoken = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_head_told = False
        self._is_to_head = is_to_head
        self._framing = 0

    def feed(self, data: bytes) -> None:
        """Read the next bytes."""
        self.has_spoken = True
        self._framing += len(data)
        try:
            self._feed(data)
        except HttpParserUpgrade:
            self._found_wrong("it switches to another protocol")
        except HttpParserError as error:
            self._found_wrong(str(error))
        if self.status and not self._is_head_told:
            self._judge_head(data)
        if self.parts:
            self._framing = 0
        elif self._framing > FRAMING_BYTES and not self.is_complete and self.fault is None:
            self._found_wrong(f"more than {FRAMING_BYTES} bytes of headers or framing")

    def take_content(self) -> bytes:
        """The content that came with the last bytes."""
        parts = self.parts
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        return content

    def end_of_connection(self) -> OSError | None:
        """What the end of the connection makes of an incomplete answer: None if it completes it."""
        if self.status and not any(name.lower() in _FRAMES for name, _ in self._headers):
            return None
        return CutShortError()

    def close(self) -> None:
        """Let go of the parser: the two hold each other."""
        del self._parser, self._feed

    def _judge_head(self, data: bytes) -> None:
        headers, dropped = OF_ANSWERS.sift(self._headers)
        if dropped and not _is_plainly_coded(dropped):
            self._refuse("a transfer coding other than chunked")
        elif self._framing > FRAMING_BYTES and _size(self._headers) > FRAMING_BYTES:
            self._refuse(f"more than {FRAMING_BYTES} bytes of headers")
        elif len(self._headers) > MOST_HEADERS:
            self._refuse(f"more than {MOST_HEADERS} headers")
        else:
            self.new_head = headers
            self._is_head_told = True
            self._framing = 0
            if self._is_to_head and (self.parts or not self.is_complete):
                self._complete_without_body(data)

    def _refuse(self, why: str) -> None:
        """Unlearn what the head said: such an answer is not told at all."""
        self.status = 0
        self.is_complete = False
        self.parts.clear()
        self._found_wrong(why)

    def _found_wrong(self, why: str) -> None:
        self.can_go_on = False
        if not self.is_complete:
            self.fault = GarbledError(why) if self.status else NotHttpError(why)

    def _complete_without_body(self, data: bytes) -> None:
        # The parser cannot be told that there is no body, so it is replaced; whether anything
        # follows the head is seen from the bytes themselves.
        self.is_complete = True
        self.fault = None
        self.can_go_on = (
            data.endswith(b"\r\n\r\n") and not self.parts and self._parser.should_keep_alive()
        )
        self.parts.clear()
        self._new_parser()

    # ---- what the parser calls

    def on_message_begin(self) -> None:
        """Another message begins; after the whole answer there should be none."""
        if self.is_complete:
            raise ValueError("bytes beyond the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what comes after the head is a trailer."""
        if not self.status:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Know the status; an interim answer is forgotten."""
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
        elif status >= 100:
            self._headers.clear()
        else:
            raise ValueError("no such status")

    def on_message_complete(self) -> None:
        """The answer is whole, if it was not an interim one."""
        if self.status:
            self.is_complete = True
            self.can_go_on = self._parser.should_keep_alive()


_FRAMES = frozenset({b"content-length", b"transfer-encoding"})


def _is_plainly_coded(headers: Headers) -> bool:
    """Whether the body comes as it is, or in chunks and nothing else."""
    codings = [
        value.lower()
        for name, value in headers
        if len(name) == 17 and name.lower() == b"transfer-encoding"
    ]
    return codings in ([], [b"chunked"])


def _size(headers: Headers) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers)
