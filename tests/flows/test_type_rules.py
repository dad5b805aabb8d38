"""Rules of the user's own type that no JSON Schema can say: asked for again alike."""

from __future__ import annotations

from pydantic import BaseModel, field_validator

from jackline import agent, flow
from jackline.agents.messages import MessagesRunner
from jackline.agents.outcome import Outcome
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_run
from jackline.simulator.reply_script import structured
from jackline.testing.scripted_agents import ScriptedModel
from tests.flows.world import played, world


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("only even numbers are wanted")
        return number


@flow
async def asks() -> str:
    outcome = await agent("Name an even number.", schema=Even).outcome()
    return f"{outcome.terminated_by}|{outcome.value}|{outcome.text}|{outcome.evidence.says}"


def answered(*numbers: int) -> tuple[str, ScriptedModel]:
    model = ScriptedModel.in_turn(*(structured({"number": number}) for number in numbers))

    async def carried() -> Outcome[str]:
        place = world()
        runner = MessagesRunner(model, clock=place.clock)
        host = FlowHost(place.engine, lambda _run_id: {runner.name: runner}, place.clock)
        return await place.through((await begin_run(host, asks, b"{}")).run())

    return str(played(carried).value), model


def test_an_answer_that_only_the_type_refuses_is_asked_for_again_in_its_validators_words() -> None:
    value, model = answered(3, 4)
    assert value == "completion|number=4||"
    assert "at number: Value error, only even numbers are wanted" in str(model.ledger[-1].body)


def test_an_answer_that_the_type_refuses_for_good_is_a_schema_ending_with_the_raw_text() -> None:
    value, model = answered(3, 5, 7)
    assert len(model.ledger) == 3
    assert value.startswith('schema|None|{"number":7}|')
    assert value.endswith("3 times; the last faults: number (a rule of its type).")
