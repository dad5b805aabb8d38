"""HTTP/1.1 as bytes: write the heads of requests, parse answers, drop hop-by-hop headers.

Rules: (1) no I/O and no callbacks out of here: bytes go in, parsed values are there to be read; (2)
a request has one framing: its length is counted here, and nothing from the caller can end a line or
begin another one; (3) where an answer ends is never in doubt: one with two framings, or a strange
one, is refused before its head is reported; (4) the memory in use is bounded; (5) order and
spelling of end-to-end headers stay as they were, and every header that `Connection` names is
dropped (RFC 9110, 7.6.1); (6) what an upstream says to browsers about its own site is dropped from
answers.
Not here: sockets (connection.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from jackline.upstream.interface import (
    CutShortError,
    GarbledError,
    Headers,
    NotHttpError,
    UpstreamRequest,
)
from jackline.upstream.origin import Origin

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
# A browser would take these for the gateway's own word: who may read it, which cookies it sets for
# every port of this machine, where else it can be reached, what to delete.
_TO_BROWSERS = frozenset(
    {
        b"alt-svc",
        b"clear-site-data",
        b"nel",
        b"public-key-pins",
        b"refresh",
        b"report-to",
        b"reporting-endpoints",
        b"service-worker-allowed",
        b"set-cookie",
        b"set-cookie2",
        b"strict-transport-security",
        b"timing-allow-origin",
    }
)
_ONE_CONNECTIONS = (b"proxy-",)
_CROSS_ORIGIN = b"access-control-"
_NAMES_NOTHING = frozenset({b"keep-alive", b"close", b""})
# Clients and providers use some dozens of names; whoever invents more of them gains nothing.
_REMEMBERED_NAMES = 1024


class HeaderFilter(dict[bytes, bool]):
    """Whether a header of this name is kept, remembered for each spelling that was seen."""

    __slots__ = ("_beginnings", "_dropped")

    def __init__(self, dropped: frozenset[bytes], *beginnings: bytes) -> None:
        super().__init__()
        self._dropped = dropped
        self._beginnings = (*_ONE_CONNECTIONS, *beginnings)

    def __missing__(self, name: bytes) -> bool:
        plain = name.lower()
        is_kept = plain not in self._dropped and not plain.startswith(self._beginnings)
        if len(self) < _REMEMBERED_NAMES:
            self[name] = is_kept
        return is_kept

    def keep(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The headers that pass, and that no `Connection` header names."""
        return self.sift(headers)[0]

    def sift(self, headers: Headers) -> tuple[list[tuple[bytes, bytes]], Headers]:
        """The headers that pass, and those that by their own name do not."""
        kept = [pair for pair in headers if self[pair[0]]]
        if len(kept) == len(headers):
            return kept, ()
        dropped = [pair for pair in headers if not self[pair[0]]]
        named = _named_by_connection(dropped)
        if named:
            kept = [pair for pair in kept if pair[0].lower() not in named]
        return kept, dropped


def _named_by_connection(dropped: Headers) -> set[bytes]:
    named: set[bytes] = set()
    for name, value in dropped:
        if len(name) == 10 and name.lower() == b"connection":
            named.update(token.strip().lower() for token in value.split(b","))
    return named - _NAMES_NOTHING if named else named


END_TO_END = HeaderFilter(HOP_BY_HOP)
ANSWER_HEADER_FILTER = HeaderFilter(HOP_BY_HOP | _TO_BROWSERS, _CROSS_ORIGIN)


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers without those that concern only the connection they came on."""
    return END_TO_END.keep(headers)


_not_written_here = HeaderFilter(HOP_BY_HOP | {b"host", b"content-length", b"expect"})
_BODILESS = frozenset({b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"TRACE", b"CONNECT"})
_FORBIDDEN = b"\r\n\0"
_REMEMBERED_HEADS = 256
_LONGEST_REMEMBERED = 8 * 1024
_BLANKS = re.compile(rb"[ \r\n\0]")
_BREAKS = (
    "The head of a request may hold no line end and no NUL,"
    " and its target must begin with a slash and hold no blank."
)
_colon = b": "


class HeadWriter:
    """Writes heads for one origin; what never changes is built once."""

    __slots__ = ("_after_target", "_before_target", "_written")

    def __init__(self, origin: Origin) -> None:
        address = origin.address
        prefix, lines = origin.path, f" HTTP/1.1\r\nHost: {address.host_header}"
        if origin.proxy_address is not None and address.scheme == "http":
            prefix = f"http://{address.host_header}{origin.path}"
            if origin.proxy_credentials is not None:
                lines += f"\r\nProxy-Authorization: {origin.proxy_credentials}"
        self._before_target = b" " + prefix.encode("ascii")
        self._after_target = lines.encode("ascii")
        # Callers send the same lines again and again; only the length behind them changes.
        self._written: dict[tuple[bytes, bytes, bytes], bytes] = {}

    def head(self, message: UpstreamRequest) -> bytes:
        """Request line and headers, with the empty line; ValueError for what would break them."""
        method, target, headers, body, lines, *_ = message
        if lines is None:
            lines = header_lines(headers)
        before = self._written.get((method, target, lines)) or self._write(method, target, lines)
        if body or method not in _BODILESS:
            return b"%b\r\nContent-Length: %d\r\n\r\n" % (before, len(body))
        return before + b"\r\n\r\n"

    def _write(self, method: bytes, target: bytes, lines: bytes) -> bytes:
        # Without its slash the target would be read as part of the host, or as another address.
        if target[:1] != b"/" or _BLANKS.search(target) or _BLANKS.search(method):
            raise ValueError(_BREAKS)
        before = b"%b%b%b%b%b" % (
            method,
            self._before_target,
            target,
            self._after_target,
            lines,
        )
        if len(before) <= _LONGEST_REMEMBERED:
            if len(self._written) >= _REMEMBERED_HEADS:
                self._written.clear()
            self._written[method, target, lines] = before
        return before


def header_lines(headers: Headers) -> bytes:
    """The headers that pass, each behind a line end; ValueError for what would break a line."""
    lines = [b""]
    lines += map(_colon.join, _not_written_here.keep(headers))
    text = b"\r\n".join(lines)
    # Counting in the whole is much cheaper than looking into every header: whatever is there
    # beyond our own line ends was brought in by the caller.
    if len(text) - len(text.translate(None, _FORBIDDEN)) != 2 * (len(lines) - 1):
        raise ValueError(_BREAKS)
    return text


# The longest head, and the longest stretch of framing (trailers, chunk sizes) without content.
FRAMING_BYTES = 256 * 1024
# Each takes many times its bytes once it is read; vendors send some thirty.
MOST_HEADERS = 512


class ResponseParser:
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
        headers, dropped = ANSWER_HEADER_FILTER.sift(self._headers)
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
