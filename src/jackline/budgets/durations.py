"""Read a duration as people write it: 90, "15m", "2h", "1d12h", or a timedelta.

Laws: (1) pure; (2) what cannot be meant is a UsageError that names what was given.
Not here: durations in files (config/quantities.py), in vendors' texts (failures/durations.py).
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from jackline.errors import BadArgumentError

Duration: TypeAlias = float | str | timedelta
"""Seconds, words such as "2h", or a timedelta."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_WHOLE = re.compile(rf"\s*(?:{_PART.pattern}\s*)+")


def seconds_of(given: Duration) -> float:
    """The duration in seconds; at least 0."""
    if isinstance(given, timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, str):
        seconds = _read(given)
    else:
        seconds = float(given)
    if not 0 <= seconds < float("inf"):
        raise BadArgumentError(f"{given!r} is no duration.", next='Write 90, "15m" or "2h".')
    return seconds


def _read(words: str) -> float:
    if _WHOLE.fullmatch(words.lower()):
        return sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(words.lower()))
    try:
        return float(words)
    except ValueError:
        raise BadArgumentError(
            f"{words!r} is no duration.", next='Write 90, "15m" or "2h".'
        ) from None
