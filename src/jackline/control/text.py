"""Short texts that every interface shares: counts, moments, names and limits of lanes.

Rules: (1) pure; (2) a time to wait for is rounded up to a whole second, so that a reset is never
shown too early; clock noise adds no second; a moment is shown in one zone; (3) limits come from the
status document alone, grouped by their origin; a document of an older gateway has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta

from jackline.failures.sentences import clock_in_words, duration_in_words
from jackline.states import DerivedState

_AGES = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_CLOCK_NOISE = 0.001
_UNITS = {"requests": "requests", "input": "input tokens", "output": "output tokens"}


def counted(number: int, noun: str) -> str:
    """For example "1 call", "2,000 calls"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def whole_second(moment: float) -> int:
    """The first whole second at which this moment has come."""
    return math.ceil(moment - _CLOCK_NOISE)


def moment_text(moment: float, now: datetime) -> str:
    """The moment as a date for people, in whole seconds, in the zone of `now` alone."""
    return clock_in_words(datetime.fromtimestamp(whole_second(moment), now.tzinfo), now)


def left_text(moment: float, now: datetime) -> str:
    """How long it is until then, for example "13 min 4 s"; at least "0 ms"."""
    left = max(0, whole_second(moment) - int(now.timestamp()))
    return duration_in_words(timedelta(seconds=left))


def ago_text(moment: float, now: datetime, *, exact: bool = False) -> str:
    """How long ago, in its largest unit ("3 min ago"), or when exactly."""
    if exact:
        return clock_in_words(datetime.fromtimestamp(round(moment), now.tzinfo), now)
    seconds = max(0.0, now.timestamp() - moment)
    for size, unit in _AGES:
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def until_text(until: float | None, now: datetime) -> str:
    """ " until 22:10 UTC", or nothing when the time is not known."""
    return "" if until is None else f" until {moment_text(until, now)}"


def lane_state(lane: Mapping[str, object]) -> str:
    """The state to show of a lane of the status document: whether it is paused comes first."""
    if not lane.get("paused"):
        return str(lane["state"])
    return (DerivedState.DRAINING if lane["in_flight"] else DerivedState.PAUSED).value


def limit_text(lane: Mapping[str, object], now: datetime) -> str:
    """`50 requests a minute (written by you)`, for a lane of the status document; else ""."""
    known = lane.get("known_limits")
    by_origin: dict[str, list[str]] = {}
    for name, limit in (known if isinstance(known, dict) else {}).items():
        number, origin, read_at = limit["per_minute"], limit.get("origin"), limit.get("read_at")
        source = "learned from headers"
        if origin == "written":
            source = "written by you"
        elif origin == "vendor":
            source = "from the vendor's rate-limits API"
            if isinstance(read_at, int | float):
                moment = datetime.fromtimestamp(read_at, now.tzinfo)
                day = "" if moment.date() == now.date() else f" on {moment.day} {moment:%B}"
                source += f", read {moment:%H:%M}{day}"
        figure = f"{number:,.0f}" if number == int(number) else f"{number:,g}"
        by_origin.setdefault(source, []).append(f"{figure} {_UNITS.get(name, name)}")
    return "; ".join(f"{', '.join(all_)} a minute ({who})" for who, all_ in by_origin.items())
