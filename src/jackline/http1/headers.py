"""Headers: which of them are passed on, and how heads and chunks are rendered.

Rules: (1) order and spelling of headers stay as they were; headers of one connection, and all that
`Connection` names, are dropped (RFC 9110, 7.6.1); (2) no header can start a line of its own: CR, LF
and NUL are refused; (3) only the caller decides how a message is framed: headers about that are
dropped; (4) what an upstream asks of browsers about its own site is dropped from responses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

# Clients and providers use some dozens of names; whoever invents more of them gains nothing.
_REMEMBERED_NAMES = 1024


class HeaderFilter(dict[bytes, bool]):
    """Whether a header of this name passes, remembered for each spelling that was seen."""

    __slots__ = ("_dropped", "_prefixes")

    def __init__(self, dropped: Iterable[bytes], *prefixes: bytes) -> None:
        super().__init__()
        self._dropped = frozenset(dropped)
        self._prefixes = prefixes

    def __missing__(self, name: bytes) -> bool:
        plain = name.lower()
        passes = plain not in self._dropped and not plain.startswith(self._prefixes)
        if len(self) < _REMEMBERED_NAMES:
            self[name] = passes
        return passes

    def split(self, headers: Headers) -> tuple[list[tuple[bytes, bytes]], Headers]:
        """The headers that pass, and those that do not because of their own name.

        Headers that a dropped `Connection` header names are in neither.
        """
        passing = [pair for pair in headers if self[pair[0]]]
        if len(passing) == len(headers):
            return passing, ()
        dropped = [pair for pair in headers if not self[pair[0]]]
        named: set[bytes] = set()
        for name, value in dropped:
            if len(name) == 10 and name.lower() == b"connection":
                named.update(token.strip().lower() for token in value.split(b","))
        named -= _NAMES_NO_HEADER
        if named:
            passing = [pair for pair in passing if pair[0].lower() not in named]
        return passing, dropped


_NAMES_NO_HEADER = frozenset((b"keep-alive", b"close", b""))
HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
# A browser would take these for the gateway's own word: who may read it, which cookies it sets for
# every port of this machine, where else it can be reached, what to load, ask for, or delete.
_FOR_BROWSERS = (
    b"accept-ch",
    b"alt-svc",
    b"clear-site-data",
    b"critical-ch",
    b"large-allocation",
    b"link",
    b"nel",
    b"origin-agent-cluster",
    b"origin-trial",
    b"public-key-pins",
    b"public-key-pins-report-only",
    b"refresh",
    b"report-to",
    b"reporting-endpoints",
    b"service-worker-allowed",
    b"set-cookie",
    b"set-cookie2",
    b"set-login",
    b"sourcemap",
    b"speculation-rules",
    b"strict-transport-security",
    b"supports-loading-mode",
    b"timing-allow-origin",
    b"use-as-dictionary",
    b"www-authenticate",
    b"x-sourcemap",
)
RESPONSE_FILTER = HeaderFilter(HOP_BY_HOP.union(_FOR_BROWSERS), b"proxy-", b"access-control-")
_REQUEST_FILTER = HeaderFilter(HOP_BY_HOP | {b"host", b"content-length", b"expect"}, b"proxy-")
_NOT_FRAMING = HeaderFilter(
    (b"content-length", b"transfer-encoding", b"connection", b"keep-alive"),
)


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The headers, each with its line end."""
    lines = list(map(b": ".join, headers))
    count = len(lines)
    lines.append(b"")
    text = b"\r\n".join(lines)
    # Counting in the whole costs less than looking at each header.
    if text.count(b"\n") != count or text.count(b"\r") != count or b"\0" in text:
        raise ValueError("A header may hold no line end and no NUL.")
    return text


# --- responses ------------------------------------------------------------------------------------

_STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode())
    for status, phrase in [*((each.value, each.phrase) for each in HTTPStatus), (529, "Overloaded")]
}
LAST_CHUNK = b"0\r\n\r\n"


def response_head(status: int, headers: Headers, framing: bytes) -> bytes:
    """Status line, headers and framing lines, with the empty line."""
    lines = _lines([header for header in headers if _NOT_FRAMING[header[0]]])
    start = _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status
    return start + lines + framing + b"\r\n"


def declared_length(headers: Headers) -> int | None:
    """The Content-Length among the headers."""
    for name, value in headers:
        if not _NOT_FRAMING[name] and name.lower() == b"content-length":
            # The parser let any number of zeros pass; int() reads no more than 4,300 digits.
            return int(value.lstrip(b"0") or b"0")
    return None


def chunk(data: bytes) -> bytes:
    """A piece of a chunked body; nothing for no data, because an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


# --- requests -------------------------------------------------------------------------------------

_BODILESS = frozenset((b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"TRACE", b"CONNECT"))
_REMEMBERED_HEADS = 256
_LONGEST_REMEMBERED = 8 * 1024
_BREAKS_LINE = re.compile(rb"[ \r\n\0]")


def request_lines(headers: Headers) -> bytes:
    """The end-to-end headers as lines; ValueError for what would break a line."""
    return _lines(_REQUEST_FILTER.split(headers)[0])


class RequestHeads:
    """Renders the heads of requests to one origin; what never changes is built once."""

    __slots__ = ("_after_target", "_before_target", "_rendered")

    def __init__(self, target_prefix: str, first_lines: str) -> None:
        """`first_lines` are the header lines of the origin itself, each with its line end."""
        self._before_target = b" " + target_prefix.encode("ascii")
        self._after_target = b" HTTP/1.1\r\n" + first_lines.encode("ascii")
        # Callers send the same lines again and again; only the length behind them changes.
        self._rendered: dict[tuple[bytes, bytes, bytes], bytes] = {}

    def render(self, method: bytes, target: bytes, lines: bytes, body_size: int) -> bytes:
        """Request line and headers, with the empty line; ValueError for what would break them.

        `lines` are what `request_lines` returned.
        """
        start = self._rendered.get((method, target, lines)) or self._start(method, target, lines)
        if body_size or method not in _BODILESS:
            return b"%bContent-Length: %d\r\n\r\n" % (start, body_size)
        return start + b"\r\n"

    def _start(self, method: bytes, target: bytes, lines: bytes) -> bytes:
        # Without its slash the target would be read as part of the host, or as another address.
        if target[:1] != b"/" or _BREAKS_LINE.search(target) or _BREAKS_LINE.search(method):
            raise ValueError("A target begins with a slash and holds no blank, line end or NUL.")
        start = b"%b%b%b%b%b" % (method, self._before_target, target, self._after_target, lines)
        if len(start) <= _LONGEST_REMEMBERED:
            if len(self._rendered) >= _REMEMBERED_HEADS:
                self._rendered.clear()
            self._rendered[method, target, lines] = start
        return start
