"""Say no to a client in the vendor's own words, or in ours where the vendor said nothing.

Laws: (1) the vendor's status and body reach the client unchanged; (2) a throttle is never told as a
quota, nor the reverse: without the vendor's words the status follows the kind of failure.
Not here: when to say no (calls/, holding.py), the shape of our own words (refusal.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from jackline.calls import Refusal
from jackline.failures import Kind
from jackline.gateway.answer_notes import without_ours
from jackline.gateway.refusal import refusal_body
from jackline.upstream.port import Headers

_STATUS = {
    Kind.SERVER_THROTTLE: 429,
    Kind.RATE_LIMIT: 429,
    Kind.ACCOUNT_QUOTA: 429,
    Kind.OVERLOADED: 529,
    Kind.TIMEOUT: 504,
    Kind.UPSTREAM_5XX: 503,
}
_NO_WORDS = 502


@dataclass(frozen=True, slots=True)
class No:
    """A whole answer that says no."""

    status: int
    headers: Headers
    body: bytes


def no_by_vendor(refusal: Refusal) -> No:
    """What the vendor said, or what we have to say instead."""
    told: list[tuple[bytes, bytes]] = []
    if refusal.retry_at is not None:
        moment = datetime.fromtimestamp(refusal.retry_at, UTC).isoformat(timespec="seconds")
        told.append((b"x-jackline-resets-at", moment.encode()))
    said = refusal.rejection
    if said is not None and said.status >= 400:
        return No(said.status, [*without_ours(said.headers), *told], said.body)
    failure = refusal.failure
    status = _NO_WORDS if failure is None else _STATUS.get(failure.kind, _NO_WORDS)
    words = f"Jackline: {refusal.why}"
    if said is not None:
        words += f" (the upstream answered {said.status} with something that is no answer)"
    return in_our_words(status, words, told)


def in_our_words(status: int, message: str, headers: Headers = ()) -> No:
    """An answer of our own, in the vendor's shape."""
    body = refusal_body(status, message)
    return No(status, [(b"content-type", b"application/json"), *headers], body)
