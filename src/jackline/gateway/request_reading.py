"""Put requests together from the packets of one connection.

Laws: (1) how the bytes were cut into packets changes nothing; (2) it stops at the last byte of a
request: what follows is given back; (3) a large body is held once, in the buffer that it is handed
over in, and is copied there at most once; (4) no more is held than the limits allow, and of a body
no more than about twice what has come, whatever length was announced.
Not here: the socket, time limits, answers (connection.py).
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TypeAlias

from jackline.gateway.chunked_body import ChunkedBody, too_large
from jackline.gateway.refusal import Refusal
from jackline.gateway.request_head import END, MOST_DIGITS, NEXT, RequestHead, read_head
from jackline.gateway.settings import LimitSettings

# As every client writes it; other spellings are read the long way.
_LENGTH = re.compile(rb"\r\n(?:Content-Length|content-length): (\d{1,15})\r\n")
_NO_HEAD = RequestHead(b"", b"", False)
# Of a large packet, this much is looked at for a head.
_USUAL_HEAD = 8 * 1024
# The least that a body's buffer grows by; each time it doubles, so that it grows with what came.
_GROWTH = 256 * 1024
_ZEROS = memoryview(bytes(_GROWTH))

# A packet is `bytes`, or a view of a buffer that is used again for the next one.
Packet: TypeAlias = bytes | memoryview


class Stage(Enum):
    """How far a request has come."""

    NOTHING = "no byte of it"
    HEAD = "some of its head"
    BODY = "its head"
    COMPLETE = "all of it"


# Looked up for every packet: a global is found faster than a member of an Enum.
_NOTHING, _HEAD, _BODY, _COMPLETE = Stage.NOTHING, Stage.HEAD, Stage.BODY, Stage.COMPLETE


class RequestReader:
    """Fed with packets; at stage COMPLETE `take` gives the request and makes room for the next."""

    __slots__ = (
        "_behind",
        "_body",
        "_chunked",
        "_filled",
        "_front",
        "_head",
        "_last",
        "_limits",
        "_partial",
        "_view",
        "stage",
    )

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self.stage = _NOTHING
        self._partial: bytearray | None = None
        self._head: RequestHead | None = None
        self._body: bytes | bytearray | None = None
        self._filled = 0
        # What was given out as `room` last.
        self._view: memoryview | None = None
        self._chunked: ChunkedBody | None = None
        # The last head up to the digits of its length and from there on, and what it was read as.
        self._front = b""
        self._behind = b""
        self._last = _NO_HEAD

    @property
    def head(self) -> RequestHead | None:
        """The head of the request whose body is read."""
        return self._head

    @property
    def held(self) -> int:
        """How many bytes are held of a request that is not complete."""
        if self._chunked is not None:
            return len(self._chunked.data)
        held = self._body if self._partial is None else self._partial
        return 0 if held is None or self.stage is _COMPLETE else len(held)

    @property
    def came(self) -> int:
        """How many bytes have come of a body that is not complete."""
        return self._filled if self._chunked is None else len(self._chunked.data)

    @property
    def room(self) -> memoryview | None:
        """Where the rest of a body that has begun may be put by whoever reads it; see `filled`."""
        body = self._body
        if self.stage is not _BODY or not isinstance(body, bytearray):
            return None
        if self._filled == len(body):
            body = self._grown(body)
        self._view = view = memoryview(body)[self._filled :]
        return view

    def _grown(self, body: bytearray) -> bytearray:
        """The buffer with more room: no more than has come already, and never beyond the end."""
        if self._view is not None:
            # Stock asyncio still holds it when it asks for the next one, and does not use it.
            self._view.release()
            self._view = None
        left = min(self._length - len(body), max(len(body), _GROWTH))
        while left > 0:
            # A shared block instead of `bytes(left)`: that would hold as much again for a moment.
            body += _ZEROS[: min(left, _GROWTH)]
            left -= _GROWTH
        return body

    def filled(self, size: int) -> None:
        """So many bytes were put into `room`."""
        self._filled += size
        if self._filled == self._length:
            self._view = None
            self.stage = _COMPLETE

    @property
    def _length(self) -> int:
        return 0 if self._head is None else self._head.length or 0

    def feed(self, data: Packet) -> Packet:
        """Read up to the end of one request; what is behind it is given back."""
        while data and self.stage is not _COMPLETE:
            if self.stage is _NOTHING:
                data = self._first_bytes(data)
            elif self.stage is _HEAD:
                data = self._more_of_head(data)
            elif self._chunked is not None:
                data = self._more_chunks(self._chunked, data)
            else:
                data = self._more_of_body(data)
        return data

    def at_once(self, data: Packet) -> tuple[RequestHead, bytes] | None:
        """The request that a packet is, from its first byte to its last.

        Only one whose head is the last one's but for its length is read here; else None. Most are:
        the same headers, another body.
        """
        front, behind = self._front, self._behind
        start = data if isinstance(data, bytes) else bytes(data[:_USUAL_HEAD])
        if not front or self.stage is not _NOTHING or not start.startswith(front):
            return None
        begin = len(front)
        end = start.find(b"\r", begin, begin + MOST_DIGITS + 1)
        digits = start[begin:end]
        if not digits.isdigit() or not start.startswith(behind, end):
            return None
        size, end = int(digits), end + len(behind)
        if end + size != len(data) or size > self._limits.body_bytes:
            return None
        return self._last.with_length(digits), bytes(data[end:])

    def take(self) -> tuple[RequestHead, bytes | bytearray]:
        """The complete request."""
        head, body = self._head, self._body
        if head is None or body is None:
            raise AssertionError("no request is complete")
        self._head = self._body = None
        self.stage = _NOTHING
        return head, body

    def forget(self) -> None:
        """Drop what there is of a request."""
        self.stage = _NOTHING
        self._partial = self._head = self._body = self._chunked = self._view = None

    def _first_bytes(self, data: Packet) -> Packet:
        start = data if isinstance(data, bytes) else bytes(data[:_USUAL_HEAD])
        if not 65 <= start[0] <= 90:  # no method begins with anything but A to Z
            start = data = bytes(data).lstrip(b"\r\n")
            if not data:
                return b""
            if not 65 <= start[0] <= 90:
                raise Refusal(400, f"This is no HTTP request; is it https? {NEXT}")
        end = start.find(END) + 4
        if end > 3:
            return self._take_head(start, end, data)
        self.stage = _HEAD
        self._partial = bytearray()
        return self._more_of_head(data)

    def _more_of_head(self, data: Packet) -> Packet:
        partial = self._partial
        if partial is None:
            raise AssertionError("a head goes on without its beginning")
        known = len(partial)
        partial += data
        end = partial.find(END, max(known - 3, 0)) + 4
        if end > 3:
            self._partial = None
            whole = bytes(partial)
            return self._take_head(whole, end, whole)
        if len(partial) > self._limits.header_bytes:
            raise self._head_too_large()
        # Counted, not searched for: a pattern that looks behind each byte costs fifty times more.
        if partial.count(b"\n", known) != partial.count(b"\r\n", max(known - 1, 0)):
            raise Refusal(400, f"Every line of a request's head must end with CR LF. {NEXT}")
        return b""

    def _take_head(self, start: bytes, end: int, data: Packet) -> Packet:
        """Read the head that `data` begins with, and its body if that is there too.

        `start` is `data`, or as much of it as holds the head.
        """
        limits = self._limits
        if end > limits.header_bytes:
            raise self._head_too_large()
        self._head = head = self._read_head(start[:end])
        length = head.length
        if length is None:
            self._chunked = ChunkedBody(limits.body_bytes)
        elif length > limits.body_bytes:
            raise too_large(limits.body_bytes)
        elif end + length <= len(data):
            self._body = bytes(data[end : end + length])
            self.stage = _COMPLETE
            return data[end + length :]
        self.stage = _BODY
        return data[end:]

    def _read_head(self, raw: bytes) -> RequestHead:
        """Read a head; one that differs from the last in its length alone is not read again."""
        front, behind = self._front, self._behind
        if front and raw.startswith(front) and raw.endswith(behind):
            digits = raw[len(front) : -len(behind)]
            if digits.isdigit() and len(digits) <= MOST_DIGITS:
                return self._last.with_length(digits)
        head = read_head(raw)
        # A long one is not kept with an idle connection, of which there may be thousands.
        length = _LENGTH.search(raw) if len(raw) <= _USUAL_HEAD else None
        if length is not None and head.length is not None:
            begin, end = length.span(1)
            self._front, self._behind, self._last = raw[:begin], raw[end:], head
        return head

    def _more_of_body(self, data: Packet) -> Packet:
        length = self._length
        body = self._body
        if not isinstance(body, bytearray):
            if len(data) >= length:
                self._body = bytes(data[:length])  # the very bytes that came, if that is all
                self.stage = _COMPLETE
                return data[length:]
            self._body = bytearray(data)
            self._filled = len(data)
            return b""
        filled = self._filled
        used = min(len(data), length - filled)
        while len(body) < filled + used:
            body = self._grown(body)
        body[filled : filled + used] = data if used == len(data) else data[:used]
        self.filled(used)
        return data[used:]

    def _more_chunks(self, chunked: ChunkedBody, data: Packet) -> Packet:
        used = chunked.feed(bytes(data))
        if chunked.ended:
            self._body = chunked.data
            self._chunked = None
            self.stage = _COMPLETE
        return data[used:]

    def _head_too_large(self) -> Refusal:
        return Refusal(
            431,
            f"The headers are longer than {self._limits.header_bytes} bytes. Send less, or raise"
            " `limits.headers` in jackline.toml.",
        )
