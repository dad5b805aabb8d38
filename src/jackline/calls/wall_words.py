"""Write the refusal at a wall that other callers get: the vendor's, without text of a stranger.

Rules: (1) of the headers only those about limits remain, in the form that limits have; (2) of the
document known names remain, with kinds and codes from a closed list and with numbers, and a
sentence only where it is, sign by sign, one that vendors are known to say; any other becomes ours,
of the same kind of limit; (3) what was made so is not changed by being made again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from jackline.calls.request import VendorRejection
from jackline.failures import Failure, Json, Kind, Observation, classify
from jackline.failures.known_sentences import is_known_sentence, our_sentence
from jackline.http1.headers import Headers

_DEEPEST = 4
_MOST_ENTRIES = 8
# What vendors call errors at a wall, and what our tables recognise as one.
_KNOWN = frozenset(
    """
    error rate_limit_error billing_error permission_error overloaded_error api_error
    invalid_request_error authentication_error usage_limit_reached usage_not_included
    insufficient_quota insufficient_user_quota insufficient_credits insufficient_balance
    rate_limit_exceeded rate_limited tokens requests budget_exceeded exceededbudget
    budgetexceedederror quota_exceeded quota_not_enough credit_limit credits_required
    credit_balance_exhausted enforced_spend_limit_reached billing_hard_limit_reached
    exceeded_current_quota_error pre_consume_token_quota_failed billing_not_active
    payment_required invalid_payment user_weekly_rate_limited too_many_requests
    too_many_requests_error queue_exceeded access_terminated_error resource_exhausted
    throttlingexception servicequotaexceededexception zero_quota v_api_error new_api_error
    upstream_error forbidden free plus pro team business enterprise edu go max
    """.split()  # noqa: SIM905 -- a table to be read
)
_KINDS = ("type", "code", "status", "error_code", "errorcode", "error_type", "__type", "plan_type")
_SENTENCES = ("message", "detail", "errormessage", "msg")
_PARTS = ("error", "errors", "details", "metadata", "innererror", "rate_limit_info")
_TIMES = (
    "retry_after",
    "retryafter",
    "retry_after_seconds",
    "retrydelay",
    "resets_in_seconds",
    "resets_at",
    "resetsat",
)
_TIME = re.compile(r"\d{1,12}(?:\.\d{1,9})?s?")
_CODE = re.compile(r"\d{1,4}")


# All lanes of an account have the same words, and all are saved when one of them changes.
@lru_cache(maxsize=256)
def wall_words(status: int, headers: Sequence[tuple[str, str]], body: str) -> str:
    """The body of a refusal with this status and these headers, without foreign text."""
    failure = _classified(status, headers, body)
    sentence = our_sentence(failure)
    try:
        document: Json = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return body if is_known_sentence(body) else sentence
    safe = _safe(document, sentence)
    words = json.dumps(safe)
    if _classified(status, headers, words).kind is failure.kind:
        return words
    kind = "billing_error" if failure.kind is Kind.BILLING else "rate_limit_error"
    return json.dumps({"type": "error", "error": {"type": kind, "message": sentence}})


def _classified(status: int, headers: Sequence[tuple[str, str]], body: str) -> Failure:
    seen = Observation.of_response(status, dict(headers), body.encode("utf-8", "replace"))
    # Of any time: only the kind of limit counts here.
    return classify(seen, now=datetime(2026, 1, 1, tzinfo=UTC))


def _safe(value: Json, sentence: str, name: str = "", depth: int = 0) -> Json:
    """What others get of a value under this name; None for nothing."""
    if isinstance(value, dict) and depth < _DEEPEST and (not name or name in _PARTS):
        found = {
            key: _safe(each, sentence, key.lower(), depth + 1)
            for key, each in list(value.items())[: 4 * _MOST_ENTRIES]
        }
        return {key: each for key, each in found.items() if each is not None} or None
    if isinstance(value, list) and depth < _DEEPEST and name in _PARTS:
        entries = [_safe(each, sentence, name, depth + 1) for each in value[:_MOST_ENTRIES]]
        return [each for each in entries if each is not None] or None
    if name in _SENTENCES or (name == "error" and isinstance(value, str)):
        return value if isinstance(value, str) and is_known_sentence(value) else sentence
    if name in _KINDS:
        return value if _is_kind(value) else None
    if name in _TIMES and not isinstance(value, bool):
        return value if _TIME.fullmatch(str(value)) else None
    return None


def _is_kind(value: Json) -> bool:
    if isinstance(value, str):
        return value.lower() in _KNOWN or _CODE.fullmatch(value) is not None
    return isinstance(value, int) and _CODE.fullmatch(str(value)) is not None


_ABOUT_LIMITS = (
    "content-type",
    "anthropic-ratelimit-",
    "x-ratelimit-",
    "x-codex-",
    "x-should-retry",
)
# Names, numbers and dates, durations, kinds of documents: no secret has such a form.
_LIMIT_VALUE = re.compile(
    r"[a-z_]{0,40}|[0-9.:TZ+-]{1,40}|(?:\d{1,9}(?:\.\d{1,9})?(?:ms|[dhms])){1,5}"
    r"|application/json(?:; ?charset=[uUtTfF-]{3,4}8)?"
)
# Words, and windows such as `5h`: no key has such a form.
_LIMIT_NAME = re.compile(r"[a-z]{1,12}(?:-(?:[a-z]{1,16}|\d{1,2}[a-z]?)){1,8}")
_MOST_HEADERS = 40


def limit_headers(headers: Headers) -> Headers:
    """Those that report limits, in the form that limits have: no secret and no text fits."""
    return [pair for pair in headers if _is_about_limits(pair)][:_MOST_HEADERS]


def _is_about_limits(pair: tuple[bytes, bytes]) -> bool:
    name, value = pair[0].decode("latin-1").lower(), pair[1].decode("latin-1")
    known = name.startswith(_ABOUT_LIMITS) and _LIMIT_NAME.fullmatch(name) is not None
    return known and _LIMIT_VALUE.fullmatch(value) is not None


def repeated(rejection: VendorRejection) -> VendorRejection:
    """What other callers get of it."""
    headers = limit_headers(rejection.headers)
    shown = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    words = wall_words(rejection.status, shown, rejection.body.decode("utf-8", "replace"))
    return VendorRejection(
        rejection.status, headers, words.encode(), rejection.lane, is_repeated=True
    )
