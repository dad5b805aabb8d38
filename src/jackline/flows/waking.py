"""Decide whether a parked run may wake now, later, or only with a person's word.

Laws: (1) pure; (2) a brake only ever delays or asks: it never lets a run wake before its reset;
(3) hours that pass midnight and days of summer time are right, since they are counted in a zone.
Not here: waiting for the time (running.py), starting a process for it (assembly/).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from jackline.errors import BadArgumentError
from jackline.flows.records import RunRecord
from jackline.flows.settings import WakeSettings

NOT_WOKEN = "not woken"
"""What the log of a run says when it was to be woken, and was left parked."""
_HOURS = re.compile(r"\s*(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})(?:\s+([A-Za-z0-9_+/-]+))?\s*")


@dataclass(frozen=True, slots=True)
class Decision:
    """When a parked run wakes: now, at a time, or (both missing) when a person says so."""

    now: bool
    at: datetime | None
    why: str
    """What holds it, for a person; empty when it may wake."""


@dataclass(frozen=True, slots=True)
class Hours:
    """A part of every day, in a zone; it may pass midnight."""

    begins: time
    ends: time
    zone: ZoneInfo | None

    def next_from(self, moment: datetime) -> datetime:
        """The first moment from then on that lies within the hours."""
        local = moment if self.zone is None else moment.astimezone(self.zone)
        if self._holds(local.timetz().replace(tzinfo=None)):
            return moment
        begins = datetime.combine(local.date(), self.begins, tzinfo=local.tzinfo)
        return begins if begins > local else begins + timedelta(days=1)

    def _holds(self, clock_time: time) -> bool:
        if self.begins <= self.ends:
            return self.begins <= clock_time < self.ends
        return clock_time >= self.begins or clock_time < self.ends


def read_hours(words: str) -> Hours:
    """The hours as written: "22:00-07:00", with a zone's name after them if not the host's."""
    match = _HOURS.fullmatch(words)
    hours = None if match is None else _hours(*match.groups())
    if hours is None:
        raise BadArgumentError(
            f"{words!r} are no hours to wake in.",
            next='Write "22:00-07:00", or "22:00-07:00 Europe/Kiev".',
        )
    return hours


def _hours(h1: str, m1: str, h2: str, m2: str, zone: str | None) -> Hours | None:
    try:
        begins, ends = time(int(h1), int(m1)), time(int(h2), int(m2))
        named = ZoneInfo(zone) if zone else None
    except (ValueError, OSError, LookupError):
        return None
    return None if begins == ends else Hours(begins, ends, named)


def may_wake(now: datetime, run: RunRecord, settings: WakeSettings) -> Decision:
    """Whether this parked run may wake `now` (an aware time in the host's zone)."""
    if run.wake_at is None and not run.confirmed:
        why = f"it waits for a person: jackline resume {run.run_id}"
        return Decision(now=False, at=None, why=why)
    if settings.spend is not None and run.cost >= settings.spend and not run.confirmed:
        spent = f"it has cost ${run.cost:,.2f}, and wakes by itself below ${settings.spend:,.2f}"
        return Decision(now=False, at=None, why=spent)
    if settings.confirm and not run.confirmed:
        return Decision(now=False, at=None, why="it wakes only after a person confirms")
    at = now if run.wake_at is None else datetime.fromtimestamp(run.wake_at, now.tzinfo)
    why = "its limit resets then"
    if settings.hours is not None:
        within = read_hours(settings.hours).next_from(max(at, now))
        if within > max(at, now):
            at, why = within, f"it wakes only during {settings.hours}"
    return Decision(now=True, at=at, why="") if at <= now else Decision(now=False, at=at, why=why)


def expected_cost(run: RunRecord, *, done: int, known: int) -> float | None:
    """A guess at what the rest will cost, from what the finished calls did; None without any."""
    if not done or known <= done:
        return None
    return run.cost / done * (known - done)
