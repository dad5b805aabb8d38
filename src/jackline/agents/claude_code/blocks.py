"""Name the parts of a message that going on needs, in transcripts and in printed logs alike.

Laws: (1) pure; a block of an unknown shape is passed over; (2) a call is known by its id.
Not here: whole lines (printed.py, transcript.py).
"""

from __future__ import annotations

from typing import cast

import msgspec

from jackline.agents.process.going_on import ToolCall
from jackline.agents.task import JsonObject
from jackline.autopsy.records import Message, decode, text_of

_NOTHING = msgspec.Raw(b"")


class KeptBlock(msgspec.Struct):
    """One piece of a message."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    input: msgspec.Raw = _NOTHING
    tool_use_id: str | None = None
    content: msgspec.Raw = _NOTHING


_BLOCKS = msgspec.json.Decoder(list[KeptBlock])
_OBJECTS = msgspec.json.Decoder(dict[str, object])


def blocks_of(message: Message) -> list[KeptBlock]:
    """The blocks of a message; a bare string is one text block."""
    blocks = decode(_BLOCKS, message.content)
    return [KeptBlock("text", text=text_of(message.content))] if blocks is None else blocks


def call_of(block: KeptBlock) -> ToolCall:
    """The call that a block makes."""
    given = decode(_OBJECTS, block.input) if block.input else None
    return ToolCall(block.id or "", block.name or "", cast("JsonObject", given or {}))
