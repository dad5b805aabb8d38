"""A budget refuses the next call: the call that used it up is paid for, and counts."""

from __future__ import annotations

import pytest

from jackline import Budget, agent, flow
from jackline.flows.lifecycle import begin_run
from jackline.flows.run_events import RunParked
from jackline.flows.settings import RunSettings
from jackline.testing.scripted_agents import Play
from tests.flows.world import played, world

ONE_CALL_IS_MORE = [
    Budget(tokens=50),
    Budget(dollars=0.1),
    Budget(turns=1),
    Budget(seconds=30),
]


@pytest.mark.parametrize("budget", ONE_CALL_IS_MORE)
def test_the_answer_that_used_up_the_runs_budget_is_kept_and_the_next_is_refused(
    budget: Budget,
) -> None:
    @flow
    async def two() -> list[str]:
        outcomes = [await agent(label, label=label).outcome() for label in ("last", "next")]
        return [f"{each.label}: {each.value}" for each in outcomes]

    async def test() -> None:
        settings = RunSettings(poll=5.0, budgets=(budget,), guard=0)
        w = world(lambda _task: Play(tokens=100, dollars=0.5, seconds=60), settings=settings)
        outcome = await w.run(two)
        assert outcome.value == ["last: done", "next: None"]
        assert w.runner.asked == ["last"], "the next was refused before it was asked"
        assert outcome.usage.total == 100

    played(test)


# An agent's own seconds are its timeout, which ends the call that is under way.
@pytest.mark.parametrize("budget", ONE_CALL_IS_MORE[:-1])
def test_the_answer_that_used_up_an_agents_own_budget_is_kept(budget: Budget) -> None:
    @flow
    async def one() -> str:
        return await agent("a", label="a", budget=budget)

    async def test() -> None:
        w = world(lambda _task: Play(tokens=100, dollars=0.5, seconds=60))
        outcome = await w.run(one)
        assert outcome.value == "done"

    played(test)


def test_a_window_counts_what_other_runs_have_spent_until_it_has_rolled_past() -> None:
    @flow
    async def one() -> str:
        return await agent("a", label="a")

    async def test() -> None:
        window = Budget(tokens=150, window="5h")
        settings = RunSettings(poll=60.0, budgets=(window,))
        w = world(lambda _task: Play(tokens=200), settings=settings)
        assert (await w.run(one)).ok
        assert not w.of(RunParked)
        spent_at = w.clock.wall()
        other = await begin_run(w.host, one, b"{}", run_id="r2")
        assert (await w.through(other.run())).ok
        assert w.of(RunParked)[0].why == "200 of 150 tokens in 5 h are used"
        assert w.clock.wall() - spent_at >= 5 * 3600

    played(test)
