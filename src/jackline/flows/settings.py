"""Say how a run is to behave: what it may spend, what it does at a wall, when it may wake.

Laws: (1) immutable, and kept with the run as JSON, so that whoever goes on with it behaves alike;
(2) a budget of None has no limit; (3) a field that an older version wrote or did not write is read
without a fault.
Not here: files and flags (config/), counting what was spent (spending.py), waking (waking.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from jackline.errors import BadArgumentError, JournalError
from jackline.flows.durations import seconds_of

OnQuota: TypeAlias = Literal["park", "abort"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run, a flow or an agent may use; the next call is refused, not the last one undone.

    `seconds` is own work of agents, summed: model calls and tools, not queueing, holding by the
    gateway or parking; an agent's own `seconds` are its `timeout`. With `window` ("5h"), tokens
    and dollars are those of all runs within the window, and a spent window is waited for.
    """

    tokens: int | None = None
    dollars: float | None = None
    agents: int | None = None
    turns: int | None = None
    seconds: float | None = None
    window: float | str | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "dollars", "agents", "turns", "seconds"):
            limit = getattr(self, name)
            if limit is not None and not 0 <= limit < float("inf"):
                raise BadArgumentError(
                    f"A budget's {name} cannot be {limit!r}.", next="Give a number, 0 or more."
                )
        if self.window is not None:
            if not self.window_seconds:
                raise BadArgumentError("A budget's window cannot be empty.", next='Write "5h".')
            if self.tokens is None and self.dollars is None:
                raise BadArgumentError(
                    "A budget's window needs tokens or dollars to count.",
                    next='Write Budget(dollars=20, window="5h").',
                )

    @property
    def window_seconds(self) -> float | None:
        """How far back a rolling budget looks."""
        return None if self.window is None else seconds_of(self.window)


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
