"""Agents side by side keep to a budget: each call reserves what it will use before it is sent."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from jackline import Budget, agent, flow, parallel
from jackline.agents.messages import MessagesRunner
from jackline.agents.outcome import Ending, Outcome
from jackline.flows.definition import Flow
from jackline.flows.host import FlowHost
from jackline.flows.orders import begin_run
from jackline.flows.progress import FlowEvent
from jackline.flows.running import FlowRun
from jackline.flows.settings import RunSettings
from jackline.simulator.mind import Say
from jackline.testing.scripted_model import ScriptedModel
from tests.flows.world import World, played, world

AGENTS = 50
ANSWER = 700
DOLLARS_PER_TOKEN = 25 / 1_000_000
"""What the dearest token costs."""
PROMPT = "Read one part of the archive, and write down what is in it. " * 2


@dataclass
class Fleet:
    """Our own loop with a scripted model, in virtual time."""

    model: ScriptedModel
    world: World
    heard: list[FlowEvent] = field(default_factory=list)

    def host(self, budget: Budget) -> FlowHost:
        runner = MessagesRunner(self.model, clock=self.world.clock)
        return FlowHost(
            self.world.engine,
            lambda _run_id: {"messages": runner},
            clock=self.world.clock,
            draw=lambda: 0.5,
            settings=RunSettings(poll=5.0, budgets=(budget,), guard=0),
            listener=self.heard.append,
        )

    async def begin(self, working: Flow[[], int], budget: Budget) -> FlowRun[int]:
        return await begin_run(self.host(budget), working, b"{}", run_id="r1")

    async def run(self, working: Flow[[], int], budget: Budget) -> Outcome[int]:
        return await self.world.through((await self.begin(working, budget)).carry())


def fleet(*replies: Say) -> Fleet:
    w = world()
    model = ScriptedModel.in_turn(*(replies or (said(),)), clock=w.clock)
    return Fleet(model, w)


def said(tokens: int = ANSWER, seconds: float = 20.0) -> Say:
    return Say("word" * (tokens - 5), delay=seconds)


def many(size: int = AGENTS) -> Flow[[], int]:
    @flow
    async def working() -> int:
        batch = await parallel(agent(PROMPT, label=f"reader {n}") for n in range(size))
        return len(batch.values)

    return working


@pytest.mark.parametrize("budget", [Budget(tokens=20_000), Budget(dollars=0.10)])
def test_fifty_agents_side_by_side_pass_a_budget_by_less_than_a_call(budget: Budget) -> None:
    async def test() -> None:
        f = fleet()
        outcome = await f.run(many(), budget)
        one = max(request.answer.usage.total for request in f.model.ledger if request.answer)
        if budget.tokens is not None:
            assert budget.tokens - one <= outcome.usage.total < budget.tokens + one
        else:
            assert budget.dollars is not None
            assert outcome.cost is not None
            assert outcome.cost == pytest.approx(budget.dollars, abs=one * DOLLARS_PER_TOKEN)
        assert outcome.tally.endings == ((Ending.BUDGET, AGENTS - outcome.tally.ok),)

    played(test)
