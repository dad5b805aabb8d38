"""Declare what may be used: limits by unit, over a life or within a rolling window.

Rules: (1) immutable and hashable, so that a budget is its own identity; (2) a limit of None is no
limit; (3) a value that cannot be meant is a UsageError where it is written.
What has been used of it is in accounts.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from jackline.budgets.durations import seconds_of
from jackline.errors import BadArgumentError


class Unit(StrEnum):
    """What is counted; the names are those of the fields of `Budget`."""

    TOKENS = "tokens"
    DOLLARS = "dollars"
    AGENTS = "agents"
    TURNS = "turns"
    SECONDS = "seconds"


Amount: TypeAlias = Mapping[Unit, float]
"""How much of each unit; a unit that is missing is none of it."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run, a flow or an agent may use; the next call is refused, not the last one undone.

    `seconds` is own work of agents, summed: model calls and tools, not queueing, holding by the
    gateway or parking; an agent's own `seconds` are its `timeout`. With `window` ("5h"), tokens
    and dollars are those of all runs within the window, and a spent window is waited for.
    With `strict`, a call reserves the most that it can use before it is sent, so that tokens and
    dollars are never passed; without, it reserves what it is expected to use.
    """

    tokens: int | None = None
    dollars: float | None = None
    agents: int | None = None
    turns: int | None = None
    seconds: float | None = None
    window: float | str | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        for unit in Unit:
            limit = getattr(self, unit)
            if limit is not None and not 0 <= limit < float("inf"):
                raise BadArgumentError(
                    f"A budget's {unit} cannot be {limit!r}.", next="Give a number, 0 or more."
                )
        if self.window is not None:
            if not self.window_seconds:
                raise BadArgumentError("A budget's window cannot be empty.", next='Write "5h".')
            if self.tokens is None and self.dollars is None:
                raise BadArgumentError(
                    "A budget's window needs tokens or dollars to count.",
                    next='Write Budget(dollars=20, window="5h").',
                )
        if self.strict and self.tokens is None and self.dollars is None:
            raise BadArgumentError(
                "A strict budget needs tokens or dollars: nothing else is reserved.",
                next="Write Budget(dollars=5, strict=True).",
            )

    @property
    def window_seconds(self) -> float | None:
        """How far back a rolling budget looks."""
        return None if self.window is None else seconds_of(self.window)

    @property
    def own_limits(self) -> Iterator[tuple[Unit, float]]:
        """The limits on what one agent, flow or run uses itself."""
        for unit in Unit:
            limit = getattr(self, unit)
            if limit is not None and not (self.window is not None and unit in ROLLING):
                yield unit, limit

    @property
    def rolling_limits(self) -> Iterator[tuple[Unit, float]]:
        """The limits on what all runs together use within the window."""
        for unit in ROLLING if self.window is not None else ():
            limit = getattr(self, unit)
            if limit is not None:
                yield unit, limit


ROLLING = (Unit.TOKENS, Unit.DOLLARS)
"""What a window counts."""
