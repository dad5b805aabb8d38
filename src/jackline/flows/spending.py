"""Count what was used against what may be used; an account draws on the one above it.

Laws: (1) the next call is refused, not the last one undone; (2) what an agent uses, its flow and
its run have used too, seconds of own work included; (3) an unknown price counts as nothing, and is
told once; (4) pure: seconds come in.
Not here: rolling windows over all runs (windows.py), waiting (leave.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jackline.agents.outcome import Ending
from jackline.autopsy.figures import counted
from jackline.flows.settings import Budget

_NEAR = 0.8


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no further call may be made: the ending it means, and the sentence for a person."""

    ending: Ending
    says: str


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a budget; None: no limit."""

    tokens: int | None = None
    dollars: float | None = None
    agents: int | None = None
    turns: int | None = None
    seconds: float | None = None


class Account:
    """What one run, child flow or agent has used, and may use."""

    def __init__(
        self,
        whose: str,
        budgets: tuple[Budget, ...] = (),
        parent: Account | None = None,
    ) -> None:
        self.whose = whose
        self.budgets = budgets
        self.parent = parent
        self.tokens = 0
        self.dollars = 0.0
        self.agents = 0
        self.turns = 0
        self.seconds = 0.0
        self.told_near: set[str] = set()

    def begin_agent(self) -> Refusal | None:
        """Count one more agent; the refusal instead when there may be no more."""
        for account in self._chain():
            for budget in account.budgets:
                if budget.agents is not None and account.agents >= budget.agents:
                    return Refusal(
                        Ending.BUDGET,
                        f"{account.whose} may start {counted(budget.agents, 'agent')}, and has.",
                    )
        for account in self._chain():
            account.agents += 1
        return None

    def recall(
        self, tokens: int, dollars: float, turns: int, seconds: float, *, agents: int = 0
    ) -> None:
        """What an agent used in an earlier process counts here, whether it had ended or goes on.

        Not in the run's own account, which knows all that is kept from the beginning.
        """
        for account in self._chain():
            if account.parent is not None:
                account.agents += agents
                account.turns += turns
                account.tokens += tokens
                account.dollars += dollars
                account.seconds += seconds

    def refusal_above(self) -> Refusal | None:
        """Why no further call may be made, here or above."""
        for account in self._chain():
            refusal = account.refusal()
            if refusal is not None:
                return refusal
        return None

    def begin_turn(self) -> None:
        """Count one more call."""
        for account in self._chain():
            account.turns += 1

    def charge(self, tokens: int, dollars: float) -> None:
        """A call was answered and paid for."""
        for account in self._chain():
            account.tokens += tokens
            account.dollars += dollars

    def charge_seconds(self, seconds: float) -> None:
        """So much more was worked; less than nothing when time turned out to be no work."""
        for account in self._chain():
            account.seconds += seconds

    @property
    def limits_seconds(self) -> bool:
        """Whether a budget here or above limits seconds."""
        return any(
            budget.seconds is not None for account in self._chain() for budget in account.budgets
        )

    def nearly_used(self) -> str:
        """A sentence when a budget has just passed four fifths; told once each."""
        for account in self._chain():
            for name, limit, used in account.limits():
                if name in account.told_near or not limit or used < _NEAR * limit:
                    continue
                account.told_near.add(name)
                return f"{account.whose} has used {_amount(name, used)} of {_amount(name, limit)}."
        return ""

    def left(self) -> Left:
        """The least that is left here and above."""
        least: dict[str, float] = {}
        for account in self._chain():
            for name, limit, used in account.limits():
                remaining = max(0.0, limit - used)
                least[name] = min(remaining, least.get(name, remaining))
        return Left(
            tokens=_whole(least.get("tokens")),
            dollars=least.get("dollars"),
            agents=_whole(least.get("agents")),
            turns=_whole(least.get("turns")),
            seconds=least.get("seconds"),
        )

    def _chain(self) -> Iterator[Account]:
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def limits(self) -> Iterator[tuple[str, float, float]]:
        """Name, limit and use of each budget that is this account's own."""
        for budget in self.budgets:
            rolling = budget.window is not None
            for name in ("tokens", "dollars", "agents", "turns", "seconds"):
                limit = getattr(budget, name)
                if limit is not None and not (rolling and name in ("tokens", "dollars")):
                    yield name, limit, getattr(self, name)

    def refusal(self) -> Refusal | None:
        """Why this account alone allows no further call."""
        for name, limit, used in self.limits():
            if name != "agents" and used >= limit:
                ending = _ENDINGS.get(name, Ending.BUDGET)
                may, has = _amount(name, limit), _amount(name, used)
                return Refusal(ending, f"{self.whose} may use {may}, and has used {has}.")
        return None


_ENDINGS = {"turns": Ending.TURNS, "seconds": Ending.TIMEOUT}


def _amount(name: str, amount: float) -> str:
    if name == "dollars":
        return f"${amount:,.2f}"
    return counted(round(amount), name.removesuffix("s"))


def _whole(amount: float | None) -> int | None:
    return None if amount is None else int(amount)
