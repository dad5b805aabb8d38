"""Say how a run is to behave: what it may spend, what it does at a wall, when it may wake.

Laws: (1) immutable, and kept with the run as JSON, so that whoever goes on with it behaves alike;
(2) a field that an older version wrote or did not write is read without a fault.
Not here: files and flags (config/), budgets (budgets/), waking (waking.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from jackline.budgets.budget import Budget
from jackline.errors import JournalError

OnQuota: TypeAlias = Literal["park", "abort"]


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
    """So many of them at a time that are processes of their own: Claude Code, Codex."""
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
