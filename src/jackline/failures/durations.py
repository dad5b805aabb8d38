"""Read how long something says to wait: "6m0s", "2 hours", "1.574s", an HTTP date.

Laws: (1) a duration is never negative; (2) what cannot be read is None, never zero; (3) no vendor
has a window longer than a month: what says to wait longer than `LONGEST` is no wait, and a reset
beyond it is not known; (4) total: no text raises, also not a date at the end of the calendar.
Not here: moments in time (resets.py), which header to believe (limit_headers.py).
"""

from __future__ import annotations

import re
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
