"""An agent that a failure ends keeps what it had said, and a half answer counts as no answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from jackline.agents.messages import MessagesRunner
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import AgentTask, JsonObject, ModelCaller, ModelFailedError, WholeAnswer
from jackline.clock import VirtualClock
from jackline.failures import Failure, Kind, Scope
from jackline.simulator.reply_script import Fail, Say
from jackline.testing.scripted_agents import ScriptedModel
from tests.agents.world import CAPITALS, Counter, Limit, MemoryNotebook, OpenLeave, run, task

ADD = ("add", {"a": 1, "b": 2})


def carry(model: ScriptedModel | CutOff, given: AgentTask) -> Outcome[object]:
    runner = MessagesRunner(model)
    return run(runner.run(given, MemoryNotebook(), OpenLeave()))


@dataclass
class CutOff:
    """A model whose stream breaks in the middle of its answer."""

    words: str
    asked: list[JsonObject] = field(default_factory=list)

    async def ask(self, body: JsonObject, caller: ModelCaller) -> WholeAnswer:
        assert caller.task_id
        self.asked.append(body)
        cut = Failure(Kind.TRUNCATED_STREAM, None, Scope.REQUEST, True, True)
        raise ModelFailedError(cut, Evidence(says="The stream broke off."), self.words)


def test_what_was_said_before_a_call_failed_is_the_outcomes_text() -> None:
    model = ScriptedModel.in_turn(Say("First I add.", (ADD,)), Fail(529, "overloaded_error", "No"))
    outcome = carry(model, task(tools=[Counter()]))
    assert (outcome.terminated_by, outcome.text) == (Ending.OUTAGE, "First I add.")
    assert (outcome.value, outcome.turns) == (None, 1)


@pytest.mark.parametrize("schema", [None, CAPITALS])
def test_half_an_answer_is_kept_as_text_and_is_no_answer(schema: JsonObject | None) -> None:
    outcome = carry(CutOff("The capital of"), task(schema=schema))
    assert (outcome.terminated_by, outcome.text) == (Ending.OUTAGE, "The capital of")
    assert (outcome.ok, outcome.value, outcome.turns) == (False, None, 0)


def test_what_was_said_before_the_time_was_up_is_the_outcomes_text() -> None:
    clock = VirtualClock(datetime(2026, 11, 15, tzinfo=UTC))
    endless = Counter(during=lambda *_: clock.sleep(10_000))
    model = ScriptedModel(Say("First I add.", (ADD,)))

    async def main() -> Outcome[object]:
        runner = MessagesRunner(model, clock=clock)
        leave = OpenLeave(time_limit=Limit(lambda: clock.sleep(60)))
        given = task(tools=[endless])
        going = asyncio.ensure_future(runner.run(given, MemoryNotebook(), leave))
        while not going.done():
            await clock.advance(10)
        return await going

    outcome = run(main())
    assert (outcome.terminated_by, outcome.text) == (Ending.TIMEOUT, "First I add.")
