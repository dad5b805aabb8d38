"""Read an Anthropic stream that came in one piece, in one go.

Laws: (1) what is accepted here is what `AnthropicStreamReader` would call whole, event by event;
(2) whatever is written in another way than usual is left to that reader: None, never a guess.
Not here: streams that come in pieces (anthropic_stream.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

import msgspec

from jackline.dialects.anthropic_stream import MESSAGE_START, MESSAGE_STOP
from jackline.dialects.tokens_used import TokensUsed, UsageTold, updated_by

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


class _Message(msgspec.Struct):
    usage: UsageTold | None = None


class _MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    message: _Message


class _ContentBlock(msgspec.Struct):
    type: str


class _BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    index: int
    content_block: _ContentBlock


class _BlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    index: int


class _BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    index: int


class _Stop(msgspec.Struct):
    stop_reason: str | None = None


class _MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    delta: _Stop
    usage: UsageTold | None = None


class _MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    pass


_Event: TypeAlias = (
    _MessageStart | _BlockStart | _BlockDelta | _BlockStop | _MessageDelta | _MessageStop
)
_event = msgspec.json.Decoder(_Event)
_NOTHING_USED = TokensUsed()


def read_whole(data: bytes) -> WholeStream | None:
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
    if not isinstance(began, _MessageStart) or not isinstance(ended, _MessageDelta):
        return None
    if not isinstance(opened, _BlockStart) or not isinstance(first, _BlockDelta):
        return None
    if opened.index or first.index or not ended.delta.stop_reason:
        return None
    usage = _NOTHING_USED
    for told in (began.message.usage, ended.usage):
        if told is not None:
            usage = updated_by(usage, told)
    return WholeStream(usage)


def _cost(events: list[_Event]) -> TokensUsed | None:
    """What the answer cost that these are all events of; None when they are out of order."""
    usage = _NOTHING_USED
    started = is_open = is_whole = False
    blocks = 0
    stop_reason: str | None = None
    # A chain of `isinstance`: patterns of classes would cost twice as much.
    for event in events:
        if isinstance(event, _BlockDelta):
            in_order = is_open and event.index == blocks - 1
        elif isinstance(event, _BlockStart):
            in_order = started and not is_open and not stop_reason and event.index == blocks
            is_open = True
            blocks += 1
        elif isinstance(event, _BlockStop):
            in_order = is_open and event.index == blocks - 1
            is_open = False
        elif isinstance(event, _MessageDelta):
            in_order = started and not is_open and not is_whole
            stop_reason = event.delta.stop_reason or stop_reason
            if event.usage is not None:
                usage = updated_by(usage, event.usage)
        elif isinstance(event, _MessageStart):
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
