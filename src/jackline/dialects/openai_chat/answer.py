"""Read a whole chat completion, and tell it as Anthropic's message.

Laws: (1) nothing in an answer raises: what is no answer becomes an error document; (2) what has no
counterpart is noted by name.
Not here: streams (stream.py), writing the message (neutral/answer.py).
"""

from __future__ import annotations

import msgspec

from jackline.dialects.neutral.account import (
    CannotSayError,
    Fields,
    Notes,
    Translated,
    is_text,
    items_of,
    text_of,
)
from jackline.dialects.neutral.answer import NOT_TOLD, MessageBuilder
from jackline.dialects.neutral.ids import message_id
from jackline.dialects.neutral.options import AnswerAs
from jackline.dialects.neutral.stopping import stop_reason
from jackline.dialects.neutral.usage import foreign_usage
from jackline.dialects.neutral.whole import read_whole
from jackline.dialects.tokens_used import TokensUsed

# What says nothing that a client of Anthropic could use.
_FRAME = ("object", "created", "model", "system_fingerprint", "service_tier")
MOST_CHOICES = 128
"""The largest `n` that OpenAI takes."""
REASONING = ("reasoning_content", "reasoning")


def from_chat(body: bytes, face: AnswerAs) -> Translated:
    """The message; with `is_error` when the body is an error, or no chat completion."""
    return read_whole(body, face, _read, "chat completion")


def _read(top: Fields, body: bytes, face: AnswerAs) -> Translated:
    notes = top.notes
    for name in _FRAME:
        top.raw(name)
    choices = top.items("choices")
    if not choices:
        raise CannotSayError("choices", "is missing")
    if len(choices) > MOST_CHOICES:
        raise CannotSayError("choices", f"has more than {MOST_CHOICES} items")
    for place in range(1, len(choices)):
        notes.add(f"choices[{place}]", "one answer was asked for; the others are not told")
    choice = Fields(choices[0], "choices[0]", notes)
    choice.raw("index")
    message = choice.inner("message")
    if message is None:
        raise CannotSayError("choices[0].message", "is missing")
    builder = MessageBuilder(message_id(top.text("id") or "", body), face, notes)
    _read_message(message, builder)
    matched = matched_stop(choice.raw("stop_reason"), face)
    reason = stop_reason(
        choice.text("finish_reason"), calls=builder.calls, refused=builder.refused, notes=notes
    )
    usage = foreign_usage(TokensUsed(), top.raw("usage"))
    choice.note_rest(NOT_TOLD)
    top.note_rest(NOT_TOLD)
    if matched is not None and reason == "end_turn":
        reason = "stop_sequence"
    return builder.done(reason, matched if reason == "stop_sequence" else None, usage)


def _read_message(message: Fields, builder: MessageBuilder) -> None:
    message.raw("role")
    for name in REASONING:
        at = message.path(name)
        told = message.raw(name)
        if told is not None:
            builder.reasoning(content_text(told, at, message.notes), at)
    content = message.raw("content")
    if content is not None:
        builder.text(content_text(content, message.path("content"), message.notes))
    refusal = message.text("refusal")
    if refusal:
        builder.refusal(refusal)
    for place, item in enumerate(message.items("tool_calls")):
        call = Fields(item, f"{message.at}.tool_calls[{place}]", message.notes)
        foreign = call.text("id") or ""
        call.raw("index")
        if (call.text("type") or "function") != "function":
            raise CannotSayError(call.at, "a call of an unknown type")
        _read_function(call.inner("function"), call.at, foreign, builder)
        call.note_rest(NOT_TOLD)
    old = message.inner("function_call")
    if old is not None:
        _read_function(old, old.at, "", builder)
    message.note_rest(NOT_TOLD)


def _read_function(function: Fields | None, at: str, foreign: str, builder: MessageBuilder) -> None:
    if function is None:
        raise CannotSayError(f"{at}.function", "is missing")
    given = function.raw("arguments")
    arguments = "" if given is None else written(given, function.path("arguments"))
    builder.call(foreign, function.needed_text("name"), arguments, function.path("arguments"))
    function.note_rest(NOT_TOLD)


def written(given: msgspec.Raw, at: str) -> str:
    """Arguments as JSON text; some servers give the object itself."""
    return text_of(given, at) if is_text(given) else bytes(given).decode()


def content_text(content: msgspec.Raw, at: str, notes: Notes) -> str:
    """The words of a content, which some servers give in parts."""
    if is_text(content):
        return text_of(content, at)
    words = []
    for place, item in enumerate(items_of(content, at)):
        part = Fields(item, f"{at}[{place}]", notes)
        part.raw("type")
        words.append(part.text("text") or "")
        part.note_rest(NOT_TOLD)
    return "".join(words)


def matched_stop(told: msgspec.Raw | None, face: AnswerAs) -> str | None:
    """The stop sequence that ended the answer, where the server says so (vLLM does)."""
    if told is None or not is_text(told):
        return None
    sequence = text_of(told, "stop_reason")
    return sequence if sequence in face.stop_sequences else None
