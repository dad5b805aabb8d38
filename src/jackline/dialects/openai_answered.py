"""Tell whether a body in one of OpenAI's dialects is an answer of a model.

Rules: (1) only what every such answer has is looked at: the dialects have many vendors; (2) a body
that cannot be read is none. What it says and costs is read where it is translated (openai_chat/,
openai_responses/).
"""

from __future__ import annotations

import msgspec


class _Choice(msgspec.Struct):
    message: dict[str, msgspec.Raw]


class _Chat(msgspec.Struct):
    choices: list[_Choice]


class _Item(msgspec.Struct):
    type: str


class _Response(msgspec.Struct):
    id: str
    output: list[_Item]


_chat = msgspec.json.Decoder(_Chat)
_response = msgspec.json.Decoder(_Response)


def is_openai_answer(body: bytes, *, responses: bool) -> bool:
    """Whether this is a whole answer of the Responses API or, if not that, of chat."""
    try:
        return bool(_response.decode(body).output if responses else _chat.decode(body).choices)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
