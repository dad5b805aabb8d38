"""Keep what was used and reserved of the budgets of one agent, flow, run or window.

Rules: (1) an account draws on the one above it: what an agent uses, its flow and its run have used
too, seconds of own work included; (2) a limit is used up when as much was used as it allows; the
call that did it is not undone; (3) only the ledger reserves (ledger.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jackline.budgets.budget import Amount, Budget, Unit

_NEAR = 0.8


class Limit:
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
class Left:
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
            Limit(self, unit, amount, strict=budget.strict)
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

    def begin_agent(self) -> Limit | None:
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

    def nearly_used(self) -> Limit | None:
        """A limit here or above that has just passed four fifths; each once."""
        for account in self.chain():
            for limit in account.limits:
                if limit.near_seen or not limit.amount or limit.used < _NEAR * limit.amount:
                    continue
                limit.near_seen = True
                return limit
        return None

    def left(self) -> Left:
        """The least that is left here and above."""
        least: dict[Unit, float] = {}
        for account in self.chain():
            for limit in account.limits:
                remaining = max(0.0, limit.amount - limit.used)
                least[limit.unit] = min(remaining, least.get(limit.unit, remaining))
        return Left(
            tokens=_whole(least.get(Unit.TOKENS)),
            dollars=least.get(Unit.DOLLARS),
            agents=_whole(least.get(Unit.AGENTS)),
            turns=_whole(least.get(Unit.TURNS)),
            seconds=least.get(Unit.SECONDS),
        )


def _whole(amount: float | None) -> int | None:
    return None if amount is None else int(amount)
