"""Answers of the gateway itself: refusals, and the x-jackline headers beside an answer's own.

Rules: (1) the vendor's status and body reach the client unchanged; (2) a throttle is never reported
as a quota, nor the reverse: without the vendor's words the status follows the kind of failure; (3)
every answer has a `request-id`: the vendor's own, else the call's; (4) our headers come last, so
that the vendor's stay in order, and headers of an upstream under our names are dropped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from jackline.calls import CallRefusal
from jackline.failures import Kind
from jackline.http1.headers import Headers
from jackline.http1.requests import RequestRefusal
from jackline.outside_names import cut_name

# A shorter wait is written as 0.000.
_NOTHING = 0.0005
_OURS = frozenset(
    b"x-jackline-" + name
    for name in (b"call", b"lane", b"attempts", b"waited", b"resets-at", b"again")
)
_LENGTHS = frozenset(map(len, _OURS))


ASK_AGAIN = (b"x-jackline-again", b"true")
"""The gateway itself wants the call again: agents of flows follow no upstream that says so."""


def without_note_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """An upstream's headers without those that only the gateway may write."""
    return [
        pair for pair in headers if len(pair[0]) not in _LENGTHS or pair[0].lower() not in _OURS
    ]


def note_lines(
    call: str, lane: str = "", attempts: int = 0, waited: float = 0.0, *, names_it: bool
) -> bytes:
    """Our headers as lines; with `names_it` also a request-id, where the vendor sent none."""
    name = call.encode()
    is_usual = attempts == 1 and waited < _NOTHING
    return b"%bx-jackline-call: %b\r\n%b" % (
        b"request-id: %b\r\n" % name if names_it else b"",
        name,
        _at_first_try(lane) if is_usual else _attempt_lines(lane, attempts, waited),
    )


def _attempt_lines(lane: str, attempts: int, waited: float) -> bytes:
    # A lane is named after a model, and the client names that: no line end may be in it.
    name = lane.encode("latin-1", "replace").translate(None, b"\r\n\0")
    return b"x-jackline-lane: %b\r\nx-jackline-attempts: %d\r\nx-jackline-waited: %.3f\r\n" % (
        name,
        attempts,
        max(0.0, waited),
    )


@lru_cache(maxsize=256)
def _at_first_try(lane: str) -> bytes:
    return _attempt_lines(lane, 1, 0.0)


def request_id(headers: Headers) -> str | None:
    """The name that an answer goes by."""
    for name, value in headers:
        if len(name) == 10 and name.lower() == b"request-id":
            return cut_name(value.decode("latin-1"))
    return None


_STATUS = {
    Kind.SERVER_THROTTLE: 429,
    Kind.RATE_LIMIT: 429,
    Kind.ACCOUNT_QUOTA: 429,
    Kind.OVERLOADED: 529,
    Kind.TIMEOUT: 504,
    Kind.UPSTREAM_5XX: 503,
}
_NO_WORDS = 502
# The error type that Anthropic's API names with each status; the others are close relatives.
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    414: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    501: "invalid_request_error",
    503: "overloaded_error",
    504: "timeout_error",
    505: "invalid_request_error",
    529: "overloaded_error",
}


@dataclass(frozen=True, slots=True)
class RefusalAnswer:
    """A whole answer that refuses."""

    status: int
    headers: Headers
    body: bytes


def vendor_refusal(refusal: CallRefusal) -> RefusalAnswer:
    """The vendor's refusal, or ours if there is none."""
    notes: list[tuple[bytes, bytes]] = []
    if refusal.retry_at is not None:
        moment = datetime.fromtimestamp(refusal.retry_at, UTC).isoformat(timespec="seconds")
        notes.append((b"x-jackline-resets-at", moment.encode()))
    theirs = refusal.rejection
    if theirs is not None and theirs.status >= 400:
        headers = [*without_note_headers(theirs.headers), *notes]
        return RefusalAnswer(theirs.status, headers, theirs.body)
    failure = refusal.failure
    status = _NO_WORDS if failure is None else _STATUS.get(failure.kind, _NO_WORDS)
    words = f"Jackline: {refusal.why}"
    if theirs is not None:
        words += f" (the upstream answered {theirs.status} with something that is no answer)"
    return gateway_refusal(status, words, notes)


def refusal_body(status: int, message: str) -> bytes:
    """The error as Anthropic's API writes it."""
    error = {"type": _ERROR_TYPES.get(status, "api_error"), "message": message}
    return json.dumps({"type": "error", "error": error}).encode()


def request_refusal(refusal: RequestRefusal) -> RefusalAnswer:
    """The answer to a request that is refused before it is routed."""
    headers = [(b"Content-Type", b"application/json")]
    if refusal.retry_after is not None:
        headers.append((b"Retry-After", b"%d" % refusal.retry_after))
    return RefusalAnswer(refusal.status, headers, refusal_body(refusal.status, refusal.message))


def gateway_refusal(status: int, message: str, headers: Headers = ()) -> RefusalAnswer:
    """An answer of our own, in the vendor's shape."""
    body = refusal_body(status, message)
    return RefusalAnswer(status, [(b"content-type", b"application/json"), *headers], body)
