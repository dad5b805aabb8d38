"""Keeping a conversation under its window: what goes first, what stays, and that it stays valid."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jackline.agents.messages import MessagesRunner
from jackline.agents.messages.conversation import AgentConversation, MessagesSettings, Shortened
from jackline.agents.runner import JsonObject
from jackline.batches.tool import ToolContext, ToolOutput
from jackline.simulator.reply_script import Fail, Rule, Say
from jackline.testing.scripted_agents import ScriptedModel
from tests.agents.world import Counter, MemoryNotebook, OpenLeave, run, task


def talk(sizes: list[int]) -> list[JsonObject]:
    """A prompt, and for each size a call with a result that large."""
    messages: list[JsonObject] = [_user({"type": "text", "text": "the task"})]
    for number, size in enumerate(sizes):
        call: JsonObject = {
            "type": "tool_use",
            "id": f"t{number}",
            "name": "read",
            "input": {"n": number},
        }
        result: JsonObject = {
            "type": "tool_result",
            "tool_use_id": f"t{number}",
            "content": "x" * size,
        }
        messages += [{"role": "assistant", "content": [call]}, _user(result)]
    return messages


def _user(*blocks: JsonObject) -> JsonObject:
    return {"role": "user", "content": list(blocks)}


def _size(messages: list[JsonObject]) -> int:
    return len(json.dumps(messages))


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=12),
    st.integers(10, 100_000),
    st.floats(0.1, 1.0),
)
def test_a_shortened_conversation_is_shorter_and_still_valid(
    sizes: list[int], tokens: int, share: float
) -> None:
    messages = talk(sizes)
    plan = Shortened().further(messages, tokens=tokens, target=int(tokens * share))
    if plan is None:
        return
    shown = plan.render(messages)
    assert _size(shown) <= _size(messages) + 100  # the note itself may cost a little
    assert shown[-4:] == messages[-4:]
    first: Any = shown[0]["content"]
    assert first[0] == {"type": "text", "text": "the task"}
    assert [m["role"] for m in shown[:2]] == ["user", "assistant"]
    roles = [m["role"] for m in shown]
    assert all(a != b for a, b in pairwise(roles))
    for asked, said in zip(shown[1::2], shown[2::2], strict=True):
        calls: Any = asked["content"]
        results: Any = said["content"]
        assert [c["id"] for c in calls] == [r["tool_use_id"] for r in results]


def test_the_oldest_results_go_first_with_a_note_and_turns_only_when_that_is_not_enough() -> None:
    messages = talk([4000] * 6)
    some = Shortened().further(messages, tokens=1000, target=700)
    assert some is not None
    assert some.turns_before == 0
    shown: Any = some.render(messages)
    assert "left out to save room" in shown[2]["content"][0]["content"]
    assert shown[-1] == messages[-1]
    more = some.further(messages, tokens=1000, target=10)
    assert more is not None
    assert more.turns_before > 1
    assert "earlier messages of this conversation were left out" in json.dumps(
        more.render(messages)
    )


def test_when_nothing_is_left_to_leave_out_it_says_so() -> None:
    assert Shortened().further(talk([4000]), tokens=1000, target=10) is None


def test_what_was_left_out_stays_the_same_bytes_between_shortenings() -> None:
    messages = talk([4000] * 4)
    plan = Shortened(3, 0)
    longer = [*messages, *talk([4000])[1:]]
    assert plan.render(longer)[: len(messages)] == plan.render(messages)
    resumed = AgentConversation()
    resumed.add("shortened", {"results_before": 3, "turns_before": 0, "context": 10})
    assert resumed.shortened == plan


class Reader(Counter):
    """A tool with much to say."""

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        return ToolOutput("page " * 2000)


def _endless() -> Rule:
    return Rule(
        lambda asked: Say("", (("add", {"n": asked.call}),)) if asked.call < 30 else Say("ok")
    )


def test_an_agent_that_reads_more_than_its_window_comes_to_its_end() -> None:
    model = ScriptedModel(_endless())
    settings = MessagesSettings(window=20_000)
    notebook = MemoryNotebook()
    outcome = run(
        MessagesRunner(model, settings=settings).run(task(tools=[Reader()]), notebook, OpenLeave())
    )
    assert outcome.ok
    assert max(len(json.dumps(request.body)) for request in model.ledger) < 20_000 * 4
    assert notebook.kinds().count("shortened") < 15


def test_an_agent_that_goes_on_with_a_long_conversation_is_told_its_own_task_to_the_end() -> None:
    # Long words, not long results: whole turns have to go, the one with the second task too.
    long = "word " * 1500
    chatty = Rule(
        lambda asked: (
            Say(long, (("add", {"a": 1, "b": 1}),)) if asked.call % 10 != 9 else Say(f"{long} ok")
        )
    )
    model = ScriptedModel(chatty)
    runner = MessagesRunner(model, settings=MessagesSettings(window=20_000))
    notebook = MemoryNotebook()
    first = task("Count the ships.", tools=[Counter()])
    assert run(runner.run(first, notebook, OpenLeave())).ok
    second = task("Now name them.", tools=[Counter()], task_id="task-2", session_id="session-2")
    asked = len(model.ledger)
    assert run(runner.run(second, MemoryNotebook(notebook.entries), OpenLeave())).ok
    assert len(model.ledger) > asked + 5
    for request in model.ledger[asked:]:
        messages: Any = request.body["messages"]
        texts = [b["text"] for m in messages for b in m["content"] if b["type"] == "text"]
        assert texts.count("Now name them.") == 1
        assert texts[0] == "Count the ships."
    assert "your present task" in json.dumps(model.ledger[-1].body)


def test_a_conversation_that_the_api_finds_too_long_is_shortened_and_asked_again() -> None:
    def reply(asked: Any) -> Say | Fail:
        if asked.size > 30_000:
            words = "prompt is too long: 210000 tokens > 200000 maximum"
            return Fail(400, "invalid_request_error", words)
        return Say("ok") if asked.call > 9 else Say("", (("add", {"n": asked.call}),))

    model = ScriptedModel(Rule(reply))
    outcome = run(MessagesRunner(model).run(task(tools=[Reader()]), MemoryNotebook(), OpenLeave()))
    assert outcome.ok
    assert any(request.answer is None for request in model.ledger)


def test_marks_for_the_cache_stand_on_what_is_sent_again_and_are_few() -> None:
    model = ScriptedModel(_endless())
    run(MessagesRunner(model).run(task(tools=[Counter()]), MemoryNotebook(), OpenLeave()))
    for request in model.ledger:
        assert json.dumps(request.body).count("cache_control") <= 4
    last: Any = model.ledger[-1].body
    assert "cache_control" in last["messages"][-1]["content"][-1]
    assert "cache_control" in last["messages"][-3]["content"][-1]
    assert "cache_control" in last["system"][-1]
    once = ScriptedModel(Say("3"))
    run(MessagesRunner(once).run(task(), MemoryNotebook(), OpenLeave()))
    assert "cache_control" not in json.dumps(once.ledger[0].body)
