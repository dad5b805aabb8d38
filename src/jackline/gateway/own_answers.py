"""Answers of the gateway itself: refusals, and the x-jackline headers beside an answer's own.

Rules: (1) the vendor's status and body reach the client unchanged, but that a refusal which repeats
an earlier one names the time that is left now; (2) a throttle is never reported as a quota, nor the
reverse: without the vendor's words the status follows the kind of failure; (3) every answer has a
`request-id`: the vendor's own, else the call's; (4) our headers come last, so that the vendor's
stay in order, and headers of an upstream under our names are dropped; (5) a refusal at a wall says
that no retry helps, and when the wall resets: clients retry ten times, or sleep until then, where
it does not.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from jackline.calls import CallRefusal
from jackline.failures import Json, Kind
from jackline.failures.resets import find_reset
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.http1.headers import Headers
from jackline.http1.requests import RequestRefusal
from jackline.lanes.reactions import Reaction, reaction_to
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


def vendor_refusal(refusal: CallRefusal, now: float) -> RefusalAnswer:
    """The vendor's refusal, or ours if there is none; `now` is the time of the wall clock."""
    failure, theirs, at = refusal.failure, refusal.rejection, refusal.retry_at
    notes: list[tuple[bytes, bytes]] = []
    if at is not None:
        moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
        notes.append((b"x-jackline-resets-at", moment.encode()))
    reset = None
    if failure is not None and reaction_to(failure) is Reaction.PARK:
        notes.append(_NO_RETRY)
        if at is not None:
            reset = _Reset(at, now)
            notes.append((b"retry-after", b"%d" % reset.seconds))
    if theirs is not None and theirs.status >= 400:
        replaced = {name for name, _ in notes}
        kept = [pair for pair in theirs.headers if pair[0].lower() not in replaced]
        body = theirs.body
        if reset is not None and theirs.is_repeated:
            body = reset.written_into(body)
        return RefusalAnswer(theirs.status, [*without_note_headers(kept), *notes], body)
    status = _NO_WORDS if failure is None else _STATUS.get(failure.kind, _NO_WORDS)
    words = f"Jackline: {refusal.why}"
    if theirs is not None:
        words += f" (the upstream answered {theirs.status} with something that is no answer)"
    if reset is not None:
        words += f". {reset.sentence}"
    return gateway_refusal(status, words, notes)


_NO_RETRY = (b"x-should-retry", b"false")
# Names under which vendors write how long to wait, and where they put the sentence for people.
_WAITS = ("retry_after", "retryafter", "retry_after_seconds", "retrydelay", "resets_in_seconds")
_SENTENCES = ("message", "detail", "msg")
_WAIT = re.compile(r"\d{1,12}(?:\.\d{1,9})?(s?)")
_DEEPEST = 6


class _Reset:
    """When a wall resets, as it is written into a refusal now."""

    def __init__(self, at: float, now: float) -> None:
        self._now = datetime.fromtimestamp(now, UTC).astimezone()
        self.seconds = max(1, math.ceil(at - now))
        moment = datetime.fromtimestamp(math.ceil(at), UTC).astimezone()
        left = duration_in_words(timedelta(seconds=self.seconds))
        self.sentence = f"It resets at {moment_in_words(moment, self._now)}, in {left}."

    def written_into(self, body: bytes) -> bytes:
        """The document with the wait that is left, and the reset in its first sentence."""
        try:
            document: Json = json.loads(body)
        except (ValueError, RecursionError):
            return body
        if not isinstance(document, dict):
            return body
        self._is_said = False
        written = self._written(document, 0)
        return body if written == document else json.dumps(written).encode()

    def _written(self, value: Json, depth: int, name: str = "") -> Json:
        if isinstance(value, dict) and depth < _DEEPEST:
            return {key: self._written(each, depth + 1, key.lower()) for key, each in value.items()}
        if isinstance(value, list) and depth < _DEEPEST:
            return [self._written(each, depth + 1, name) for each in value]
        if name in _WAITS and not isinstance(value, bool):
            found = _WAIT.fullmatch(str(value))
            if found is not None:
                return f"{self.seconds}{found[1]}" if isinstance(value, str) else self.seconds
        if name in _SENTENCES and isinstance(value, str) and not self._is_said:
            self._is_said = True
            if find_reset(value, self._now) is None:
                return f"{value.rstrip()} {self.sentence}"
        return value


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
