"""A program that calls by itself learns when its tokens or dollars are used up, at no turn."""

from __future__ import annotations

import pytest

from jackline import Budget, agent, flow
from jackline.agents.outcome import Ending
from jackline.agents.runner import AgentTask, CallGate
from jackline.budgets.budget import Unit
from jackline.dialects import TokenUsage
from jackline.flows.flow_run import FlowRun
from jackline.flows.run_events import RunParked
from tests.flows.test_time_in_line import begin
from tests.flows.world import EPOCH, played, world

LIMITS = [Budget(tokens=1_000), Budget(dollars=1.0)]


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("whose", ["the run's", "the agent's"])
def test_used_up_tokens_and_dollars_end_a_program_and_count_no_turn(
    limit: Budget, whose: str
) -> None:
    w = world()
    begun: list[FlowRun[str]] = []

    async def carry(_task: AgentTask, leave: CallGate) -> None:
        await leave.before_call()
        leave.spent("a-model", TokenUsage(output_tokens=999), 0.99)
        assert await leave.over_budget() is None
        leave.spent("a-model", TokenUsage(output_tokens=1), 0.01)
        stop = await leave.over_budget()
        assert stop is not None
        assert (stop.ending, stop.may_resume) == (Ending.BUDGET, False)
        assert begun[0]._x.accounting.account.used[Unit.TURNS] == 1
        raise stop

    @flow
    async def one() -> str:
        budget = limit if whose == "the agent's" else None
        return (await agent("x", label="x", budget=budget).outcome()).terminated_by

    async def test() -> None:
        begun.append(await begin(w, carry, limit if whose == "the run's" else Budget(), one))
        assert (await w.through(begun[0].run())).value == "budget"

    played(test)


def test_a_used_up_window_ends_the_process_and_not_the_agent() -> None:
    w = world()

    async def carry(_task: AgentTask, leave: CallGate) -> None:
        await leave.before_call()
        leave.spent("a-model", TokenUsage(output_tokens=1_000))
        stop = await leave.over_budget()
        assert stop is not None
        assert stop.may_resume
        await leave.before_call()
        assert (w.clock.now() - EPOCH).total_seconds() > 4 * 3600, "it waits at the gate"
        assert await leave.over_budget() is None

    @flow
    async def one() -> str:
        return (await agent("x", label="x").outcome()).terminated_by

    async def test() -> None:
        begun = await begin(w, carry, Budget(tokens=1_000, window="5h"), one)
        assert (await w.through(begun.run())).value == "completion"
        assert w.of(RunParked)

    played(test)
