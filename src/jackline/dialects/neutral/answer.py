"""Write a whole answer or error of another vendor as Anthropic's message or error.

Rules: (1) text and calls stay in their order; arguments that are no JSON object go under the key
that Anthropic's guide names for them, never repaired; no thinking block is written, because
nobody here can sign one; (2) nothing in an answer raises: what is no answer becomes an error
document; (3) an answer with calls that ended by itself waits for their results, whatever the
server called it; an early end is never reported as a normal one; (4) cached input is counted
apart, as Anthropic does, and never twice; a bill that cannot be read changes nothing; (5)
failures/ alone decides what an error means; the vendor's sentence is preserved, without keys, and
a prompt that is too long gets the sentence by which Claude Code compacts.
Not here: the fields of one dialect (openai_chat/answer.py, openai_responses/answer.py), streams
(stream.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from jackline.dialects.json_bounds import MOST_VALUES, has_too_many_values
from jackline.dialects.neutral.conversation import ToolIds
from jackline.dialects.neutral.fields import (
    UNREADABLE,
    Fields,
    TranslatedDocument,
    TranslationNotes,
    UntranslatableError,
    document,
    shown,
)
from jackline.dialects.neutral.options import AnswerOptions, ReasoningBinder
from jackline.dialects.tokens_used import TokensUsed, bounded_count
from jackline.failures import Failure, Kind, Observation, classify
from jackline.failures.wording import redact


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Bill(msgspec.Struct):
    """Both dialects' names for the same things, and one of a server that counts on its own."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None


_bill = msgspec.json.Decoder(_Bill)


def foreign_usage(known: TokensUsed, usage: msgspec.Raw | None) -> TokensUsed:
    """What is known after a `usage` object of either dialect was read."""
    if usage is None:
        return known
    try:
        bill = _bill.decode(usage)
    except UNREADABLE:
        # An answer is not worth less because its bill cannot be read.
        return known
    whole = bill.prompt_tokens if bill.prompt_tokens is not None else bill.input_tokens
    said = bill.completion_tokens if bill.completion_tokens is not None else bill.output_tokens
    details = bill.prompt_tokens_details or bill.input_tokens_details or _Details()
    read = bounded_count(details.cached_tokens or bill.prompt_cache_hit_tokens or 0)
    written = bounded_count(details.cache_write_tokens or 0)
    output = known.output if said is None else bounded_count(said)
    if whole is None:
        return TokensUsed(known.input, output)
    return TokensUsed(bounded_count(whole - read - written), output, read, written)


def anthropic_usage(usage: TokensUsed) -> dict[str, int]:
    """The bill in Anthropic's words."""
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_creation,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }


_REASONS: Mapping[str, str] = {
    "stop": "end_turn",
    "completed": "end_turn",
    "tool_calls": "end_turn",
    "function_call": "end_turn",
    "length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
}


def stop_reason(told: str | None, *, calls: bool, refused: bool, notes: TranslationNotes) -> str:
    """Anthropic's name for the end of an answer."""
    reason = _REASONS.get(told or "")
    if reason is None:
        notes.add("finish_reason", f"{shown(told or 'nothing')} is not known, and told as an end")
        reason = "end_turn"
    if reason != "end_turn":
        return reason
    if refused:
        return "refusal"
    return "tool_use" if calls else "end_turn"


_LONGEST_TEXT = 1000
_LARGEST_ERROR = 256 * 1024
# Only resets are measured by the time, and none is told here.
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_TYPES: Mapping[Kind, str] = {
    Kind.SERVER_THROTTLE: "rate_limit_error",
    Kind.RATE_LIMIT: "rate_limit_error",
    Kind.ACCOUNT_QUOTA: "rate_limit_error",
    Kind.BILLING: "billing_error",
    Kind.OVERLOADED: "overloaded_error",
    Kind.TIMEOUT: "timeout_error",
    Kind.AUTH: "authentication_error",
    Kind.INVALID_REQUEST: "invalid_request_error",
    Kind.MODEL_NOT_FOUND: "not_found_error",
    Kind.CONTENT_POLICY: "invalid_request_error",
}
_SUBS: Mapping[str, str] = {
    "forbidden": "permission_error",
    "request_too_large": "request_too_large",
}
_AT_MOST = re.compile(r"(?:maximum context length is|context window of|limit of) (\d[\d,]*)")
_ASKED = re.compile(
    r"(?:resulted in|you requested|you requested about|request \(|prompt contains) ?(\d[\d,]*)"
)


class _Error(msgspec.Struct):
    message: str | None = None


class _Document(msgspec.Struct):
    error: _Error | str | None = None
    message: str | None = None


_document = msgspec.json.Decoder(_Document)


def to_anthropic_error(status: int, body: bytes) -> bytes:
    """The body of an error as Anthropic writes it."""
    return msgspec.json.encode({"type": "error", "error": error_of(status, body)})


def error_of(status: int, body: bytes) -> dict[str, str]:
    """Type and message of an error that came with a status, or inside of a stream with 500."""
    # Its beginning says enough, and may be cut JSON: words of megabytes are no error of a vendor's.
    body = body[:_LARGEST_ERROR]
    failure = classify(Observation.of_response(status, {}, body), now=_ANY_TIME)
    kind = _SUBS.get(failure.sub or "") or _TYPES.get(failure.kind, "api_error")
    return {"type": kind, "message": _sentence(failure, redact(_words(body)))}


def _words(body: bytes) -> str:
    try:
        document = _document.decode(body)
    except UNREADABLE:
        return _on_one_line(body[: 4 * _LONGEST_TEXT].decode(errors="replace"))
    error = document.error
    told = error if isinstance(error, str) else (error.message if error else document.message)
    return _on_one_line(told or "")


def _on_one_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_TEXT]


def _sentence(failure: Failure, words: str) -> str:
    if failure.sub != "context_too_long":
        return words or "The other side answered with an error and no text."
    if words.lower().startswith("prompt is too long"):
        return words
    most, asked = _AT_MOST.search(words), _ASKED.search(words)
    if most and asked:
        return f"prompt is too long: {_plain(asked[1])} tokens > {_plain(most[1])} maximum"
    return f"prompt is too long: {words}"


def _plain(number: str) -> str:
    return number.replace(",", "")


MOST_CALLS = 1_000
"""Of one answer. Models make a handful at once, seldom some dozens."""
INVALID = "INVALID_JSON"
NO_REASONING = "reasoning of another model is not told, because it has no signature of Claude's"
NO_COUNTERPART = "has no counterpart in Anthropic's answers"

# Checks a value without building it.
_value = msgspec.json.Decoder(msgspec.Raw)
_BLANK = " \t\r\n"


class MessageBuilder:
    """Collects one answer."""

    def __init__(self, message_id: str, face: AnswerOptions, notes: TranslationNotes) -> None:
        self._id = message_id
        self._face = face
        self._notes = notes
        self._ids = ToolIds(message_id)
        self._content: list[dict[str, object]] = []
        self.thoughts = ReasoningBinder(face.remember)
        self._calls = 0
        self.refused = False

    @property
    def calls(self) -> bool:
        """Whether a tool was called."""
        return self._calls > 0

    def text(self, words: str) -> None:
        """Plain words."""
        if words:
            self.thoughts.words()
            self._content.append({"type": "text", "text": words})

    def refusal(self, words: str) -> None:
        """Words by which the model declines."""
        self.refused = True
        self.text(words)

    def reasoning(self, words: str, at: str) -> None:
        """What the model thought."""
        if self._face.show_reasoning:
            self.text(words)
        elif words:
            self._notes.add(at, NO_REASONING)

    def call(self, foreign_id: str, name: str, arguments: str, at: str) -> None:
        """A tool call."""
        self._calls += 1
        if self._calls > MOST_CALLS:
            raise UntranslatableError(at, f"is one of more than {MOST_CALLS:,} calls")
        own = self._ids.of(foreign_id)
        self.thoughts.call(own)
        self._content.append(
            {
                "type": "tool_use",
                "id": own,
                "name": self._face.tool_names.get(name, name),
                "input": self._input(arguments, at),
            }
        )

    def _input(self, arguments: str, at: str) -> object:
        if not arguments.strip():
            return {}
        if is_object(arguments):
            return msgspec.Raw(arguments.encode())
        self._notes.add(at, f"the model wrote no JSON object; what it wrote is under {INVALID}")
        return {INVALID: arguments}

    def done(self, reason: str, sequence: str | None, usage: TokensUsed) -> TranslatedDocument:
        """The message."""
        message = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._face.model,
            "content": self._content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": anthropic_usage(usage),
        }
        return TranslatedDocument(msgspec.json.encode(message), self._notes.told())


def is_object(arguments: str) -> bool:
    """Whether arguments are one whole JSON object; however many values it has, none is built."""
    try:
        _value.decode(arguments)
    except UNREADABLE:
        return False
    return arguments.lstrip(_BLANK).startswith("{")


AnswerParser: TypeAlias = Callable[[Fields, bytes, AnswerOptions], TranslatedDocument]


def read_whole_answer(
    body: bytes, face: AnswerOptions, read: AnswerParser, sort: str
) -> TranslatedDocument:
    """The message; with `is_error` when the body says an error, or is no answer of this sort."""
    notes = TranslationNotes()
    if has_too_many_values(body):
        return _no_answer(sort, f"more than {MOST_VALUES:,} values", notes)
    try:
        top = document(body, notes)
        if "error" in top.names():
            return TranslatedDocument(to_anthropic_error(500, body), is_error=True)
        return read(top, body, face)
    except UntranslatableError as error:
        return _no_answer(sort, error.at, notes)


def _no_answer(sort: str, why: str, notes: TranslationNotes) -> TranslatedDocument:
    told = f'{{"error": {{"message": "The answer is no {sort} ({why})."}}}}'
    return TranslatedDocument(to_anthropic_error(502, told.encode()), notes.told(), is_error=True)
