"""Read one Anthropic answer stream: what has begun, what is complete, what it cost.

Rules: (1) nothing fed here raises: a stream that is out of order is broken, and stays so; (2) an
answer is whole only when message_start, gapless and closed blocks, a stop reason and message_stop
came in this order; (3) of the deltas of a block one is decoded, and those that begin with the same
bytes need not be fed; pings are never decoded; (4) unknown events change nothing; (5) a stream
that came in one piece is read at once; the result is what the reader would report, and whatever is
written in an unusual way is left to the reader: None, never a guess.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import msgspec

from jackline.dialects.json_bounds import UNREADABLE
from jackline.dialects.sse import name_and_data
from jackline.dialects.token_usage import TokenUsage

MESSAGE_START = b"message_start"
BLOCK_START = b"content_block_start"
BLOCK_DELTA = b"content_block_delta"
BLOCK_STOP = b"content_block_stop"
MESSAGE_DELTA = b"message_delta"
MESSAGE_STOP = b"message_stop"
ERROR = b"error"
_DECODED = frozenset(
    (MESSAGE_START, BLOCK_START, BLOCK_DELTA, BLOCK_STOP, MESSAGE_DELTA, MESSAGE_STOP)
)
# Answers with many server tools have some hundreds.
_MOST_BLOCKS = 10_000
_LONGEST_TYPE = 64
_NO_TOKENS = TokenUsage()


class Typed(msgspec.Struct):
    """Any object with a type; nothing else of it is decoded."""

    type: str


class _Message(msgspec.Struct):
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Delta(msgspec.Struct):
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    """The fields of all events that are decoded."""

    type: str
    index: int = -1
    message: _Message | None = None
    content_block: Typed | None = None
    delta: _Delta | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


_event = msgspec.json.Decoder(_Event)
# All that decides where a delta belongs, when it is written in the usual order.
_DELTA_HEAD = re.compile(rb'\{"type": ?"content_block_delta", ?"index": ?\d+,')
_DELTA_LINE = b"event: content_block_delta\ndata: "


class StreamBlock(msgspec.Struct):
    """One content block; its index is its place in the list."""

    type: str
    complete: bool = False


@dataclass(slots=True, eq=False)
class StreamReader(ABC):
    """What is known about one answer after the events so far.

    `whole`: its last event has come, and everything before it was in order.
    """

    started: bool = False
    usage: TokenUsage = _NO_TOKENS
    stop_reason: str | None = None
    whole: bool = False
    error_event: bytes | None = None
    broken: bool = False

    def give_up(self) -> None:
        """Mark the stream as broken, for a reason outside of its events."""
        self.broken = True

    def feed(self, event: bytes) -> bytes:
        """Read one raw event, and return its name."""
        name, data = name_and_data(event)
        if not self.broken:
            try:
                self.read(name, data)
            except UNREADABLE:
                self.broken = True
        return name

    @abstractmethod
    def read(self, name: bytes, data: bytes) -> None:
        """Read the data of one event; raises one of `UNREADABLE` when it is out of order."""


@dataclass(slots=True, eq=False)
class AnthropicStreamReader(StreamReader):
    """Reads Anthropic's events.

    Every event of two lines that begins with `delta_head` is a delta of the open block.
    """

    blocks: list[StreamBlock] = field(default_factory=list)
    open_block: StreamBlock | None = None
    delta_head: bytes | None = None

    def read(self, name: bytes, data: bytes) -> None:
        """Read the data of one event; raises one of `UNREADABLE` when it is out of order."""
        if name == ERROR:
            self.error_event = data
            self.broken = True
        if name not in _DECODED:
            return
        event = _event.decode(data)
        is_idle = self.started and self.open_block is None and not self.whole
        is_in_block = self.open_block is not None and event.index == len(self.blocks) - 1
        if event.type.encode() != name:
            raise ValueError
        if name == BLOCK_DELTA and is_in_block:
            head = _DELTA_HEAD.match(data)
            self.delta_head = _DELTA_LINE + head[0] if head else None
        elif name == BLOCK_STOP and is_in_block:
            self.blocks[-1].complete = True
            self.open_block = self.delta_head = None
        elif name == BLOCK_START and is_idle and self.stop_reason is None and event.content_block:
            if event.index != len(self.blocks) or event.index >= _MOST_BLOCKS:
                raise ValueError
            self.open_block = StreamBlock(event.content_block.type[:_LONGEST_TYPE])
            self.blocks.append(self.open_block)
        elif name == MESSAGE_START and not self.started and event.message:
            self.started = True
            self.usage = self.usage.updated(event.message.usage)
        elif name == MESSAGE_DELTA and is_idle and event.delta:
            self.usage = self.usage.updated(event.usage)
            self.stop_reason = event.delta.stop_reason or self.stop_reason
        elif name == MESSAGE_STOP and is_idle and self.stop_reason is not None:
            self.whole = True
        else:
            raise ValueError


_LONGEST = 256 * 1024
# At the beginning of a line, so that with three line ends for each event nothing is between them;
# and with the same name in its data as in its first line.
_EVENT = re.compile(rb'(?<![^\n])event: (\w+)\ndata: (\{"type": ?"\1"[^\n]*)\n\n')
# The usual answer, of one block, at once. What decides is written out here or decoded below; of
# the deltas the first is decoded, as those that begin with the same bytes need not be read.
_ONE_BLOCK = re.compile(
    (
        rb'event: message_start\ndata: (\{"type": ?"message_start"[^\n]*+)\n\n'
        rb"(?:PING)*+"
        rb'event: content_block_start\ndata: (\{"type": ?"content_block_start"[^\n]*+)\n\n'
        rb"(?:PING)*+"
        rb"event: content_block_delta\ndata: "
        rb'((\{"type": ?"content_block_delta", ?"index": ?0,)[^\n]*+)\n\n'
        rb"(?:event: content_block_delta\ndata: \4[^\n]*+\n\n|PING)*+"
        rb'event: content_block_stop\ndata: \{"type": ?"content_block_stop", ?"index": ?0 ?\}\n\n'
        rb"(?:PING)*+"
        rb'event: message_delta\ndata: (\{"type": ?"message_delta"[^\n]*+)\n\n'
        rb'event: message_stop\ndata: \{"type": ?"message_stop" ?\}\n\n'
    ).replace(b"PING", rb'event: ping\ndata: \{"type": ?"ping" ?\}\n\n')
)


def read_whole_stream(data: bytes) -> TokenUsage | None:
    """What the answer cost whose whole stream `data` is; None if it is not, or may not be."""
    if not data.endswith(b"\n\n") or len(data) > _LONGEST or b"\r" in data:
        return None
    usual = _ONE_BLOCK.fullmatch(data)
    try:
        if usual is not None:
            start, block, delta, _, end = usual.groups()
            began, opened = _event.decode(start), _event.decode(block)
            first, ended = _event.decode(delta), _event.decode(end)
            if (
                began.message is None
                or began.type != "message_start"
                or opened.content_block is None
                or opened.type != "content_block_start"
                or opened.index
                or first.type != "content_block_delta"
                or first.index
                or ended.type != "message_delta"
                or ended.delta is None
                or not ended.delta.stop_reason
            ):
                return None
            return _NO_TOKENS.updated(began.message.usage).updated(ended.usage)
        reader = AnthropicStreamReader()
        events = _EVENT.findall(data)
        if data.count(b"\n") != 3 * len(events):
            return None
        for name, event in events:
            if reader.whole or reader.broken or (name not in _DECODED and name != b"ping"):
                return None
            head = reader.delta_head
            # The same deltas are skipped as in a stream that is read event by event.
            if (
                head is None
                or name != BLOCK_DELTA
                or not event.startswith(head[len(_DELTA_LINE) :])
            ):
                reader.read(name, event)
    except UNREADABLE:
        return None
    return reader.usage if reader.whole else None
