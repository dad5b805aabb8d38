"""Tell where an HTTP/1.1 message ends, at a fraction of a full parser's cost.

Rules: (1) a message ends by its Content-Length or by the last chunk, never by a closed connection;
(2) one message at a time: bytes behind its end mean that the other side broke the turn-taking;
(3) the bytes of the last chunk do not occur inside the bodies of this bench.
Not here: what a message says (traffic.py).
"""

from __future__ import annotations

import re

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"


class FramingError(Exception):
    """The peer sent something that has no place in this bench's traffic."""


class Message:
    """One message as it comes in; `parts` is everything seen, in order, the head in the first."""

    __slots__ = ("_chunked", "_expected", "_seen", "_tail", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._seen = 0
        self._expected = -1  # unknown until the whole head was seen
        self._chunked = False
        self._tail = b""

    def complete_with(self, data: bytes) -> bool:
        """Take the next bytes; true when the message is whole."""
        self.parts.append(data)
        self._seen += len(data)
        if self._expected < 0 and not self._chunked and not self._read_head():
            return False
        if self._chunked:
            self._tail = (self._tail + data[-5:])[-5:]
            return self._tail == _LAST_CHUNK
        if self._seen > self._expected:
            raise FramingError("more bytes than the message has room for")
        return self._seen == self._expected

    @property
    def whole(self) -> bytes:
        """Everything seen so far, as one; a copy when it came in several parts."""
        if len(self.parts) > 1:
            self.parts = [b"".join(self.parts)]
        return self.parts[0]

    def _read_head(self) -> bool:
        start = self.whole
        end = start.find(_HEAD_END)
        if end < 0:
            return False
        length = _LENGTH.search(start, 0, end)
        if length is not None:
            self._expected = end + len(_HEAD_END) + int(length[1])
        elif _CHUNKED.search(start, 0, end):
            self._chunked = True
        elif start.startswith((b"GET ", b"HEAD ")):
            self._expected = end + len(_HEAD_END)
        else:
            raise FramingError("a message with neither a length nor chunks")
        return True
