"""Parse how long to wait: durations, dates and limit headers, as vendors write them.

Rules: (1) a duration is never negative; what cannot be parsed is None, never zero; (2) no vendor
has a window longer than a month: a wait longer than `LONGEST` is no wait, and a reset beyond it
is not known; (3) total: no text raises, also not a date at the end of the calendar; (4) headers
have lower-case names; the longest of several waits counts, so a longer Retry-After never shortens
the wait; (5) on an answer that succeeded, limit headers are information, not failures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

LONGEST = timedelta(days=40)

_NUMBER = r"\d{1,12}(?:[.,]\d{1,12})?"
_UNITS = (
    r"milliseconds?|millis|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|hr|h|days?|d|weeks?|w"
    r"|segundos?|sekunden?|secondes?|minutos?|minuten?|horas?|stunden?|heures?|d[ií]as?|tagen?|jours?"
)
PART = rf"{_NUMBER}\s?(?:{_UNITS})(?![a-zà-ÿ])"
PHRASE = rf"{PART}(?:\s?(?:,|and|y|e|und|et)?\s?{PART}){{0,5}}"

_PART = re.compile(rf"({_NUMBER})\s?({_UNITS})(?![a-zà-ÿ])", re.IGNORECASE)
_BARE = re.compile(r"\d{1,12}(?:\.\d{1,12})?")
# By how a unit begins; the first that fits counts.
_UNIT_SECONDS = {
    "ms": 0.001,
    "milli": 0.001,
    "stunde": 3600.0,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    "t": 86400.0,  # Tage
    "j": 86400.0,  # jours
}


def seconds_of(number: float) -> timedelta | None:
    """The duration, or None when it cannot be a wait."""
    if not 0 <= number <= LONGEST.total_seconds():
        return None
    return timedelta(seconds=number)


def span(start: datetime, end: datetime) -> timedelta:
    """The real time from `start` to `end`.

    Plain subtraction of two times in one zone is an hour off across a change of summer time.
    """
    return end.astimezone(UTC) - start.astimezone(UTC)


def read_phrase(text: str) -> timedelta | None:
    """The sum of a duration in natural language or Go notation; None when there is none."""
    total = 0.0
    parts = _PART.findall(text.lower())
    for number, unit in parts:
        starts = (start for start in _UNIT_SECONDS if unit.startswith(start))
        total += float(number.replace(",", ".")) * _UNIT_SECONDS[next(starts)]
    return seconds_of(total) if parts else None


def read_wait(value: str, now: datetime) -> timedelta | None:
    """A Retry-After value: seconds, a Go duration, an HTTP date or RFC 3339."""
    value = value.strip()
    if _BARE.fullmatch(value):
        return seconds_of(float(value))
    moment = read_moment(value)
    if moment is not None:
        return seconds_of(max(0.0, span(now, moment).total_seconds()))
    return read_phrase(value) if len(value) < 40 else None


def read_moment(value: str) -> datetime | None:
    """An aware time from RFC 3339 or an HTTP date; None for anything else."""
    value = value.strip()
    if len(value) > 60:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 -- rare, and slow to load

        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, IndexError, OverflowError, TypeError):
            return None
    if len(value) < 16:
        return None  # a bare year or basic-format number is not a moment
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        moment.astimezone(UTC)
    except OverflowError:
        return None  # the first or last day of the calendar, which is another year in UTC
    return moment


def read_epoch(value: str, now: datetime) -> datetime | None:
    """An epoch in seconds (or milliseconds) as a time in UTC.

    Smaller values than dates of this century are seconds from now: some servers send those under
    the same header name.
    """
    if not _BARE.fullmatch(value.strip()):
        return None
    number = float(value)
    if number > 100_000_000_000:
        number /= 1000
    if number < 1_000_000_000:
        wait = seconds_of(number)
        return None if wait is None else now.astimezone(UTC) + wait
    if number > 7_000_000_000:
        return None
    return datetime.fromtimestamp(number, UTC)


UNIFIED = "anthropic-ratelimit-unified-"

SPEND_CAP_REASONS = frozenset(
    {"org_spend_cap_reached", "org_level_disabled_until", "service_spend_limit_reached"}
)
_CLAIMS = {
    "five_hour": ("session", "5h"),
    "5h": ("session", "5h"),
    "seven_day": ("weekly", "7d"),
    "7d": ("weekly", "7d"),
    "seven_day_opus": ("weekly_model", "7d_opus"),
    "seven_day_sonnet": ("weekly_model", "7d-sonnet"),
    "seven_day_overage_included": ("weekly_model", "7d_oi"),
    "7d_oi": ("weekly_model", "7d_oi"),
    "overage": ("overage", "overage"),
}
_IN_SECONDS = (
    "retry-after",
    "x-ratelimit-user-retry-after",
    f"{UNIFIED}slow-retry-after",
    "x-codex-primary-reset-after-seconds",
)
_IN_MILLISECONDS = ("retry-after-ms", "x-amz-retry-after", "x-ms-retry-after-ms")


@dataclass(frozen=True, slots=True)
class SpentWindow:
    """A subscription window that refused the request; `sub` is its name in a `Failure`."""

    sub: str
    resets_at: datetime | None
    signal: str

    @classmethod
    def of_subscription(cls, headers: Mapping[str, str], now: datetime) -> SpentWindow | None:
        """The subscription window that refused the request, as far as the headers name one."""
        claim = headers.get(f"{UNIFIED}representative-claim", "")
        status = headers.get(f"{UNIFIED}status", "")
        overage = headers.get(f"{UNIFIED}overage-status", "")
        rejected = []
        for name in ("7d_oi", "7d", "5h"):
            used = read_phrase(f"{headers.get(f'{UNIFIED}{name}-utilization', '')}s")
            is_full = used is not None and used >= timedelta(seconds=1)
            if is_full or headers.get(f"{UNIFIED}{name}-status") == "rejected":
                rejected.append(name)
        if not (claim or overage or status == "rejected" or rejected):
            return None
        if not claim and rejected:
            claim = rejected[0]
        sub, window = _CLAIMS.get(claim, ("session", "5h"))
        resets = _first_epoch(
            headers, now, f"{UNIFIED}reset", f"{UNIFIED}{window}-reset", f"{UNIFIED}overage-reset"
        )
        signal = (
            f"{UNIFIED}representative-claim: {claim}" if claim else f"{UNIFIED}status: {status}"
        )
        return cls(sub, resets, signal)

    @classmethod
    def of_event(
        cls, codes: Set[str], numbers: Mapping[str, str], now: datetime
    ) -> SpentWindow | None:
        """The window that a client's own `rate_limit_event` calls rejected."""
        claim = next((code for code in _CLAIMS if code in codes), None)
        if claim is None or "rejected" not in codes:
            return None
        return cls(_CLAIMS[claim][0], body_reset(numbers, now), f"rate_limit_event: {claim}")

    @classmethod
    def of_codex(cls, headers: Mapping[str, str], now: datetime) -> SpentWindow | None:
        """The ChatGPT-plan window that is used up, with its reset."""
        for seat in ("primary", "secondary"):
            prefix = f"x-codex-{seat}-"
            used = read_phrase(f"{headers.get(f'{prefix}used-percent', '')}s")
            if used is None or used < timedelta(seconds=100):
                continue
            minutes = headers.get(f"{prefix}window-minutes", "")
            resets = _first_epoch(headers, now, f"{prefix}reset-at", f"{prefix}reset-after-seconds")
            sub = {"300": "session", "10080": "weekly"}.get(minutes, "unknown_window")
            return cls(sub, resets, f"{prefix}used-percent: 100")
        return None


def header_wait(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """How long to wait by the headers; the longest counts."""
    # A date is compared with the server's own clock, where it sends one: clocks differ.
    now = read_moment(headers.get("date", "")) or now
    waits = [read_wait(headers[name], now) for name in _IN_SECONDS if name in headers]
    waits.extend(
        read_phrase(f"{headers[name].strip()}ms") for name in _IN_MILLISECONDS if name in headers
    )
    return max((wait for wait in waits if wait is not None), default=None)


def body_wait(numbers: Mapping[str, str], now: datetime) -> timedelta | None:
    """How long to wait by the body's own fields."""
    keys = ("retry_after", "retryafter", "retry_after_seconds", "retrydelay", "resets_in_seconds")
    waits = [read_wait(numbers[key], now) for key in keys if key in numbers]
    return max((wait for wait in waits if wait is not None), default=None)


def body_reset(numbers: Mapping[str, str], now: datetime) -> datetime | None:
    """When the window refills by the body's own fields."""
    for key in ("resets_at", "resetsat"):
        if key in numbers:
            return read_epoch(numbers[key], now)
    return None


def _first_epoch(headers: Mapping[str, str], now: datetime, *names: str) -> datetime | None:
    return next((m for n in names if n in headers and (m := read_epoch(headers[n], now))), None)
