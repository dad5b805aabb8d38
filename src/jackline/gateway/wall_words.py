"""Say again what a vendor said at a wall, without any text that a stranger could have written.

Rules: (1) pure; (2) of a document known names remain, with kinds and codes from a closed list and
with numbers; (3) a sentence remains only where it is, sign by sign, one that vendors are known to
say; any other becomes ours, of the same kind of limit; (4) what was made so is not changed by being
made again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from jackline.failures import Failure, Json, Kind, Observation, classify
from jackline.failures.sentences import name_of

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
_AT = (
    r"(?:(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{1,2}(?:,| at) )?"
    r"\d{1,2}(?::\d\d)? ?[ap]m(?: \(UTC\))?"
)
_KNOWN_SENTENCE = re.compile(
    r"This request would exceed your account's rate limit\. Please try again later\."
    r"|You['’]ve (?:hit|reached) your (?:session |weekly |5-hour |usage |Opus |Sonnet )?limit"
    rf"(?: [·∙] resets {_AT})?\.?"
    r"|Claude (?:AI |Max |Pro )?usage limit reached(?:\|\d{10}|\. Your limit will reset at "
    rf"{_AT}\.?)?"
    r"|The usage limit has been reached\.?"
    r"|Your credit balance is too low to access the Anthropic API\. Please go to Plans & Billing to"
    r" upgrade or purchase credits\."
    r"|You exceeded your current quota, please check your plan and billing details\.(?: For more"
    r" information on this error, read the docs:"
    r" https://platform\.openai\.com/docs/guides/error-codes/api-errors\.)?"
)
_OURS = {
    (Kind.ACCOUNT_QUOTA, "session"): "You've hit your session limit",
    (Kind.ACCOUNT_QUOTA, "weekly"): "You've hit your weekly limit",
    (Kind.ACCOUNT_QUOTA, "weekly_model"): "You've hit your weekly limit for this model",
    (Kind.ACCOUNT_QUOTA, "daily"): "You've hit your limit of requests per day",
    (Kind.ACCOUNT_QUOTA, "monthly"): "You have no quota of requests per month left",
    (Kind.BILLING, "credits"): "The credit balance is too low",
    (Kind.BILLING, "long_context_credits"): "Usage credits are required for long context",
    (Kind.BILLING, "spend_cap"): "The spend limit has been reached",
    (Kind.BILLING, "budget"): "The budget has been exceeded",
    (Kind.BILLING, "plan"): "Your plan does not include this",
}
_OURS_OF_KIND = {
    Kind.ACCOUNT_QUOTA: "You've hit your usage limit",
    Kind.BILLING: "Payment required",
}
_NOTE = " (repeated by Jackline)"


# All lanes of an account have the same words, and all are saved when one of them changes.
@lru_cache(maxsize=256)
def wall_words(status: int, headers: Sequence[tuple[str, str]], body: str) -> str:
    """The body of a refusal with this status and these headers, without foreign text."""
    failure = _classified(status, headers, body)
    sentence = _sentence_of(failure) + _NOTE
    try:
        document: Json = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return body if _is_known(body) else sentence
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


def _sentence_of(failure: Failure) -> str:
    ours = _OURS.get((failure.kind, failure.sub or ""))
    return ours or _OURS_OF_KIND.get(failure.kind) or name_of(failure).capitalize()


def _is_known(text: str) -> bool:
    if _KNOWN_SENTENCE.fullmatch(text) is not None:
        return True
    ours = text.removesuffix(_NOTE)
    return ours != text and ours in (*_OURS.values(), *_OURS_OF_KIND.values())


def _safe(value: Json, sentence: str, name: str = "", depth: int = 0) -> Json:
    """What may be saved of a value under this name; None for nothing."""
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
        return value if isinstance(value, str) and _is_known(value) else sentence
    if name in _KINDS:
        return value if _is_kind(value) else None
    if name in _TIMES and not isinstance(value, bool):
        return value if _TIME.fullmatch(str(value)) else None
    return None


def _is_kind(value: Json) -> bool:
    if isinstance(value, str):
        return value.lower() in _KNOWN or _CODE.fullmatch(value) is not None
    return isinstance(value, int) and _CODE.fullmatch(str(value)) is not None
