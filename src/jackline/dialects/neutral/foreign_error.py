"""Say a foreign error in Anthropic's words, so that clients treat it as they know to.

Laws: (1) what went wrong is judged by failures/ alone; (2) the vendor's own sentence is kept,
without keys; (3) a prompt that is too long is told in the sentence by which Claude Code compacts.
Not here: what happens next (lanes/, calls/).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from jackline.dialects.neutral.account import UNREADABLE
from jackline.failures import Failure, Kind, Observation, classify
from jackline.failures.wording import redact

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
