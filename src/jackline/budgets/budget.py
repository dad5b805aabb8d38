"""Declare budgets, and count what was used and reserved of them.

Rules: (1) pure: `now` is an argument, in seconds on a line that nobody sets; (2) a `Budget` is
immutable and hashable, a limit of None is no limit, and an invalid value is a UsageError where
the budget is made; (3) what an agent uses also counts in the accounts of its flow and its
run; (4) a limit is used up when as much was used as it allows, and the
call that did it is not undone; (5) in a rolling window, what this process uses counts at once,
what others use counts when the store is read next.
Reservations are in ledger.py; a run's accounts live in flows/execution/accounting.py.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from jackline.errors import BadArgumentError

Duration: TypeAlias = float | str | timedelta
"""Seconds, a text such as "2h", or a timedelta."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_NEARLY_USED = 0.8
# For how many seconds the figures of other processes count as current.
_CURRENT_SECONDS = 5.0
# How often within a window a spent one is checked again.
_CHECKS_PER_WINDOW = 12
_WHOLE = re.compile(rf"\s*(?:{_PART.pattern}\s*)+")


def seconds_of(duration: Duration) -> float:
    """The duration in seconds; at least 0."""
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str) and _WHOLE.fullmatch(duration.lower()):
        seconds = sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(duration.lower()))
    else:
        try:
            seconds = float(duration)
        except ValueError:
            seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise BadArgumentError(f"{duration!r} is no duration.", hint='Write 90, "15m" or "2h".')
    return seconds


class Unit(StrEnum):
    """What is counted, named like the fields of `Budget`."""

    TOKENS = "tokens"
    DOLLARS = "dollars"
    AGENTS = "agents"
    TURNS = "turns"
    SECONDS = "seconds"


ROLLING = (Unit.TOKENS, Unit.DOLLARS)
"""What a window counts."""

Amount: TypeAlias = Mapping[Unit, float]
"""How much of each unit; a missing unit is 0."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run, a flow or an agent may use; the next call is refused, the last one not undone.

    `seconds` is the agents' own work, summed: model calls and tools, not queueing, waiting in the
    gateway or parking; an agent's own `seconds` are its `timeout`. With `window` ("5h"), tokens
    and dollars are those of all runs within the window, and calls wait for a spent window. With
    `strict`, a call reserves the most that it can use before it is sent, so that tokens and dollars
    are never exceeded; without, it reserves what it is expected to use.
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
                    f"A budget's {unit} cannot be {limit!r}.", hint="Write a number, 0 or more."
                )
        if self.window is not None:
            if not self.window_seconds:
                raise BadArgumentError("A budget's window cannot be empty.", hint='Write "5h".')
            if self.tokens is None and self.dollars is None:
                raise BadArgumentError(
                    "A budget's window needs tokens or dollars to count.",
                    hint='Write Budget(dollars=20, window="5h").',
                )
        if self.strict and self.tokens is None and self.dollars is None:
            raise BadArgumentError(
                "A strict budget needs tokens or dollars: nothing else is reserved.",
                hint="Write Budget(dollars=5, strict=True).",
            )

    @property
    def window_seconds(self) -> float | None:
        """The length of a rolling budget's window."""
        return None if self.window is None else seconds_of(self.window)

    def limits(self, *, rolling: bool) -> Iterator[tuple[Unit, float]]:
        """The limits on all runs within the window, or on one agent, flow or run itself."""
        for unit in Unit:
            limit, rolls = getattr(self, unit), self.window is not None and unit in ROLLING
            if limit is not None and rolls == rolling:
                yield unit, limit


def with_limits(budgets: tuple[Budget, ...], new: Budget) -> tuple[Budget, ...]:
    """The budgets with the limits of `new` in place of theirs; those of windows stay."""
    units = {unit for unit, _ in new.limits(rolling=False)}
    kept, strict = [], new.strict
    for budget in budgets:
        over = units & {unit for unit, _ in budget.limits(rolling=False)}
        left = {unit.value: getattr(budget, unit) for unit in Unit if unit not in over}
        if over & set(ROLLING):
            strict = strict or budget.strict
        if any(value is not None for value in left.values()):
            is_strict = budget.strict and any(left.get(unit) is not None for unit in ROLLING)
            kept.append(Budget(**left, window=budget.window, strict=is_strict))
    return (*kept, replace(new, strict=strict))


class BudgetLimit:
    """One limit of one account, and what calls in flight have reserved of it."""

    __slots__ = ("account", "amount", "is_reported", "reservations", "reserved", "strict", "unit")

    def __init__(self, account: Account, unit: Unit, amount: float, *, strict: bool) -> None:
        self.account = account
        self.unit = unit
        self.amount = amount
        self.strict = strict and unit in ROLLING
        self.reserved: float = 0
        self.reservations = 0
        # Whether it was reported as nearly used.
        self.is_reported = False

    @property
    def used(self) -> float:
        """How much was used."""
        return self.account.used[self.unit]

    @property
    def is_used_up(self) -> bool:
        """Whether no further call may be made."""
        return self.used >= self.amount

    def reserve(self, amount: float) -> None:
        """Reserve so much for one call."""
        self.reserved += amount
        self.reservations += 1

    def release(self, amount: float) -> None:
        """Undo one `reserve`."""
        self.reservations -= 1
        # Sums of floats do not return to exactly 0 by themselves.
        self.reserved = self.reserved - amount if self.reservations else 0

    def __repr__(self) -> str:
        return f"<{self.account.name}: {self.used}+{self.reserved} of {self.amount} {self.unit}>"


@dataclass(frozen=True, slots=True)
class BudgetLeft:
    """What is left of a budget; None: no limit."""

    tokens: int | None = None
    dollars: float | None = None
    agents: int | None = None
    turns: int | None = None
    seconds: float | None = None


class Account:
    """What one agent, child flow or run has used, and may use.

    `name` begins sentences about it ("The run").
    """

    def __init__(
        self, name: str, budgets: tuple[Budget, ...] = (), parent: Account | None = None
    ) -> None:
        self.name = name
        self.parent = parent
        self.used: dict[Unit, float] = dict.fromkeys(Unit, 0)
        self.limits = [
            BudgetLimit(self, unit, amount, strict=budget.strict)
            for budget in budgets
            for unit, amount in budget.limits(rolling=False)
        ]

    @property
    def tokens(self) -> int:
        """Tokens used so far."""
        return int(self.used[Unit.TOKENS])

    @property
    def dollars(self) -> float:
        """Dollars used so far."""
        return self.used[Unit.DOLLARS]

    def chain(self) -> Iterator[Account]:
        """This account and all above it."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def add(self, amount: Amount) -> None:
        """Count so much as used, in this account alone."""
        for unit, count in amount.items():
            self.used[unit] += count

    def begin_agent(self) -> BudgetLimit | None:
        """Count one more agent here and above; returns the limit that allows no more, if any."""
        for limit in self._all_limits():
            if limit.unit is Unit.AGENTS and limit.is_used_up:
                return limit
        for account in self.chain():
            account.used[Unit.AGENTS] += 1
        return None

    def _all_limits(self) -> Iterator[BudgetLimit]:
        return (limit for account in self.chain() for limit in account.limits)

    def recall(self, amount: Amount) -> None:
        """Count what an agent used in an earlier process.

        Not in the run's own account, which has all saved figures from the beginning.
        """
        for account in self.chain():
            if account.parent is not None:
                account.add(amount)

    @property
    def limits_seconds(self) -> bool:
        """Whether a budget here or above limits seconds."""
        return any(limit.unit is Unit.SECONDS for limit in self._all_limits())

    def nearly_used(self) -> BudgetLimit | None:
        """A limit here or above that is nearly used for the first time; each limit once."""
        for limit in self._all_limits():
            is_near = limit.amount and limit.used >= _NEARLY_USED * limit.amount
            if is_near and not limit.is_reported:
                limit.is_reported = True
                return limit
        return None

    def left(self) -> BudgetLeft:
        """The least that is left here and above."""
        least: dict[str, Any] = {}
        for limit in self._all_limits():
            remaining = max(0.0, limit.amount - limit.used)
            if limit.unit in (Unit.TOKENS, Unit.AGENTS, Unit.TURNS):
                remaining = int(remaining)
            least[limit.unit] = min(remaining, least.get(limit.unit, remaining))
        return BudgetLeft(**least)


class BudgetWindow:
    """One budget with a window; calls reserve from its `account` and are charged to it."""

    def __init__(self, budget: Budget) -> None:
        self.seconds = budget.window_seconds or 0.0
        self.account = Account(f"The last {self.seconds / 3600:g} h")
        self.account.limits = [
            BudgetLimit(self.account, unit, amount, strict=budget.strict)
            for unit, amount in budget.limits(rolling=True)
        ]
        self._updated_at: float | None = None
        # What was used here, and when: the store has only the wall clock's time of it.
        self._used_here: deque[tuple[float, Amount]] = deque()

    def record(self, now: float, amount: Amount) -> None:
        """Record when this was charged to the account."""
        self._used_here.append((now, amount))

    def is_stale(self, now: float) -> bool:
        """Whether the figures of other processes have to be read again."""
        return self._updated_at is None or now - self._updated_at >= _CURRENT_SECONDS

    def expire(self) -> None:
        """Make the figures stale, however new they are."""
        self._updated_at = None

    def update(self, now: float, everywhere: Amount) -> None:
        """Count what all processes have used within the window."""
        self._updated_at = now
        while self._used_here and self._used_here[0][0] < now - self.seconds:
            self._used_here.popleft()
        for unit in ROLLING:
            here = sum(amount.get(unit, 0) for _, amount in self._used_here)
            self.account.used[unit] = max(everywhere.get(unit, 0), here)

    @property
    def check_after(self) -> float:
        """Seconds after which a spent window is checked again."""
        return self.seconds / _CHECKS_PER_WINDOW
