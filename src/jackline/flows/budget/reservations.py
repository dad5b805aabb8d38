"""Reserve what agents' calls will use from the run's budgets, wait for room, and explain refusals.

Rules: (1) a waiting call wakes when its request is decided and when the run is interrupted; a
caller that gives up earlier withdraws; (2) every settlement, release and charge goes through
here, so that no decision is missed; (3) reservations are in memory only and end with the process;
(4) of a rolling window, what this process spends counts at once, what others spend within a third
of a lease; setting the clock neither empties a window nor fills it; (5) a sentence names limits
and amounts, no prompt and no answer.
Not here: deciding (budgets/ledger.py), what a call needs (execution/call_gate.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jackline.agents.outcome import Ending
from jackline.agents.prices import in_dollars
from jackline.autopsy.figures import counted
from jackline.budgets.budget import Account, Amount, Budget, BudgetLimit, BudgetWindow, Unit
from jackline.budgets.estimates import Estimator
from jackline.budgets.ledger import (
    BudgetLedger,
    BudgetRefusal,
    CallDemand,
    RefusalReason,
    Reservation,
    ReservationState,
)
from jackline.clock import BelievedTime, Clock
from jackline.flows.store.run_store import RunStore


class RollingWindow:
    """One budget with a window, and the store that knows what other processes use of it."""

    def __init__(
        self,
        budget: Budget,
        engine: RunStore,
        clock: Clock,
        underway: Callable[[], tuple[int, float]],
    ) -> None:
        self._window = BudgetWindow(budget)
        self._engine = engine
        self._clock = clock
        # The store hears of a call's spending now and then, and when it ends; until then we count.
        self._underway = underway
        self._looking = asyncio.Lock()
        self._believed = BelievedTime(clock.wall, self._elapsed)

    @property
    def account(self) -> Account:
        """What calls reserve from and are charged to."""
        return self._window.account

    @property
    def hours(self) -> float:
        """How far back it looks."""
        return self._window.seconds / 3600

    def record(self, amount: Amount) -> None:
        """A call of this process was paid for, and charged to the account."""
        self._window.record(self._elapsed(), amount)

    async def refresh(self) -> bool:
        """Look at what others have used, if that is due; whether it was."""
        if not self._window.is_stale(self._elapsed()):
            return False
        # Whoever comes meanwhile waits for the same look: what it does not know yet is not unused.
        async with self._looking:
            now = self._elapsed()
            if not self._window.is_stale(now):
                return False
            since = self._believed.now() - self._window.seconds
            tokens, dollars = await self._engine.spent_since(since)
            underway = self._underway()
            everywhere = {Unit.TOKENS: tokens + underway[0], Unit.DOLLARS: dollars + underway[1]}
            self._window.update(now, everywhere)
            return True

    def pause(self) -> float:
        """When to look again at a spent window, by the wall clock; the next call does look."""
        self._window.expire()
        return self._clock.wall() + self._window.check_after

    def _elapsed(self) -> float:
        """Real seconds, in sleep too."""
        return self._clock.monotonic() + self._clock.slept()


_ENDINGS = {Unit.TURNS: Ending.TURNS, Unit.SECONDS: Ending.TIMEOUT}


@dataclass(frozen=True, slots=True)
class StrictCall:
    """The call that a strict budget refused, for the sentence about it."""

    own_loop: bool
    model: str
    max_tokens: int


def ending_of_limit(limit: BudgetLimit) -> Ending:
    """How an agent ends that this limit refuses."""
    return _ENDINGS.get(limit.unit, Ending.BUDGET)


def no_more_agents(limit: BudgetLimit) -> str:
    """The sentence where no further agent may begin."""
    return f"{limit.account.name} may start {counted(int(limit.amount), 'agent')}, and has."


def nearly_used(limit: BudgetLimit) -> str:
    """The sentence where most of a budget is used."""
    name, used, may = limit.account.name, _amount(limit, limit.used), _amount(limit, limit.amount)
    return f"{name} has used {used} of {may}."


def window_used(limit: BudgetLimit, hours: float) -> str:
    """The reason of a run that is parked until a window has room again."""
    if limit.unit is Unit.DOLLARS:
        amounts = f"${limit.used:,.2f} of ${limit.amount:,.2f}"
    else:
        amounts = f"{limit.used:,.0f} of {limit.amount:,.0f} {limit.unit}"
    return f"{amounts} in {hours:g} h are used"


def refusal_sentence(refusal: BudgetRefusal, call: StrictCall) -> str:
    """Why no further call may be made."""
    limit = refusal.limit
    name, may = limit.account.name, _amount(limit, limit.amount)
    if refusal.reason is RefusalReason.USED_UP:
        return f"{name} may use {may}, and has used {_amount(limit, limit.used)}."
    if refusal.reason is RefusalReason.NO_BOUND:
        return f"{name} may use {may} and never more (strict), {_why_unbounded(call)}"
    need = _amount(limit, refusal.need)
    bound = f"one call may use up to {need}: its input and max_tokens={call.max_tokens}"
    if not limit.used:
        return (
            f"{name} may use {may} and never more (strict), which is less than one call: {bound}."
            f" Raise the budget to at least {need}, give agent(max_tokens=…) less, or leave out"
            " strict."
        )
    return (
        f"{name} may use {may} and never more (strict), and has used"
        f" {_amount(limit, limit.used)}: what is left is less than one call ({bound})."
    )


def _why_unbounded(call: StrictCall) -> str:
    if not call.own_loop:
        return (
            "and nobody knows beforehand what this runner's calls use: take"
            ' runner="messages", or leave out strict.'
        )
    return (
        f"and the price of {call.model} is not known: set it under [prices], limit tokens, or"
        " leave out strict."
    )


def _amount(limit: BudgetLimit, amount: float) -> str:
    if limit.unit is Unit.DOLLARS:
        # A bound of a cent's part must not be shown as nothing.
        return f"${amount:,.2f}" if amount >= 0.01 or not amount else in_dollars(amount)
    return counted(round(amount), limit.unit.removesuffix("s"))


class Reservations:
    """The ledger of one run in one process, with those who wait for it."""

    def __init__(self) -> None:
        self._ledger = BudgetLedger()
        self._waiting: dict[Reservation, asyncio.Future[None]] = {}
        self.estimates = Estimator()

    def ask(self, accounts: Iterable[Account], demand: CallDemand) -> Reservation:
        """A request that is granted or refused, or that `decided` must be awaited for."""
        return self._ledger.reserve(accounts, demand)

    async def decided(self, request: Reservation) -> None:
        """Returns when the request waits no more, or when the run was interrupted.

        Who stops waiting before that has to `withdraw` it.
        """
        if request.state is not ReservationState.WAITING:
            return
        self._waiting[request] = asyncio.get_running_loop().create_future()
        try:
            await self._waiting[request]
        finally:
            del self._waiting[request]

    def settle(self, request: Reservation, actual: Amount, accounts: Iterable[Account]) -> None:
        """The call was answered, and these accounts pay for it."""
        self._wake(self._ledger.settle(request, actual, accounts))

    def release(self, request: Reservation) -> None:
        """The call was sent and came to no answer."""
        self._wake(self._ledger.release(request))

    def withdraw(self, request: Reservation) -> None:
        """The call was not sent."""
        self._wake(self._ledger.withdraw(request))

    def charge(self, accounts: Iterable[Account], amount: Amount) -> None:
        """Something was used without a reservation."""
        self._wake(self._ledger.charge(accounts, amount))

    def review(self) -> None:
        """What was used was counted anew, such as in a window that has rolled on."""
        self._wake(self._ledger.review())

    def interrupt(self) -> None:
        """Wake everybody: the run goes no further, and the gate tells them how."""
        self._wake(list(self._waiting))

    def _wake(self, requests: list[Reservation]) -> None:
        for request in requests:
            waiting = self._waiting.get(request)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
