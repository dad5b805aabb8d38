"""Parse the requests of one connection, and refuse what two parsers could parse differently.

Rules: (1) how the bytes were cut into packets changes nothing; parsing stops at the last byte of a
request, and what follows is returned; (2) where a body ends is defined once: by one Content-Length
or by exactly `Transfer-Encoding: chunked`; every line of a chunked body ends with CRLF, sizes are
plain hexadecimal, trailers are checked and dropped; (3) names, values and order of headers stay as
the client wrote them; (4) a large body is in memory once, in the buffer that it is handed over in;
(5) memory is bounded by the limits, and for a body by about twice what has come, whatever length
was announced; so are the parts of a query and of values that are lists; (6) a
refusal names what to change, and never has a header's value, a body or a token.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TypeAlias

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser


class RequestRefusal(Exception):  # noqa: N818 -- it is an answer, raised where the reason is found
    """A request that is refused: the status, the reason, and seconds after which to try again."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


_END = b"\r\n\r\n"
_METHODS = frozenset((b"POST", b"GET", b"HEAD", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))
_VERSIONS = frozenset((b"HTTP/1.1", b"HTTP/1.0"))
_HINT = "Set ANTHROPIC_BASE_URL to the gateway's address and send plain HTTP/1.1."

# The target goes upstream as it is matched here: nothing in it may end a line, or be a blank. The
# parser alone would let both pass, as the short request line of HTTP/0.9.
_REQUEST_LINE = re.compile(rb"([A-Z]+) (/[!\"$-~]*) HTTP/1\.([01])\r\n")
_VERSION = re.compile(rb"[A-Z]+/[0-9]\.[0-9]\Z")
# Each takes many times its bytes once it is parsed; clients send some thirty.
_MOST_HEADERS = 256
# These are taken apart on the loop, often before it is known who asks. The length is what RFC 9110
# wants supported; browsers keep fewer cookies of one host.
_LONGEST_TARGET = 8192
_MOST_PARAMETERS = 128
_MOST_COOKIES = 256
_MOST_OF_CONNECTION = 64
# Of a Content-Length: a petabyte has fifteen, and int() raises where there are thousands.
_MOST_DIGITS = 15
_ONLY_ONCE = (b"host", b"content-length", b"transfer-encoding", b"expect")

# One parser would drop these as headers of this connection, and another would read them.
_NEVER_OF_CONNECTION = frozenset(
    (
        b"anthropic-auth-token",
        b"anthropic-beta",
        b"anthropic-version",
        b"api-key",
        b"authorization",
        b"chatgpt-account-id",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"cookie",
        b"host",
        b"origin",
        b"sec-fetch-mode",
        b"sec-fetch-site",
        b"user-agent",
        b"x-api-key",
        b"x-goog-api-key",
        b"x-jackline-token",
    )
)


class RequestHead:
    """One head; `length` is None for a chunked body, and 0 where there is none.

    `by_name` has the first value under each name in lower case. `memo` belongs to whoever answers:
    heads that differ in their length alone share it, so that what was derived from one need not be
    derived from the next.
    """

    __slots__ = (
        "by_name",
        "expects_continue",
        "headers",
        "http_1_0",
        "keep_alive",
        "length",
        "memo",
        "method",
        "path",
        "query",
        "target",
    )

    def __init__(self, method: bytes, target: bytes, http_1_0: bool) -> None:
        self.method = method
        self.target = target
        self.path, _, self.query = target.partition(b"?")
        self.http_1_0 = http_1_0
        self.headers: list[tuple[bytes, bytes]] = []
        self.by_name: dict[bytes, bytes] = {}
        self.keep_alive = not http_1_0
        self.length: int | None = 0
        self.expects_continue = False
        self.memo: dict[str, object] = {}

    def with_length(self, digits: bytes) -> RequestHead:
        """The same head in front of a body of another length."""
        if self.by_name[b"content-length"] == digits:
            return self
        head = RequestHead(self.method, self.target, self.http_1_0)
        head.headers = [
            (name, digits)
            if len(name) == 14 and name.lower() == b"content-length"
            else (name, value)
            for name, value in self.headers
        ]
        head.by_name = self.by_name | {b"content-length": digits}
        head.keep_alive = self.keep_alive
        head.expects_continue = self.expects_continue
        head.length = int(digits)
        head.memo = self.memo
        return head

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser for each header."""
        self.headers.append((name, value))


def parse_head(data: bytes) -> RequestHead:
    """The head that `data` is, from the request line to the empty line."""
    line = _REQUEST_LINE.match(data)
    if line is None or line[1] not in _METHODS:
        raise _bad_request_line(data[: data.index(b"\r\n")])
    head = RequestHead(line[1], line[2], line[3] == b"0")
    try:
        # A parser of its own for each head: nothing that one request left behind can touch the
        # next, and making one costs half a microsecond.
        HttpRequestParser(head).feed_data(data)
    except HttpParserUpgrade:
        pass  # an offer to change the protocol may be ignored; the body is framed as usual
    except HttpParserError as error:
        raise RequestRefusal(
            400, f"This is not a valid HTTP/1.1 request: {error}. {_HINT}"
        ) from error
    if len(head.headers) > _MOST_HEADERS:
        raise RequestRefusal(
            431, f"The request has more than {_MOST_HEADERS} headers. Send fewer of them."
        )
    head.by_name = by_name = {name.lower(): value for name, value in reversed(head.headers)}
    if len(by_name) != len(head.headers):
        names = [name.lower() for name, _ in head.headers]
        for name in _ONLY_ONCE:
            if names.count(name) > 1:
                words = f"The header {name.decode()} may occur only once in a request."
                raise RequestRefusal(400, words)
    _check_parts(head)
    if b"host" not in by_name and not head.http_1_0:
        raise RequestRefusal(400, f"A request needs a Host header. {_HINT}")
    if b"transfer-encoding" in by_name or b"content-length" in by_name:
        _parse_framing(head)
    if b"connection" in by_name:
        _parse_connection(head)
    if b"expect" in by_name and not head.http_1_0:
        head.expects_continue = by_name[b"expect"].strip().lower() == b"100-continue"
    return head


def _check_parts(head: RequestHead) -> None:
    if len(head.target) > _LONGEST_TARGET:
        raise RequestRefusal(
            414,
            f"The request's path and query are longer than {_LONGEST_TARGET} bytes together. Send"
            " what is long in the body.",
        )
    if head.query.count(b"&") >= _MOST_PARAMETERS:
        raise RequestRefusal(
            400, f"The request's query has more than {_MOST_PARAMETERS} parameters. Send fewer."
        )
    if head.by_name.get(b"cookie", b"").count(b";") >= _MOST_COOKIES:
        raise RequestRefusal(
            431, f"The request has more than {_MOST_COOKIES} cookies. Send fewer of them."
        )


def _bad_request_line(line: bytes) -> RequestRefusal:
    method, _, rest = line.partition(b" ")
    target, _, version = rest.partition(b" ")
    if version not in _VERSIONS and _VERSION.match(version):
        return RequestRefusal(505, f"This gateway speaks HTTP/1.1 only. {_HINT}")
    if method not in _METHODS:
        return RequestRefusal(501, f"This gateway does not know the request's method. {_HINT}")
    if version in _VERSIONS and not target.startswith(b"/"):
        return RequestRefusal(
            400,
            "The request line must name a path: this gateway is no HTTP proxy. Take it out of"
            f" HTTP_PROXY and HTTPS_PROXY. {_HINT}",
        )
    return RequestRefusal(400, f"The request line is not `METHOD /path HTTP/1.1`. {_HINT}")


def _parse_framing(head: RequestHead) -> None:
    coding = head.by_name.get(b"transfer-encoding")
    length = head.by_name.get(b"content-length")
    if coding is not None:
        if coding.strip(b" ").lower() != b"chunked" or length is not None or head.http_1_0:
            raise RequestRefusal(
                400,
                "The end of the body is not clear: send either one Content-Length or exactly"
                " `Transfer-Encoding: chunked`.",
            )
        head.length = None
    elif length is not None:
        digits = length.strip(b" \t")
        if not digits.isdigit() or len(digits) > _MOST_DIGITS:
            raise RequestRefusal(
                400, f"Content-Length must be a decimal number of at most {_MOST_DIGITS} digits."
            )
        head.length = int(digits)


def _parse_connection(head: RequestHead) -> None:
    # The parser knows this only while it is inside the head.
    value = head.by_name[b"connection"].lower()
    if value == b"keep-alive" and len(head.by_name) == len(head.headers):
        head.keep_alive = True
        return
    values = [value for name, value in head.headers if name.lower() == b"connection"]
    joined = b",".join(values).lower()
    if joined.count(b",") >= _MOST_OF_CONNECTION:
        raise RequestRefusal(
            400, f"Connection names more than {_MOST_OF_CONNECTION} headers. Name fewer of them."
        )
    tokens = [token.strip(b" \t") for token in joined.split(b",")]
    if any(token in _NEVER_OF_CONNECTION for token in tokens):
        raise RequestRefusal(400, "Connection may not name a header that is for the upstream.")
    head.keep_alive = b"close" not in tokens and (not head.http_1_0 or b"keep-alive" in tokens)


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
            raise RequestRefusal(
                400, "A line of the chunked body is too long: leave out its extensions."
            )
        if end < 0:
            self._line = line
        elif not line.endswith(b"\r\n"):
            raise RequestRefusal(400, "Every line of a chunked body must end with CR LF.")
        else:
            self._line = b""
            self._take_line(line[:-2])
        return stop

    def _take_line(self, line: bytes) -> None:
        if self._inside:
            if line:
                raise RequestRefusal(400, "A chunk of the body is longer than its size says.")
            self._inside = False
        elif self._trailers >= 0 and not line:
            self.ended = True
        elif self._trailers >= 0:
            self._trailers += 1
            if self._trailers > _MOST_TRAILERS or _TRAILER.match(line) is None:
                raise RequestRefusal(
                    400, "The trailers of the chunked body are not valid: leave them out."
                )
        else:
            size = _SIZE.match(line)
            if size is None:
                raise RequestRefusal(400, "The size of a chunk must be a plain hexadecimal number.")
            self._missing = int(size[1], 16)
            if self._missing > self._limit - len(self.data):
                raise _too_large(self._limit)
            self._chunks += 1
            if self._chunks > _SMALL_CHUNKS and len(self.data) < _LEAST_MEAN * self._chunks:
                raise RequestRefusal(400, "The chunks of the body are too small: send larger ones.")
            self._inside = self._missing > 0
            if not self._missing:
                self._trailers = 0


def _head_too_large(limit: int) -> RequestRefusal:
    return RequestRefusal(
        431,
        f"The headers are longer than {limit} bytes. Send less, or raise `limits.headers` in"
        " jackline.toml.",
    )


def _too_large(limit: int) -> RequestRefusal:
    return RequestRefusal(
        413,
        f"The request's body is longer than {limit} bytes, the most that this gateway accepts. Send"
        " less, or raise `limits.body` in jackline.toml.",
    )


# As every client writes it; other spellings are parsed the long way.
_LENGTH = re.compile(rb"\r\n(?:Content-Length|content-length): (\d{1,15})\r\n")
_NO_HEAD = RequestHead(b"", b"", False)
# Of a large packet, this much is looked at for a head.
_USUAL_HEAD = 8 * 1024
# The least that a body's buffer grows by; each time it doubles, so that it grows with what came.
_GROWTH = 256 * 1024
_ZEROS = memoryview(bytes(_GROWTH))

# A view is of a buffer that is used again for the next packet.
Packet: TypeAlias = bytes | memoryview


class RequestStage(Enum):
    """How far a request has come."""

    NOTHING = "no byte of it"
    HEAD = "some of its head"
    BODY = "its head"
    COMPLETE = "all of it"


# Looked up for every packet: a global is found faster than a member of an Enum.
_NOTHING, _HEAD, _BODY, _COMPLETE = (
    RequestStage.NOTHING,
    RequestStage.HEAD,
    RequestStage.BODY,
    RequestStage.COMPLETE,
)


class RequestParser:
    """Fed with packets; at stage COMPLETE `take` returns the request and prepares for the next."""

    __slots__ = (
        "_behind",
        "_body",
        "_chunked",
        "_filled",
        "_front",
        "_last",
        "_most_body",
        "_most_head",
        "_partial",
        "_view",
        "head",
        "stage",
    )

    def __init__(self, most_head: int, most_body: int) -> None:
        """So many bytes a head, and a body, may have."""
        self._most_head = most_head
        self._most_body = most_body
        self.stage = _NOTHING
        self._partial: bytearray | None = None
        # Of the request whose body is being parsed.
        self.head: RequestHead | None = None
        self._body: bytes | bytearray | None = None
        self._filled = 0
        # What `room` returned last.
        self._view: memoryview | None = None
        self._chunked: ChunkedBody | None = None
        # The last head up to the digits of its length and from there on, and how it was parsed.
        self._front = b""
        self._behind = b""
        self._last = _NO_HEAD

    @property
    def held(self) -> int:
        """How many bytes of an incomplete request are in memory."""
        if self._chunked is not None:
            return len(self._chunked.data)
        held = self._body if self._partial is None else self._partial
        return 0 if held is None or self.stage is _COMPLETE else len(held)

    @property
    def came(self) -> int:
        """How many bytes of an incomplete body have come."""
        return self._filled if self._chunked is None else len(self._chunked.data)

    @property
    def room(self) -> memoryview | None:
        """Where the caller may put the rest of a body that has begun; see `filled`."""
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
            # Stock asyncio still has it when it requests the next one, and does not use it.
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
        return 0 if self.head is None else self.head.length or 0

    def feed(self, data: Packet) -> Packet:
        """Parse up to the end of one request; returns what is behind it."""
        while data and self.stage is not _COMPLETE:
            if self.stage is _NOTHING:
                data = self._first_bytes(data)
            elif self.stage is _HEAD:
                data = self._more_of_head(data)
            elif self._chunked is not None:
                used = self._chunked.feed(bytes(data))
                data = data[used:]
                if self._chunked.ended:
                    self._body = self._chunked.data
                    self._chunked = None
                    self.stage = _COMPLETE
            else:
                data = self._more_of_body(data)
        return data

    def at_once(self, data: Packet) -> tuple[RequestHead, bytes] | None:
        """The request that a packet is, from its first byte to its last.

        Only one whose head is the last one's but for its length is parsed here; else None. Most
        are: the same headers, another body.
        """
        front, behind = self._front, self._behind
        start = data if isinstance(data, bytes) else bytes(data[:_USUAL_HEAD])
        if not front or self.stage is not _NOTHING or not start.startswith(front):
            return None
        begin = len(front)
        end = start.find(b"\r", begin, begin + _MOST_DIGITS + 1)
        digits = start[begin:end]
        if not digits.isdigit() or not start.startswith(behind, end):
            return None
        size, end = int(digits), end + len(behind)
        if end + size != len(data) or size > self._most_body:
            return None
        return self._last.with_length(digits), bytes(data[end:])

    def take(self) -> tuple[RequestHead, bytes | bytearray]:
        """The complete request."""
        head, body = self.head, self._body
        if head is None or body is None:
            raise AssertionError("no request is complete")
        self.head = self._body = None
        self.stage = _NOTHING
        return head, body

    def clear(self) -> None:
        """Drop what there is of a request."""
        self.stage = _NOTHING
        self._partial = self.head = self._body = self._chunked = self._view = None

    def _first_bytes(self, data: Packet) -> Packet:
        start = data if isinstance(data, bytes) else bytes(data[:_USUAL_HEAD])
        if not 65 <= start[0] <= 90:  # no method begins with anything but A to Z
            start = data = bytes(data).lstrip(b"\r\n")
            if not data:
                return b""
            if not 65 <= start[0] <= 90:
                raise RequestRefusal(400, f"This is no HTTP request; is it https? {_HINT}")
        end = start.find(_END) + 4
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
        end = partial.find(_END, max(known - 3, 0)) + 4
        if end > 3:
            self._partial = None
            whole = bytes(partial)
            return self._take_head(whole, end, whole)
        if len(partial) > self._most_head:
            raise _head_too_large(self._most_head)
        # Counted, not searched for: a pattern that looks behind each byte costs fifty times more.
        if partial.count(b"\n", known) != partial.count(b"\r\n", max(known - 1, 0)):
            raise RequestRefusal(
                400, f"Every line of a request's head must end with CR LF. {_HINT}"
            )
        return b""

    def _take_head(self, start: bytes, end: int, data: Packet) -> Packet:
        """Parse the head that `data` begins with, and its body if that is there too.

        `start` is `data`, or as much of it as holds the head.
        """
        if end > self._most_head:
            raise _head_too_large(self._most_head)
        self.head = head = self._parse_head(start[:end])
        length = head.length
        if length is None:
            self._chunked = ChunkedBody(self._most_body)
        elif length > self._most_body:
            raise _too_large(self._most_body)
        elif end + length <= len(data):
            self._body = bytes(data[end : end + length])
            self.stage = _COMPLETE
            return data[end + length :]
        self.stage = _BODY
        return data[end:]

    def _parse_head(self, raw: bytes) -> RequestHead:
        """The head; one that differs from the last in its length alone is not parsed again."""
        front, behind = self._front, self._behind
        if front and raw.startswith(front) and raw.endswith(behind):
            digits = raw[len(front) : -len(behind)]
            if digits.isdigit() and len(digits) <= _MOST_DIGITS:
                return self._last.with_length(digits)
        head = parse_head(raw)
        # A long one is not stored with an idle connection, of which there may be thousands.
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
