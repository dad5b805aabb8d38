"""Read whole answers, and write the few events that a gateway sends on its own.

Rules: (1) what is written here is a valid event of the vendor's stream, and nothing that a model
could have said; (2) a vendor's error is passed on unchanged; (3) of an OpenAI answer only what
every vendor of the dialect has is read; a body that cannot be read is no answer.
Not here: the events of a real answer (anthropic_stream.py), when they are sent (gateway/),
translation (openai_chat/, openai_responses/).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from jackline.dialects.anthropic_stream import (
    BLOCK_STOP,
    ERROR,
    MESSAGE_DELTA,
    MESSAGE_START,
    MESSAGE_STOP,
)
from jackline.dialects.sse import event_of
from jackline.dialects.tokens_used import TokensUsed, UsageFields, updated, updated_by

HOLD_ID = "msg_jackline_hold"
PING = event_of(b"ping", b'{"type": "ping"}')
_LONGEST_TEXT = 300


class AnswerFacts(msgspec.Struct, frozen=True):
    """What is known about a whole answer."""

    usage: TokensUsed
    stop_reason: str | None = None


class _Blocks(msgspec.Struct, array_like=True):
    """A list of any length, of which nothing is read."""


class _Answer(msgspec.Struct):
    type: Literal["message"]
    content: _Blocks
    stop_reason: str | None = None
    usage: UsageFields | None = None


class _AnswerWithOddBill(msgspec.Struct):
    type: Literal["message"]
    content: _Blocks
    stop_reason: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


_answer = msgspec.json.Decoder(_Answer)
_answer_with_odd_bill = msgspec.json.Decoder(_AnswerWithOddBill)
_NOTHING_USED = TokensUsed()
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_answer(body: bytes | bytearray) -> AnswerFacts | None:
    """The facts of an answer that came in one piece; None when it is not a whole message."""
    try:
        answer = _answer.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _read_with_odd_bill(body)
    told = answer.usage
    usage = _NOTHING_USED if told is None else updated_by(_NOTHING_USED, told)
    return AnswerFacts(usage, answer.stop_reason)


def _read_with_odd_bill(body: bytes | bytearray) -> AnswerFacts | None:
    try:
        answer = _answer_with_odd_bill.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return AnswerFacts(updated(_NOTHING_USED, answer.usage), answer.stop_reason)


def placeholder_start(model: str) -> bytes:
    """A message_start that only shows life; the real one comes after it and takes its place."""
    message: dict[str, object] = {
        "id": HOLD_ID,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    return _event(MESSAGE_START, {"message": message})


def error_event(body: bytes) -> bytes:
    """The vendor's error body as an event; one of another shape becomes a short api_error."""
    try:
        document = _object.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        document = {}
    if "error" in document:
        # Line ends are allowed between the values of a document, but not in a line of an event.
        lines = msgspec.json.encode({"type": "error", **document}).splitlines()
        return event_of(ERROR, b" ".join(lines))
    words = " ".join(body[: 4 * _LONGEST_TEXT].decode(errors="replace").split())
    text = words[:_LONGEST_TEXT] or "The provider answered with an error and no text."
    return _event(ERROR, {"error": {"type": "api_error", "message": text}})


def block_stop(index: int) -> bytes:
    """The event that ends a content block."""
    return _event(BLOCK_STOP, {"index": index})


def closing_events(stop_reason: str, output_tokens: int) -> bytes:
    """The two events that end an answer after its last block."""
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    usage = {"output_tokens": output_tokens}
    return _event(MESSAGE_DELTA, {"delta": delta, "usage": usage}) + _event(MESSAGE_STOP, {})


def _event(name: bytes, fields: dict[str, object]) -> bytes:
    return event_of(name, msgspec.json.encode({"type": name.decode(), **fields}))


class _Object(msgspec.Struct):
    """An object, of which nothing is read."""


class _Choice(msgspec.Struct):
    message: _Object
    error: None = None


class _Choices(msgspec.Struct, array_like=True):
    """A list of which only the first is read, so that a long one costs nothing."""

    first: _Choice


class _Chat(msgspec.Struct):
    choices: _Choices
    error: None = None


class _Item(msgspec.Struct):
    type: str


class _Items(msgspec.Struct, array_like=True):
    first: _Item


class _Response(msgspec.Struct):
    id: str
    output: _Items
    error: None = None


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
