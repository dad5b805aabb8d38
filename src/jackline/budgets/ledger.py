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
in memory and end with their process: what answered calls used is saved elsewhere; (7) what a call
is expected to use is learned per (label, model), where labels that differ only in their numbers are
one ("reader 7"); before that by model, before that from the counted input and a share of
`max_tokens`; (8) an estimate is the mean plus one mean deviation, at most `max_tokens`: reserving
too little exceeds a budget, reserving too much only makes a call wait.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from jackline.budgets.budget import Account, Amount, BudgetLimit, Unit

# Answers are rarely longer; before the first one it is better to expect too much.
_SHARE_OF_MAX_TOKENS = 1 / 8
# Tokens of a call of which nothing is known: about as many as Claude Code's first call has.
_UNKNOWN_CALL = 20_000
# Of the newest call in the mean; the first one counts in full.
_WEIGHT = 0.2
_MOST_KINDS = 10_000
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a call is expected to use; `dollars` is None until such a call had a price."""

    input_tokens: float
    output_tokens: float
    dollars: float | None = None

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return round(self.input_tokens + self.output_tokens)


class _Mean:
    """A moving mean, with the mean distance from it."""

    __slots__ = ("deviation", "value")

    def __init__(self, first: float) -> None:
        self.value = first
        self.deviation = 0.0

    def add(self, value: float) -> None:
        self.deviation += _WEIGHT * (abs(value - self.value) - self.deviation)
        self.value += _WEIGHT * (value - self.value)

    @property
    def careful(self) -> float:
        return self.value + self.deviation


@dataclass(slots=True)
class _Kind:
    """What calls of one kind have used."""

    input_ratio: _Mean
    output: _Mean
    dollars_per_token: _Mean | None = None


class Estimator:
    """What calls have used, by label and model."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def expect(
        self, label: str, model: str, *, counted_input: int, max_tokens: int | None
    ) -> Estimate:
        """What a call will use; without `max_tokens` nothing is known in advance."""
        kind = self._kinds.get((_NUMBERS.sub("#", label) or "#", model)) or self._kinds.get(
            ("", model)
        )
        if kind is None:
            if max_tokens is None:
                return Estimate(_UNKNOWN_CALL, 0)
            return Estimate(counted_input, max_tokens * _SHARE_OF_MAX_TOKENS)
        output = kind.output.careful
        if max_tokens is not None:
            output = min(output, max_tokens)
        sent = kind.input_ratio.careful * max(1, counted_input)
        rate = kind.dollars_per_token
        return Estimate(sent, output, None if rate is None else rate.careful * (sent + output))

    def learn(
        self,
        label: str,
        model: str,
        *,
        counted_input: int,
        input_tokens: int,
        output_tokens: int,
        dollars: float | None = None,
    ) -> None:
        """Learn what a call used whose input was counted before it was sent."""
        ratio, total = input_tokens / max(1, counted_input), input_tokens + output_tokens
        if total <= 0:
            return  # nobody has said what it used, and no call uses nothing
        rate = None if dollars is None or not total else dollars / total
        for name in ((_NUMBERS.sub("#", label) or "#", model), ("", model)):
            kind = self._kinds.get(name)
            if kind is None:
                if len(self._kinds) >= _MOST_KINDS:
                    continue
                kind = self._kinds[name] = _Kind(_Mean(ratio), _Mean(output_tokens))
            else:
                kind.input_ratio.add(ratio)
                kind.output.add(output_tokens)
            if rate is not None and kind.dollars_per_token is None:
                kind.dollars_per_token = _Mean(rate)
            elif rate is not None and kind.dollars_per_token is not None:
                kind.dollars_per_token.add(rate)


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
