"""Receive an answer in another dialect, and pass it on in Anthropic's.

Rules: (1) errors are passed on as they came: status, headers and body; (2) a call that requested a
stream gets a stream, any other a whole answer; (3) a stream that was cut off gets no end; (4) an
answer that cannot be parsed breaks, and nothing of it is invented.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from jackline.dialects import event_of
from jackline.dialects.json_bounds import UNREADABLE, count_values
from jackline.dialects.neutral.fields import TranslatedDocument
from jackline.http1.headers import Headers
from jackline.http1.responses import GarbledError
from jackline.upstream.interface import ResponseHandler

# How the foreign bytes were encoded, and cookies of a server that the client does not know.
_NOT_PASSED_ON = frozenset({b"content-type", b"content-length", b"content-encoding", b"set-cookie"})
EVENT_STREAM = b"text/event-stream"
_JSON = b"application/json"
NOTES = b"x-jackline-translated"
_LONGEST_NOTES = 2000
# Of a message that becomes a stream, which takes some objects for each block.
_MOST_VALUES = 500_000
_MOST_BLOCKS = 10_000


class StreamTranslation(Protocol):
    """Bytes of a foreign stream in, bytes of Anthropic's stream out; never raises."""

    @property
    def held(self) -> int:
        """How many bytes it keeps for now."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Translate the next bytes."""
        ...

    def end(self) -> bytes:
        """The rest, when the foreign stream has ended normally."""
        ...


class TranslatingHandler:
    """One answer; `notes` list what of the request was changed or left out."""

    __slots__ = (
        "_body",
        "_damage",
        "_handler",
        "_head",
        "_notes",
        "_open_stream",
        "_passes",
        "_stream",
        "_stream_type",
        "_translate",
        "_wants_stream",
    )

    def __init__(
        self,
        handler: ResponseHandler,
        *,
        wants_stream: bool,
        translate: Callable[[bytes], TranslatedDocument],
        stream: Callable[[], StreamTranslation],
        notes: tuple[str, ...] = (),
        stream_type: bytes = EVENT_STREAM,
    ) -> None:
        self._handler = handler
        self._wants_stream = wants_stream
        self._translate = translate
        self._open_stream = stream
        self._notes = notes
        self._stream_type = stream_type
        self._passes = False
        self._stream: StreamTranslation | None = None
        self._head: tuple[int, Headers] = (0, ())
        self._body = bytearray()
        self._damage: str | None = None

    @property
    def held(self) -> int:
        """What it and its handler keep for now."""
        own = len(self._body) if self._stream is None else self._stream.held
        return own + self._handler.held

    def began(self, status: int, headers: Headers) -> None:
        """The head of an error, a stream, or an answer that will come whole."""
        if not 200 <= status < 300:
            self._passes = True
            self._handler.began(status, headers)
            return
        lowered = {name.lower(): value for name, value in headers}
        if lowered.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            self._damage = "it is compressed in a way that was not requested"
        self._head = status, headers
        if lowered.get(b"content-type", b"").lower().startswith(self._stream_type):
            if not self._wants_stream:
                self._damage = "a stream came where none was requested"
                return
            self._stream = self._open_stream()
            self._handler.began(status, self._own_headers(EVENT_STREAM))
        elif not self._wants_stream and self._damage is None:
            self._handler.began(status, self._own_headers(_JSON))

    def received(self, data: bytes) -> None:
        """Bytes of the body."""
        if self._passes:
            self._handler.received(data)
        elif self._damage is None and self._stream is not None:
            # Even where they complete no event yet, bytes are a sign of life.
            self._handler.received(self._stream.feed(data))
        elif self._damage is None:
            self._body += data
            if not self._wants_stream:
                self._handler.received(b"")

    def ended(self) -> None:
        """The answer is complete."""
        if self._passes:
            self._handler.ended()
        elif self._damage is not None:
            self._handler.broke(GarbledError(self._damage))
        elif self._stream is not None:
            rest = self._stream.end()
            if rest:
                self._handler.received(rest)
            self._handler.ended()
        else:
            self._end_whole(bytes(self._body))

    def broke(self, error: OSError) -> None:
        """The answer will not become complete."""
        self._handler.broke(error)

    def _end_whole(self, body: bytes) -> None:
        translated = self._translate(body)
        if translated.is_error and error_type(body) is None:
            self._handler.broke(GarbledError("it is no answer in the dialect of this upstream"))
            return
        # A success with an error in its body is classified by its own text, like any error.
        passed, kind = (body if translated.is_error else translated.body), _JSON
        if self._wants_stream:
            if not translated.is_error:
                try:
                    passed, kind = as_stream(passed), EVENT_STREAM
                except (KeyError, *UNREADABLE):
                    says = "it is a message that no stream can have"
                    self._handler.broke(GarbledError(says))
                    return
            self._handler.began(self._head[0], self._own_headers(kind))
        self._handler.received(passed)
        self._handler.ended()

    def _own_headers(self, content_type: bytes) -> Headers:
        passed = [(n, v) for n, v in self._head[1] if n.lower() not in _NOT_PASSED_ON]
        notes = [(NOTES, note_value(self._notes))] if self._notes else []
        return [(b"content-type", content_type), *passed, *notes]


def note_value(notes: Iterable[str]) -> bytes:
    """What was changed or left out, as the value of a header."""
    return "; ".join(notes).encode("ascii", "replace")[:_LONGEST_NOTES].strip()


class _ErrorDocument(msgspec.Struct):
    error: msgspec.Raw = msgspec.Raw(b"null")
    type: str | None = None


_error_document = msgspec.json.Decoder(_ErrorDocument)


def error_type(body: bytes) -> str | None:
    """The `type` of a document with an `error`, or "" where it has none; None for any other.

    Anthropic's own errors have the type "error".
    """
    try:
        document = _error_document.decode(body)
    except UNREADABLE:
        return None
    return None if bytes(document.error) == b"null" else document.type or ""


def as_stream(message: bytes) -> bytes:
    """The events of a stream with this message, for servers that cannot stream.

    KeyError, or one of UNREADABLE, when the message lacks something or has too many blocks.
    """
    members = msgspec.json.decode(message, type=dict[str, msgspec.Raw])
    if count_values(bytes(members["content"])) > _MOST_VALUES:
        raise ValueError("its content has more values than an answer")
    content = msgspec.json.decode(members["content"], type=list[msgspec.Raw])
    if len(content) > _MOST_BLOCKS:
        raise ValueError("it has more blocks than an answer")
    blocks = [msgspec.json.decode(each, type=dict[str, msgspec.Raw]) for each in content]
    ending = {name: members[name] for name in ("stop_reason", "stop_sequence") if name in members}
    start: dict[str, object] = {
        **members,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    events: list[tuple[str, dict[str, object]]] = [("message_start", {"message": start})]
    for index, block in enumerate(blocks):
        kind = msgspec.json.decode(block["type"])
        opened: dict[str, object] = {**block}
        delta: dict[str, object] | None = None
        if kind == "text":
            opened["text"] = ""
            delta = {"type": "text_delta", "text": block["text"]}
        elif kind == "tool_use":
            opened["input"] = {}
            arguments = bytes(block["input"]).decode()
            delta = {"type": "input_json_delta", "partial_json": arguments}
        events.append(("content_block_start", {"index": index, "content_block": opened}))
        if delta is not None:
            events.append(("content_block_delta", {"index": index, "delta": delta}))
        events.append(("content_block_stop", {"index": index}))
    events.append(("message_delta", {"delta": ending, "usage": members["usage"]}))
    events.append(("message_stop", {}))
    return b"".join(
        event_of(name.encode(), msgspec.json.encode({"type": name, **fields}))
        for name, fields in events
    )
