"""Turn the frames of a Bedrock answer into the events of Anthropic's stream.

Laws: (1) an event's JSON is passed on as it is written; (2) Bedrock's exceptions become error
events, with its own name for them as `code`, by which they are judged; (3) nothing fed here raises;
(4) after an error nothing follows, and no end is made up.
Not here: the binary framing (aws_event_stream.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jackline.dialects import event_of
from jackline.failures.wording import redact
from jackline.providers.aws_event_stream import EventStreamDecoder, Frame

_TYPES: Mapping[str, str] = {
    "throttlingexception": "rate_limit_error",
    "modelnotreadyexception": "overloaded_error",
    "serviceunavailableexception": "overloaded_error",
    "modeltimeoutexception": "timeout_error",
    "validationexception": "invalid_request_error",
    "accessdeniedexception": "permission_error",
    "resourcenotfoundexception": "not_found_error",
}
_STATUS_TYPES: Mapping[int, str] = {429: "rate_limit_error", 529: "overloaded_error"}
_DAMAGED = "error decoding response body: the event stream is damaged"
_LONGEST_TEXT = 1000


class _Chunk(msgspec.Struct):
    event: bytes = msgspec.field(name="bytes")


class _Typed(msgspec.Struct):
    type: str


class _Told(msgspec.Struct, rename="camel"):
    message: str | None = None
    original_message: str | None = None
    original_status_code: int | None = None


_chunk = msgspec.json.Decoder(_Chunk)
_typed = msgspec.json.Decoder(_Typed)
_told = msgspec.json.Decoder(_Told)
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


class BedrockStream:
    """Bytes of an AWS event stream in, bytes of Anthropic's stream out."""

    __slots__ = ("_decoder", "_over")

    def __init__(self) -> None:
        self._decoder = EventStreamDecoder()
        self._over = False

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, and give the events that they complete."""
        if self._over:
            return b""
        told = []
        for frame in self._decoder.feed(data):
            event, self._over = _event(frame)
            told.append(event)
            if self._over:
                return b"".join(told)
        if self._decoder.is_damaged:
            self._over = True
            told.append(_error("api_error", _DAMAGED))
        return b"".join(told)

    def end(self) -> bytes:
        """Nothing: what could be told has been, and a frame that was cut off shows nothing."""
        return b""


def _event(frame: Frame) -> tuple[bytes, bool]:
    """What a frame tells, and whether it is the last."""
    try:
        if frame.headers.get(":message-type") == "event":
            return _passed_on(frame), False
        return _exception(frame), True
    except _UNREADABLE:
        return _error("api_error", _DAMAGED), True


def _passed_on(frame: Frame) -> bytes:
    if frame.headers.get(":event-type") != "chunk":
        return b""
    data = _chunk.decode(frame.payload).event
    if b"\n" in data or b"\r" in data:
        # Between the tokens of JSON, where alone they can stand, line ends mean nothing.
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return event_of(_typed.decode(data).type.encode(), data)


def _exception(frame: Frame) -> bytes:
    headers = frame.headers
    name = str(headers.get(":exception-type") or headers.get(":error-code") or "error")
    told = _told.decode(frame.payload) if frame.payload else _Told()
    words = told.message or str(headers.get(":error-message") or "")
    if told.original_message and told.original_message not in words:
        words = f"{words} {told.original_message}".strip()
    kind = _STATUS_TYPES.get(told.original_status_code or 0) or _TYPES.get(name.lower())
    return _error(kind or "api_error", redact(words or name)[:_LONGEST_TEXT], name)


def _error(kind: str, message: str, code: str | None = None) -> bytes:
    error = {"type": kind, "message": message}
    if code is not None:
        error["code"] = code
    return event_of(b"error", msgspec.json.encode({"type": "error", "error": error}))
