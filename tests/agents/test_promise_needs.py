"""A model is told how a call can name the calls beside it that it needs."""

from __future__ import annotations

from typing import Any

from jackline.agents.messages import MessagesRunner
from jackline.simulator.mind import Say
from jackline.testing.scripted_model import ScriptedModel
from tests.agents.world import Counter, MemoryNotebook, OpenLeave, run, task


def test_every_tool_is_offered_with_the_way_to_name_what_a_call_needs() -> None:
    model = ScriptedModel(Say("Nothing to add."))
    runner = MessagesRunner(model)
    run(runner.carry(task(tools=[Counter()]), MemoryNotebook(), OpenLeave()))
    offered: Any = model.ledger[0].body["tools"]
    properties = offered[0]["input_schema"]["properties"]
    assert set(properties) == {"a", "b", "needs_calls"}
    assert properties["needs_calls"]["items"] == {"type": "integer"}
    assert "skipped" in properties["needs_calls"]["description"]
