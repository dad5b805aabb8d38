"""The shipped model that answers by script: same request, same answer, all in the ledger."""

from __future__ import annotations

import pytest

from jackline.agents.runner import JsonObject, ModelCaller, ModelFailedError
from jackline.failures import Kind
from jackline.simulator.faults import Effect, Fault
from jackline.testing import Fail, Rule, Say, ScriptedModel
from tests.agents.world import run

CALLER = ModelCaller("session-1", "task-1")


def asks(*texts: str) -> JsonObject:
    """A conversation in which the model has spoken between the user's texts."""
    messages: list[JsonObject] = []
    for text in texts:
        if messages:
            messages.append({"role": "assistant", "content": "I see."})
        messages.append({"role": "user", "content": text})
    return {"model": "claude-x", "messages": messages}


def test_the_same_request_gets_the_same_answer_down_to_its_ids() -> None:
    model = ScriptedModel.in_turn(Say("", (("add", {"a": 1}),)), Say("later"))
    first = run(model.ask(asks("one"), CALLER))
    assert run(model.ask(asks("one"), CALLER)) == first
    assert run(model.ask(asks("one"), ModelCaller("session-2", "task-2"))).content != first.content
    assert run(model.ask(asks("one", "two"), CALLER)).content == [{"type": "text", "text": "later"}]


def test_the_ledger_tells_answers_from_failures() -> None:
    model = ScriptedModel(Rule(Fail(529, "overloaded_error", "Overloaded"), prompt="bad"), Say("3"))
    run(model.ask(asks("good"), CALLER))
    with pytest.raises(ModelFailedError) as failed:
        run(model.ask(asks("bad"), CALLER))
    assert failed.value.failure.kind is Kind.OVERLOADED
    assert (len(model.ledger), model.paid) == (2, 1)
    assert model.ledger[1].answer is None
    assert model.ledger[0].body == asks("good")


def test_a_fault_of_the_wire_is_a_broken_connection() -> None:
    with pytest.raises(ModelFailedError) as failed:
        run(ScriptedModel(Fault(Effect.RESET)).ask(asks("one"), CALLER))
    assert failed.value.failure.kind is Kind.NETWORK_EDGE
