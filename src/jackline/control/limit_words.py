"""Say which per-minute limits a lane goes by, and where each number came from.

Rules: (1) pure, and from the status document alone, so that every face says the same; (2) limits
of one origin stand together; (3) a document of an older gateway says nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

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
