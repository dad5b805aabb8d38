"""Write the head of a request as it goes on the wire.

Laws: (1) one framing only: the length is counted here, and nothing the caller wrote about it is
passed on; (2) nothing that the caller gave can end a line or begin another one.
Not here: which headers are hop-by-hop (hop_by_hop.py), bodies (connection.py).
"""

from __future__ import annotations

import re

from jackline.upstream.hop_by_hop import HOP_BY_HOP, Sieve
from jackline.upstream.origin import Origin
from jackline.upstream.port import Headers, Message

_not_written_here = Sieve(HOP_BY_HOP | {b"host", b"content-length", b"expect"})
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

    def head(self, message: Message) -> bytes:
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
