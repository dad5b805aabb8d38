"""Declare budgets, and count what was used and reserved of them.

Rules: (1) pure: `now` is an argument, in seconds on a line that nobody sets; (2) a `Budget` is
immutable and hashable, a limit of None is no limit, and a value that makes no sense is a
UsageError where it is written; (3) an account draws on the one above it: what an agent uses, its
flow and its run have used too; (4) a limit is used up when as much was used as it allows, and the
call that did it is not undone; (5) in a rolling window, what this process uses counts at once,
what others use counts when the store is read next.
Not here: reservations (ledger.py), the size of the next call (estimates.py), reading the store
(flows/budget/reservations.py).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

from jackline.errors import BadArgumentError

Duration: TypeAlias = float | str | timedelta
"""Seconds, words such as "2h", or a timedelta."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_WHOLE = re.compile(rf"\s*(?:{_PART.pattern}\s*)+")


def seconds_of(given: Duration) -> float:
    """The duration in seconds; at least 0."""
    if isinstance(given, timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, str):
        seconds = _read(given)
    else:
        seconds = float(given)
    if not 0 <= seconds < float("inf"):
        raise BadArgumentError(f"{given!r} is no duration.", next='Write 90, "15m" or "2h".')
    return seconds


def _read(words: str) -> float:
    if _WHOLE.fullmatch(words.lower()):
        return sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(words.lower()))
    try:
        return float(words)
    except ValueError:
        raise BadArgumentError(
            f"{words!r} is no duration.", next='Write 90, "15m" or "2h".'
        ) from None


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


_NEAR = 0.8


class BudgetLimit:
    """One limit of one account, and what calls in flight have reserved of it."""

    __slots__ = ("account", "amount", "holders", "near_seen", "reserved", "strict", "unit")

    def __init__(self, account: Account, unit: Unit, amount: float, *, strict: bool) -> None:
        self.account = account
        self.unit = unit
        self.amount = amount
        self.strict = strict and unit in (Unit.TOKENS, Unit.DOLLARS)
        self.reserved: float = 0
        self.holders = 0
        """How many calls in flight have something reserved here."""
        self.near_seen = False

    @property
    def used(self) -> float:
        """How much was used."""
        return self.account.used[self.unit]

    @property
    def is_used_up(self) -> bool:
        """Whether no further call may be made."""
        return self.used >= self.amount

    def hold(self, amount: float) -> None:
        """Reserve so much."""
        self.reserved += amount
        self.holders += 1

    def let_go(self, amount: float) -> None:
        """Give back what `hold` reserved."""
        self.holders -= 1
        # Sums of floats do not come back to nothing by themselves.
        self.reserved = self.reserved - amount if self.holders else 0

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
        self,
        name: str,
        budgets: tuple[Budget, ...] = (),
        parent: Account | None = None,
    ) -> None:
        self.name = name
        self.parent = parent
        self.used: dict[Unit, float] = dict.fromkeys(Unit, 0)
        self.limits = [
            BudgetLimit(self, unit, amount, strict=budget.strict)
            for budget in budgets
            for unit, amount in budget.own_limits
        ]
        self.refills = False
        """Whether waiting gives back what is used up."""

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
        """Count so much as used, here alone."""
        for unit, count in amount.items():
            self.used[unit] += count

    def begin_agent(self) -> BudgetLimit | None:
        """Count one more agent here and above; or the limit that allows no more."""
        for account in self.chain():
            for limit in account.limits:
                if limit.unit is Unit.AGENTS and limit.is_used_up:
                    return limit
        for account in self.chain():
            account.used[Unit.AGENTS] += 1
        return None

    def recall(self, amount: Amount) -> None:
        """Count what an agent used in an earlier process, whether it had ended or goes on.

        Not in the run's own account, which knows all that is kept from the beginning.
        """
        for account in self.chain():
            if account.parent is not None:
                account.add(amount)

    @property
    def limits_seconds(self) -> bool:
        """Whether a budget here or above limits seconds of own work."""
        return any(
            limit.unit is Unit.SECONDS for account in self.chain() for limit in account.limits
        )

    def nearly_used(self) -> BudgetLimit | None:
        """A limit here or above that has just passed four fifths; each once."""
        for account in self.chain():
            for limit in account.limits:
                if limit.near_seen or not limit.amount or limit.used < _NEAR * limit.amount:
                    continue
                limit.near_seen = True
                return limit
        return None

    def left(self) -> BudgetLeft:
        """The least that is left here and above."""
        least: dict[Unit, float] = {}
        for account in self.chain():
            for limit in account.limits:
                remaining = max(0.0, limit.amount - limit.used)
                least[limit.unit] = min(remaining, least.get(limit.unit, remaining))
        return BudgetLeft(
            tokens=_whole(least.get(Unit.TOKENS)),
            dollars=least.get(Unit.DOLLARS),
            agents=_whole(least.get(Unit.AGENTS)),
            turns=_whole(least.get(Unit.TURNS)),
            seconds=least.get(Unit.SECONDS),
        )


def _whole(amount: float | None) -> int | None:
    return None if amount is None else int(amount)


_FRESH = 5.0
_LOOKS = 12
"""How often within a window one looks whether it has room again."""


class BudgetWindow:
    """One budget with a window; `account` is what calls reserve from and are charged to."""

    def __init__(self, budget: Budget) -> None:
        self.seconds = budget.window_seconds or 0.0
        self.account = Account(f"The last {self.seconds / 3600:g} h")
        self.account.refills = True
        self.account.limits = [
            BudgetLimit(self.account, unit, amount, strict=budget.strict)
            for unit, amount in budget.rolling_limits
        ]
        self._looked_at: float | None = None
        # What was paid for here, and when: a store knows it by the wall clock's time alone.
        self._here: deque[tuple[float, Amount]] = deque()

    def record(self, now: float, amount: Amount) -> None:
        """Note when this was charged to the account."""
        self._here.append((now, amount))

    def is_stale(self, now: float) -> bool:
        """Whether it is time to look at what others have used."""
        return self._looked_at is None or now - self._looked_at >= _FRESH

    def look_again(self) -> None:
        """Let the next one look, however fresh the figures are."""
        self._looked_at = None

    def take(self, now: float, everywhere: Amount) -> None:
        """Somebody has looked: so much was used within the window, by all."""
        self._looked_at = now
        while self._here and self._here[0][0] < now - self.seconds:
            self._here.popleft()
        for unit in (Unit.TOKENS, Unit.DOLLARS):
            here = sum(amount.get(unit, 0) for _, amount in self._here)
            self.account.used[unit] = max(everywhere.get(unit, 0), here)

    @property
    def pause(self) -> float:
        """Seconds after which it is worth looking whether a spent window has room again."""
        return self.seconds / _LOOKS
