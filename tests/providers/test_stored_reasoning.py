"""Reasoning of a Responses model goes back to it with the call that followed, to nobody else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from jackline.dialects.neutral.options import StoredReasoning
from jackline.dialects.openai_responses import without_reasoning
from jackline.providers.provided_upstream import provider_for
from jackline.providers.provider import Provider
from jackline.providers.reasoning import ReasoningStore
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.upstream import UpstreamRequest
from tests.providers.exchanges import CLIENT
from tests.upstream.loopback import Recorder

THOUGHT: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "encrypted_content": "gAAAAsealed",
}
WORDS = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "I look."}]}


def call(number: int) -> dict[str, str]:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_0123456789abcdef{number}",
        "name": "look",
        "arguments": "{}",
    }


def openai(model_host: str = "api.openai.com") -> Provider:
    settings = UpstreamSettings(
        "openai",
        f"https://{model_host}/v1",
        UpstreamKind.OPENAI_RESPONSES,
        Credential.BEARER,
        secret="sk-one",  # noqa: S106 -- nobody's
    )
    return provider_for(settings, {})


def requested(turns: list[dict[str, Any]], *, stream: bool) -> UpstreamRequest:
    body = {"model": "claude-opus-4-8", "max_tokens": 99, "messages": turns, "stream": stream}
    return UpstreamRequest(b"POST", b"/v1/messages", CLIENT, json.dumps(body).encode())


USER: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]


def answer_of(provider: Provider, output: list[Any], *, stream: bool, model: str) -> list[Any]:
    """The blocks that a client gets for this output."""
    message = requested(USER, stream=stream)
    provider.render(message, model)
    recorder = Recorder()
    handler = provider.wrap_handler(recorder, message, model)
    whole = {"id": "resp_1", "status": "completed", "output": output}
    if not stream:
        handler.began(200, [(b"content-type", b"application/json")])
        handler.received(json.dumps(whole).encode())
        handler.ended()
        blocks: list[Any] = json.loads(recorder.body)["content"]
        return blocks
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "resp_1"}}]
    for place, item in enumerate(output):
        events.append({"type": "response.output_item.added", "output_index": place, "item": item})
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    events.append({"type": "response.completed", "response": whole})
    handler.began(200, [(b"content-type", b"text/event-stream")])
    for event in events:
        handler.received(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    handler.ended()
    reported = [
        json.loads(line[6:]) for line in recorder.body.splitlines() if line.startswith(b"data:")
    ]
    return [each["content_block"] for each in reported if each["type"] == "content_block_start"]


def sent(provider: Provider, blocks: list[Any], model: str) -> dict[str, Any]:
    """The request to the upstream with the results of these blocks' calls."""
    calls = [block for block in blocks if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": c["id"], "content": "seen"} for c in calls]
    turns = [
        *USER,
        {"role": "assistant", "content": [b for b in blocks if b.get("text") != ""]},
        {"role": "user", "content": results},
    ]
    rendered: dict[str, Any] = json.loads(
        provider.render(requested(turns, stream=True), model).body
    )
    return rendered


def kinds(request: dict[str, Any]) -> list[str]:
    return [item["type"] for item in request["input"]]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("output", "order"),
    [
        ([THOUGHT, call(1), call(2)], ["reasoning", "function_call", "function_call"]),
        (
            [call(1), {**THOUGHT, "id": "rs_2"}, call(2)],
            ["function_call", "reasoning", "function_call"],
        ),
    ],
)
def test_reasoning_is_sent_back_before_its_call(
    stream: bool, output: list[Any], order: list[str]
) -> None:
    provider = openai()
    blocks = answer_of(provider, output, stream=stream, model="gpt-5.5")
    assert {block["type"] for block in blocks} == {"tool_use"}, "the client sees nothing of it"
    request = sent(provider, blocks, "gpt-5.5")
    outputs = ["function_call_output"] * 2
    assert kinds(request) == ["message", *order, *outputs]
    assert request["include"] == ["reasoning.encrypted_content"]
    thought = next(item for item in request["input"] if item["type"] == "reasoning")
    assert thought["encrypted_content"] == "gAAAAsealed"


def test_reasoning_is_placed_before_the_text_that_followed_it() -> None:
    provider = openai()
    blocks = answer_of(provider, [THOUGHT, WORDS, call(1)], stream=False, model="gpt-5.5")
    assert kinds(sent(provider, blocks, "gpt-5.5"))[1:4] == [
        "reasoning",
        "message",
        "function_call",
    ]


def test_another_model_account_or_server_does_not_get_it() -> None:
    provider = openai()
    blocks = answer_of(provider, [THOUGHT, call(1)], stream=True, model="gpt-5.5")
    assert "reasoning" not in kinds(sent(provider, blocks, "gpt-5.4"))
    assert "reasoning" not in kinds(sent(openai(), blocks, "gpt-5.5"))
    elsewhere = openai("llm.example.com")
    assert "include" not in sent(elsewhere, blocks, "gpt-5.5")
    blocks = answer_of(elsewhere, [THOUGHT, call(1)], stream=True, model="gpt-5.5")
    assert "reasoning" not in kinds(sent(elsewhere, blocks, "gpt-5.5"))


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        ("gpt-5.5", True),
        ("gpt-5.1-codex", True),
        ("gpt-5-mini", True),
        ("o3", True),
        ("gpt-5-chat-latest", False),
        ("gpt-4o-mini", False),
        ("gpt-4.1", False),
        ("something-new", False),
    ],
)
def test_only_models_that_reason_are_asked_for_their_reasoning(model: str, reasons: bool) -> None:
    assert ("include" in sent(openai(), [], model)) is reasons


def test_reasoning_without_a_following_call_is_not_stored() -> None:
    provider = openai()
    blocks = answer_of(provider, [call(1), THOUGHT, WORDS], stream=False, model="gpt-5.5")
    assert "reasoning" not in kinds(sent(provider, blocks, "gpt-5.5"))


def test_the_store_is_bounded() -> None:
    stored = ReasoningStore(most=2, most_bytes=100)
    small = StoredReasoning(msgspec.Raw(b'"x"'), before_text=False)
    for name in "abc":
        stored.remember("me", name, [small])
    assert [bool(stored.recall("me", name)) for name in "abc"] == [False, True, True]
    assert not stored.recall("you", "c")
    stored.remember(
        "me", "d", [StoredReasoning(msgspec.Raw(b'"' + b"y" * 98 + b'"'), before_text=False)]
    )
    assert [bool(stored.recall("me", name)) for name in "bcd"] == [False, False, True]


def test_a_request_loses_its_reasoning_and_nothing_else() -> None:
    body = (
        b'{"model":"m","input":[{"type":"message"},{"type":"reasoning"},{"x":1.50}],"store":false}'
    )
    changed = without_reasoning(body)
    assert changed.body == (b'{"model":"m","input":[{"type":"message"},{"x":1.50}],"store":false}')
    assert len(changed.notes) == 1
    for same in (b'{"input":"hi"}', b'{"input":[]}', b"{", b'{"messages":[]}'):
        assert without_reasoning(same).body == same
