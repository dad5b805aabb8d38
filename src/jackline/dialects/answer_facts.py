"""Read whole answers, and write the few events that a gateway sends on its own.

Rules: (1) what is written here is a valid event of the vendor's stream, and never content of a
model; (2) a vendor's error is passed on unchanged; (3) of an OpenAI answer only what every vendor
of the dialect has is read; a body that cannot be read is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Literal, TypeVar

import msgspec

from jackline.dialects.anthropic_stream import (
    BLOCK_STOP,
    ERROR,
    MESSAGE_DELTA,
    MESSAGE_START,
    MESSAGE_STOP,
    Typed,
)
from jackline.dialects.json_bounds import UNREADABLE
from jackline.dialects.sse import event_of, json_event
from jackline.dialects.token_usage import TokenUsage

HOLD_ID = "msg_jackline_hold"
PING = event_of(b"ping", b'{"type": "ping"}')
_LONGEST_TEXT = 300
_NO_TOKENS = TokenUsage()
_T = TypeVar("_T")


class AnswerFacts(msgspec.Struct, frozen=True):
    """What is known about a whole answer."""

    usage: TokenUsage
    stop_reason: str | None = None


class _List(msgspec.Struct, array_like=True):
    """A list of any length; nothing of it is decoded."""


class _First(msgspec.Struct, Generic[_T], array_like=True):
    """A list of which only the first item is decoded, so that a long one costs nothing."""

    first: _T


class _Object(msgspec.Struct):
    """An object; nothing of it is decoded."""


class _Answer(msgspec.Struct):
    type: Literal["message"]
    content: _List
    stop_reason: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


class _Choice(msgspec.Struct):
    message: _Object
    error: None = None


class _Chat(msgspec.Struct):
    choices: _First[_Choice]
    error: None = None


class _Response(msgspec.Struct):
    id: str
    output: _First[Typed]
    error: None = None


class _Counted(msgspec.Struct):
    """Any document; nothing but its usage is decoded."""

    usage: msgspec.Raw = msgspec.Raw(b"null")


_answer = msgspec.json.Decoder(_Answer)
_counted = msgspec.json.Decoder(_Counted)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_chat = msgspec.json.Decoder(_Chat)
_response = msgspec.json.Decoder(_Response)


def read_answer(body: bytes | bytearray) -> AnswerFacts | None:
    """The facts of an answer that came in one piece; None when it is not a whole message."""
    try:
        answer = _answer.decode(body)
    except UNREADABLE:
        return None
    return AnswerFacts(_NO_TOKENS.updated(answer.usage), answer.stop_reason)


def is_openai_answer(body: bytes, *, responses: bool) -> bool:
    """Whether this is a whole answer of the Responses API or, if not that, of chat."""
    decoder = _response if responses else _chat
    try:
        decoder.decode(body)
    except UNREADABLE:
        return False
    return True


def reported_usage(body: bytes, *, openai: bool) -> TokenUsage:
    """What a document that came instead of a stream or a message says that it has used."""
    try:
        usage = _counted.decode(body).usage
    except UNREADABLE:
        return _NO_TOKENS
    return _NO_TOKENS.updated_from_openai(usage) if openai else _NO_TOKENS.updated(usage)


def message_document(
    id: str,  # noqa: A002
    model: str,
    usage: Mapping[str, int],
    content: Sequence[object] = (),
    stop_reason: str | None = None,
    stop_sequence: str | None = None,
) -> dict[str, object]:
    """A message as Anthropic writes it; without content and reason it has only begun."""
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": stop_sequence,
        "usage": usage,
    }


def placeholder_start(model: str) -> bytes:
    """A message_start that only keeps the client waiting; the real one replaces it later."""
    message = message_document(HOLD_ID, model, {"input_tokens": 0, "output_tokens": 0})
    return json_event(MESSAGE_START, {"message": message})


def error_event(body: bytes) -> bytes:
    """The vendor's error body as an event; one of another shape becomes a short api_error."""
    try:
        document = _object.decode(body)
    except UNREADABLE:
        document = {}
    if "error" in document:
        # Line ends are allowed between the values of a document, but not in a line of an event.
        lines = msgspec.json.encode({"type": "error", **document}).splitlines()
        return event_of(ERROR, b" ".join(lines))
    text = " ".join(body[: 4 * _LONGEST_TEXT].decode(errors="replace").split())[:_LONGEST_TEXT]
    text = text or "The provider answered with an error and no text."
    return json_event(ERROR, {"error": {"type": "api_error", "message": text}})


def block_stop(index: int) -> bytes:
    """The event that ends a content block."""
    return json_event(BLOCK_STOP, {"index": index})


def closing_events(stop_reason: str, output_tokens: int) -> bytes:
    """The two events that end an answer after its last block."""
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    usage = {"output_tokens": output_tokens}
    closing = json_event(MESSAGE_DELTA, {"delta": delta, "usage": usage})
    return closing + json_event(MESSAGE_STOP, {})
