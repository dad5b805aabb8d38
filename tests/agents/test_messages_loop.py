"""The messages runner's loop: turns, tools, structured answers, limits, and how each ends."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jackline.agents.messages import MessagesRunner
from jackline.agents.messages.conversation import MessagesSettings
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import CUT_CALL, AgentTask, JsonObject, StopAgentError, WholeAnswer
from jackline.batches.tool import ToolContext, ToolOutput
from jackline.clock import VirtualClock
from jackline.dialects import TokenUsage
from jackline.errors import LeaseLostError
from jackline.simulator.reply_script import Fail, Rule, Say, structured
from jackline.testing.scripted_agents import ScriptedModel
from tests.agents.world import (
    CAPITALS,
    Answering,
    Counter,
    Limit,
    MemoryNotebook,
    OpenLeave,
    run,
    task,
)

PARIS: JsonObject = {"capital": "Paris", "people": 2_100_000}


def carry(
    model: ScriptedModel,
    given: AgentTask,
    notebook: MemoryNotebook | None = None,
    leave: OpenLeave | None = None,
    **settings: Any,
) -> Outcome[object]:
    runner = MessagesRunner(model, settings=MessagesSettings(**settings))
    return run(runner.run(given, notebook or MemoryNotebook(), leave or OpenLeave()))


def last_said(model: ScriptedModel) -> list[dict[str, Any]]:
    messages: Any = model.ledger[-1].body["messages"]
    content: list[dict[str, Any]] = messages[-1]["content"]
    return content


def test_an_agent_without_tools_ends_with_what_the_model_said() -> None:
    model = ScriptedModel(Say("It is 3."))
    leave = OpenLeave()
    outcome = carry(model, task(), leave=leave)
    assert outcome.ok
    assert outcome.value == outcome.text == "It is 3."
    assert (outcome.turns, leave.asked, len(leave.received)) == (1, 1, 1)
    assert outcome.usage.total > 0
    assert outcome.cost is not None
    assert outcome.cost > 0


def test_a_tools_result_goes_back_to_the_model_bound_to_its_call() -> None:
    tool = Counter()
    model = ScriptedModel.in_turn(Say("", (("add", {"a": 1, "b": 2}),)), Say("It is 3."))
    outcome = carry(model, task(tools=[tool]))
    assert outcome.value == "It is 3."
    assert tool.runs == [{"a": 1, "b": 2}]
    (result,) = last_said(model)
    assert result["type"] == "tool_result"
    assert "3" in result["content"]
    assert "is_error" not in result
    answered: Any = model.ledger[-1].body["messages"]
    assert answered[1]["content"][0]["id"] == result["tool_use_id"]


def test_results_come_in_the_order_of_the_calls_with_a_count_of_what_failed() -> None:
    calls = tuple(("add", {"a": a, "b": 1}) for a in (1, 13, 3))
    model = ScriptedModel.in_turn(Say("", calls), Say("done"))
    carry(model, task(tools=[Counter()]))
    *results, summary = last_said(model)
    assert [("is_error" in each) for each in results] == [False, True, False]
    assert results[0]["content"].endswith("2")
    assert results[2]["content"].endswith("4")
    assert summary["text"] == "1 of 3 failed: add (exit 3)"


def test_a_call_that_needs_a_failed_one_is_skipped_with_that_reason() -> None:
    calls = (
        ("add", {"a": 13, "b": 1}),
        ("add", {"a": 2, "b": 2, "needs_calls": [1]}),
        ("add", {"a": 3, "b": 3, "needs_calls": []}),
        ("add", {"a": 4, "b": 4, "needs_calls": [99]}),
    )
    tool = Counter()
    model = ScriptedModel.in_turn(Say("", calls), Say("done"))
    carry(model, task(tools=[tool]))
    _, skipped, ran, nonsense, summary = last_said(model)
    assert skipped["content"].startswith(
        '[add: {"a": 2, "b": 2}] skipped: it needs call 1 of this turn'
    )
    assert ran["content"].endswith("6")
    assert nonsense["content"].startswith('[add: {"a": 4, "b": 4}] refused: ')
    assert tool.runs == [{"a": 13, "b": 1}, {"a": 3, "b": 3}]
    assert "2 of 4 failed" in summary["text"]
    assert "1 skipped" in summary["text"]


def test_pictures_of_a_tool_reach_the_model_behind_the_words_that_say_whose_they_are() -> None:
    picture: JsonObject = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
    }

    class Camera(Counter):
        async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
            return ToolOutput("a tree", (picture,))

    model = ScriptedModel.in_turn(Say("", (("add", {}),)), Say("done"))
    assert carry(model, task(tools=[Camera()])).ok
    (result,) = last_said(model)
    words, shown = result["content"]
    assert words["text"].endswith("a tree")
    assert shown == picture


def test_a_tool_that_does_not_exist_is_told_with_those_that_do() -> None:
    model = ScriptedModel.in_turn(Say("", (("subtract", {}),)), Say("done"))
    assert carry(model, task(tools=[Counter()])).ok
    (result,) = last_said(model)
    assert "there is no tool 'subtract'; the tools are: add" in result["content"]


# --- structured answers ---------------------------------------------------------------------


def test_a_structured_answer_is_the_value() -> None:
    outcome = carry(ScriptedModel(structured(PARIS)), task(schema=CAPITALS))
    assert outcome.ok
    assert outcome.value == PARIS


def test_an_invalid_answer_is_asked_for_again_with_the_validators_words() -> None:
    wrong = {"capital": "Paris", "people": "many"}
    model = ScriptedModel.in_turn(structured(wrong), structured(PARIS))
    outcome = carry(model, task(schema=CAPITALS))
    assert outcome.value == PARIS
    (result,) = last_said(model)
    assert result["is_error"]
    assert 'at /people: "many" is not of type "integer"' in result["content"]
    assert outcome.turns == 2


def test_an_answer_that_stays_invalid_ends_as_schema_and_keeps_the_raw_text() -> None:
    model = ScriptedModel(structured({"capital": "Paris"}))
    outcome = carry(model, task(schema=CAPITALS))
    assert outcome.terminated_by is Ending.SCHEMA
    assert outcome.value is None
    assert outcome.text == '{"capital":"Paris"}'
    assert outcome.turns == 3
    assert "Paris" not in outcome.evidence.says
    assert "required" in outcome.evidence.says


def test_a_missing_structured_answer_is_demanded_at_most_twice() -> None:
    model = ScriptedModel(Say("Paris, I think."))
    outcome = carry(model, task(schema=CAPITALS))
    assert outcome.terminated_by is Ending.SCHEMA
    assert outcome.text == "Paris, I think."
    assert outcome.evidence.failure == "missing_structured_output"
    choices = [request.body.get("tool_choice") for request in model.ledger]
    assert choices == [None, *[{"type": "tool", "name": "StructuredOutput"}] * 2]


def test_where_forcing_is_not_allowed_the_model_is_asked_without() -> None:
    def reply(asked: Any) -> Say | Fail:
        if "tool_choice" in asked.body:
            return Fail(400, "invalid_request_error", "Thinking may not be enabled when forced.")
        return structured(PARIS) if asked.turn else Say("Paris.")

    outcome = carry(ScriptedModel(Rule(reply)), task(schema=CAPITALS))
    assert outcome.value == PARIS


def test_a_failed_call_is_never_counted_as_a_missing_answer() -> None:
    model = ScriptedModel(Fail(529, "overloaded_error", "Overloaded"))
    outcome = carry(model, task(schema=CAPITALS))
    assert outcome.terminated_by is Ending.OUTAGE
    assert outcome.evidence.failure == "overloaded"
    assert len(model.ledger) == 1


@pytest.mark.parametrize("defined", ["$defs", "definitions"])
def test_a_schema_that_is_no_object_is_wrapped_and_unwrapped(defined: str) -> None:
    schema: JsonObject = {
        "type": "array",
        "items": {"$ref": f"#/{defined}/n"},
        defined: {"n": {"type": "integer"}},
    }
    model = ScriptedModel.in_turn(structured({"value": ["x"]}), structured({"value": [1, 2]}))
    outcome = carry(model, task(schema=schema))
    assert outcome.value == [1, 2]
    tools: Any = model.ledger[0].body["tools"]
    assert tools[-1]["input_schema"][defined] == schema[defined], "where the references look"


def test_a_structured_answer_beside_other_calls_waits_for_their_results() -> None:
    tool = Counter()
    both = Say("", (("add", {"a": 1, "b": 1}), ("StructuredOutput", PARIS)))
    model = ScriptedModel.in_turn(both, structured(PARIS))
    outcome = carry(model, task(tools=[tool], schema=CAPITALS))
    assert outcome.value == PARIS
    assert outcome.turns == 2
    assert len(tool.runs) == 1
    assert "Not taken" in last_said(model)[1]["content"]


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"type": "object", "$ref": "https://example.invalid/x"}]
)
def test_a_broken_schema_is_told_before_anything_is_paid(schema: JsonObject) -> None:
    model = ScriptedModel(structured(PARIS))
    outcome = carry(model, task(schema=schema))
    assert outcome.terminated_by is Ending.REFUSED
    assert "not valid JSON Schema" in outcome.evidence.says
    assert model.ledger == []


# --- odd ends of an answer --------------------------------------------------------------------


def test_an_answer_cut_at_the_output_limit_is_continued() -> None:
    model = ScriptedModel.in_turn(Say("One, two, ", stop="max_tokens"), Say("three."))
    outcome = carry(model, task())
    assert outcome.value == "One, two, three."
    assert "cut off" in last_said(model)[0]["text"]


def test_an_answer_that_never_ends_does_not_go_on_for_ever() -> None:
    outcome = carry(ScriptedModel(Say("and ", stop="max_tokens")), task())
    assert outcome.terminated_by is Ending.TURNS
    assert outcome.turns == 6


def test_a_refusal_ends_as_refused_and_another_try_begins_without_it() -> None:
    notebook = MemoryNotebook()
    model = ScriptedModel(Say("I can't help with that.", stop="refusal"))
    outcome = carry(model, task(), notebook)
    assert outcome.terminated_by is Ending.REFUSED
    assert outcome.text
    model.says(Say("Well then: 3."))
    assert carry(model, task(), notebook).value == "Well then: 3."
    assert len(model.ledger[-1].body["messages"]) == 1  # type: ignore[arg-type]


def test_an_answer_without_a_word_is_no_completion() -> None:
    outcome = carry(ScriptedModel(Say("")), task())
    assert outcome.terminated_by is Ending.SCHEMA
    assert outcome.turns == 3


def said_to(model: Answering) -> list[dict[str, Any]]:
    messages: Any = model.asked[-1]["messages"]
    content: list[dict[str, Any]] = messages[-1]["content"]
    return content


def answers(*given: tuple[list[JsonObject], str]) -> Answering:
    return Answering(
        [WholeAnswer(content, stop, TokenUsage(500, 50), "claude-x") for content, stop in given]
    )


END: tuple[list[JsonObject], str] = ([{"type": "text", "text": "The end."}], "end_turn")
CALL: JsonObject = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 1}}
CUT: JsonObject = {"type": CUT_CALL, "name": "add"}


def test_a_call_whose_input_was_cut_off_does_not_run_and_the_model_is_told() -> None:
    for content, runs in ([CUT], 0), ([CALL, CUT], 1):
        tool = Counter()
        model = answers((content, "max_tokens"), END)
        runner = MessagesRunner(model)
        outcome = run(runner.run(task(tools=[tool]), MemoryNotebook(), OpenLeave()))
        assert outcome.value == "The end."
        assert len(tool.runs) == runs
        assert "your call of add was cut off" in said_to(model)[-1]["text"]
        assert CUT_CALL not in json.dumps(model.asked)


def test_calls_that_are_always_cut_off_do_not_go_on_for_ever() -> None:
    model = answers(*[([CUT], "end_turn")] * 20)
    outcome = run(MessagesRunner(model).run(task(), MemoryNotebook(), OpenLeave()))
    assert outcome.terminated_by is Ending.TURNS
    assert outcome.turns == 6


def test_a_paused_turn_is_sent_back_as_it_is_and_goes_on() -> None:
    half: JsonObject = {"type": "text", "text": "First half, "}
    model = answers(([half], "pause_turn"), END)
    outcome = run(MessagesRunner(model).run(task(), MemoryNotebook(), OpenLeave()))
    assert outcome.value == "First half, The end."
    messages: Any = model.asked[-1]["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant"]
    assert messages[-1]["content"] == [half]


def test_many_large_results_of_one_turn_share_the_room() -> None:
    class Book(Counter):
        async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
            return ToolOutput("word " * 100_000)

    calls = tuple(("add", {"a": a, "b": 1}) for a in range(30))
    model = ScriptedModel.in_turn(Say("", calls), Say("done"))
    assert carry(model, task(tools=[Book()])).ok
    assert len(model.ledger[-1].raw) < 200_000 * 4 * 0.5
    assert "characters left out" in last_said(model)[0]["content"]


# --- limits -----------------------------------------------------------------------------------


def forever(tool: str = "add") -> ScriptedModel:
    return ScriptedModel(Say("again", ((tool, {"a": 1, "b": 1}),)))


def test_max_turns_ends_as_turns() -> None:
    model = forever()
    outcome = carry(model, task(tools=[Counter()], max_turns=4))
    assert outcome.terminated_by is Ending.TURNS
    assert len(model.ledger) == outcome.turns == 4


def test_max_dollars_refuses_the_next_call() -> None:
    outcome = carry(forever(), task(tools=[Counter()], max_dollars=0.005))
    assert outcome.terminated_by is Ending.BUDGET
    assert outcome.cost is not None
    assert outcome.cost >= 0.005


def test_an_unknown_model_costs_nobody_knows_what() -> None:
    assert carry(ScriptedModel(Say("3")), task(model="gpt-unknown")).cost is None


@pytest.mark.parametrize("ending", [Ending.TIMEOUT, Ending.DEADLINE])
def test_a_time_limit_ends_the_tool_that_runs_and_says_why(ending: Ending) -> None:
    clock = VirtualClock(datetime(2026, 11, 15, tzinfo=UTC))

    async def main() -> tuple[Outcome[object], Counter]:
        tool = Counter(during=lambda *_: clock.sleep(10_000))
        leave = OpenLeave(time_limit=Limit(lambda: clock.sleep(60), ending))
        runner = MessagesRunner(forever(), clock=clock)
        going = asyncio.ensure_future(runner.run(task(tools=[tool]), MemoryNotebook(), leave))
        while not tool.runs:
            await clock.advance(0)
        await clock.advance(59)
        assert not going.done()
        await clock.advance(2)
        return await going, tool

    outcome, tool = run(main())
    assert outcome.terminated_by is ending
    assert outcome.evidence.says == "Its time is up."
    assert len(tool.runs) == 1


@pytest.mark.parametrize("ending", [Ending.BUDGET, Ending.CANCELLED, Ending.QUOTA])
def test_when_leave_says_stop_the_agent_ends_that_way(ending: Ending) -> None:
    async def stop(number: int) -> None:
        if number == 2:
            raise StopAgentError(ending, Evidence(says="No more."))

    outcome = carry(forever(), task(tools=[Counter()]), leave=OpenLeave(on_call=stop))
    assert (outcome.terminated_by, outcome.evidence.says) == (ending, "No more.")
    assert outcome.text == "again"
    assert outcome.turns == 1


# --- failures ---------------------------------------------------------------------------------


def test_at_a_quota_the_agent_waits_through_leave_and_asks_the_same_again() -> None:
    model = ScriptedModel(Fail(429, "rate_limit_error", "You've hit your session limit"))

    async def reset(_failure: object) -> None:
        model.says(Say("It is 3."))

    leave = OpenLeave(on_wall=reset)
    outcome = carry(model, task(), leave=leave)
    assert outcome.value == "It is 3."
    assert [failure.kind.value for failure in leave.walls] == ["account_quota"]
    assert model.ledger[0].body == model.ledger[1].body
    assert leave.asked == 1


@pytest.mark.parametrize(
    ("fail", "ending"),
    [
        (Fail(429, "rate_limit_error", "Number of requests exceeds limit"), Ending.RATE_LIMIT),
        (Fail(500, "api_error", "Internal server error"), Ending.OUTAGE),
        (Fail(401, "authentication_error", "invalid x-api-key"), Ending.REFUSED),
        (Fail(400, "invalid_request_error", "temperature: too high"), Ending.REFUSED),
    ],
)
def test_a_call_that_the_gateway_gave_up_on_ends_the_agent_with_evidence(
    fail: Fail, ending: Ending
) -> None:
    outcome = carry(ScriptedModel(fail), task())
    assert outcome.terminated_by is ending
    assert outcome.evidence.status == fail.status
    assert outcome.evidence.failure


def test_a_notebook_that_cannot_be_written_is_a_crash_and_its_words_are_not_told() -> None:
    class Full(MemoryNotebook):
        async def write(self, kind: str, data: JsonObject) -> None:
            if kind == "answer":
                raise RuntimeError("disk full of secret sauce")
            await super().write(kind, data)

    outcome = carry(ScriptedModel(Say("3")), task(), Full())
    assert outcome.terminated_by is Ending.CRASH
    assert "sauce" not in outcome.evidence.says


def test_a_notebook_that_another_process_has_taken_over_ends_the_agent_without_an_outcome() -> None:
    class Lost(MemoryNotebook):
        async def write(self, kind: str, data: JsonObject) -> None:  # noqa: ARG002
            raise LeaseLostError("Another process carries this run.")

    with pytest.raises(LeaseLostError):
        carry(ScriptedModel(Say("3")), task(), Lost())


def test_a_cancelled_agent_leaves_by_its_cancellation_and_can_go_on() -> None:
    notebook = MemoryNotebook()
    model = ScriptedModel.in_turn(Say("", (("add", {"a": 1, "b": 2}),)), Say("It is 3."))

    async def main() -> None:
        begun = asyncio.Event()

        async def hang(_arguments: JsonObject, _context: ToolContext) -> None:
            begun.set()
            await asyncio.Event().wait()

        tool = Counter(during=hang)
        going = asyncio.ensure_future(
            MessagesRunner(model).run(task(tools=[tool]), notebook, OpenLeave())
        )
        await begun.wait()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going

    run(main())
    tool = Counter()
    outcome = carry(model, task(tools=[tool]), notebook)
    assert outcome.value == "It is 3."
    assert tool.runs == []
    assert "may or may not have run" in last_said(model)[0]["content"]


def test_two_tools_of_one_name_are_refused_before_anything_is_paid(tmp_path: Path) -> None:
    model = ScriptedModel(Say("3"))
    outcome = carry(model, task(tools=[Counter(), Counter()], folder=tmp_path))
    assert outcome.terminated_by is Ending.REFUSED
    assert model.ledger == []
