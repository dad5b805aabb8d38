"""Save what the lanes have learned in the journal, and restore it after a restart.

Rules: (1) a quota limit that was known before the restart is known after it; (2) what cannot be
read is left out, never guessed, and so is what was learned of another upstream; (3) it is saved
when a lane changes, and every few seconds while calls pass, as long as that takes a small share of
the time: outsiders can make lanes and change them; (4) of a vendor's answer only the headers about
limits are saved; of its document known names remain, with kinds and codes from a closed list and
with numbers, and a sentence only where it is, sign by sign, one that vendors are known to say; any
other becomes ours, of the same kind of limit; (5) what was made so is not changed by being made
again.
"""

from __future__ import annotations

import asyncio
import binascii
import json
import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path

from jackline.calls import CallManager
from jackline.clock import Clock
from jackline.errors import JournalError
from jackline.events import Announce, LanesLearned
from jackline.failures import Failure, Json, Kind, Observation, classify
from jackline.failures.sentences import name_of
from jackline.gateway.lane_registry import MOST_IDLE, LaneRegistry
from jackline.journal import JournalReader
from jackline.lanes import export, restore, saved_lane, saved_lanes

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


_SAVED = ("content-type", "anthropic-ratelimit-", "x-ratelimit-", "x-should-retry")
# Names, numbers and dates, durations, kinds of documents: no secret has such a form.
_LIMIT_VALUE = re.compile(
    r"[a-z_]{0,40}|[0-9.:TZ+-]{1,40}|(?:\d{1,9}(?:\.\d{1,9})?(?:ms|[dhms])){1,5}"
    r"|application/json(?:; ?charset=[uUtTfF-]{3,4}8)?"
)
# Words, and windows such as `5h`: no key has such a form.
_LIMIT_NAME = re.compile(r"[a-z]{1,12}(?:-(?:[a-z]{1,16}|\d{1,2}[a-z]?)){1,8}")
_MOST_HEADERS = 40


def redacted_walls(walls: Sequence[Json]) -> list[Json]:
    """The exported answer at each lane's wall, without text of a stranger."""
    return [each for each in map(_without_secrets, walls) if each is not None]


def _without_secrets(wall: Json) -> Json:
    lane = saved_lane(wall)
    match wall:
        case {"status": int(status), "headers": list(pairs), "body": str(packed)}:
            headers = [pair for pair in pairs if _is_limit_header(pair)][:_MOST_HEADERS]
            try:
                body = b64decode(packed).decode("utf-8", "replace")
            except binascii.Error:
                return None
            if lane is not None:
                shown = tuple((str(name), str(value)) for name, value in _pairs(headers))
                said = b64encode(wall_words(status, shown, body).encode()).decode()
                words = {"status": status, "headers": headers, "body": said}
                return {**lane._asdict(), **words}
    return None


def _pairs(headers: Sequence[Json]) -> Iterator[tuple[Json, Json]]:
    for pair in headers:
        if isinstance(pair, list):
            yield pair[0], pair[1]


def _is_limit_header(pair: Json) -> bool:
    """Whether a header reports limits, in the form that limits have: no secret and no text fits."""
    match pair:
        case [str(name), str(value)]:
            known = name.lower().startswith(_SAVED) and _LIMIT_NAME.fullmatch(name.lower())
            return bool(known) and _LIMIT_VALUE.fullmatch(value) is not None
    return False


_log = logging.getLogger("jackline")
EVERY = 5.0
# Saving may take one part in so many of the time; the next one waits for that.
_SHARE = 20


class LaneMemory:
    """The memory of one service's lanes; `keep_remembering` must run for as long as it does."""

    def __init__(
        self,
        carrier: CallManager,
        registry: LaneRegistry,
        addresses: Callable[[], str],
        announce: Announce,
        clock: Clock,
    ) -> None:
        """`addresses` names the upstreams that are learned of."""
        self._carrier = carrier
        self._registry = registry
        self._addresses = addresses
        self._announce = announce
        self._clock = clock
        self._saving: asyncio.Handle | None = None
        self._not_before = 0.0

    def recall(self, journal: Path) -> None:
        """Restore what the journal knows."""
        try:
            with JournalReader(journal) as reader:
                memory = reader.lane_memory()
        except JournalError as error:
            _log.warning("what the lanes knew cannot be read: %s", error.message)
            return
        if memory is None:
            return
        carrier, registry = self._carrier, self._registry
        carrier.follow_clock()
        try:
            saved: Json = json.loads(memory[1])
        except ValueError:
            return
        if not isinstance(saved, dict) or saved.get("upstream") != self._addresses():
            return
        lanes, now = saved.get("lanes"), self._clock.steady()
        known = saved_lanes(lanes)
        if known is None:
            _log.warning("what the lanes knew is dropped: another version of Jackline saved it")
        for lane_id in known or ():
            registry.open(lane_id, now)
        taught = restore(carrier.controller, lanes, now)
        carrier.walls.restore(saved.get("walls"))
        registry.clients.restore(saved.get("clients"))
        registry.logins.restore(saved.get("logins"))
        for lane in taught:
            _log.info("%s goes on from what was known", lane)

    def remember(self) -> None:
        """Announce what the lanes know by now."""
        self.close()
        time = asyncio.get_running_loop().time
        began = time()
        memory = {
            "upstream": self._addresses(),
            "lanes": export(self._carrier.controller, self._clock.steady()),
            "walls": redacted_walls(self._carrier.walls.export()),
            "clients": self._registry.clients.export(),
            "logins": self._registry.logins.export(),
        }
        self._announce(LanesLearned(self._clock.wall(), json.dumps(memory).encode()))
        self._not_before = began + _SHARE * (time() - began)

    def remember_soon(self) -> None:
        """Announce it at the end of this turn, or when that is no burden: once for all changes."""
        if self._saving is None:
            loop = asyncio.get_running_loop()
            pause = self._not_before - loop.time()
            later = loop.call_soon if pause <= 0 else partial(loop.call_later, pause)
            self._saving = later(self.remember)

    def close(self) -> None:
        """Cancel what is planned."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.cancel()

    async def keep_remembering(self) -> None:
        """Announce it again and again while there is something new, until cancelled."""
        before = -1
        while True:
            await self._clock.sleep(EVERY)
            self._carrier.close_idle_lanes(self._clock.steady(), MOST_IDLE)
            events = self._carrier.reports
            if events != before:
                before = events
                self.remember_soon()
