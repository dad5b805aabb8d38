"""Continue a broken answer: what the client has of it, the request for the rest, and the joint.

Rules: (1) only events that were delivered are recorded; (2) a turn is closed only if the vendor
would accept each of its blocks in the next request; (3) text is decoded only while it may be
needed; (4) only models and requests that are known to accept a prefill get one, and all other
members of the body stay as they are; (5) the client sees one message: one start, block indexes
without a gap; only the index of an event changes; (6) white space that was cut off the prefill is
not sent twice.
"""

from __future__ import annotations

import io
import re
from functools import lru_cache
from typing import NamedTuple

import msgspec

from jackline.dialects.answer_facts import block_stop, closing_events
from jackline.dialects.anthropic_stream import (
    BLOCK_DELTA,
    BLOCK_START,
    BLOCK_STOP,
    MESSAGE_DELTA,
    MESSAGE_START,
)
from jackline.dialects.json_bounds import UNREADABLE, last_items
from jackline.dialects.sse import EventSplitter, data_of, event_of

LONGEST_PREFILL = 1024 * 1024


class _Piece(msgspec.Struct):
    text: str = ""


class _TextEvent(msgspec.Struct):
    delta: _Piece = msgspec.field(default_factory=_Piece)
    content_block: _Piece = msgspec.field(default_factory=_Piece)


_text_event = msgspec.json.Decoder(_TextEvent)


def words_in(event: bytes) -> str:
    """The text that an event of a text block carries; raises one of UNREADABLE."""
    found = _text_event.decode(data_of(event))
    return found.delta.text + found.content_block.text


class ClientView:
    """The answer as the client has it. `listening` says that deltas are needed one by one."""

    __slots__ = (
        "_only_text",
        "_server_tool_waits",
        "_text",
        "_words",
        "blocks",
        "listening",
        "open_type",
        "started",
        "tool_started",
    )

    def __init__(self, *, keeps_text: bool) -> None:
        self.started = False
        self.blocks = 0
        self.open_type: str | None = None
        # A client starts a tool as soon as its block is complete: from then on it has happened.
        self.tool_started = False
        self.listening = False
        self._only_text = True
        self._server_tool_waits = False
        self._words = False
        self._text = io.StringIO() if keeps_text else None

    def saw(self, name: bytes, event: bytes, block_type: str) -> None:
        """Take note of an event that goes out, or of deltas that go out together."""
        if name == BLOCK_DELTA:
            if self.listening and event.count(b"\n") == 3:
                self._note_text(event)
            elif self.listening:
                splitter = EventSplitter()
                for each in [*splitter.feed(event), splitter.rest]:
                    if each and self.listening:
                        self._note_text(each)
        elif name == BLOCK_START:
            self.blocks += 1
            self.open_type = block_type
            self._words = False
            self._only_text = self._only_text and block_type == "text"
            self.listening = block_type == "text"
            if self.listening and self._text is not None:
                self._note_text(event)
        elif name == BLOCK_STOP:
            kind = self.open_type or ""
            self.open_type = None
            self.listening = False
            if kind.endswith(("tool_use", "tool_result")):
                self.tool_started = self.tool_started or kind == "tool_use"
                self._server_tool_waits = kind.endswith("tool_use") and kind != "tool_use"
        elif name == MESSAGE_START:
            self.started = True

    def _note_text(self, event: bytes) -> None:
        """Store the words of a text block as long as they may be needed."""
        try:
            words = words_in(event)
        except UNREADABLE:
            # The client may read it in its own way: what it has is not known word by word any more.
            words, self._text = "", None
        self._words = self._words or bool(words.strip())
        if self._text is not None and self._only_text:
            self._text.write(words)
            if self._text.tell() > LONGEST_PREFILL:
                self._text = None
        else:
            self.listening = not self._words

    @property
    def held(self) -> int:
        """How many letters it keeps."""
        return 0 if self._text is None else self._text.tell()

    @property
    def text(self) -> str | None:
        """All text delivered so far, if nothing else was delivered and some of it is visible."""
        if self._text is None or not self._only_text:
            return None
        text = self._text.getvalue()
        return text if text.strip() else None

    def closing(self, output_tokens: int) -> bytes | None:
        """What makes a valid, shorter turn of it; None when nothing honest does.

        An open text block may end where it is: its words are true so far, unless there are none yet
        (the vendor takes no empty text back). An open tool call is cut JSON, an open thinking block
        lacks its signature, and a server's tool without its result is half an exchange: the next
        request would be refused for any of them.
        """
        if not self.tool_started or self._server_tool_waits:
            return None
        end = closing_events("tool_use", output_tokens)
        if self.open_type is None:
            return end
        if self.open_type == "text" and self._words:
            return block_stop(self.blocks - 1) + end
        return None


_event_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class StreamItem(NamedTuple):
    """An event on its way to the client, with the type of the block that it belongs to."""

    name: bytes
    event: bytes
    block_type: str


class Renumbering:
    """Changes the events of one attempt; `delivered` blocks exist, the last perhaps still open."""

    __slots__ = ("_open", "_shift", "_tail", "_tail_at")

    def __init__(self, delivered: int, *, text_open: bool, tail: str) -> None:
        self._open: int | None = delivered - 1 if text_open else None
        self._shift = delivered
        # White space that the client has and the model may say again, and how much it has said.
        self._tail = tail
        self._tail_at = 0

    def translate(self, item: StreamItem) -> list[StreamItem]:
        """What goes on in its place; raises one of UNREADABLE when it cannot be read."""
        name, event, block_type = item
        if name == MESSAGE_START:
            return []
        if name == BLOCK_START:
            if self._open is not None and block_type == "text":
                # The first text goes on in the open block, so that its start is left out.
                index, self._open = self._open, None
                self._shift -= 1
                unsent = self._not_yet_sent(words_in(event))
                delta = _text_delta(index, unsent)
                return [StreamItem(BLOCK_DELTA, delta, "text")] if unsent else []
            return [*self._close(), StreamItem(name, self._numbered(name, event), block_type)]
        if name == BLOCK_DELTA:
            numbered = self._numbered(name, event)
            words = words_in(event) if self._tail else ""
            if words:
                unsent = self._not_yet_sent(words)
                if not unsent:
                    return []
                if unsent != words:
                    index = int(bytes(_event_fields.decode(data_of(numbered))["index"]))
                    numbered = _text_delta(index, unsent)
            return [StreamItem(name, numbered, block_type)]
        if name == BLOCK_STOP:
            return [StreamItem(name, self._numbered(name, event), block_type)]
        if name == MESSAGE_DELTA:
            return [*self._close(), item]
        return [item]

    def _close(self) -> list[StreamItem]:
        """Anything but text ends the block that was left open."""
        if self._open is None:
            return []
        index, self._open = self._open, None
        self._tail = ""
        return [StreamItem(BLOCK_STOP, block_stop(index), "text")]

    def _not_yet_sent(self, words: str) -> str:
        """The words without the white space that the client has already."""
        tail, at, same = self._tail, self._tail_at, 0
        most = min(len(words), len(tail) - at)
        while same < most and words[same] == tail[at + same]:
            same += 1
        self._tail_at = at + same
        if same < len(words) or self._tail_at == len(tail):
            self._tail, self._tail_at = "", 0
        return words[same:]

    def _numbered(self, name: bytes, event: bytes) -> bytes:
        fields = _event_fields.decode(data_of(event))
        index = int(bytes(fields.get("index", b"")))
        fields["index"] = msgspec.Raw(str(index + self._shift).encode())
        return event_of(name, b" ".join(msgspec.json.encode(fields).splitlines()))


def _text_delta(index: int, words: str) -> bytes:
    delta = {"type": "text_delta", "text": words}
    data = {"type": "content_block_delta", "index": index, "delta": delta}
    return event_of(BLOCK_DELTA, msgspec.json.encode(data))


# Opus 4.6, Sonnet 4.6 and everything after them refuse a prefill; so may models not yet known.
_TAKES_PREFILL = re.compile(r"claude-(?:3[-.].+|[a-z]+-4(?:-[015])?(?:-\d{8}|-latest)?)")


class _Kind(msgspec.Struct):
    type: str = ""


class _OutputConfig(msgspec.Struct):
    format: msgspec.Raw | None = None


class _Message(msgspec.Struct):
    role: str


class _RequestFields(msgspec.Struct):
    model: str
    messages: msgspec.Raw
    thinking: _Kind | None = None
    tool_choice: _Kind | None = None
    output_format: msgspec.Raw | None = None
    output_config: _OutputConfig | None = None


_request_fields = msgspec.json.Decoder(_RequestFields)
_message = msgspec.json.Decoder(_Message)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


@lru_cache(maxsize=256)
def takes_prefill(model: str) -> bool:
    """Whether a model is known to go on from words put into its mouth."""
    return _TAKES_PREFILL.fullmatch(model) is not None


def prefilled(body: bytes | bytearray, text: str) -> bytes | None:
    """The request with `text` as the beginning of the answer; None when that is not allowed.

    The vendor takes no beginning that ends in white space, so that it is cut off; whoever joins the
    halves has to know: the words that were sent are `text.rstrip()`.
    """
    words = text.rstrip()
    try:
        asked = _request_fields.decode(body)
        config = asked.output_config
        if not (
            words
            and takes_prefill(asked.model)
            and (asked.thinking is None or asked.thinking.type == "disabled")
            and (asked.tool_choice is None or asked.tool_choice.type in ("auto", "none"))
            and _absent(asked.output_format)
            and (config is None or _absent(config.format))
        ):
            return None
        said = bytes(asked.messages).rstrip()
        last = next(last_items(said), None)
        if last is None or _message.decode(last).role != "user":
            return None
        fields = _fields.decode(body)
    except UNREADABLE:
        return None
    answer = msgspec.json.encode({"role": "assistant", "content": words})
    fields["messages"] = msgspec.Raw(b"%b,%b]" % (said[:-1], answer))
    return msgspec.json.encode(fields)


def _absent(value: msgspec.Raw | None) -> bool:
    return value is None or bytes(value) == b"null"
