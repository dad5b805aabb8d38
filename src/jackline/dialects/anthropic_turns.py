"""Tell whether a request goes on with a turn or begins a new one.

Laws: (1) a request whose last message brings tool results is in the middle of a turn; (2) a body
that cannot be read begins a new one.
Not here: what is done about it (gateway/conversations.py).
"""

from __future__ import annotations

import msgspec


class _Block(msgspec.Struct):
    type: str = ""


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[_Block] = ""


class _Asked(msgspec.Struct):
    messages: list[msgspec.Raw]


_asked = msgspec.json.Decoder(_Asked)
_message = msgspec.json.Decoder(_Message)


def in_the_middle_of_a_turn(body: bytes | bytearray) -> bool:
    """Whether the model waits for what its tools have found."""
    try:
        for raw in reversed(_asked.decode(body).messages):
            message = _message.decode(raw)
            # Reminders of the client may stand behind the results.
            if message.role == "system":
                continue
            content = message.content
            return isinstance(content, list) and any(b.type == "tool_result" for b in content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return False
