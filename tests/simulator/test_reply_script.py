"""A script answers by its rules, and its answers read as a provider's."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.simulator.anthropic_wire import (
    AnthropicMessages,
    BedrockAnthropic,
    Dialect,
    PendingReply,
    VertexAnthropic,
    with_request_id,
)
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.openai_wire import OpenAIChat, OpenAIResponses
from jackline.simulator.reply_script import (
    Fail,
    ReplyScript,
    Rule,
    Say,
    long_answer,
    structured,
)
from tests.simulator.http_client import document

TEXTS = st.text(st.characters(codec="utf-8"), max_size=300)
CALLS = st.lists(
    st.tuples(st.sampled_from(["Bash", "Agent"]), st.dictionaries(st.text(max_size=5), TEXTS)),
    max_size=3,
).map(tuple)


def client_request(body: dict[str, Any], agent: str = "", call: int = 0) -> ClientRequest:
    headers = {"x-claude-code-session-id": "s1"}
    if agent:
        headers["x-claude-code-agent-id"] = agent
    found = ClientRequest.parse("/v1/messages", headers, json.dumps(body).encode(), call)
    assert found is not None
    return found


def answered(*entries: dict[str, Any]) -> dict[str, Any]:
    first = document("PART-2: review")
    return {**first, "messages": [*first["messages"], *entries]}


TOOL_TURN = answered(
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash"}]},
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "exit 3"},
            {"type": "text", "text": "go on"},
        ],
    },
)


def test_a_request_knows_its_prompt_its_turn_and_its_results() -> None:
    one = client_request(TOOL_TURN)
    assert (one.prompt, one.turn, one.results, one.latest) == (
        "PART-2: review", 1, "exit 3", "go on",
    )  # fmt: skip
    assert one.session == "s1"


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'"x"'])
def test_a_body_that_is_no_object_is_no_request(raw: bytes) -> None:
    assert ClientRequest.parse("/", {}, raw) is None


@given(
    st.dictionaries(
        st.sampled_from(["messages", "tools", "model", "input"]),
        st.text()
        | st.none()
        | st.lists(st.none() | st.dictionaries(st.just("content"), st.integers())),
    )
)
def test_odd_bodies_are_read_without_an_error(body: dict[str, Any]) -> None:
    one = client_request(body)
    assert one.turn == 0
    assert one.tools <= {""}


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (Rule(Say(), prompt="PART-2"), True),
        (Rule(Say(), prompt="PART-3"), False),
        (Rule(Say(), turn=1, call=4, sub_agent=True), True),
        (Rule(Say(), turn=0), False),
        (Rule(Say(), call=0), False),
        (Rule(Say(), sub_agent=False), False),
        (Rule(Say(), results="exit 3", latest="go"), True),
        (Rule(Say(), results="exit 4"), False),
        (Rule(Say(), offers="StructuredOutput"), True),
        (Rule(Say(), offers="Workflow"), False),
        (Rule(Say(), model="sonnet"), True),
    ],
)
def test_each_condition_of_a_rule_counts(rule: Rule, fits: bool) -> None:
    body = {**TOOL_TURN, "tools": [{"name": "StructuredOutput"}]}
    assert rule.fits(client_request(body, agent="a1", call=4)) is fits


def test_the_first_fitting_rule_answers_and_else_the_fallback() -> None:
    script = ReplyScript(
        (Rule(Say("one"), turn=1), Rule(lambda a: Say(a.prompt), prompt="PART")), Say("no")
    )
    assert script.reply(client_request(TOOL_TURN)) == Say("one")
    assert script.reply(client_request(document("PART-9"))) == Say("PART-9")
    assert script.reply(client_request(document("other"))) == Say("no")


def test_phrases_are_what_they_say() -> None:
    assert structured({"x": 1}).stop_reason == "tool_use"
    assert long_answer(1000).output_tokens == pytest.approx(1000, abs=2)
    assert Fail(401, "authentication_error", "no").refusal().status == 401


def sse_events(pieces: list[bytes]) -> list[dict[str, Any]]:
    found = []
    for piece in pieces:
        name, data = piece.decode().rstrip("\n").split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


@given(TEXTS, CALLS)
def test_a_stream_says_the_same_as_the_whole_message(text: str, calls: Any) -> None:
    message = PendingReply(7, client_request(TOOL_TURN), Say(text, calls))
    whole = json.loads(AnthropicMessages().whole(message).pieces[0])
    events = sse_events(list(AnthropicMessages().stream(message).pieces))
    assert [events[0]["type"], events[-2]["type"], events[-1]["type"]] == [
        "message_start", "message_delta", "message_stop",
    ]  # fmt: skip
    blocks: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "written": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            blocks[-1]["written"] += delta.get("text", "") + delta.get("partial_json", "")
    result = [
        {"type": "text", "text": block["written"]}
        if block["type"] == "text"
        else {
            **{k: block[k] for k in ("type", "id", "name")},
            "input": json.loads(block["written"]),
        }
        for block in blocks
    ]
    assert result == whole["content"]
    assert events[-2]["usage"] == whole["usage"]
    usage = whole["usage"]
    parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    assert sum(usage[part] for part in parts) == message.request.input_tokens
    assert min(usage[part] for part in parts) >= 0


@pytest.mark.parametrize(
    "dialect",
    [
        AnthropicMessages(), OpenAIResponses(), OpenAIChat(), VertexAnthropic(), BedrockAnthropic(),
    ],
)  # fmt: skip
def test_every_dialect_can_break_and_show_life(dialect: Dialect) -> None:
    body = '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    assert re.search(rb"(?i)overloaded|unable to process", dialect.error_event(body))
    assert dialect.ping()
    message = PendingReply(1, client_request(document()), Say("hi", (("Bash", {}),)))
    assert b'"hi"' in dialect.whole(message).pieces[0]
    answer = dialect.stream(message)
    assert 0 < answer.closing < len(answer.pieces)


def test_request_ids_go_into_the_apis_own_errors_only() -> None:
    assert json.loads(with_request_id('{"type": "error"}', 3))["request_id"] == "req_sim00003"
    assert with_request_id("<html>", 3) == "<html>"
    assert with_request_id('{"code": 1}', 3) == '{"code": 1}'
