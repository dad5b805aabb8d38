"""Receive an answer in another dialect, and pass it on in Anthropic's.

Rules: (1) errors are passed on as they came: status, headers and body; (2) a call that requested a
stream gets a stream, any other a whole answer; (3) a stream that was cut off gets no end; (4) an
answer that cannot be understood breaks, and nothing of it is made up.
Not here: the translations (dialects/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from jackline.dialects import event_of
from jackline.dialects.neutral.fields import TranslatedDocument
from jackline.upstream.interface import GarbledError, Headers, ResponseHandler

# What says how the foreign bytes were wrapped, and cookies of a house that the client never met.
_NOT_PASSED_ON = frozenset({b"content-type", b"content-length", b"content-encoding", b"set-cookie"})
EVENT_STREAM = b"text/event-stream"
_JSON = b"application/json"
NOTES = b"x-jackline-translated"
_LONGEST_NOTES = 2000


class StreamTranslation(Protocol):
    """Bytes of a foreign stream in, bytes of Anthropic's stream out; never raises."""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes."""
        ...

    def end(self) -> bytes:
        """The foreign stream has ended in order."""
        ...


class TranslatingHandler:
    """One answer; `notes` tell what of the request was changed or left out."""

    __slots__ = (
        "_body",
        "_ear",
        "_head",
        "_notes",
        "_open_stream",
        "_passes",
        "_spoiled",
        "_stream",
        "_stream_type",
        "_wants_stream",
        "_whole",
    )

    def __init__(
        self,
        ear: ResponseHandler,
        *,
        wants_stream: bool,
        whole: Callable[[bytes], TranslatedDocument],
        stream: Callable[[], StreamTranslation],
        notes: tuple[str, ...] = (),
        stream_type: bytes = EVENT_STREAM,
    ) -> None:
        self._ear = ear
        self._wants_stream = wants_stream
        self._whole = whole
        self._open_stream = stream
        self._notes = notes
        self._stream_type = stream_type
        self._passes = False
        self._stream: StreamTranslation | None = None
        self._head: tuple[int, Headers] = (0, ())
        self._body = bytearray()
        self._spoiled: str | None = None

    def began(self, status: int, headers: Headers) -> None:
        """The head: of an error, a stream, or an answer that will come whole."""
        if not 200 <= status < 300:
            self._passes = True
            self._ear.began(status, headers)
            return
        lowered = {name.lower(): value for name, value in headers}
        packed = lowered.get(b"content-encoding", b"identity").strip().lower()
        if packed != b"identity":
            self._spoiled = "it is packed in a way that was not asked for"
        self._head = status, headers
        if lowered.get(b"content-type", b"").lower().startswith(self._stream_type):
            if not self._wants_stream:
                self._spoiled = "a stream came where none was asked for"
                return
            self._stream = self._open_stream()
            self._ear.began(status, self._told_headers(EVENT_STREAM))
        elif not self._wants_stream and self._spoiled is None:
            self._ear.began(status, self._told_headers(_JSON))

    def heard(self, data: bytes) -> None:
        """Bytes of it."""
        if self._passes:
            self._ear.heard(data)
            return
        if self._spoiled is not None:
            return
        if self._stream is not None:
            # Even where nothing is to be told yet, bytes are a sign of life.
            self._ear.heard(self._stream.feed(data))
            return
        self._body += data
        if not self._wants_stream:
            self._ear.heard(b"")

    def ended(self) -> None:
        """The end of it, in order."""
        if self._passes:
            self._ear.ended()
        elif self._spoiled is not None:
            self._ear.broke(GarbledError(self._spoiled))
        elif self._stream is not None:
            rest = self._stream.end()
            if rest:
                self._ear.heard(rest)
            self._ear.ended()
        else:
            self._tell_whole(bytes(self._body))

    def broke(self, error: OSError) -> None:
        """The end of it, not in order."""
        self._ear.broke(error)

    def _tell_whole(self, body: bytes) -> None:
        translated = self._whole(body)
        if translated.is_error and not says_error(body):
            self._ear.broke(GarbledError("it is no answer in the dialect of this upstream"))
            return
        # A success that says an error is judged by its own words, like any error.
        told, kind = (body if translated.is_error else translated.body), _JSON
        if self._wants_stream:
            if not translated.is_error:
                told, kind = as_stream(told), EVENT_STREAM
            self._ear.began(self._head[0], self._told_headers(kind))
        self._ear.heard(told)
        self._ear.ended()

    def _told_headers(self, content_type: bytes) -> Headers:
        kept = [(n, v) for n, v in self._head[1] if n.lower() not in _NOT_PASSED_ON]
        told = [(b"content-type", content_type), *kept]
        if self._notes:
            told.append((NOTES, note_value(self._notes)))
        return told


def note_value(notes: Iterable[str]) -> bytes:
    """What was changed or left out, as the value of a header."""
    return "; ".join(notes).encode("ascii", "replace")[:_LONGEST_NOTES].strip()


class _Saying(msgspec.Struct):
    error: msgspec.Raw = msgspec.Raw(b"null")
    type: str | None = None


_saying = msgspec.json.Decoder(_Saying)


def says_error(body: bytes) -> bool:
    """Whether a document has an error in it, by name."""
    return _said(body) is not None


def is_anthropic_error(body: bytes) -> bool:
    """Whether a document is an error in Anthropic's own shape."""
    said = _said(body)
    return said is not None and said.type == "error"


def _said(body: bytes) -> _Saying | None:
    try:
        said = _saying.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return None if bytes(said.error) == b"null" else said


def as_stream(message: bytes) -> bytes:
    """The events that would have told this message, for servers that cannot stream."""
    told = msgspec.json.decode(message, type=dict[str, msgspec.Raw])
    blocks = msgspec.json.decode(told["content"], type=list[dict[str, msgspec.Raw]])
    usage = told["usage"]
    ending = {name: told[name] for name in ("stop_reason", "stop_sequence") if name in told}
    start: dict[str, object] = {**told, "content": [], "stop_reason": None, "stop_sequence": None}
    events = [_event("message_start", message=start)]
    for index, block in enumerate(blocks):
        opened, delta = _opened(block)
        events.append(_event("content_block_start", index=index, content_block=opened))
        if delta is not None:
            events.append(_event("content_block_delta", index=index, delta=delta))
        events.append(_event("content_block_stop", index=index))
    events.append(_event("message_delta", delta=ending, usage=usage))
    events.append(_event("message_stop"))
    return b"".join(events)


def _opened(block: dict[str, msgspec.Raw]) -> tuple[dict[str, object], dict[str, object] | None]:
    """The block as it begins, and what then comes into it."""
    kind = msgspec.json.decode(block["type"])
    if kind == "text":
        return {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    if kind == "tool_use":
        given = bytes(block["input"]).decode()
        return {**block, "input": {}}, {"type": "input_json_delta", "partial_json": given}
    return {**block}, None


def _event(name: str, **fields: object) -> bytes:
    return event_of(name.encode(), msgspec.json.encode({"type": name, **fields}))
