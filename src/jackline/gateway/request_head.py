"""Read the head of one HTTP/1.1 request, and refuse every head that two readers could read apart.

Laws: (1) a head comes in whole, up to and with its empty line, so that how it was cut into packets
cannot change its meaning; (2) where a body ends is said once: by one Content-Length or by exactly
`Transfer-Encoding: chunked`; (3) names, values and order stay as the client wrote them.
Not here: bodies (request_reading.py, chunked_body.py), who may ask (doors.py).
"""

from __future__ import annotations

import re

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from jackline.gateway.refusal import Refusal

END = b"\r\n\r\n"
METHODS = frozenset((b"POST", b"GET", b"HEAD", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))
VERSIONS = frozenset((b"HTTP/1.1", b"HTTP/1.0"))
NEXT = "Set ANTHROPIC_BASE_URL to the gateway's address and send plain HTTP/1.1."

# The target is taken from here and goes upstream: nothing in it may end a line, or be a blank. The
# parser alone would let both pass, as the short request line of HTTP/0.9.
_REQUEST_LINE = re.compile(rb"([A-Z]+) (/[!\"$-~]*) HTTP/1\.([01])\r\n")
_VERSION = re.compile(rb"[A-Z]+/[0-9]\.[0-9]\Z")
# Each takes many times its bytes once it is read; clients send some thirty.
_MOST_HEADERS = 256
# Of a Content-Length: a petabyte has fifteen, and int() raises where there are thousands.
MOST_DIGITS = 15
_ONLY_ONCE = (b"host", b"content-length", b"transfer-encoding", b"expect")

# One reader would take these off as meant for this connection, and another would read them.
_END_TO_END = frozenset(
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

    `by_name` holds the first value under each name in lower case. `memo` belongs to whoever
    answers: heads that differ in their length alone share it, so that what was made of one need not
    be made of the next.
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


def read_head(data: bytes) -> RequestHead:
    """The head that `data` is, from the request line to the empty line; else raises Refusal."""
    line = _REQUEST_LINE.match(data)
    if line is None or line[1] not in METHODS:
        raise _bad_request_line(data[: data.index(b"\r\n")])
    head = RequestHead(line[1], line[2], line[3] == b"0")
    try:
        # A parser of its own for each head: nothing that one request left behind can touch the
        # next, and making one costs half a microsecond.
        HttpRequestParser(head).feed_data(data)
    except HttpParserUpgrade:
        pass  # an offer to change the protocol may be ignored; the body is framed as usual
    except HttpParserError as error:
        raise Refusal(400, f"This is not a valid HTTP/1.1 request: {error}. {NEXT}") from error
    if len(head.headers) > _MOST_HEADERS:
        raise Refusal(
            431, f"The request has more than {_MOST_HEADERS} headers. Send fewer of them."
        )
    head.by_name = by_name = {name.lower(): value for name, value in reversed(head.headers)}
    if len(by_name) != len(head.headers):
        _refuse_doubles(head)
    if b"host" not in by_name and not head.http_1_0:
        raise Refusal(400, f"A request needs a Host header. {NEXT}")
    if b"transfer-encoding" in by_name or b"content-length" in by_name:
        _read_framing(head)
    if b"connection" in by_name:
        _read_connection(head)
    if b"expect" in by_name and not head.http_1_0:
        head.expects_continue = by_name[b"expect"].strip().lower() == b"100-continue"
    return head


def _bad_request_line(line: bytes) -> Refusal:
    """What is wrong with a request line."""
    method, _, rest = line.partition(b" ")
    target, _, version = rest.partition(b" ")
    if version not in VERSIONS and _VERSION.match(version):
        return Refusal(505, f"This gateway speaks HTTP/1.1 only. {NEXT}")
    if method not in METHODS:
        return Refusal(501, f"This gateway does not know the request's method. {NEXT}")
    if version in VERSIONS and not target.startswith(b"/"):
        return Refusal(
            400,
            "The request line must name a path: this gateway is no HTTP proxy. Take it out of"
            f" HTTP_PROXY and HTTPS_PROXY. {NEXT}",
        )
    return Refusal(400, f"The request line is not `METHOD /path HTTP/1.1`. {NEXT}")


def _refuse_doubles(head: RequestHead) -> None:
    names = [name.lower() for name, _ in head.headers]
    for name in _ONLY_ONCE:
        if names.count(name) > 1:
            raise Refusal(400, f"The header {name.decode()} may stand only once in a request.")


def _read_framing(head: RequestHead) -> None:
    coding = head.by_name.get(b"transfer-encoding")
    length = head.by_name.get(b"content-length")
    if coding is not None:
        if coding.strip(b" ").lower() != b"chunked" or length is not None or head.http_1_0:
            raise Refusal(
                400,
                "The end of the body is not clear: send either one Content-Length or exactly"
                " `Transfer-Encoding: chunked`.",
            )
        head.length = None
    elif length is not None:
        digits = length.strip(b" \t")
        if not digits.isdigit() or len(digits) > MOST_DIGITS:
            raise Refusal(
                400, f"Content-Length must be a decimal number of at most {MOST_DIGITS} digits."
            )
        head.length = int(digits)


def _read_connection(head: RequestHead) -> None:
    # The parser knows this only while it is inside the head.
    value = head.by_name[b"connection"].lower()
    if value == b"keep-alive" and len(head.by_name) == len(head.headers):
        head.keep_alive = True
        return
    values = [value for name, value in head.headers if name.lower() == b"connection"]
    tokens = [token.strip(b" \t") for token in b",".join(values).lower().split(b",")]
    if any(token in _END_TO_END for token in tokens):
        raise Refusal(400, "Connection may not name a header that is meant for the upstream.")
    head.keep_alive = b"close" not in tokens and (not head.http_1_0 or b"keep-alive" in tokens)
