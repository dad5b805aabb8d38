"""Follow one Anthropic answer stream: what has begun, what is whole, what it cost.

Rules: (1) nothing fed here raises: a stream that cannot be followed is broken, and stays so; (2)
an answer is whole only when message_start, gapless and closed blocks, a stop reason and
message_stop have come in this order; (3) of the deltas of a block one is decoded, and those that
begin with the same bytes need not be fed; pings are never decoded; (4) unknown events change
nothing; (5) a stream that came in one piece is read in one go; what that accepts is what the
reader would call whole, and whatever is written in an unusual way is left to the reader: None,
never a guess.
Not here: splitting bytes into events (sse.py), what reaches a client (calls/).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from jackline.dialects.sse import name_and_data
from jackline.dialects.tokens_used import TokensUsed, UsageFields, updated, updated_by

MESSAGE_START = b"message_start"
BLOCK_START = b"content_block_start"
BLOCK_DELTA = b"content_block_delta"
BLOCK_STOP = b"content_block_stop"
MESSAGE_DELTA = b"message_delta"
MESSAGE_STOP = b"message_stop"
ERROR = b"error"

# Answers with many server tools have some hundreds.
_MOST_BLOCKS = 10_000
_LONGEST_TYPE = 64
_NOTHING = msgspec.Raw(b"null")
_NOTHING_USED = TokensUsed()


class StreamBlock(msgspec.Struct):
    """One content block; its index is its place in the list."""

    type: str
    complete: bool = False


class _Message(msgspec.Struct):
    usage: msgspec.Raw = _NOTHING


class _MessageStart(msgspec.Struct):
    type: Literal["message_start"]
    message: _Message


class _ContentBlock(msgspec.Struct):
    type: str


class _BlockStart(msgspec.Struct):
    type: Literal["content_block_start"]
    index: int
    content_block: _ContentBlock


class _BlockDelta(msgspec.Struct):
    type: Literal["content_block_delta"]
    index: int


class _BlockStop(msgspec.Struct):
    type: Literal["content_block_stop"]
    index: int


class _Delta(msgspec.Struct):
    stop_reason: str | None = None


class _MessageDelta(msgspec.Struct):
    type: Literal["message_delta"]
    delta: _Delta
    usage: msgspec.Raw = _NOTHING


class _MessageStop(msgspec.Struct):
    type: Literal["message_stop"]


_message_start = msgspec.json.Decoder(_MessageStart)
_block_start = msgspec.json.Decoder(_BlockStart)
_block_delta = msgspec.json.Decoder(_BlockDelta)
_block_stop = msgspec.json.Decoder(_BlockStop)
# All that decides where a delta belongs, when it is written in the usual order.
_DELTA_HEAD = re.compile(rb'\{"type": ?"content_block_delta", ?"index": ?\d+,')
_DELTA_LINE = b"event: content_block_delta\ndata: "
_message_delta = msgspec.json.Decoder(_MessageDelta)
_message_stop = msgspec.json.Decoder(_MessageStop)


class _OutOfOrderError(ValueError):
    """An event that may not stand where it stands."""


class AnthropicStreamReader:
    """What is known about one answer after the events so far."""

    __slots__ = (
        "blocks",
        "broken",
        "delta_head",
        "error_event",
        "open_block",
        "started",
        "stop_reason",
        "usage",
        "whole",
    )

    def __init__(self) -> None:
        self.started = False
        self.blocks: list[StreamBlock] = []
        self.open_block: StreamBlock | None = None
        # Whatever event of two lines begins with this is a delta of the open block.
        self.delta_head: bytes | None = None
        self.usage = _NOTHING_USED
        self.stop_reason: str | None = None
        # message_stop has been seen, and everything before it was in order.
        self.whole = False
        self.error_event: bytes | None = None
        self.broken = False

    def feed(self, event: bytes) -> bytes:
        """Take note of one raw event, and give its name."""
        name, data = name_and_data(event)
        if not self.broken:
            try:
                self.take(name, data)
            except (msgspec.DecodeError, ValueError, RecursionError):
                self.broken = True
        return name

    def take(self, name: bytes, data: bytes) -> None:
        """Take note of one event's data; raises where it makes no sense."""
        take = self._TAKING.get(name)
        if take is not None:
            take(self, data)

    def give_up(self) -> None:
        """Regard the stream as broken, for a reason that lies outside of its events."""
        self.broken = True

    def _take_message_start(self, data: bytes) -> None:
        _demand(not self.started)
        told = _message_start.decode(data)
        self.started = True
        self.usage = updated(self.usage, told.message.usage)

    def _take_block_start(self, data: bytes) -> None:
        _demand(self.started and self.open_block is None and self.stop_reason is None)
        told = _block_start.decode(data)
        _demand(told.index == len(self.blocks) < _MOST_BLOCKS)
        self.open_block = StreamBlock(told.content_block.type[:_LONGEST_TYPE])
        self.blocks.append(self.open_block)

    def _take_block_delta(self, data: bytes) -> None:
        told = _block_delta.decode(data)
        _demand(self.open_block is not None and told.index == len(self.blocks) - 1)
        head = _DELTA_HEAD.match(data)
        self.delta_head = _DELTA_LINE + head[0] if head else None

    def _take_block_stop(self, data: bytes) -> None:
        told = _block_stop.decode(data)
        _demand(self.open_block is not None and told.index == len(self.blocks) - 1)
        self.blocks[-1].complete = True
        self.open_block = None
        self.delta_head = None

    def _take_message_delta(self, data: bytes) -> None:
        _demand(self.started and self.open_block is None and not self.whole)
        told = _message_delta.decode(data)
        self.usage = updated(self.usage, told.usage)
        self.stop_reason = told.delta.stop_reason or self.stop_reason

    def _take_message_stop(self, data: bytes) -> None:
        _demand(self.stop_reason is not None and self.open_block is None and not self.whole)
        _message_stop.decode(data)
        self.whole = True

    def _take_error(self, data: bytes) -> None:
        self.error_event = data
        self.broken = True

    _TAKING: ClassVar[Mapping[bytes, Callable[[AnthropicStreamReader, bytes], None]]] = {
        MESSAGE_START: _take_message_start,
        BLOCK_START: _take_block_start,
        BLOCK_DELTA: _take_block_delta,
        BLOCK_STOP: _take_block_stop,
        MESSAGE_DELTA: _take_message_delta,
        MESSAGE_STOP: _take_message_stop,
        ERROR: _take_error,
    }


def _demand(in_order: bool) -> None:
    if not in_order:
        raise _OutOfOrderError


END = b"\n\n"
_LONGEST = 256 * 1024
_PING = b"ping"
# At the beginning of a line, so that with three line ends for each event nothing stands between;
# and named in its data as in its first line.
_EVENT = re.compile(rb'(?<![^\n])event: (\w+)\ndata: (\{"type": ?"\1"[^\n]*)\n\n')


# The usual answer, of one block, in one go. What decides is written out here or decoded below; of
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


class WholeStream(NamedTuple):
    """What a whole answer cost."""

    usage: TokensUsed


# The same demands as those of `AnthropicStreamReader`, but all kinds in one decoder. A bill that
# cannot be read makes the whole stream unread here: only there it is forgiven.


class _WholeMessage(msgspec.Struct):
    usage: UsageFields | None = None


class _WholeMessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    message: _WholeMessage


class _WholeContentBlock(msgspec.Struct):
    type: str


class _WholeBlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    index: int
    content_block: _WholeContentBlock


class _WholeBlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    index: int


class _WholeBlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    index: int


class _Stop(msgspec.Struct):
    stop_reason: str | None = None


class _WholeMessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    delta: _Stop
    usage: UsageFields | None = None


class _WholeMessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    pass


_Event: TypeAlias = (
    _WholeMessageStart
    | _WholeBlockStart
    | _WholeBlockDelta
    | _WholeBlockStop
    | _WholeMessageDelta
    | _WholeMessageStop
)
_event = msgspec.json.Decoder(_Event)
_NO_TOKENS = TokensUsed()


def read_whole_stream(data: bytes) -> WholeStream | None:
    """The facts of a stream that `data` is all of; None if it is not, or not plainly so."""
    if not data.endswith(END) or len(data) > _LONGEST or b"\r" in data:
        return None
    usual = _ONE_BLOCK.fullmatch(data)
    if usual is not None:
        return _read_one_block(usual)
    events = _EVENT.findall(data)
    if len(events) < 3 or data.count(b"\n") != 3 * len(events):
        return None
    if events[-1][0] != MESSAGE_STOP or events[0][0] != MESSAGE_START:
        return None
    decode = _event.decode
    try:
        # What is named otherwise is refused by the decoder.
        usage = _cost([decode(told) for name, told in events if name != _PING])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return None if usage is None else WholeStream(usage)


def _read_one_block(found: re.Match[bytes]) -> WholeStream | None:
    start, block, delta, _, end = found.groups()
    decode = _event.decode
    try:
        began, opened, first, ended = decode(start), decode(block), decode(delta), decode(end)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if not isinstance(began, _WholeMessageStart) or not isinstance(ended, _WholeMessageDelta):
        return None
    if not isinstance(opened, _WholeBlockStart) or not isinstance(first, _WholeBlockDelta):
        return None
    if opened.index or first.index or not ended.delta.stop_reason:
        return None
    usage = _NO_TOKENS
    for told in (began.message.usage, ended.usage):
        if told is not None:
            usage = updated_by(usage, told)
    return WholeStream(usage)


def _cost(events: list[_Event]) -> TokensUsed | None:
    """What the answer cost that these are all events of; None when they are out of order."""
    usage = _NO_TOKENS
    started = is_open = is_whole = False
    blocks = 0
    stop_reason: str | None = None
    # A chain of `isinstance`: patterns of classes would cost twice as much.
    for event in events:
        if isinstance(event, _WholeBlockDelta):
            in_order = is_open and event.index == blocks - 1
        elif isinstance(event, _WholeBlockStart):
            in_order = started and not is_open and not stop_reason and event.index == blocks
            is_open = True
            blocks += 1
        elif isinstance(event, _WholeBlockStop):
            in_order = is_open and event.index == blocks - 1
            is_open = False
        elif isinstance(event, _WholeMessageDelta):
            in_order = started and not is_open and not is_whole
            stop_reason = event.delta.stop_reason or stop_reason
            if event.usage is not None:
                usage = updated_by(usage, event.usage)
        elif isinstance(event, _WholeMessageStart):
            in_order = not started
            started = True
            if event.message.usage is not None:
                usage = updated_by(usage, event.message.usage)
        else:
            in_order = stop_reason is not None and not is_open and not is_whole
            is_whole = True
        if not in_order:
            return None
    return usage if is_whole else None
