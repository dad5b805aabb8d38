"""Read how long to wait: durations, dates and limit headers, as vendors write them.

Rules: (1) a duration is never negative; what cannot be read is None, never zero; (2) no vendor
has a window longer than a month: a wait longer than `LONGEST` is no wait, and a reset beyond it
is not known; (3) total: no text raises, also not a date at the end of the calendar; (4) headers
are looked up by lower-case name; the longest of several waits counts, so a longer Retry-After
never shortens the wait; (5) on an answer that succeeded, limit headers are news, not failures.
Not here: reset times in texts (resets.py), what follows from a limit (rules/limits.py).
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
_SECONDS_BY_INITIAL = {
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
    "t": 86400.0,  # Tage
    "j": 86400.0,  # jours
}


def seconds_of(number: float) -> timedelta | None:
    """So many seconds, unless that cannot be a wait."""
    if not 0 <= number <= LONGEST.total_seconds():
        return None
    return timedelta(seconds=number)


def span(start: datetime, end: datetime) -> timedelta:
    """How long it really is from `start` to `end`.

    Plain subtraction of two times in one zone compares their clocks, which is an hour off across
    a change of summer time.
    """
    return end.astimezone(UTC) - start.astimezone(UTC)


def within_reach(moment: datetime | None, now: datetime) -> datetime | None:
    """A reset that somebody told, or None when it lies further ahead than any window lasts."""
    if moment is None or span(now, moment) > LONGEST:
        return None
    return moment


def read_phrase(text: str) -> timedelta | None:
    """A duration in words or Go notation, its parts added up; None when there is none."""
    total = 0.0
    parts = _PART.findall(text)
    for number, unit in parts:
        total += float(number.replace(",", ".")) * _unit_seconds(unit.lower())
    return seconds_of(total) if parts else None


def _unit_seconds(unit: str) -> float:
    if unit == "ms" or unit.startswith("milli"):
        return 0.001
    if unit.startswith(("stunde", "se")):
        return 3600.0 if unit.startswith("stunde") else 1.0
    return _SECONDS_BY_INITIAL[unit[0]]


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

    Values too small to be a date of this century are seconds from now: some servers send those
    under the same header name.
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
_WINDOWS = ("7d_oi", "7d", "5h")
_IN_SECONDS = (
    "retry-after",
    "x-ratelimit-user-retry-after",
    f"{UNIFIED}slow-retry-after",
    "x-codex-primary-reset-after-seconds",
)
_IN_MILLISECONDS = ("retry-after-ms", "x-amz-retry-after", "x-ms-retry-after-ms")


@dataclass(frozen=True, slots=True)
class SpentWindow:
    """A subscription window that refused the request: its name for `sub`, and when it refills."""

    sub: str
    resets_at: datetime | None
    signal: str


def spent_window(headers: Mapping[str, str], now: datetime) -> SpentWindow | None:
    """The subscription window that stands in the way, as far as the headers name one."""
    claim = headers.get(f"{UNIFIED}representative-claim", "")
    status = headers.get(f"{UNIFIED}status", "")
    overage = headers.get(f"{UNIFIED}overage-status", "")
    rejected = [w for w in _WINDOWS if _is_spent(headers, w)]
    if not (claim or overage or status == "rejected" or rejected):
        return None
    if not claim and rejected:
        claim = rejected[0]
    sub, window = _CLAIMS.get(claim, ("session", "5h"))
    resets = _first_epoch(
        headers, now, f"{UNIFIED}reset", f"{UNIFIED}{window}-reset", f"{UNIFIED}overage-reset"
    )
    signal = f"{UNIFIED}representative-claim: {claim}" if claim else f"{UNIFIED}status: {status}"
    return SpentWindow(sub, resets, signal)


def _is_spent(headers: Mapping[str, str], window: str) -> bool:
    used = read_phrase(f"{headers.get(f'{UNIFIED}{window}-utilization', '')}s")
    full = used is not None and used >= timedelta(seconds=1)
    return full or headers.get(f"{UNIFIED}{window}-status") == "rejected"


def announced_window(
    words: Set[str], numbers: Mapping[str, str], now: datetime
) -> SpentWindow | None:
    """The window that a client's own `rate_limit_event` calls rejected."""
    claim = next((word for word in _CLAIMS if word in words), None)
    if claim is None or "rejected" not in words:
        return None
    return SpentWindow(_CLAIMS[claim][0], body_reset(numbers, now), f"rate_limit_event: {claim}")


def codex_window(headers: Mapping[str, str], now: datetime) -> SpentWindow | None:
    """The ChatGPT-plan window that is used up, with its reset."""
    for seat in ("primary", "secondary"):
        prefix = f"x-codex-{seat}-"
        used = read_phrase(f"{headers.get(f'{prefix}used-percent', '')}s")
        if used is None or used < timedelta(seconds=100):
            continue
        minutes = headers.get(f"{prefix}window-minutes", "")
        resets = _first_epoch(headers, now, f"{prefix}reset-at", f"{prefix}reset-after-seconds")
        sub = {"300": "session", "10080": "weekly"}.get(minutes, "unknown_window")
        return SpentWindow(sub, resets, f"{prefix}used-percent: 100")
    return None


def header_wait(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """How long the headers ask to wait; the longest wins."""
    # A date is compared with the server's own clock, where it gives one: clocks differ.
    now = read_moment(headers.get("date", "")) or now
    waits = [read_wait(headers[name], now) for name in _IN_SECONDS if name in headers]
    waits.extend(
        read_phrase(f"{headers[name].strip()}ms") for name in _IN_MILLISECONDS if name in headers
    )
    return max((wait for wait in waits if wait is not None), default=None)


def body_wait(numbers: Mapping[str, str], now: datetime) -> timedelta | None:
    """How long the body's own fields ask to wait."""
    keys = ("retry_after", "retryafter", "retry_after_seconds", "retrydelay", "resets_in_seconds")
    waits = [read_wait(numbers[key], now) for key in keys if key in numbers]
    return max((wait for wait in waits if wait is not None), default=None)


def body_reset(numbers: Mapping[str, str], now: datetime) -> datetime | None:
    """When the body's own fields say that the window refills."""
    for key in ("resets_at", "resetsat"):
        if key in numbers:
            return read_epoch(numbers[key], now)
    return None


def _first_epoch(headers: Mapping[str, str], now: datetime, *names: str) -> datetime | None:
    return next((m for n in names if n in headers and (m := read_epoch(headers[n], now))), None)


def is_long(wait: timedelta | None) -> bool:
    """Whether a wait is too long to sit out in place: longer means a window, not a burst."""
    limit = seconds_of(120)
    return wait is not None and limit is not None and wait > limit
