"""Going on after a crash at any line: nothing runs twice, nothing is paid twice, same result."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter as Count
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.agents.messages import MessagesRunner
from jackline.agents.messages.conversation import AgentConversation, ConversationLog
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import JsonObject, LogEntry
from jackline.batches.tool import ToolContext
from jackline.simulator.reply_script import Say, structured
from jackline.testing.scripted_agents import ScriptedModel
from tests.agents.world import (
    CAPITALS,
    Counter,
    MemoryNotebook,
    OpenLeave,
    ProcessDiedError,
    run,
    task,
)

# --- any conversation, cut after any line -------------------------------------------------------


@dataclass
class World:
    """One agent's work, and what it did to the world over all processes."""

    replies: tuple[Say, ...]
    schema: JsonObject | None
    runs: Count[str] = field(default_factory=Count)

    def __post_init__(self) -> None:
        self.model = ScriptedModel.in_turn(*self.replies)

    async def _ran(self, arguments: JsonObject, context: ToolContext) -> None:
        self.runs[context.call_id] += 1
        context.on_output(f"working on {arguments['a']}\n")
        for _ in range(int(str(arguments["b"]))):
            await asyncio.sleep(0)  # siblings end in any order

    def carry(self, notebook: MemoryNotebook, told: str = "") -> Outcome[object]:
        tools = [Counter(during=self._ran)]
        given = task(tools=tools, schema=self.schema, what_happened=told)
        return run(MessagesRunner(self.model).run(given, notebook, OpenLeave()))


calls = st.lists(
    st.fixed_dictionaries(
        {"a": st.sampled_from([1, 2, 3, 13]), "b": st.integers(0, 3)},
        optional={"needs_calls": st.lists(st.integers(0, 3), max_size=2)},
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    replies = []
    for _ in range(draw(st.integers(0, 3))):
        tools = tuple(("add", each) for each in draw(calls))
        replies.append(Say(draw(st.sampled_from(["", "Let me see."])), tools))
        if draw(st.booleans()):
            replies.append(Say("half an answer, ", stop="max_tokens"))
    schema = draw(st.sampled_from([None, CAPITALS]))
    if schema is None:
        replies.append(Say("The end."))
    else:
        replies += draw(st.sampled_from([[], [structured({"people": 0})], [Say("Paris.")]]))
        replies.append(structured({"capital": "Paris", "people": 1}))
    return World(tuple(replies), schema)


@settings(max_examples=60)
@given(worlds())
def test_a_cut_after_any_line_changes_neither_the_result_nor_the_bill(world: World) -> None:
    whole = MemoryNotebook()
    undisturbed = world.carry(whole)
    assert undisturbed.ok
    for cut in range(len(whole.entries)):
        again = World(world.replies, world.schema)
        kept = whole.entries[:cut]
        told = Count(entry.kind for entry in kept)
        outcome = again.carry(MemoryNotebook(kept), "The process that carried you ended.")
        assert outcome.value == undisturbed.value
        assert (outcome.turns, outcome.usage.output_tokens) == (
            undisturbed.turns,
            undisturbed.usage.output_tokens,
        )
        # What is in the notebook is not asked for again.
        assert len(again.model.ledger) == undisturbed.turns - told["answer"]
        begun = {entry.data["id"] for entry in kept if entry.kind == "tool_began"}
        ended = {entry.data["id"] for entry in kept if entry.kind == "tool_ended"}
        assert not begun & again.runs.keys()
        if begun <= ended and again.model.ledger:
            # Nobody can tell that there was a crash: the same bytes are asked for.
            assert again.model.ledger[-1].body == world.model.ledger[-1].body


@settings(max_examples=60)
@given(worlds(), st.data())
def test_over_any_number_of_deaths_each_tool_runs_at_most_once(
    world: World, data: st.DataObject
) -> None:
    mortal = MemoryNotebook()
    deaths = 0
    for _ in range(data.draw(st.integers(1, 8))):
        limit = len(mortal.entries) + data.draw(st.integers(0, 6))
        mortal = MemoryNotebook(mortal.entries, dies_after=limit)
        with contextlib.suppress(ProcessDiedError):
            deaths += 1
            world.carry(mortal)
    mortal = MemoryNotebook(mortal.entries)
    assert world.carry(mortal).ok
    assert all(times == 1 for times in world.runs.values())
    kinds = Count(entry.kind for entry in mortal.entries)
    # Each death costs at most the answer in hand.
    assert kinds["answer"] <= world.model.paid <= kinds["answer"] + deaths
    assert kinds["prompt"] == 1
    _every_result_has_its_call(world.model)


def _every_result_has_its_call(model: ScriptedModel) -> None:
    for request in model.ledger:
        messages: Any = request.body["messages"]
        assert [m["role"] for m in messages] == ["user", "assistant"] * (len(messages) // 2) + [
            "user"
        ]
        for asked, said in zip(messages[1::2], messages[2::2], strict=True):
            wanted = [b["id"] for b in asked["content"] if b["type"] == "tool_use"]
            given_ids = [b["tool_use_id"] for b in said["content"] if b["type"] == "tool_result"]
            assert wanted == given_ids


@given(worlds())
def test_what_the_loop_knows_is_what_its_notebook_says(world: World) -> None:
    notebook = MemoryNotebook()
    world.carry(notebook)
    log = ConversationLog(MemoryNotebook())
    for entry in notebook.entries:
        log.conversation.add(entry.kind, entry.data)
    assert log.conversation == AgentConversation.from_log(notebook.entries)


# --- what is told after a crash -----------------------------------------------------------------


def _crashed_in_a_tool() -> tuple[ScriptedModel, MemoryNotebook]:
    """Three calls: one ended, one had begun and printed, one had not begun."""
    three = tuple(("add", {"a": a, "b": 0}) for a in (1, 2, 3))
    model = ScriptedModel.in_turn(Say("", three), Say("done"))
    first = MemoryNotebook()
    world = MessagesRunner(model)
    run(world.run(task(tools=[Counter()]), first, OpenLeave()))
    upto = first.kinds().index("answer") + 1
    kept = first.entries[:upto]
    ids: Any = [b["id"] for b in kept[-1].data["content"]]  # type: ignore[attr-defined]
    lines = [
        *kept,
        LogEntry("tool_began", {"id": ids[0], "name": "add"}),
        LogEntry("tool_ended", {"id": ids[0], "ok": True, "content": "[add] ok\n1"}),
        LogEntry("tool_began", {"id": ids[1], "name": "add"}),
        LogEntry("tool_output", {"id": ids[1], "text": "half way"}),
    ]
    return model, MemoryNotebook(lines)


def test_a_tool_cut_off_in_the_middle_is_reported_with_what_it_had_printed() -> None:
    model, notebook = _crashed_in_a_tool()
    tool = Counter()
    run(MessagesRunner(model).run(task(tools=[tool]), notebook, OpenLeave()))
    assert tool.runs == [{"a": 3, "b": 0}]
    said: Any = model.ledger[-1].body["messages"]
    first, second, third, summary = said[-1]["content"]
    assert first["content"] == "[add] ok\n1"
    assert second["content"].startswith('[add: {"a": 2, "b": 0}] This call was cut off')
    assert "may or may not have run" in second["content"]
    assert "half way" in second["content"]
    assert second["is_error"]
    assert third["content"].endswith("3")
    assert summary["text"] == "1 of 3 failed: add (may or may not have run)"


def test_what_happened_is_told_once_at_the_seam() -> None:
    model, notebook = _crashed_in_a_tool()
    told = replace(task(tools=[Counter()]), what_happened="The power went out at noon.")
    mortal = MemoryNotebook(notebook.entries, dies_after=len(notebook.entries) + 1)
    with pytest.raises(ProcessDiedError):  # after the note
        run(MessagesRunner(model).run(told, mortal, OpenLeave()))
    outcome = run(MessagesRunner(model).run(told, MemoryNotebook(mortal.entries), OpenLeave()))
    assert outcome.ok
    said: Any = model.ledger[-1].body["messages"]
    texts = [b["text"] for b in said[-1]["content"] if b["type"] == "text"]
    assert texts.count("The power went out at noon.") == 1
    assert said[-1]["content"][0]["type"] == "tool_result"


def test_a_finished_agent_is_not_asked_again() -> None:
    notebook = MemoryNotebook()
    model = ScriptedModel(Say("It is 3."))
    run(MessagesRunner(model).run(task(), notebook, OpenLeave()))
    told = replace(task(), what_happened="The process was killed.")
    outcome = run(MessagesRunner(model).run(told, notebook, OpenLeave()))
    assert outcome.value == "It is 3."
    assert outcome.turns == 1
    assert model.paid == 1


def test_another_agent_goes_on_with_a_session_and_pays_only_for_itself() -> None:
    model, earlier = _crashed_in_a_tool()
    tool = Counter()
    given = task(
        "Now say it in French.",
        tools=[tool],
        task_id="task-2",
        session_id="session-2",
        resume_session="session-1",
        what_happened="The first agent met a quota.",
    )
    model.says(Say("Trois."))
    notebook = MemoryNotebook(earlier.entries)
    before = len(model.ledger)
    outcome = run(MessagesRunner(model).run(given, notebook, OpenLeave()))
    assert outcome.value == "Trois."
    assert outcome.turns == 1
    answer = model.ledger[-1].answer
    assert answer is not None
    assert outcome.usage == answer.usage
    assert tool.runs == []
    assert len(model.ledger) == before + 1
    said: Any = model.ledger[-1].body["messages"]
    last = said[-1]["content"]
    assert [b["type"] for b in last] == ["tool_result"] * 3 + ["text"] * 3
    assert "did not run" in last[2]["content"]
    assert [b["text"] for b in last[4:]] == [
        "The first agent met a quota.",
        "Now say it in French.",
    ]


def test_the_answer_with_which_an_earlier_agent_ended_counts_as_received() -> None:
    notebook = MemoryNotebook()
    model = ScriptedModel(structured({"capital": "Paris", "people": 1}))
    run(MessagesRunner(model).run(task(schema=CAPITALS), notebook, OpenLeave()))
    model.says(Say("Because it is."))
    given = task("Why?", task_id="task-2", session_id="session-2")
    assert run(MessagesRunner(model).run(given, notebook, OpenLeave())).value == "Because it is."
    said: Any = model.ledger[-1].body["messages"]
    assert said[-1]["content"][0]["content"] == "Received."
    assert "is_error" not in said[-1]["content"][0]


def test_what_is_finished_is_given_though_nothing_else_works_any_more() -> None:
    notebook = MemoryNotebook()
    model = ScriptedModel(Say("It is 3."))
    run(MessagesRunner(model).run(task(), notebook, OpenLeave()))
    broken = task(mcp_servers={"gone": {"command": "no-such-program-anywhere"}})
    assert run(MessagesRunner(model).run(broken, notebook, OpenLeave())).value == "It is 3."


def test_going_on_with_a_session_survives_a_death_at_any_line() -> None:
    _, earlier = _crashed_in_a_tool()
    given = task("In French.", tools=[Counter()], task_id="task-2", session_id="session-2")
    for more in range(9):
        model = ScriptedModel(Say("Trois."))
        mortal = MemoryNotebook(earlier.entries, dies_after=len(earlier.entries) + more)
        with contextlib.suppress(ProcessDiedError):
            run(MessagesRunner(model).run(given, mortal, OpenLeave()))
        outcome = run(MessagesRunner(model).run(given, MemoryNotebook(mortal.entries), OpenLeave()))
        assert outcome.value == "Trois."
        said: Any = model.ledger[-1].body["messages"]
        texts = [b.get("text") for b in said[-1]["content"]]
        assert texts.count("In French.") == 1


def test_a_schema_failure_is_asked_for_anew_when_the_agent_is_run_again() -> None:
    notebook = MemoryNotebook()
    model = ScriptedModel(structured({"capital": 1}))
    given = task(schema=CAPITALS)
    first = run(MessagesRunner(model).run(given, notebook, OpenLeave()))
    assert first.terminated_by is Ending.SCHEMA
    model.says(structured({"capital": "Paris", "people": 1}))
    second = run(MessagesRunner(model).run(given, notebook, OpenLeave()))
    assert second.ok
    assert second.turns == 4
    assert json.dumps(model.ledger[-1].body)
