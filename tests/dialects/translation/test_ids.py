"""Ids bind calls to their results on every way between the dialects."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects.neutral.conversation import ToolIds, message_id, tool_name
from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.openai_chat import from_chat, to_chat
from jackline.dialects.openai_responses import to_responses
from tests.dialects.translation.foreign_answers import Answer, answers, chat_whole
from tests.dialects.translation.requests import requests

CLAUDE = re.compile(r"^[a-zA-Z0-9_-]+$")


LONG = st.sampled_from(["call_" + "A" * 24, "A" * 24, "toolu_" + "A" * 24])


@given(st.lists(st.one_of(st.text(max_size=60), LONG), max_size=6))
def test_tool_ids_are_ones_that_claude_takes_and_never_the_same_twice(foreign: list[str]) -> None:
    ids = ToolIds("msg_1")
    made = [ids.of(one) for one in foreign]
    again = ToolIds("msg_1")
    assert made == [again.of(one) for one in foreign]
    assert all(CLAUDE.match(one) for one in made)
    assert len(set(made)) == len(made)


@given(st.text(max_size=60), st.binary(max_size=10))
def test_message_ids_are_made_of_the_foreign_id_or_of_the_answer(foreign: str, body: bytes) -> None:
    made = message_id(foreign, body)
    assert made == message_id(foreign, body)
    assert re.fullmatch(r"msg_[a-zA-Z0-9_-]*", made)


@given(st.text(max_size=140), st.text(max_size=140))
def test_names_of_tools_fit_and_stay_apart(one: str, other: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool_name(one))
    assert one == other or tool_name(one) != tool_name(other)


def _bound_in_chat(output: dict[str, Any]) -> list[tuple[str, str]]:
    """Each result with the call that it answers, by position of the call."""
    calls: dict[str, str] = {}
    bound = []
    for message in output["messages"]:
        for call in message.get("tool_calls", ()):
            calls[call["id"]] = call["function"]["arguments"]
        if message["role"] == "tool":
            bound.append((calls[message["tool_call_id"]], message["content"]))
    return bound


@given(requests())
def test_every_result_is_bound_to_its_call_in_both_dialects(sent: dict[str, Any]) -> None:
    place = 0
    wanted = []
    for message in sent["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                block["input"] = {"call": block["id"]}
            if block["type"] == "tool_result":
                block["content"] = f"result {place}"
                block.pop("is_error", None)
                wanted.append((json.dumps({"call": block["tool_use_id"]}), f"result {place}"))
                place += 1
    body = json.dumps(sent).encode()
    assert _bound_in_chat(json.loads(to_chat(body, "m").body)) == wanted
    calls, bound = {}, []
    for item in json.loads(to_responses(body, "m").body)["input"]:
        if item["type"] == "function_call":
            assert len(item["call_id"]) <= 64
            calls[item["call_id"]] = item["arguments"]
        if item["type"] == "function_call_output":
            bound.append((calls[item["call_id"]], item["output"]))
    assert bound == wanted


@given(requests())
def test_results_directly_follow_the_calls_that_they_answer(sent: dict[str, Any]) -> None:
    owed: set[str] = set()
    for message in json.loads(to_chat(json.dumps(sent).encode(), "m").body)["messages"]:
        if message["role"] == "tool":
            owed.remove(message["tool_call_id"])
        else:
            assert not owed
            owed = {call["id"] for call in message.get("tool_calls", ())}
            assert all(len(one) <= 40 for one in owed)
    assert not owed


@given(answers())
def test_a_foreign_answer_goes_back_with_its_results_bound(answer: Answer) -> None:
    output = json.loads(from_chat(chat_whole(answer), AnswerOptions("claude-x")).body)
    calls = [block for block in output["content"] if block["type"] == "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": str(place)}
        for place, call in enumerate(calls)
    ]
    sent = {
        "messages": [
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": [*output["content"], {"type": "text", "text": "."}]},
            {"role": "user", "content": [*reversed(results), {"type": "text", "text": "Next"}]},
        ]
    }
    back = json.loads(to_chat(json.dumps(sent).encode(), "m").body)
    bound = {result: given for given, result in _bound_in_chat(back)}
    assert [json.loads(bound[str(place)]) for place in range(len(calls))] == [
        json.loads(call.arguments) for call in answer.calls
    ]
