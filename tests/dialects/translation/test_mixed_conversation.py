"""A conversation with foreign turns is made fit for Claude, and nothing else of it changes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects.mixed_conversation import fit_for_claude
from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.openai_chat import from_chat
from tests.dialects.translation.foreign_answers import Answer, answers, chat_whole
from tests.dialects.translation.requests import requests

HI = {"role": "user", "content": "Hi"}
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "ErUBCkYIBxgCIkDk+/=="}


def fitted(*messages: object, **fields: object) -> tuple[dict[str, Any], tuple[str, ...]]:
    body = json.dumps({"model": "claude-opus-4-8", "messages": messages, **fields}).encode()
    output = fit_for_claude(body)
    assert fit_for_claude(output.body).body == output.body, "fitting twice changes nothing more"
    return json.loads(output.body), output.notes


def reply(*blocks: object) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def call(known: str, name: str = "Bash", given: object = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": known, "name": name, "input": {} if given is None else given}


def results(*known: str) -> dict[str, Any]:
    blocks = [{"type": "tool_result", "tool_use_id": one, "content": one} for one in known]
    return {"role": "user", "content": blocks}


@given(requests())
def test_a_conversation_with_claude_alone_keeps_its_very_bytes(sent: dict[str, Any]) -> None:
    sent.pop("thinking", None)
    for message in sent["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "thinking":
                block["signature"] = SIGNED["signature"]
    body = json.dumps(sent, indent=1).encode()
    output = fit_for_claude(body)
    assert output.body == body
    assert output.notes == ()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"messages": 1}', b'{"messages": [1]}', b"\xff"]
)
def test_what_cannot_be_read_is_left_for_the_vendor(body: bytes) -> None:
    assert fit_for_claude(body).body == body


def test_ids_that_claude_refuses_change_together_with_their_results() -> None:
    output, notes = fitted(HI, reply(call("functions.Bash:0")), results("functions.Bash:0"))
    made = output["messages"][1]["content"][0]["id"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", made)
    assert output["messages"][2]["content"][0]["tool_use_id"] == made
    assert len(notes) == 2


def test_an_id_that_comes_again_gets_another_one_and_keeps_its_own_result() -> None:
    output, _ = fitted(
        HI, reply(call("call_0")), results("call_0"), reply(call("call_0")), results("call_0")
    )
    first, second = (output["messages"][at]["content"][0]["id"] for at in (1, 3))
    assert first == "call_0" != second
    assert output["messages"][2]["content"][0]["tool_use_id"] == first
    assert output["messages"][4]["content"][0]["tool_use_id"] == second


@pytest.mark.parametrize("signature", [None, "", "gAAAAABoQ2x0", "a signature!", "url_safe-one"])
def test_thinking_that_claude_did_not_sign_is_dropped(signature: str | None) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": signature}
    output, notes = fitted(HI, reply(thought, {"type": "text", "text": "Yes."}), HI)
    assert output["messages"][1]["content"] == [{"type": "text", "text": "Yes."}]
    assert notes == ("messages[*].content[*]: a thinking block without a signature of Claude's",)


def test_all_thinking_can_be_distrusted() -> None:
    hidden = {"type": "redacted_thinking", "data": "eHg="}
    body = json.dumps(
        {"messages": [HI, reply(SIGNED, hidden, call("toolu_1")), results("toolu_1")]}
    )
    assert fit_for_claude(body.encode()).body == body.encode()
    output = json.loads(fit_for_claude(body.encode(), distrust_thinking=True).body)
    assert output["messages"][1]["content"] == [call("toolu_1")]


def test_empty_texts_are_dropped_also_inside_of_results() -> None:
    empty = {"type": "text", "text": " \n"}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [empty]}
    output, notes = fitted(HI, reply(empty, call("toolu_1")), {"role": "user", "content": [result]})
    assert output["messages"][1]["content"] == [call("toolu_1")]
    assert output["messages"][2]["content"] == [{**result, "content": []}]
    assert len(notes) == 2


def test_an_empty_message_is_dropped_and_its_neighbours_are_joined() -> None:
    output, _ = fitted(HI, reply({"type": "text", "text": ""}), {"role": "user", "content": "You?"})
    texts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "You?"}]
    assert output["messages"] == [{"role": "user", "content": texts}]


def test_odd_names_and_inputs_are_changed_to_what_claude_accepts() -> None:
    output, notes = fitted(HI, reply(call("toolu_1", "functions.Bash", [1])), results("toolu_1"))
    assert output["messages"][1]["content"][0]["name"] == "functions_Bash"
    assert output["messages"][1]["content"][0]["input"] == {"INVALID_JSON": "[1]"}
    assert len(notes) == 2


BUDGET = {"type": "enabled", "budget_tokens": 2000}


def test_a_thinking_budget_waits_for_the_next_turn_when_another_model_began_this_one() -> None:
    edits = [
        {"type": "clear_thinking_20251015", "keep": "all"},
        {"type": "clear_tool_uses_20250919"},
    ]
    output, notes = fitted(
        HI,
        reply(call("toolu_1")),
        results("toolu_1"),
        thinking=BUDGET,
        context_management={"edits": edits},
    )
    assert output["thinking"] == {"type": "disabled"}
    assert output["context_management"] == {"edits": edits[1:]}
    assert len(notes) == 2


@pytest.mark.parametrize(
    "messages",
    [
        [HI],
        [HI, reply(call("toolu_1")), results("toolu_1"), HI],
        [HI, reply(SIGNED, call("toolu_1")), results("toolu_1")],
        [
            HI,
            reply(SIGNED, call("toolu_1")),
            results("toolu_1"),
            reply(call("toolu_2")),
            results("toolu_2"),
        ],
    ],
)
def test_a_thinking_budget_stays_where_claude_takes_it(messages: list[Any]) -> None:
    assert fitted(*messages, thinking=BUDGET)[1] == ()


def test_a_system_message_without_text_is_no_fault() -> None:
    effort = {"role": "system", "output_config": {"effort": "low"}}
    output, notes = fitted(HI, effort, reply(call("a.b")), results("a.b"))
    assert output["messages"][1] == effort
    assert len(notes) == 2


def test_adaptive_thinking_stays() -> None:
    turn = (HI, reply(call("toolu_1")), results("toolu_1"))
    assert fitted(*turn, thinking={"type": "adaptive"})[1] == ()


@given(st.lists(answers(), min_size=1, max_size=3))
def test_foreign_answers_of_ours_need_no_fitting(output: list[Answer]) -> None:
    """What our own translation gives to a client can go to Claude as it comes back."""
    messages: list[Any] = [HI]
    for place, answer in enumerate(output):
        whole = chat_whole(answer).replace(b"chatcmpl-9aXbYc", f"chatcmpl-{place}".encode())
        content = json.loads(from_chat(whole, AnswerOptions("claude-x")).body)["content"]
        if not content:
            continue
        known = [block["id"] for block in content if block["type"] == "tool_use"]
        messages.append(reply(*content))
        messages.append(results(*known) if known else HI)
    ids = [b["id"] for m in messages for b in m["content"] if isinstance(b, dict) and "id" in b]
    body = json.dumps({"messages": messages}).encode()
    if len(set(ids)) == len(ids):
        assert fit_for_claude(body).body == body


@given(requests(), st.data())
def test_messages_without_a_fault_keep_their_bytes(
    sent: dict[str, Any], data: st.DataObject
) -> None:
    bad = data.draw(
        st.sampled_from([reply(call("a.b")), reply({"type": "text", "text": ""}, call("c"))])
    )
    sent.pop("thinking", None)
    for message in sent["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "thinking":
                block["signature"] = SIGNED["signature"]
    messages = [*sent["messages"], bad]
    spaced = [json.dumps(message, indent=2) for message in messages]
    body = f'{{"messages": [{",".join(spaced)}]}}'.encode()
    output = fit_for_claude(body).body.decode()
    assert output != body.decode()
    for stored in spaced[:-1]:
        assert stored in output
