"""Turn a zone's name, alias, abbreviation or offset into a `tzinfo`.

Laws: (1) an unknown name is None, never a guess; (2) a name that the zone database knows keeps its
own spelling, so that people read back what they were told.
Not here: the host's zone, which comes in with `now`.
"""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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
    for spelling in (name, _ALIASES.get(name.lower()), _capitalised(name)):
        if spelling is None:
            continue
        try:
            return ZoneInfo(spelling)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return None


def _capitalised(name: str) -> str:
    """`europe/kiev` as the database writes it; file systems that fold case hide the difference."""
    return "/".join(
        "_".join(word.capitalize() for word in part.split("_")) for part in name.split("/")
    )
