"""How a run behaves: what it may spend, what it does at a quota limit, and when it may wake.

Rules: (1) settings are immutable and saved with the run as JSON, so that every process that
resumes it behaves the same; fields of older or newer versions are read without a fault; (2) the
decision to wake is pure; (3) a brake only delays or waits for a person: it never lets a run wake
before its reset; (4) hours that pass midnight and days of summer time are right, since they are
counted in a zone.
Not here: files and flags (config/), budgets (budgets/), starting a process for a run that wakes
(run_processes.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from jackline.budgets.budget import Budget
from jackline.errors import BadArgumentError, JournalError
from jackline.flows.records import RunRecord

OnQuota: TypeAlias = Literal["park", "abort"]
AllowPatterns: TypeAlias = Callable[[], Sequence[str]]
"""Gives the user's patterns for commands of models, as they are now."""


@dataclass(frozen=True, slots=True)
class WakeSettings:
    """The brakes on waking by itself: `[resume]` of the configuration."""

    hours: str | None = None
    """Only then, in the host's zone or a named one: "22:00-07:00", "22:00-07:00 Europe/Kiev"."""
    spend: float | None = None
    """Not when the run has cost so many dollars already."""
    confirm: bool = False
    """Only after a person said yes."""
    max_wakes: int = 8
    """So many wake-ups in a row that meet a wall before any call is answered, then a person has to
    say when; 0: no limit."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """The last part of a subscription's window is kept for agents of other classes than these."""

    share: float
    """From this used share on, no agent of these classes is started."""
    classes: tuple[str, ...] = ("low",)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How one run behaves."""

    budgets: tuple[Budget, ...] = ()
    """All of them hold."""
    on_quota: OnQuota = "park"
    wake: WakeSettings = field(default_factory=WakeSettings)
    runner: str = "messages"
    """Who carries agents that name no runner."""
    model: str | None = None
    """For agents that name no model; None: the runner's default."""
    reserve: Reserve | None = None
    guard: int = 3
    """So many agents in a row that fail the same way stop the run; 0: never."""
    at_once: int = 500
    """So many agents at a time; the others wait their turn."""
    processes_at_once: int = 32
    """So many of them at a time that are processes of their own: Claude Code, Codex. The same bound
    holds for all runs together that one process carries, such as those of models."""
    grace: float = 30.0
    """How long a stop waits for agents to reach a turn's end."""
    hook_limit: float = 120.0
    """How long a clean-up may take."""
    lease: float = 30.0
    poll: float = 2.0
    """How often the owner looks whether another process asked it to stop."""


def encode_settings(settings: RunSettings) -> bytes:
    """The settings as JSON."""
    return msgspec.json.encode(settings)


def decode_settings(data: bytes) -> RunSettings:
    """The settings that were kept with a run."""
    try:
        return msgspec.json.decode(data, type=RunSettings)
    except msgspec.MsgspecError as error:
        raise JournalError(f"The settings kept with this run cannot be read: {error}.") from error


NOT_WOKEN = "not woken"
"""What the log of a run says when it was to be woken, and was left parked."""
_HOURS = re.compile(r"\s*(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})(?:\s+([A-Za-z0-9_+/-]+))?\s*")


@dataclass(frozen=True, slots=True)
class WakeDecision:
    """When a parked run wakes: now, at a time, or (both missing) when a person says so."""

    now: bool
    at: datetime | None
    why: str
    """What holds it, for a person; empty when it may wake."""


@dataclass(frozen=True, slots=True)
class WakeHours:
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


def parse_hours(words: str) -> WakeHours:
    """The hours as written: "22:00-07:00", with a zone's name after them if not the host's."""
    match = _HOURS.fullmatch(words)
    hours = None if match is None else _hours(*match.groups())
    if hours is None:
        raise BadArgumentError(
            f"{words!r} are no hours to wake in.",
            hint='Write "22:00-07:00", or "22:00-07:00 Europe/Kiev".',
        )
    return hours


def _hours(h1: str, m1: str, h2: str, m2: str, zone: str | None) -> WakeHours | None:
    try:
        begins, ends = time(int(h1), int(m1)), time(int(h2), int(m2))
        named = ZoneInfo(zone) if zone else None
    except (ValueError, OSError, LookupError):
        return None
    return None if begins == ends else WakeHours(begins, ends, named)


def may_wake(now: datetime, run: RunRecord, settings: WakeSettings) -> WakeDecision:
    """Whether this parked run may wake `now` (an aware time in the host's zone)."""
    if run.wake_at is None and not run.confirmed:
        why = f"it waits for a person: jackline resume {run.run_id}"
        return WakeDecision(now=False, at=None, why=why)
    if settings.spend is not None and run.cost >= settings.spend and not run.confirmed:
        spent = f"it has cost ${run.cost:,.2f}, and wakes by itself below ${settings.spend:,.2f}"
        return WakeDecision(now=False, at=None, why=spent)
    if settings.confirm and not run.confirmed:
        return WakeDecision(now=False, at=None, why="it wakes only after a person confirms")
    at = now if run.wake_at is None else datetime.fromtimestamp(run.wake_at, now.tzinfo)
    why = "its limit resets then"
    if settings.hours is not None:
        within = parse_hours(settings.hours).next_from(max(at, now))
        if within > max(at, now):
            at, why = within, f"it wakes only during {settings.hours}"
    return (
        WakeDecision(now=True, at=at, why="")
        if at <= now
        else WakeDecision(now=False, at=at, why=why)
    )


def expected_cost(run: RunRecord, *, done: int, known: int) -> float | None:
    """A guess at what the rest will cost, from what the finished calls did; None without any."""
    if not done or known <= done:
        return None
    return run.cost / done * (known - done)
