"""Tell whether a body in one of OpenAI's dialects is an answer of a model.

Rules: (1) only what every such answer has is looked at: the dialects have many vendors; (2) a body
that cannot be read is none. What it says and costs is read where it is translated (openai_chat/,
openai_responses/).
"""

from __future__ import annotations

import msgspec


class _Object(msgspec.Struct):
    """An object, of which nothing is read."""


class _Choice(msgspec.Struct):
    message: _Object


class _Choices(msgspec.Struct, array_like=True):
    """A list of which only the first is read, so that a long one costs nothing."""

    first: _Choice


class _Chat(msgspec.Struct):
    choices: _Choices


class _Item(msgspec.Struct):
    type: str


class _Items(msgspec.Struct, array_like=True):
    first: _Item


class _Response(msgspec.Struct):
    id: str
    output: _Items


_chat = msgspec.json.Decoder(_Chat)
_response = msgspec.json.Decoder(_Response)


def is_openai_answer(body: bytes, *, responses: bool) -> bool:
    """Whether this is a whole answer of the Responses API or, if not that, of chat."""
    decoder = _response if responses else _chat
    try:
        decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True
