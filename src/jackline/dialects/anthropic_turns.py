"""Tell whether a request goes on with a turn or begins a new one.

Rules: (1) a request whose last message brings tool results is in the middle of a turn; (2) a body
that cannot be read begins a new one; (3) only the end of the conversation is looked at: the work
does not grow with the number of its messages. What is done about it: gateway/conversations.py.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from jackline.dialects.json_bounds import last_items

_NONE = msgspec.Raw(b"null")
# Far more than the tools that a model calls at once, and the reminders behind their results.
_MOST_BLOCKS = 10_000
_MOST_REMINDERS = 1_000


class _Block(msgspec.Struct):
    type: str = ""


class _Message(msgspec.Struct):
    role: str = ""
    content: msgspec.Raw = _NONE


class _Asked(msgspec.Struct):
    messages: msgspec.Raw


_asked = msgspec.json.Decoder(_Asked)
_message = msgspec.json.Decoder(_Message)
_block = msgspec.json.Decoder(_Block)


def in_the_middle_of_a_turn(body: bytes | bytearray) -> bool:
    """Whether the model waits for what its tools have found."""
    try:
        said = bytes(_asked.decode(body).messages)
        for raw in islice(last_items(said), _MOST_REMINDERS):
            message = _message.decode(raw)
            # Reminders of the client may stand behind the results.
            if message.role == "system":
                continue
            blocks = islice(last_items(bytes(message.content)), _MOST_BLOCKS)
            return any(_block.decode(block).type == "tool_result" for block in blocks)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return False
