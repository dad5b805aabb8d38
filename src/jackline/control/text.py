"""Short texts that every face shares: counts with plural, whole seconds, the limits of a lane.

Rules: (1) pure; (2) one is singular, everything else plural; (3) a time to wait for is rounded up
to a whole second, so that a reset is never shown too early; clock noise adds no second; (4) limits
come from the status document alone, grouped by their origin; a document of an older gateway has
none.
Not here: durations and dates (failures/sentences.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime


def counted(number: int, noun: str) -> str:
    """For example "1 call", "2,000 calls"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


_NOISE = 0.001


def whole_second(moment: float) -> int:
    """The first whole second at which this moment has come."""
    return math.ceil(moment - _NOISE)


_UNITS = {"requests": "requests", "input": "input tokens", "output": "output tokens"}


def limit_words(lane: Mapping[str, object], now: datetime) -> str:
    """`50 requests a minute (written by you)`, of a lane as the gateway tells it; else ""."""
    known = lane.get("known_limits")
    by_origin: dict[str, list[str]] = {}
    for name, limit in (known if isinstance(known, dict) else {}).items():
        number = limit["per_minute"]
        figure = f"{number:,.0f}" if number == int(number) else f"{number:,g}"
        told = f"{figure} {_UNITS.get(name, name)}"
        by_origin.setdefault(_origin(limit, now), []).append(told)
    return "; ".join(f"{', '.join(limits)} a minute ({who})" for who, limits in by_origin.items())


def _origin(limit: Mapping[str, object], now: datetime) -> str:
    origin, read_at = limit.get("origin"), limit.get("read_at")
    if origin == "written":
        return "written by you"
    if origin == "vendor" and isinstance(read_at, int | float):
        moment = datetime.fromtimestamp(read_at, now.tzinfo)
        day = "" if moment.date() == now.date() else f" on {moment.day} {moment:%B}"
        return f"from the vendor's rate-limits API, read {moment:%H:%M}{day}"
    if origin == "vendor":
        return "from the vendor's rate-limits API"
    return "learned from headers"
