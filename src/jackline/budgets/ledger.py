"""Reserve what a call will use before it is sent, and settle it with what it did use.

    reserve ──► granted ──settle──► closed    the answer came: its use is charged
      │            ├─────release──► closed    it was sent and got no answer
      ├──► waiting ─► granted | refused       calls in flight may release enough
      └──► refused                            no call in flight can

Rules: (1) a call gets all that it needs from all its accounts, or nothing; (2) of a strict limit it
gets the most that it can use, else it waits or is refused: a strict limit is never exceeded; (3) of
another limit it gets what it is expected to use, or, when it is the only one in flight there, what
is left: such a limit is exceeded by at most the sum of (actual − reserved) of the calls that were
in flight at its last grant; (4) a call waits only for calls in flight: when there is none, it is
granted or refused; (5) calls at one limit are granted in the order they came; (6) reservations are
in memory and end with their process: what answered calls used is saved elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from jackline.budgets.budget import Account, Amount, BudgetLimit, Unit


@dataclass(frozen=True, slots=True)
class CallDemand:
    """What a call will use.

    `expected` is called at each decision, because answers of other calls change it. `most` has an
    upper bound for each unit that has one. `at_once` is used by sending the call, whatever follows.
    """

    expected: Callable[[], Amount] = dict
    most: Amount = field(default_factory=dict)
    at_once: Amount = field(default_factory=dict)


class RefusalReason(StrEnum):
    """Why a reservation was refused; the last two only by strict limits."""

    USED_UP = "used_up"
    # Even alone it might use more than is left.
    TOO_LARGE = "too_large"
    # It has no upper bound.
    NO_BOUND = "no_bound"


@dataclass(frozen=True, slots=True)
class BudgetRefusal:
    """The limit that refused a reservation, and how much was needed of it."""

    limit: BudgetLimit
    reason: RefusalReason
    need: float = 0.0


class ReservationState(Enum):
    """The state of a reservation."""

    WAITING = "waiting"
    GRANTED = "granted"
    REFUSED = "refused"
    CLOSED = "closed"


class Reservation:
    """What one call has reserved, or waits for; only the ledger changes it."""

    __slots__ = ("accounts", "amounts", "blocked_by", "demand", "limits", "refusal", "state")

    def __init__(self, accounts: tuple[Account, ...], demand: CallDemand) -> None:
        self.accounts = accounts
        # Agents are counted where they begin.
        self.limits = [
            limit for each in accounts for limit in each.limits if limit.unit is not Unit.AGENTS
        ]
        self.demand = demand
        self.state = ReservationState.WAITING
        self.refusal: BudgetRefusal | None = None
        self.blocked_by: tuple[BudgetLimit, ...] = ()
        self.amounts: list[tuple[BudgetLimit, float]] = []


class BudgetLedger:
    """The reservations of one process, and the queue of those that wait.

    Its methods return the reservations that are no longer waiting because of the change.
    """

    def __init__(self) -> None:
        self._waiting: dict[Reservation, None] = {}
        # How many of those that wait are blocked by each limit.
        self._contended: Counter[BudgetLimit] = Counter()

    def reserve(self, accounts: Iterable[Account], demand: CallDemand) -> Reservation:
        """A reservation that is granted, refused, or waits behind earlier ones."""
        reservation = Reservation(tuple(accounts), demand)
        self._decide(reservation, self._contended)
        if reservation.state is ReservationState.WAITING:
            self._waiting[reservation] = None
            self._contended.update(reservation.blocked_by)
        return reservation

    def settle(
        self, reservation: Reservation, actual: Amount, accounts: Iterable[Account] | None = None
    ) -> list[Reservation]:
        """The call was answered: charge what it used, to `accounts` if they have changed."""
        self._close(reservation)
        return self.charge(reservation.accounts if accounts is None else accounts, actual)

    def release(self, reservation: Reservation) -> list[Reservation]:
        """The call was sent and got no answer."""
        self._close(reservation)
        return self.review()

    def withdraw(self, reservation: Reservation) -> list[Reservation]:
        """The call was not sent, and nobody waits for it."""
        if reservation.state is ReservationState.GRANTED:
            self._close(reservation)
            for account in reservation.accounts:
                account.add({unit: -count for unit, count in reservation.demand.at_once.items()})
        elif reservation.state is ReservationState.WAITING:
            del self._waiting[reservation]
            self._contended.subtract(reservation.blocked_by)
            self._contended += Counter()
            reservation.state = ReservationState.CLOSED
        return self.review()

    def charge(self, accounts: Iterable[Account], amount: Amount) -> list[Reservation]:
        """Count what was used without a reservation."""
        for account in accounts:
            account.add(amount)
        return self.review()

    def review(self) -> list[Reservation]:
        """Decide again about the waiting reservations, in their order."""
        if not self._waiting:
            return []
        decided = []
        ahead: Counter[BudgetLimit] = Counter()
        for reservation in list(self._waiting):
            if not any(limit in ahead for limit in reservation.blocked_by):
                self._contended.subtract(reservation.blocked_by)
                self._decide(reservation, ahead)
                if reservation.state is not ReservationState.WAITING:
                    del self._waiting[reservation]
                    decided.append(reservation)
                    continue
                self._contended.update(reservation.blocked_by)
            ahead.update(reservation.blocked_by)
        self._contended += Counter()
        return decided

    @property
    def waiting(self) -> int:
        """How many reservations wait."""
        return len(self._waiting)

    def _decide(self, reservation: Reservation, ahead: Counter[BudgetLimit]) -> None:
        """Grant, refuse, or set what blocks it; `ahead` are limits where earlier ones wait."""
        blocked = []
        amounts = []
        expected, most = reservation.demand.expected(), reservation.demand.most
        for limit in reservation.limits:
            refusal = self._refusal(limit, most)
            if refusal is not None:
                reservation.state = ReservationState.REFUSED
                reservation.refusal = refusal
                return
            need = (most if limit.strict else expected).get(limit.unit)
            if not need:
                continue
            left = limit.amount - limit.used - limit.reserved
            if ahead[limit] or (need > left and limit.reservations):
                blocked.append(limit)
            amounts.append((limit, min(need, left)))
        reservation.blocked_by = tuple(blocked)
        if blocked:
            return
        reservation.state = ReservationState.GRANTED
        reservation.amounts = amounts
        for limit, amount in amounts:
            limit.reserve(amount)
        for account in reservation.accounts:
            account.add(reservation.demand.at_once)

    @staticmethod
    def _close(reservation: Reservation) -> None:
        if reservation.state is not ReservationState.GRANTED:
            raise ValueError(
                f"a reservation that is {reservation.state.value} has nothing to release"
            )
        reservation.state = ReservationState.CLOSED
        for limit, amount in reservation.amounts:
            limit.release(amount)

    @staticmethod
    def _refusal(limit: BudgetLimit, most: Amount) -> BudgetRefusal | None:
        """Why a call may not be sent even if nothing else is in flight."""
        if limit.is_used_up:
            return BudgetRefusal(limit, RefusalReason.USED_UP)
        if not limit.strict:
            return None
        need = most.get(limit.unit)
        if need is None:
            return BudgetRefusal(limit, RefusalReason.NO_BOUND)
        if limit.used + need > limit.amount:
            return BudgetRefusal(limit, RefusalReason.TOO_LARGE, need)
        return None
