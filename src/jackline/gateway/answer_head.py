"""Write the head of an answer.

Laws: (1) no header can start a line of its own: CR, LF and NUL are refused; (2) how the answer is
framed and whether the connection stays is said by the caller alone; what the given headers say of
it is dropped.
Not here: when it is written (exchange.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus} | {529: b"Overloaded"}
_STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, reason) for status, reason in _REASONS.items()
}
_FRAMING = frozenset((b"content-length", b"transfer-encoding", b"connection", b"keep-alive"))
# Providers use some dozens of names; whoever invents more of them gains nothing.
_REMEMBERED_NAMES = 1024
_in_one_line = b": ".join


class _Passes(dict[bytes, bool]):
    """Whether a header of this name is written as given, remembered for each spelling."""

    def __missing__(self, name: bytes) -> bool:
        passes = name.lower() not in _FRAMING
        if len(self) < _REMEMBERED_NAMES:
            self[name] = passes
        return passes


_passes = _Passes()


def answer_head(status: int, headers: Headers, framing: bytes) -> bytes:
    """Status line, the given headers, and the framing lines, up to the empty line."""
    lines = [_in_one_line(header) for header in headers if _passes[header[0]]]
    ends = len(lines)
    lines.append(b"")
    text = b"\r\n".join(lines)
    # Counting in the whole costs less than looking at each.
    if text.count(b"\n") != ends or text.count(b"\r") != ends or b"\0" in text:
        raise ValueError("a header's name or value holds a line break or NUL")
    start = _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status
    return start + text + framing + b"\r\n"


def declared_length(headers: Headers) -> int | None:
    """The Content-Length among the given headers."""
    for name, value in headers:
        if not _passes[name] and name.lower() == b"content-length":
            # The parser let any number of zeros pass; int() reads no more than 4,300 digits.
            return int(value.lstrip(b"0") or b"0")
    return None
