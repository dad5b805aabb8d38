"""Take a chunked request body apart, strictly.

Laws: (1) it says exactly where the body ended, so that what follows is the next request; (2) every
line ends with CRLF, sizes are plain hexadecimal, anything else is refused; (3) it never holds more
than its limit; (4) trailers are checked and dropped.
Not here: bodies of known length (connection.py).
"""

from __future__ import annotations

import re

from jackline.gateway.refusal import Refusal

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t\x20-\x7e\x80-\xff]*)?\Z")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\Z")
_LONGEST_LINE = 4096
_MOST_TRAILERS = 64
# So many chunks may be small; beyond, a body of chunks of a few bytes is refused, since each costs
# as much as one of kilobytes.
_SMALL_CHUNKS = 4096
_LEAST_MEAN = 16


class ChunkedBody:
    """The body so far, in `data`."""

    __slots__ = ("_chunks", "_inside", "_limit", "_line", "_missing", "_trailers", "data", "ended")

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self.ended = False
        self._limit = limit
        self._chunks = 0
        # The beginning of a line whose end has not come yet.
        self._line = b""
        # Bytes of the running chunk that have not come; with `_inside`, its CRLF has not either.
        self._missing = 0
        self._inside = False
        self._trailers = -1

    def feed(self, data: bytes) -> int:
        """How many bytes of `data` belong to this body; all of them, until `ended`."""
        at = 0
        while at < len(data) and not self.ended:
            if self._missing:
                part = data[at : at + self._missing]
                self.data += part
                self._missing -= len(part)
                at += len(part)
            else:
                at = self._feed_line(data, at)
        return at

    def _feed_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        stop = len(data) if end < 0 else end + 1
        line = self._line + data[at:stop]
        if len(line) > _LONGEST_LINE:
            raise Refusal(400, "A line of the chunked body is too long: leave out its extensions.")
        if end < 0:
            self._line = line
        elif not line.endswith(b"\r\n"):
            raise Refusal(400, "Every line of a chunked body must end with CR LF.")
        else:
            self._line = b""
            self._take_line(line[:-2])
        return stop

    def _take_line(self, line: bytes) -> None:
        if self._inside:
            if line:
                raise Refusal(400, "A chunk of the body is longer than its size says.")
            self._inside = False
        elif self._trailers >= 0:
            self._take_trailer(line)
        else:
            size = _SIZE.match(line)
            if size is None:
                raise Refusal(400, "The size of a chunk must be a plain hexadecimal number.")
            self._missing = int(size[1], 16)
            if self._missing > self._limit - len(self.data):
                raise too_large(self._limit)
            self._chunks += 1
            if self._chunks > _SMALL_CHUNKS and len(self.data) < _LEAST_MEAN * self._chunks:
                raise Refusal(400, "The chunks of the body are too small: send larger ones.")
            self._inside = self._missing > 0
            if not self._missing:
                self._trailers = 0

    def _take_trailer(self, line: bytes) -> None:
        if not line:
            self.ended = True
            return
        self._trailers += 1
        if self._trailers > _MOST_TRAILERS or _TRAILER.match(line) is None:
            raise Refusal(400, "The trailers of the chunked body are not valid: leave them out.")


def too_large(limit: int) -> Refusal:
    """The answer to a body that is longer than the gateway takes."""
    return Refusal(
        413,
        f"The request's body is longer than {limit} bytes, the most that this gateway takes. Send"
        " less, or raise `limits.body` in jackline.toml.",
    )
