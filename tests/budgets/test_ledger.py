"""Reservations: all or none, in order, and never a wait for nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jackline.budgets.budget import Account, Amount, Budget, BudgetLimit, Unit
from jackline.budgets.ledger import (
    BudgetLedger,
    CallDemand,
    RefusalReason,
    Reservation,
    ReservationState,
)

TOKENS, DOLLARS, TURNS = Unit.TOKENS, Unit.DOLLARS, Unit.TURNS


def tokens(expected: int, most: int | None = None) -> CallDemand:
    bound = {} if most is None else {TOKENS: most}
    return CallDemand(lambda: {TOKENS: expected}, bound)


def test_nested_budgets_are_reserved_all_or_none() -> None:
    run = Account("The run", (Budget(tokens=1_000),))
    agent = Account("The agent", (Budget(tokens=300),), run)
    other = Account("Another", (), run)
    ledger = BudgetLedger()
    first = ledger.reserve(other.chain(), tokens(900))
    second = ledger.reserve(agent.chain(), tokens(200))
    assert (first.state, second.state) == (ReservationState.GRANTED, ReservationState.WAITING)
    assert agent.limits[0].reserved == 0, "nothing is held while another account has no room"
    assert ledger.settle(first, {TOKENS: 100}) == [second]
    assert (agent.limits[0].reserved, run.limits[0].reserved) == (200, 200)
    ledger.settle(second, {TOKENS: 250})
    assert (run.used[TOKENS], agent.used[TOKENS], other.used[TOKENS]) == (350, 250, 100)


def test_who_is_alone_may_use_what_is_left_and_the_next_is_refused() -> None:
    run = Account("The run", (Budget(tokens=250),))
    ledger = BudgetLedger()
    request = ledger.reserve([run], tokens(400))
    assert request.amounts == [(run.limits[0], 250)]
    ledger.settle(request, {TOKENS: 400})
    refused = ledger.reserve([run], tokens(1))
    assert refused.refusal is not None
    assert refused.refusal.reason is RefusalReason.USED_UP


def test_a_strict_call_that_may_not_fit_waits_for_those_who_can_give_back_and_for_no_others() -> (
    None
):
    run = Account("The run", (Budget(tokens=1_000, strict=True),))
    ledger = BudgetLedger()
    first = ledger.reserve([run], tokens(10, 700))
    second = ledger.reserve([run], tokens(10, 700))
    third = ledger.reserve([run], tokens(10, 100))
    assert (second.state, third.state) == (ReservationState.WAITING, ReservationState.WAITING)
    assert ledger.settle(first, {TOKENS: 400}) == [second, third], "300 + 700 can never fit"
    assert second.refusal is not None
    assert (second.refusal.reason, second.refusal.need) == (RefusalReason.TOO_LARGE, 700)
    assert third.state is ReservationState.GRANTED


def test_a_strict_budget_refuses_what_nobody_can_bound() -> None:
    run = Account("The run", (Budget(dollars=1, strict=True),))
    request = BudgetLedger().reserve([run], tokens(10, 100))
    assert request.refusal is not None
    assert request.refusal.reason is RefusalReason.NO_BOUND


def test_a_large_request_is_not_passed_by_small_ones_that_came_later() -> None:
    run = Account("The run", (Budget(tokens=1_000),))
    ledger = BudgetLedger()
    first = ledger.reserve([run], tokens(600))
    large = ledger.reserve([run], tokens(900))
    small = ledger.reserve([run], tokens(100))
    elsewhere = ledger.reserve([Account("Another", (Budget(tokens=5),))], tokens(5))
    assert (large.state, small.state) == (ReservationState.WAITING, ReservationState.WAITING)
    assert elsewhere.state is ReservationState.GRANTED
    assert ledger.release(first) == [large, small]


def test_who_waits_asks_for_what_is_expected_by_then() -> None:
    run = Account("The run", (Budget(tokens=1_000),))
    ledger = BudgetLedger()
    learned = [600]
    first, *waiting = [
        ledger.reserve([run], CallDemand(lambda: {TOKENS: learned[0]})) for _ in range(4)
    ]
    learned[0] = 100
    assert ledger.settle(first, {TOKENS: 100}) == waiting


def test_what_sending_uses_is_counted_at_the_grant_and_given_back_only_if_it_was_not_sent() -> None:
    run = Account("The run", (Budget(turns=2),))
    ledger = BudgetLedger()
    turn = CallDemand(at_once={TURNS: 1})
    sent, not_sent = ledger.reserve([run], turn), ledger.reserve([run], turn)
    assert ledger.reserve([run], turn).state is ReservationState.REFUSED
    ledger.release(sent)
    ledger.withdraw(not_sent)
    assert run.used[TURNS] == 1


def test_a_request_is_settled_once() -> None:
    ledger = BudgetLedger()
    request = ledger.reserve([Account("The run")], tokens(5))
    ledger.settle(request, {TOKENS: 5})
    with pytest.raises(ValueError, match="closed"):
        ledger.release(request)


# --- properties --------------------------------------------------------------------------------

AMOUNTS = st.integers(0, 60)


class Ledgers(RuleBasedStateMachine):
    """A run, two flows in it and an agent in each, whose calls come, go and die in any order."""

    strict = False

    def __init__(self) -> None:
        super().__init__()
        self.ledger = BudgetLedger()
        budget = Budget(tokens=100, dollars=1.0, strict=self.strict)
        small = Budget(tokens=40, strict=self.strict)
        self.run = Account("The run", (budget,))
        flows = [Account("A flow", (small,), self.run), Account("A flow", (), self.run)]
        self.agents = [
            Account("An agent", (Budget(tokens=30, strict=self.strict),), flows[0]),
            *(Account("An agent", (), flow) for flow in flows),
        ]
        self.limits = [limit for each in (self.run, *flows, *self.agents) for limit in each.limits]
        self.requests: list[Reservation] = []
        self.most: dict[Reservation, int] = {}
        self.over: dict[BudgetLimit, float] = dict.fromkeys(self.limits, 0.0)
        """By how much calls in flight at the last grant have passed what they had reserved."""

    def in_state(self, state: ReservationState) -> list[Reservation]:
        return [request for request in self.requests if request.state is state]

    def granted(self, requests: list[Reservation]) -> None:
        for request in requests:
            for limit, _ in request.amounts if request.state is ReservationState.GRANTED else ():
                self.over[limit] = 0.0

    def ended(
        self, request: Reservation, actual: Amount, end: Callable[[], list[Reservation]]
    ) -> None:
        reserved = dict(request.amounts)
        for account in request.accounts:
            for limit in account.limits:
                self.over[limit] += actual.get(limit.unit, 0) - reserved.get(limit, 0)
        self.granted(end())

    @rule(who=st.integers(0, 2), expected=AMOUNTS, most=st.integers(0, 60))
    def ask(self, who: int, expected: int, most: int) -> None:
        most = max(most, 1)
        amounts = {TOKENS: expected, DOLLARS: expected / 100}
        bound = {TOKENS: most, DOLLARS: most / 100}
        demand = CallDemand(lambda: amounts, bound, {TURNS: 1})
        request = self.ledger.reserve(self.agents[who].chain(), demand)
        self.requests.append(request)
        self.most[request] = most
        self.granted([request])

    @rule(which=st.integers(0), used=st.integers(1, 60))
    def answer(self, which: int, used: int) -> None:
        granted = self.in_state(ReservationState.GRANTED)
        if granted:
            request = granted[which % len(granted)]
            used = min(used, self.most[request])
            actual = {TOKENS: used, DOLLARS: used / 100}
            self.ended(request, actual, lambda: self.ledger.settle(request, actual))

    @rule(which=st.integers(0))
    def fail(self, which: int) -> None:
        granted = self.in_state(ReservationState.GRANTED)
        if granted:
            request = granted[which % len(granted)]
            self.ended(request, {}, lambda: self.ledger.release(request))

    @rule(which=st.integers(0))
    def cancel(self, which: int) -> None:
        begun = self.in_state(ReservationState.GRANTED) + self.in_state(ReservationState.WAITING)
        if begun:
            request = begun[which % len(begun)]
            self.ended(request, {}, lambda: self.ledger.withdraw(request))

    @invariant()
    def what_is_reserved_is_held_by_somebody(self) -> None:
        held = dict.fromkeys(self.limits, 0.0)
        for request in self.in_state(ReservationState.GRANTED):
            for limit, amount in request.amounts:
                held[limit] += amount
        for limit in self.limits:
            assert limit.reserved == pytest.approx(held[limit])
            assert (limit.reservations == 0) == (limit.reserved == 0) or limit.reserved == 0

    @invariant()
    def nobody_waits_for_nobody(self) -> None:
        waiting = self.in_state(ReservationState.WAITING)
        assert len(waiting) == self.ledger.waiting
        for request in waiting:
            assert any(limit.reservations for limit in request.blocked_by) or any(
                limit.reservations
                for earlier in waiting[: waiting.index(request)]
                for limit in earlier.blocked_by
            )

    @invariant()
    def a_limit_is_passed_by_what_calls_in_flight_used_beyond_what_they_reserved(self) -> None:
        for limit in self.limits:
            assert limit.used + limit.reserved <= limit.amount + self.over[limit] + 1e-9
            if limit.strict:
                assert limit.used + limit.reserved <= limit.amount + 1e-9

    @invariant()
    def the_run_has_used_what_its_agents_have(self) -> None:
        for unit in (TOKENS, DOLLARS, TURNS):
            parts = sum(agent.used[unit] for agent in self.agents)
            assert self.run.used[unit] == pytest.approx(parts)


class StrictLedgers(Ledgers):
    """The same with strict budgets, of which no call uses more than its bound."""

    strict = True


TestLedgers = Ledgers.TestCase
TestStrictLedgers = StrictLedgers.TestCase


@given(
    limit=st.integers(1, 5_000),
    calls=st.lists(st.tuples(st.integers(1, 900), st.integers(0, 900)), min_size=1, max_size=60),
    strict=st.booleans(),
)
def test_calls_side_by_side_end_and_pass_a_budget_by_no_more_than_they_were_mistaken(
    limit: int, calls: list[tuple[int, int]], strict: bool
) -> None:
    """All ask at once; those in flight are answered in their order until nobody is left."""
    run = Account("The run", (Budget(tokens=limit, strict=strict),))
    ledger = BudgetLedger()
    actual: dict[Reservation, int] = {}
    flying: list[Reservation] = []
    for most, used in calls:
        request = ledger.reserve([run], tokens(most // 2 + 1, most))
        actual[request] = min(used, most)
        flying += [request] if request.state is ReservationState.GRANTED else []
    mistaken = 0.0
    while flying:
        request = flying.pop(0)
        mistaken += max(0.0, actual[request] - dict(request.amounts).get(run.limits[0], 0))
        decided = ledger.settle(request, {TOKENS: actual[request]})
        flying += [each for each in decided if each.state is ReservationState.GRANTED]
    assert ledger.waiting == 0
    assert run.used[TOKENS] <= limit + (0 if strict else mistaken)
