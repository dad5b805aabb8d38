"""Read the few facts of a request in OpenAI's dialects that the way of a call depends on.

Rules: (1) as in anthropic_request.py: the body is never changed, and one that cannot be read gives
no facts and no exception; (2) a request that ends with results of tools is in the middle of a turn,
for which only its end is looked at. Translation is in openai_chat/ and openai_responses/.
"""

from __future__ import annotations

from itertools import chain, islice

import msgspec

from jackline.dialects.anthropic_request import RequestFacts
from jackline.dialects.json_bounds import last_items
from jackline.dialects.tokens_used import bounded_count

_LETTERS_PER_TOKEN = 4
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
# Whatever the client's user or its rules say behind results belongs to the same turn.
_REMINDERS = ("developer", "system")


_NONE = msgspec.Raw(b"null")
_MOST_REMINDERS = 1_000


class _Asked(msgspec.Struct):
    """The fields of both dialects; each has its own name for the longest answer."""

    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None


class _Said(msgspec.Struct):
    messages: msgspec.Raw = _NONE
    input: msgspec.Raw = _NONE


class _Entry(msgspec.Struct):
    role: str | None = None
    type: str | None = None


_asked = msgspec.json.Decoder(_Asked)
_said = msgspec.json.Decoder(_Said)
_entry = msgspec.json.Decoder(_Entry)


def read_openai_request(body: bytes | bytearray) -> RequestFacts:
    """Model, streaming and sizes."""
    size = len(body) // _LETTERS_PER_TOKEN
    try:
        asked = _asked.decode(body)
    except _UNREADABLE:
        return RequestFacts(None, False, 0, size)
    limit = asked.max_output_tokens or asked.max_completion_tokens or asked.max_tokens or 0
    return RequestFacts(asked.model, bool(asked.stream), bounded_count(limit), size)


def in_the_middle_of_an_openai_turn(body: bytes | bytearray) -> bool:
    """Whether the model waits for what its tools have found."""
    try:
        said = _said.decode(body)
        entries = chain.from_iterable(
            last_items(bytes(given)) for given in (said.messages, said.input)
        )
        for raw in islice(entries, _MOST_REMINDERS):
            entry = _entry.decode(raw)
            if entry.role in _REMINDERS:
                continue
            return entry.role == "tool" or (entry.type or "").endswith("_call_output")
    except _UNREADABLE:
        return False
    return False
