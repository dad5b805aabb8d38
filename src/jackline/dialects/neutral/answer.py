"""Write a whole answer or error of another vendor as Anthropic's message or error.

Rules: (1) text and calls stay in their order; arguments that are no JSON object go under the key
that Anthropic's guide names for them, never repaired; no thinking block is written, because it
could not be signed; (2) nothing in an answer raises: what is no answer becomes an error document;
(3) an answer with calls that ended by itself waits for their results, whatever the server calls
it; an early end is never reported as a normal one; (4) failures/ alone decides what an error means;
the vendor's message is preserved, without keys, and a prompt that is too long gets the message by
which Claude Code compacts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from jackline.dialects.answer_facts import message_document
from jackline.dialects.json_bounds import MOST_VALUES, UNREADABLE, has_too_many_values
from jackline.dialects.neutral.conversation import ToolIds
from jackline.dialects.neutral.fields import (
    Fields,
    TranslatedDocument,
    TranslationNotes,
    UntranslatableError,
    shown,
)
from jackline.dialects.neutral.options import AnswerOptions, ReasoningBinder
from jackline.dialects.token_usage import TokenUsage
from jackline.failures import Kind, Observation, classify
from jackline.failures.wording import redact

MOST_CALLS = 1_000
"""Of one answer. Models make a handful at once, seldom some dozens."""
INVALID = "INVALID_JSON"
NO_REASONING = "reasoning of another model is left out, because Claude has not signed it"
NO_COUNTERPART = "has no counterpart in Anthropic's answers"
_LONGEST_TEXT = 1000
_LARGEST_ERROR = 256 * 1024
# Only resets depend on the time, and none is reported here.
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
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
_ERROR_TYPES: Mapping[Kind, str] = {
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
_ERROR_SUBTYPES: Mapping[str, str] = {
    "forbidden": "permission_error",
    "request_too_large": "request_too_large",
}
_CONTEXT_LIMIT = re.compile(r"(?:maximum context length is|context window of|limit of) (\d[\d,]*)")
_CONTEXT_USED = re.compile(
    r"(?:resulted in|you requested|you requested about|request \(|prompt contains) ?(\d[\d,]*)"
)


class _Error(msgspec.Struct):
    message: str | None = None


class _ErrorDocument(msgspec.Struct):
    error: _Error | str | None = None
    message: str | None = None


_error_document = msgspec.json.Decoder(_ErrorDocument)
# Checks a value without building it.
_value = msgspec.json.Decoder(msgspec.Raw)


def stop_reason(foreign: str | None, *, calls: bool, refused: bool, notes: TranslationNotes) -> str:
    """Anthropic's name for the end of an answer."""
    reason = _REASONS.get(foreign or "")
    if reason is None:
        notes.add("finish_reason", f"{shown(foreign or 'nothing')} is not known; sent as end_turn")
        reason = "end_turn"
    if reason != "end_turn":
        return reason
    if refused:
        return "refusal"
    return "tool_use" if calls else "end_turn"


def to_anthropic_error(status: int, body: bytes) -> bytes:
    """The body of an error in Anthropic's format."""
    return msgspec.json.encode({"type": "error", "error": error_of(status, body)})


def error_of(status: int, body: bytes) -> dict[str, str]:
    """Type and message of an error that came with a status, or inside of a stream with 500."""
    # The beginning is enough, and may be cut JSON: no real error has megabytes.
    body = body[:_LARGEST_ERROR]
    failure = classify(Observation.of_response(status, {}, body), now=_ANY_TIME)
    kind = _ERROR_SUBTYPES.get(failure.sub or "") or _ERROR_TYPES.get(failure.kind, "api_error")
    try:
        document = _error_document.decode(body)
    except UNREADABLE:
        text = body[: 4 * _LONGEST_TEXT].decode(errors="replace")
    else:
        error = document.error
        found = error if isinstance(error, str) else error.message if error else document.message
        text = found or ""
    text = redact(" ".join(text[: 4 * _LONGEST_TEXT].split()), _LONGEST_TEXT)
    if failure.sub != "context_too_long":
        text = text or "The other side answered with an error and no text."
    elif not text.lower().startswith("prompt is too long"):
        most, used = _CONTEXT_LIMIT.search(text), _CONTEXT_USED.search(text)
        if most and used:
            text = f"{used[1]} tokens > {most[1]} maximum".replace(",", "")
        text = f"prompt is too long: {text}"
    return {"type": kind, "message": text}


def is_object(arguments: str) -> bool:
    """Whether arguments are one whole JSON object; its values are not built."""
    try:
        _value.decode(arguments)
    except UNREADABLE:
        return False
    return arguments.lstrip(" \t\r\n").startswith("{")


class MessageBuilder:
    """Collects one answer, and writes it as Anthropic's message."""

    def __init__(self, message_id: str, options: AnswerOptions, notes: TranslationNotes) -> None:
        self._id = message_id
        self._options = options
        self._notes = notes
        self._ids = ToolIds(message_id)
        self._content: list[dict[str, object]] = []
        self.binder = ReasoningBinder(options.remember)
        self._calls = 0
        self.refused = False

    def text(self, text: str) -> None:
        """Add a text block."""
        if text:
            self.binder.text()
            self._content.append({"type": "text", "text": text})

    def refusal(self, text: str) -> None:
        """Add a text by which the model declines."""
        self.refused = True
        self.text(text)

    def reasoning(self, text: str, at: str) -> None:
        """Leave reasoning out with a note: without Claude's signature it would be refused later."""
        if text:
            self._notes.add(at, NO_REASONING)

    def call(self, foreign_id: str, name: str, arguments: str, at: str) -> None:
        """Add a tool call."""
        self._calls += 1
        if self._calls > MOST_CALLS:
            raise UntranslatableError(at, f"is one of more than {MOST_CALLS:,} calls")
        own = self._ids.of(foreign_id)
        self.binder.call(own)
        value: object = {}
        if is_object(arguments):
            value = msgspec.Raw(arguments.encode())
        elif arguments.strip():
            self._notes.add(at, f"the model wrote no JSON object; its text is under {INVALID}")
            value = {INVALID: arguments}
        real_name = self._options.tool_names.get(name, name)
        self._content.append({"type": "tool_use", "id": own, "name": real_name, "input": value})

    def done(self, ended: str | None, stop: str | None, usage: TokenUsage) -> TranslatedDocument:
        """The message; `ended` is the foreign stop reason, `stop` the sequence that ended it."""
        reason = stop_reason(ended, calls=self._calls > 0, refused=self.refused, notes=self._notes)
        if stop is not None and reason == "end_turn":
            reason = "stop_sequence"
        sequence = stop if reason == "stop_sequence" else None
        message = message_document(
            self._id, self._options.model, usage.to_anthropic(), self._content, reason, sequence
        )
        return TranslatedDocument(msgspec.json.encode(message), self._notes.sentences())


def read_whole_answer(
    body: bytes,
    options: AnswerOptions,
    read: Callable[[Fields, bytes, AnswerOptions], TranslatedDocument],
    kind: str,
) -> TranslatedDocument:
    """The message; with `is_error` when the body is an error, or no answer of this kind."""
    notes = TranslationNotes()
    why = f"more than {MOST_VALUES:,} values"
    if not has_too_many_values(body):
        try:
            top = Fields.of_document(body, notes)
            if "error" not in top.names():
                return read(top, body, options)
        except UntranslatableError as error:
            why = error.at
        else:
            return TranslatedDocument(to_anthropic_error(500, body), is_error=True)
    text = f'{{"error": {{"message": "The answer is no {kind} ({why})."}}}}'
    document = to_anthropic_error(502, text.encode())
    return TranslatedDocument(document, notes.sentences(), is_error=True)
