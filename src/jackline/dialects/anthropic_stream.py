"""Follow one Anthropic answer stream: what has begun, what is whole, what it cost.

Laws: (1) nothing fed here raises: a stream that cannot be followed is broken, and stays so; (2) an
answer is whole only when message_start, gapless and closed blocks, a stop reason and message_stop
have come in this order; (3) of the deltas of a block one is decoded, and those that begin with the
same bytes need not be fed; pings are never decoded; (4) unknown events change nothing; (5) what is
kept is bounded: a stream of more blocks than an answer has is broken.
Not here: cutting bytes into events (sse.py), what reaches a client (calls/stitching.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import msgspec

from jackline.dialects.sse import name_and_data
from jackline.dialects.tokens_used import TokensUsed, updated

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


class Block(msgspec.Struct):
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
        self.blocks: list[Block] = []
        self.open_block: Block | None = None
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
        self.open_block = Block(told.content_block.type[:_LONGEST_TYPE])
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
