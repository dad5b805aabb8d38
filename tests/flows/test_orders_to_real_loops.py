"""An agent that goes on by name does so in its own conversation, and no tool of it runs twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from jackline import agent, flow, resume
from jackline.agents.messages.runner import MessagesRunner
from jackline.agents.outcome import Outcome
from jackline.event_loop import run as run_on_loop
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_run, cancel_agents
from jackline.flows.settings import RunSettings
from jackline.flows.store import open_run_store
from jackline.simulator.reply_script import Say
from jackline.testing.scripted_agents import ScriptedModel

SCHEMA = {"type": "object", "properties": {"depth": {"type": "integer"}}, "required": ["depth"]}
ANSWER = Say("", (("StructuredOutput", {"depth": 7}),))


def host_of(model: ScriptedModel) -> FlowHost:
    runner = MessagesRunner(model)
    settings = RunSettings(poll=0.05)
    return FlowHost(
        open_run_store("sqlite:///:memory:"),
        lambda _run_id: {"messages": runner},
        settings=settings,
    )


def measuring(measure: Callable[..., object]) -> Flow[[], str]:
    @flow
    async def measuring() -> str:
        given = agent("Measure the depth.", label="sounder", schema=SCHEMA, tools=[measure])
        outcome = await given.outcome()
        return f"{outcome.terminated_by.value}: {outcome.value}"

    return measuring


def messages(model: ScriptedModel, which: int) -> list[object]:
    """What was said before the cache's marks, which move with every turn."""
    found = model.ledger[which].body["messages"]
    assert isinstance(found, list)
    text = json.dumps(found).replace(', "cache_control": {"type": "ephemeral"}', "")
    return list(json.loads(text))


def test_what_ended_by_schema_is_asked_again_in_the_same_conversation() -> None:
    ran: list[str] = []

    def measure(line: str) -> str:
        """Lower a line."""
        ran.append(line)
        return "7 fathoms"

    async def test() -> None:
        model = ScriptedModel.in_turn(Say("", (("measure", {"line": "lead"}),)), *[Say("7.")] * 5)
        host, working = host_of(model), measuring(measure)
        begun = await begin_run(host, working, b"{}", run_id="r1")
        assert (await begun.run()).value == "schema: None"
        asked = len(model.ledger)
        model.says(ANSWER)
        outcome: Outcome[str] = await resume("r1", only="sounder", flow=working, host=host)
        assert outcome.value == "completion: {'depth': 7}"
        assert (ran, len(model.ledger)) == (["lead"], asked + 1)
        before, after = messages(model, asked - 1), messages(model, asked)
        assert after[: len(before)] == before
        assert len(after) > len(before) > 3

    run_on_loop(test())


def test_a_tool_that_was_at_work_when_its_agent_was_cancelled_is_not_run_again() -> None:
    ran: list[str] = []

    async def test() -> None:
        at_work = asyncio.Event()

        async def measure(line: str) -> str:
            """Lower a line that is never hauled in."""
            ran.append(line)
            at_work.set()
            await asyncio.Event().wait()
            return "never"

        model = ScriptedModel.in_turn(Say("", (("measure", {"line": "lead"}),)), ANSWER)
        host, working = host_of(model), measuring(measure)
        task = asyncio.create_task((await begin_run(host, working, b"{}", run_id="r1")).run())
        await at_work.wait()
        await cancel_agents(host, "r1", "sounder")
        assert (await task).value == "cancelled: None"
        outcome: Outcome[str] = await resume("r1", only="sounder", flow=working, host=host)
        assert outcome.value == "completion: {'depth': 7}"
        assert ran == ["lead"]
        assert "may or may not have run" in json.dumps(messages(model, -1))

    run_on_loop(test())
