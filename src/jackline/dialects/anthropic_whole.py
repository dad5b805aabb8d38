"""Read an Anthropic stream that came in one piece, in one go.

Laws: (1) what is accepted here is what `AnthropicStreamReader` would call whole, event by event;
(2) whatever is written in another way than usual is left to that reader: None, never a guess.
Not here: streams that come in pieces (anthropic_stream.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from jackline.dialects.anthropic_stream import (
    BLOCK_DELTA,
    BLOCK_START,
    BLOCK_STOP,
    MESSAGE_DELTA,
    MESSAGE_START,
    MESSAGE_STOP,
    AnthropicStreamReader,
)
from jackline.dialects.tokens_used import TokensUsed

END = b"\n\n"
_LONGEST = 256 * 1024
_PING = b"ping"
# At the beginning of a line, so that with three line ends for each event nothing stands between.
_EVENT = re.compile(rb'(?<![^\n])event: (\w+)\ndata: (\{"type": ?"(\w+)"[^\n]*)\n\n')


class WholeStream(NamedTuple):
    """What a whole answer cost."""

    usage: TokensUsed


def read_whole(data: bytes) -> WholeStream | None:
    """The facts of a stream that `data` is all of; None if it is not, or not plainly so."""
    if not data.endswith(END) or len(data) > _LONGEST or b"\r" in data:
        return None
    events = _EVENT.findall(data)
    if len(events) < 3 or data.count(b"\n") != 3 * len(events):
        return None
    if events[-1][0] != MESSAGE_STOP or events[0][0] != MESSAGE_START:
        return None
    reader = AnthropicStreamReader()
    try:
        for name, told, kind in events:
            if name != kind or name not in _UNDERSTOOD:
                return None
            if name != _PING:
                reader.take(name, told)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return WholeStream(reader.usage) if reader.whole else None


_UNDERSTOOD = frozenset(
    (_PING, MESSAGE_START, BLOCK_START, BLOCK_DELTA, BLOCK_STOP, MESSAGE_DELTA, MESSAGE_STOP)
)
