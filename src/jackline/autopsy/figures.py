"""Format numbers, durations, times and lists for people.

Rules: (1) pure; (2) a time is shown in its own zone and in UTC; (3) nothing here knows a cause.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from jackline.failures.sentences import zone_name

if TYPE_CHECKING:
    from collections.abc import Sequence


def counted(count: int, singular: str) -> str:
    """`1 agent`, `2,300 agents`."""
    return f"{count:,} {singular}{'' if count == 1 else 's'}"


def times(count: int) -> str:
    """`once`, `twice`, `37 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def duration(value: timedelta) -> str:
    """`0.96 s`, `34.5 s`, `4 min 5 s`, `2 h 3 min`, `3 d 4 h`: two units at most."""
    seconds = max(value.total_seconds(), 0.0)
    if seconds < 59.95:
        text = f"{seconds:.2f}" if seconds < 10 else f"{seconds:.1f}"
        return f"{text.rstrip('0').rstrip('.')} s"
    whole = round(seconds)
    units = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
    size, unit, smaller_size, smaller = next(each for each in units if whole >= each[0])
    rest = whole % size // smaller_size
    return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")


def clock(moment: datetime, *, beside: datetime | None = None, seconds: bool = False) -> str:
    """`22:10 Europe/Kiev (19:10 UTC)`, with its date unless it is the day of `beside`."""
    form = "%H:%M:%S" if seconds else "%H:%M"
    same_day = beside is not None and beside.astimezone(moment.tzinfo).date() == moment.date()
    own = ("" if same_day else f"{moment:%Y-%m-%d} ") + moment.strftime(form)
    if moment.utcoffset() == timedelta(0):
        return f"{own} UTC"
    universal = moment.astimezone(UTC)
    day = f"{universal:%Y-%m-%d} " if universal.date() != moment.date() else ""
    return f"{own} {zone_name(moment)} ({day}{universal.strftime(form)} UTC)"


def clock_span(first: datetime, last: datetime) -> str:
    """`2026-06-18 20:41:02 to 20:41:37 Europe/Kiev (17:41:02 to 17:41:37 UTC)`."""
    last = last.astimezone(first.tzinfo)
    if first == last:
        return clock(first, seconds=True)
    day = "" if first.date() == last.date() else f"{last:%Y-%m-%d} "
    own = f"{first:%Y-%m-%d %H:%M:%S} to {day}{last:%H:%M:%S} {zone_name(first)}"
    if first.utcoffset() == timedelta(0):
        return own
    return f"{own} ({first.astimezone(UTC):%H:%M:%S} to {last.astimezone(UTC):%H:%M:%S} UTC)"


def listed(items: Sequence[str], *, most: int) -> str:
    """`a`, `a and b`, `a, b and c`, `a, b, c and 34 more`."""
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most:,} more"
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def size(count: int) -> str:
    """`812 bytes`, `3.4 kB`, `1.1 GB`."""
    if count < 1000:
        return f"{count} bytes"
    amount, unit = count / 1000, "kB"
    for larger in ("MB", "GB"):
        if amount >= 1000:
            amount, unit = amount / 1000, larger
    return f"{amount:.1f} {unit}"


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 with the offset, or null."""
    return None if moment is None else moment.isoformat()
