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
from contextlib import suppress
from dataclasses import MISSING, dataclass, field
from datetime import datetime, time, timedelta
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from jackline.agents.outcome import RUNNERS
from jackline.agents.prices import in_dollars
from jackline.budgets.budget import ROLLING, Budget, Unit
from jackline.clock import CORRECTED
from jackline.errors import BadArgumentError, JournalError
from jackline.flows.records import RunRecord
from jackline.settings import Form, InProject, setting

OnQuota: TypeAlias = Literal["park", "abort"]
AllowPatterns: TypeAlias = Callable[[], Sequence[str]]
"""Gives the user's patterns for commands of models, as they are now."""


@dataclass(frozen=True, slots=True)
class WakeSettings:
    """The brakes on parked runs that wake by themselves."""

    hours: str | None = setting(
        None,
        'Wake only at these hours, such as "22:00-07:00" or "22:00-07:00 Europe/Kiev".',
        Form.HOURS,
    )
    spend: float | None = setting(
        None,
        "A run that has cost this many dollars waits for a person.",
        least=0,
        in_project=InProject.LOWER,
    )
    confirm: bool = setting(False, "Wake only after a person said yes (`jackline resume ID`).")
    max_wakes: int = setting(
        8,
        "This many wake-ups in a row may meet a quota limit before a call is answered, each after a"
        " longer pause (5 minutes, doubled up to 4 hours). Then the run waits for a person"
        " (`jackline resume ID`). 0: no limit.",
        least=0,
    )


@dataclass(frozen=True, slots=True)
class Reserve:
    """Reserve the last part of a subscription's window for what matters more."""

    share: float = setting(
        MISSING,
        "When this share of the fullest window is used, no agent of these classes starts; not"
        " set: never.",
        above=0,
        most=1,
        in_project=InProject.LOWER,
    )
    classes: tuple[str, ...] = setting(
        ("low",),
        "The classes (`agent(class_=…)`) that wait then; they start after the reset.",
        in_project=InProject.MORE,
    )


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Defaults for the runs of flows."""

    budgets: tuple[Budget, ...] = ()
    """All of them hold."""
    on_quota: OnQuota = setting(
        "park",
        "At a quota limit: wait for its reset with everything saved (park), or fail (abort).",
    )
    wake: WakeSettings = field(default_factory=WakeSettings)
    runner: str = setting("messages", "What runs agents that name no runner.", choices=RUNNERS)
    model: str | None = setting(
        None,
        "The model of agents that name none; not set: the runner's default.",
        Form.MODEL,
        in_project=InProject.PRICED,
    )
    reserve: Reserve | None = None
    at_once: int = setting(
        500,
        "How many agents run at the same time; the others wait.",
        least=1,
        in_project=InProject.LOWER,
    )
    guard: int = setting(
        3, "The run stops after this many agents in a row fail in the same way; 0: never.", least=0
    )
    processes_at_once: int = 32
    """So many of them at a time that are processes of their own: Claude Code, Codex. The same bound
    holds for all runs together that one process runs, such as those of models."""
    grace: float = setting(
        30.0, "How long a stop waits for agents to end their turns.", Form.DURATION
    )
    hook_limit: float = 120.0
    """How long a clean-up may take."""
    lease: float = 30.0
    poll: float = 2.0
    """How often the owner checks for orders of other processes."""


def encode_settings(settings: RunSettings) -> bytes:
    """The settings as JSON."""
    return msgspec.json.encode(settings)


def decode_settings(data: bytes) -> RunSettings:
    """The settings that were saved with a run."""
    try:
        return msgspec.json.decode(data, type=RunSettings)
    except msgspec.MsgspecError as error:
        raise JournalError(f"The settings saved with this run cannot be read: {error}.") from error


def limits_in_words(budgets: Sequence[Budget]) -> str:
    """What a run may use: "$10.00, 50 agents"; empty without a limit."""
    words = []
    for budget in budgets:
        for unit in Unit:
            if (limit := getattr(budget, unit)) is not None:
                dollars = unit is Unit.DOLLARS
                noun = unit.removesuffix("s") if limit == 1 else unit
                amount = in_dollars(limit) if dollars else f"{limit:,.10g} {noun}"
                rolls = budget.window is not None and unit in ROLLING
                words.append(f"{amount} in {budget.window}" if rolls else amount)
    return ", ".join(words)


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
    if match := _HOURS.fullmatch(words):
        h1, m1, h2, m2, zone = match.groups()
        with suppress(ValueError, OSError, LookupError):
            begins, ends = time(int(h1), int(m1)), time(int(h2), int(m2))
            if begins != ends:
                return WakeHours(begins, ends, ZoneInfo(zone) if zone else None)
    raise BadArgumentError(
        f"{words!r} are no hours to wake in.",
        hint='Write "22:00-07:00", or "22:00-07:00 Europe/Kiev".',
    )


def may_wake(now: datetime, run: RunRecord, settings: WakeSettings) -> WakeDecision:
    """Whether this parked run may wake `now` (an aware time in the host's zone)."""
    if run.wake_at is None and not run.confirmed:
        why = f"it waits for a person: jackline resume {run.run_id}"
        return WakeDecision(now=False, at=None, why=why)
    if settings.spend is not None and run.cost >= settings.spend and not run.confirmed:
        spent = f"it has cost ${run.cost:,.2f}, and wakes by itself below ${settings.spend:,.2f}"
        return WakeDecision(now=False, at=None, why=spent)
    if settings.spend is not None and run.unpriced and not run.confirmed:
        unknown = f"its cost is not known, and it wakes by itself below ${settings.spend:,.2f}"
        return WakeDecision(now=False, at=None, why=unknown)
    if settings.confirm and not run.confirmed:
        return WakeDecision(now=False, at=None, why="it wakes only after a person confirms")
    at = now if run.wake_at is None else datetime.fromtimestamp(run.wake_at, now.tzinfo)
    if run.updated_at - now.timestamp() > CORRECTED:
        at = now  # saved by a clock that was ahead: the date says nothing, and one agent finds out
    why = "its limit resets then"
    if settings.hours is not None:
        within = parse_hours(settings.hours).next_from(max(at, now))
        if within > max(at, now):
            at, why = within, f"it wakes only during {settings.hours}"
    return WakeDecision(now=at <= now, at=at, why="" if at <= now else why)


def expected_cost(run: RunRecord, *, done: int, known: int) -> float | None:
    """A guess at what the rest will cost, from what the finished calls did; None without any."""
    if not done or known <= done or run.unpriced:
        return None
    return run.cost / done * (known - done)
