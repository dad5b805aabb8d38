"""A model is told how a call can name the calls beside it that it needs."""

from __future__ import annotations

from typing import Any

from jackline.agents.messages import MessagesRunner
from jackline.batches.function_tool import function_tool
from jackline.batches.tool import Tool
from jackline.simulator.reply_script import Say
from jackline.testing.scripted_agents import ScriptedModel
from tests.agents.world import Counter, MemoryNotebook, OpenLeave, run, task


def test_every_tool_is_offered_with_the_way_to_name_what_a_call_needs() -> None:
    model = ScriptedModel(Say("Nothing to add."))
    runner = MessagesRunner(model)
    run(runner.run(task(tools=[Counter()]), MemoryNotebook(), OpenLeave()))
    offered: Any = model.ledger[0].body["tools"]
    properties = offered[0]["input_schema"]["properties"]
    assert set(properties) == {"a", "b", "needs_calls"}
    assert properties["needs_calls"]["items"] == {"type": "integer"}
    assert "skipped" in properties["needs_calls"]["description"]


def test_a_tool_with_an_argument_of_that_name_gets_it_and_its_calls_name_no_needs() -> None:
    got: list[list[str]] = []

    def plan(needs_calls: list[str]) -> str:
        got.append(needs_calls)
        return "planned"

    calls = (("add", {"a": 13, "b": 1}), ("plan", {"needs_calls": ["a", "b"]}))
    model = ScriptedModel.in_turn(Say("", calls), Say("done"))
    runner = MessagesRunner(model)
    tools: list[Tool] = [Counter(), function_tool(plan)]
    assert run(runner.run(task(tools=tools), MemoryNotebook(), OpenLeave())).ok
    offered: Any = model.ledger[0].body["tools"]
    own = offered[1]["input_schema"]["properties"]["needs_calls"]
    assert own == {"type": "array", "items": {"type": "string"}}, "as the function says it"
    assert "needs_calls" in offered[0]["input_schema"]["properties"]
    assert got == [["a", "b"]]
