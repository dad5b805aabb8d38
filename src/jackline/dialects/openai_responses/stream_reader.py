"""Follow one Responses stream that is passed on as it is: what has begun, what is whole, its cost.

Laws: (1) nothing fed here raises: a stream that cannot be followed is broken, and stays so; (2) an
answer is whole when `response.completed` or `response.incomplete` has come; (3) only the first and
the last events are decoded whole; unknown ones change nothing.
Not here: cutting bytes into events (sse.py), telling it in another dialect (stream.py).
"""

from __future__ import annotations

import msgspec

from jackline.dialects.neutral.usage import foreign_usage
from jackline.dialects.sse import name_and_data
from jackline.dialects.tokens_used import TokensUsed


class _Kind(msgspec.Struct):
    type: str


class _Details(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    usage: msgspec.Raw = msgspec.Raw(b"null")
    incomplete_details: _Details | None = None


class _Last(msgspec.Struct):
    response: _Response


_kind = msgspec.json.Decoder(_Kind)
_last = msgspec.json.Decoder(_Last)
_ENDS = ("response.completed", "response.incomplete")
_FAILURES = ("response.failed", "error")


class ResponsesStreamReader:
    """What is known about one answer after the events so far."""

    __slots__ = ("broken", "error_event", "started", "stop_reason", "usage", "whole")

    def __init__(self) -> None:
        self.started = False
        self.usage = TokensUsed()
        self.stop_reason: str | None = None
        self.whole = False
        self.error_event: bytes | None = None
        self.broken = False

    def feed(self, event: bytes) -> bytes:
        """Take note of one raw event, and give the name of what it says."""
        name, data = name_and_data(event)
        if not data or self.broken or data.strip() == b"[DONE]":
            return name
        try:
            kind = name.decode() or _kind.decode(data).type
            self._take(kind, data)
        except (msgspec.DecodeError, ValueError, RecursionError):
            self.broken = True
            return name
        return kind.encode()

    def give_up(self) -> None:
        """Regard the stream as broken, for a reason that lies outside of its events."""
        self.broken = True

    def _take(self, kind: str, data: bytes) -> None:
        self.started = self.started or kind.startswith("response.")
        if kind in _ENDS:
            response = _last.decode(data).response
            self.usage = foreign_usage(self.usage, response.usage)
            details = response.incomplete_details
            self.stop_reason = (details.reason if details else None) or "completed"
            self.whole = True
        elif kind in _FAILURES:
            self.error_event = data
            self.broken = True
