"""Parse how long to wait and when a limit resets, from headers, fields and messages.

Rules: (1) the result is aware, in the zone that the text names, else in the zone of `now`; an
unknown zone is None, never a guess, and a name that the zone database knows has its own spelling;
(2) a clock without a date means its next occurrence, less than 24 hours away, or the one that has
just passed: clients print no seconds, and their texts are parsed a moment later; (3) a date without
a year means the nearest such date, so a reset that has just passed is in the past; (4) a reset of
another limit, beside the one that blocks, is used only when there is no other; (5) month names are
those of English, Spanish, Portuguese, German, French and Italian clients, matched without case,
with or without accents or a final dot; (6) a duration is never negative; what cannot be parsed is
None, never zero; (7) no vendor has a window longer than a month: a wait longer than `LONGEST` is no
wait, and a reset beyond it is not known; (8) total: no text raises, also not a date at the end of
the calendar; (9) headers have lower-case names; the longest of several waits counts, so a longer
Retry-After never shortens the wait; on an answer that succeeded they are information, no failures.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from jackline.failures.wording import compiled

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


_NAMES = (
    "january enero janeiro januar janvier gennaio janner",
    "february febrero fevereiro februar fevrier febbraio feber",
    "march marzo marco marz mars maerz mrz",
    "april abril avril aprile",
    "may mayo maio mai maggio",
    "june junio junho juni juin giugno",
    "july julio julho juli juillet luglio",
    "august agosto aout",
    "september septiembre setembro septembre settembre setiembre",
    "october octubre outubro oktober octobre ottobre",
    "november noviembre novembro novembre",
    "december diciembre dezembro dezember decembre dicembre",
)
# Three letters that two months share in some language, decided by what clients really print.
_SHORT = {"jui": 6, "mar": 3, "mai": 5, "avr": 4, "juil": 7}

MONTH = r"[a-zà-ÿ]{3,10}"


def month_number(name: str) -> int | None:
    """1 to 12 for a month's name or abbreviation; None for anything else."""
    decomposed = unicodedata.normalize("NFD", name.strip(". ").lower())
    plain = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    if plain in _SHORT:
        return _SHORT[plain]
    if len(plain) < 3:
        return None
    hits = {
        number
        for number, names in enumerate(_NAMES, start=1)
        if any(known.startswith(plain) for known in names.split())
    }
    return hits.pop() if len(hits) == 1 else None


# One city each, because abbreviations are ambiguous around the world; these are the meanings that
# the English texts of the vendors use.
_ABBREVIATIONS = {
    "UTC": "UTC",
    "GMT": "UTC",
    "Z": "UTC",
    "PT": "America/Los_Angeles",
    "PST": "America/Los_Angeles",
    "PDT": "America/Los_Angeles",
    "PACIFIC": "America/Los_Angeles",
    "MT": "America/Denver",
    "MST": "America/Denver",
    "MDT": "America/Denver",
    "CT": "America/Chicago",
    "CST": "America/Chicago",
    "CDT": "America/Chicago",
    "ET": "America/New_York",
    "EST": "America/New_York",
    "EDT": "America/New_York",
    "EASTERN": "America/New_York",
    "BST": "Europe/London",
    "CET": "Europe/Paris",
    "CEST": "Europe/Paris",
    "EET": "Europe/Kyiv",
    "EEST": "Europe/Kyiv",
    "MSK": "Europe/Moscow",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul",
    "AEST": "Australia/Sydney",
    "AEDT": "Australia/Sydney",
}
# Spellings that older or newer databases may lack.
_ALIASES = {
    "europe/kyiv": "Europe/Kiev",
    "europe/kiev": "Europe/Kyiv",
    "asia/calcutta": "Asia/Kolkata",
    "asia/saigon": "Asia/Ho_Chi_Minh",
    "asia/katmandu": "Asia/Kathmandu",
    "asia/rangoon": "Asia/Yangon",
    "america/buenos_aires": "America/Argentina/Buenos_Aires",
}
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_]{2,20}(?:/[A-Za-z0-9_+-]{1,30}){1,2}")


def read_zone(name: str) -> tzinfo | None:
    """The zone that `name` means, or None."""
    name = name.strip(" ()[]")
    if _NAME.fullmatch(name):
        return _from_database(name)
    if name.upper() in _ABBREVIATIONS:
        return _from_database(_ABBREVIATIONS[name.upper()])
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        return None
    sign = -1 if offset[1] == "-" else 1
    shift = sign * timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
    return timezone(shift) if abs(shift) < timedelta(hours=24) else None


def _from_database(name: str) -> tzinfo | None:
    if name == "UTC":
        return UTC
    # As the database writes it; file systems that ignore case hide the difference.
    capitalised = "/".join(
        "_".join(word.capitalize() for word in part.split("_")) for part in name.split("/")
    )
    for spelling in (name, _ALIASES.get(name.lower()), capitalised):
        if spelling is None:
            continue
        try:
            return ZoneInfo(spelling)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return None


_LEAD = (
    r"(?:resets?|renews?|regain access|try again|retry|available(?: again)?|continu\w{1,5}|wait"
    r"|back|until|again|ends|reinicia|restablece|renueva|de nuevo|nuevamente|intentarlo|disponible"
    r"|redefin\w{1,6}|novamente|dispon[ií]vel|versuch\w{0,4} es|wird|verf[üu]gbar|erneut"
    r"|r[ée]initialis\w{1,5}|r[ée]essayez?)"
)
_JOIN = (
    r"(?:\s?(?:(?:at|on|in|after|by|automatically|until|again|el|a las|las|d[ií]a|em|no dia|[àa]s"
    r"|am|um|ab|wieder|le|[àa]|dans|en)(?![a-zà-ÿ])|[:;~])){0,3}\s?"
)
_ZONE = (
    r"(?:\s?(?P<zone>\([A-Za-z0-9_/+:\- ]{1,40}\)|(?:UTC|GMT)(?:[+-]\d{1,2}(?::?\d{2})?)?|Z"
    r"|[PMCE][SD]?T|CES?T|EES?T|BST|IST|JST|KST|MSK|AE[SD]T)(?![A-Za-z]))?"
)
_CLOCK = (
    r"(?P<hour>\d{1,2})(?:(?:[:.h]|\s?h\s?)(?P<minute>\d{2})(?::(?P<second>\d{2}))?)?"
    r"\s?(?P<half>[ap]\.?\s?m\.?(?![a-z]))?(?:\s?(?:uhr|h|hrs|hours?)(?![a-z]))?"
)
_WEEKDAY = (
    r"(?:(?:mon|tue|wed|thu|fri|sat|sun|lun|mar|mi[ée]|jue|vie|s[áa]b|dom|seg|ter|qua|qui|sex"
    r"|mo|di|do|fr|sa|so|jeu|ven|sam|dim)[a-zà-ÿ]{0,8}\.?,?\s)?"
)
_GAP = r"(?:\s?(?:,|at|um|a las|[àa]s|[àa]|·|-|T|las)){0,2}\s?"
_YEAR = r"(?:,?\s?(?:de\s|del\s)?(?P<year>20\d{2}))?"

_FORMS = tuple(
    f"(?i){form}"
    for form in (
        # 2026-09-01 at 00:00 UTC
        rf"(?P<year>20\d{{2}})-(?P<month>\d{{2}})-(?P<day>\d{{2}})(?:{_GAP}{_CLOCK})?{_ZONE}",
        # 9/1/2026, 5:30 PM · 01.09.2026, 17:30
        rf"(?P<first>\d{{1,2}})(?P<mark>[/.])(?P<second_>\d{{1,2}})[/.](?P<year>20\d{{2}})(?:{_GAP}{_CLOCK})?{_ZONE}",
        # Feb 4, 8pm (Europe/Budapest) · April 1, 2026 at 5:30 AM · Jul 5th, 2026 8:19 PM
        rf"{_WEEKDAY}(?P<name>{MONTH})\.?\s(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?![\d:]){_YEAR}(?:{_GAP}{_CLOCK})?{_ZONE}",
        # 10 de jul. de 2026, 11:52 · 10. Juli 2026 um 11:52
        rf"{_WEEKDAY}(?P<day>\d{{1,2}})(?:\.|º|er)?\s(?:de\s)?(?P<name>{MONTH})\.?{_YEAR}(?:{_GAP}{_CLOCK})?{_ZONE}",
    )
)
_WEEKDAY_CLOCK = (
    rf"(?i)(?P<weekday>mon|tue|wed|thu|fri|sat|sun)[a-z]{{0,6}}\.?,?(?:\sat)?\s{_CLOCK}{_ZONE}"
)
_CLOCK_ONLY = rf"(?i){_CLOCK}{_ZONE}"
_LEADS = rf"(?i)\b{_LEAD}{_JOIN}"
# "18h30" is a clock in France and Brazil, "1h30m" is a duration everywhere.
_IN = rf"(?i)(?!\d{{1,2}}\s?h\s?\d{{2}}(?![\dms.]))(?P<duration>{PHRASE})"
_PIPE = r"(?i)reached\s?\|\s?(\d{10}(?:\d{3})?)\b"
_SECONDARY = (
    r"(?i)\byour (?:current )?(?:5-hour|five-hour|session|weekly|daily|plan|opus|sonnet)"
    r"(?: weekly)? limits? (?:will )?resets?[^·.|]{0,60}"
)
# A clock without seconds means any second of its minute, and the text is parsed a little later.
_JUST_PASSED = timedelta(seconds=90)
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# A client's own countdown shows when it will retry, not when the vendor allows it; unless it is
# longer than any client waits by itself, because then it repeats the vendor's wait.
_OWN_RETRY = rf"(?i)\bretrying (?:in|after) (?P<duration>{PHRASE})?[^·)]{{0,20}}"
_LONGEST_OWN_WAIT = timedelta(seconds=60)


def find_reset(text: str, now: datetime, *, primary: bool = False) -> datetime | None:
    """The moment at which the limit ends by `text`, or None.

    With `primary` the resets of limits that do not block are left out.
    """
    text = compiled(_SECONDARY).sub(" ", text) if primary else text
    pipe = compiled(_PIPE).search(text)
    if pipe is not None:
        return read_epoch(pipe[1], now)
    text = compiled(_OWN_RETRY).sub(_vendor_wait, text)
    return _find(compiled(_SECONDARY).sub(" ", text), now) or _find(text, now)


def find_wait(text: str) -> timedelta | None:
    """The longest wait in `text`, or None."""
    text = compiled(_OWN_RETRY).sub(_vendor_wait, text)
    waits = (_duration_after(text, lead.end()) for lead in compiled(_LEADS).finditer(text))
    return max((wait for wait in waits if wait is not None), default=None)


def _vendor_wait(own: re.Match[str]) -> str:
    duration = read_phrase(own["duration"] or "")
    is_vendors = duration is not None and duration > _LONGEST_OWN_WAIT
    return f" retry in {own['duration']} " if is_vendors else " "


def _find(text: str, now: datetime) -> datetime | None:
    for lead in compiled(_LEADS).finditer(text):
        duration = _duration_after(text, lead.end())
        if duration is not None:
            return now + duration
        moment = _moment_at(text, lead.end(), now)
        if moment is not None:
            return moment
    return None


def _duration_after(text: str, position: int) -> timedelta | None:
    match = compiled(_IN).match(text, position)
    return None if match is None else read_phrase(match["duration"])


class _PrintedTime:
    """A date or a clock as it was printed, by the names of its parts."""

    def __init__(self, match: re.Match[str], now: datetime) -> None:
        self._parts: dict[str, str | None] = match.groupdict()
        self._now = now

    def dated(self) -> datetime | None:
        """The nearest such date."""
        name, day = self._parts.get("name"), int(self._parts.get("day") or 0) or None
        if name is not None:
            month = month_number(name)
        elif self._parts.get("month") is not None:
            month = int(self._parts["month"] or 0)
        else:
            day, month = int(self._parts["first"] or 0), int(self._parts["second_"] or 0)
            # Slashes with an am/pm clock are American; everyone else writes the day first.
            american = self._parts["mark"] == "/" and (
                self._parts.get("half") is not None or month > 12
            )
            if american and day <= 12:
                day, month = month, day
        if day is None or month is None:
            return None
        zone = self._zone()
        clock = self._clock() or (0, 0, 0)
        year = self._parts.get("year")
        here = self._now.astimezone(zone)
        years = [int(year)] if year else [here.year - 1, here.year, here.year + 1]
        moments = []
        for each in years:
            # Some days are not in every year.
            with suppress(ValueError):
                moments.append(datetime(each, month, day, *clock, tzinfo=zone))
        return min(moments, key=lambda moment: abs(span(self._now, moment)), default=None)

    def next_occurrence(self) -> datetime | None:
        """The next time of this clock, on this weekday if there is one."""
        clock = self._clock()
        if clock is None:
            return None
        zone = self._zone()
        today = self._now.astimezone(zone).date()
        weekday = self._parts.get("weekday")
        wanted = None if weekday is None else _WEEKDAYS.index(weekday.lower())
        is_exact = wanted is not None or self._parts.get("second")
        for days in range(-1 if wanted is None else 0, 9):
            date = today + timedelta(days=days)
            moment = datetime(date.year, date.month, date.day, *clock, tzinfo=zone)
            is_next = span(self._now, moment) > (timedelta(0) if is_exact else -_JUST_PASSED)
            if is_next and wanted in (None, date.weekday()):
                return moment
        return None

    def _clock(self) -> tuple[int, int, int] | None:
        if self._parts.get("hour") is None:
            return None
        hour, minute = int(self._parts["hour"] or 0), int(self._parts.get("minute") or 0)
        second = int(self._parts.get("second") or 0)
        half = (self._parts.get("half") or "").lower()
        if half and not 1 <= hour <= 12:
            return None
        if half:
            hour = hour % 12 + (12 if half.startswith("p") else 0)
        if hour > 24 or minute > 59 or second > 59:
            return None
        return hour % 24, minute, second

    def _zone(self) -> tzinfo:
        host = self._now.tzinfo
        if host is None:
            raise ValueError("now must be aware")
        name = self._parts.get("zone")
        return (read_zone(name) if name else None) or host


def _moment_at(text: str, position: int, now: datetime) -> datetime | None:
    for form in _FORMS:
        match = compiled(form).match(text, position)
        moment = None if match is None else _PrintedTime(match, now).dated()
        if moment is not None:
            return moment
    weekday = compiled(_WEEKDAY_CLOCK).match(text, position)
    if weekday is not None:
        return _PrintedTime(weekday, now).next_occurrence()
    clock = compiled(_CLOCK_ONLY).match(text, position)
    if clock is None or not (clock["half"] or clock["minute"] or clock["zone"]):
        return None
    return _PrintedTime(clock, now).next_occurrence()
