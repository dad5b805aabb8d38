"""Reserve what a call will use before it is sent, and settle it with what it did use.

    ask ──► granted ──settle──► closed        the answer came: its use is charged
      │        ├─────release──► closed        it was sent and came to no answer
      ├──► waiting ─► granted | refused       others in flight may give back enough
      └──► refused                            nothing in flight can

Rules: (1) a call gets all that it asks of all its accounts, or nothing; (2) of a strict limit it
gets the most that it can use, else it waits or is refused: a strict limit is never passed; (3) of
another limit it gets what it is expected to use, or, when it is the only one in flight there, what
is left: such a limit is passed by no more than the sum of (actual − reserved) of the calls that
were in flight at its last grant; (4) who waits, waits for a call in flight: when there is none, the
request is granted or refused; (5) requests at one limit are granted in the order they came; (6)
reservations live in memory and end with their process. That is right, since a call that was not
answered has settled nothing: what answered calls used is kept elsewhere, and recalled.
How much to ask for is in estimates.py; what a refusal means is the caller's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from jackline.budgets.budget import Account, Amount, BudgetLimit, Unit


@dataclass(frozen=True, slots=True)
class CallDemand:
    """What a call will use."""

    expected: Callable[[], Amount] = dict
    """Asked at each decision: who waits learns from those who were answered meanwhile."""
    most: Amount = field(default_factory=dict)
    """The upper bound, where there is one; a unit that is missing has none."""
    at_once: Amount = field(default_factory=dict)
    """What is used by sending it, whatever comes of it."""


class RefusalReason(StrEnum):
    """Why a request was refused."""

    USED_UP = "used_up"
    TOO_LARGE = "too_large"
    """Strict: even alone it might use more than is left."""
    NO_BOUND = "no_bound"
    """Strict: nobody knows how much it might use."""


@dataclass(frozen=True, slots=True)
class BudgetRefusal:
    """The limit that refused a request, and how much was asked of it."""

    limit: BudgetLimit
    reason: RefusalReason
    need: float = 0.0


class ReservationState(Enum):
    """Where a request stands."""

    WAITING = "waiting"
    GRANTED = "granted"
    REFUSED = "refused"
    CLOSED = "closed"


class Reservation:
    """One call that asked; only the ledger changes it."""

    __slots__ = ("accounts", "blocked_by", "demand", "holds", "limits", "refusal", "state")

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
        self.holds: list[tuple[BudgetLimit, float]] = []


class BudgetLedger:
    """The reservations of one process, and the line of those who wait for room."""

    def __init__(self) -> None:
        self._waiting: dict[Reservation, None] = {}
        # How many of those who wait are held up at each limit.
        self._contended: Counter[BudgetLimit] = Counter()

    def ask(self, accounts: Iterable[Account], demand: CallDemand) -> Reservation:
        """A request that is granted, refused, or waits behind those who came before."""
        request = Reservation(tuple(accounts), demand)
        self._decide(request, self._contended)
        if request.state is ReservationState.WAITING:
            self._waiting[request] = None
            self._contended.update(request.blocked_by)
        return request

    def settle(
        self, request: Reservation, actual: Amount, accounts: Iterable[Account] | None = None
    ) -> list[Reservation]:
        """The call was answered: charge what it used; those who were thereby decided.

        `accounts` pay instead of those that were asked, if others have come up since.
        """
        self._let_go(request)
        return self.charge(request.accounts if accounts is None else accounts, actual)

    def release(self, request: Reservation) -> list[Reservation]:
        """The call was sent and came to no answer; those who were thereby decided."""
        self._let_go(request)
        return self.review()

    def withdraw(self, request: Reservation) -> list[Reservation]:
        """The call was not sent, and nobody waits for it; those who were thereby decided."""
        if request.state is ReservationState.GRANTED:
            self._let_go(request)
            for account in request.accounts:
                account.add({unit: -count for unit, count in request.demand.at_once.items()})
        elif request.state is ReservationState.WAITING:
            self._leave_line(request)
            request.state = ReservationState.CLOSED
        return self.review()

    def charge(self, accounts: Iterable[Account], amount: Amount) -> list[Reservation]:
        """Count what was used without a reservation; those who were thereby decided."""
        for account in accounts:
            account.add(amount)
        return self.review()

    def review(self) -> list[Reservation]:
        """Decide again about those who wait, in their order; those who wait no more."""
        if not self._waiting:
            return []
        decided = []
        ahead: Counter[BudgetLimit] = Counter()
        for request in list(self._waiting):
            if not any(limit in ahead for limit in request.blocked_by):
                before = request.blocked_by
                self._decide(request, ahead)
                if request.state is not ReservationState.WAITING:
                    self._contended.subtract(before)
                    del self._waiting[request]
                    decided.append(request)
                    continue
                self._contended.subtract(before)
                self._contended.update(request.blocked_by)
            ahead.update(request.blocked_by)
        self._contended += Counter()
        return decided

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    # --- one request --------------------------------------------------------------------------

    def _decide(self, request: Reservation, ahead: Counter[BudgetLimit]) -> None:
        """Grant, refuse, or name the limits that hold it up; `ahead`: where others wait before."""
        blocked = []
        holds = []
        expected, most = request.demand.expected(), request.demand.most
        for limit in request.limits:
            refusal = _refusal(limit, most)
            if refusal is not None:
                request.state = ReservationState.REFUSED
                request.refusal = refusal
                return
            need = (most if limit.strict else expected).get(limit.unit)
            if not need:
                continue
            room = limit.amount - limit.used - limit.reserved
            if ahead[limit] or (need > room and limit.holders):
                blocked.append(limit)
            holds.append((limit, min(need, room)))
        request.blocked_by = tuple(blocked)
        if blocked:
            return
        request.state = ReservationState.GRANTED
        request.holds = holds
        for limit, amount in holds:
            limit.hold(amount)
        for account in request.accounts:
            account.add(request.demand.at_once)

    def _let_go(self, request: Reservation) -> None:
        if request.state is not ReservationState.GRANTED:
            raise ValueError(f"a request that is {request.state.value} holds nothing")
        request.state = ReservationState.CLOSED
        for limit, amount in request.holds:
            limit.let_go(amount)

    def _leave_line(self, request: Reservation) -> None:
        del self._waiting[request]
        self._contended.subtract(request.blocked_by)
        self._contended += Counter()


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
