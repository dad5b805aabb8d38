"""Whatever dialect a client speaks, it meets the same provider: same rules, faults and ledger."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.failures import Kind, classify
from jackline.failures.observation import Observation
from jackline.simulator.anthropic_wire import PendingReply, frame
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.ledger import RequestOutcome
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.openai_wire import OpenAIChat, OpenAIResponses, go_duration
from jackline.simulator.reply_script import Fail, Rule, Say, long_answer, structured
from jackline.simulator.scenario import Scenario
from jackline.testing import SimulatedProvider
from tests.simulator.http_client import Got, document, send
from tests.simulator.test_reply_script import CALLS, TEXTS

MODEL = "claude-opus-4-8"
PUBLISHER = "/v1/projects/p/locations/global/publishers/anthropic/models"
PATHS = {
    "anthropic": ("/v1/messages", "/v1/messages"),
    "openai-chat": ("/v1/chat/completions", "/openai/deployments/d/chat/completions"),
    "openai-responses": ("/v1/responses", "/v1/responses"),
    "bedrock": (f"/model/{MODEL}-v1%3A0/invoke", f"/model/{MODEL}/invoke-with-response-stream"),
    "vertex": (f"{PUBLISHER}/{MODEL}:rawPredict", f"{PUBLISHER}/{MODEL}:streamRawPredict"),
}
CLOSERS = {
    "anthropic": b"message_stop",
    "openai-chat": b"[DONE]",
    "openai-responses": b"response.completed",
    "bedrock": base64.b64encode(b'{"type": "message_stop"}'),
    "vertex": b"message_stop",
}


@pytest.fixture
def provider() -> Iterator[SimulatedProvider]:
    with SimulatedProvider() as running:
        running.says(long_answer(400))
        yield running


def body_for(dialect: str, prompt: str = "hello", *, stream: bool = False) -> dict[str, Any]:
    if dialect in ("bedrock", "vertex"):
        return {key: value for key, value in document(prompt).items() if key != "model"}
    spoken = {"model": MODEL, "stream": stream}
    if dialect == "anthropic":
        return {**document(prompt), **spoken}
    entries = [{"role": "user", "content": prompt}]
    return {**spoken, ("messages" if dialect == "openai-chat" else "input"): entries}


def ask(
    provider: SimulatedProvider,
    dialect: str,
    prompt: str = "hello",
    *,
    stream: bool = True,
    headers: dict[str, str] | None = None,
    timeout: float = 10.0,
) -> Got:
    body = body_for(dialect, prompt, stream=stream)
    return send(provider, "POST", PATHS[dialect][stream], body, headers, timeout)


@pytest.mark.parametrize("dialect", PATHS)
def test_healthy_answers_close_properly_and_are_in_the_ledger(
    provider: SimulatedProvider, dialect: str
) -> None:
    assert CLOSERS[dialect] in ask(provider, dialect).body
    assert ask(provider, dialect, stream=False).status == 200
    for entry in provider.ledger:
        assert (entry.dialect, entry.outcome) == (dialect, RequestOutcome.COMPLETED)
        assert entry.output_tokens == 400
        assert MODEL in entry.model


@pytest.mark.parametrize("dialect", PATHS)
def test_streams_break_in_every_dialect(provider: SimulatedProvider, dialect: str) -> None:
    for effect in (Effect.CUT, Effect.RESET, Effect.REFUSED):
        handle = provider.strike(Fault(effect, at_share=0.5, share=0.999999))
        with pytest.raises(ConnectionError):
            ask(provider, dialect)
        provider.heal(handle)
    for effect in (Effect.HANG, Effect.SILENCE):
        handle = provider.strike(Fault(effect, at_share=0.5))
        with pytest.raises(TimeoutError):
            ask(provider, dialect, timeout=0.3)
        provider.heal(handle)
    provider.clean_end(at=1.0)
    ended = ask(provider, dialect)
    assert ended.body
    assert CLOSERS[dialect] not in ended.body
    provider.heal()
    provider.slow_drip(slowness=2.0)
    assert CLOSERS[dialect] in ask(provider, dialect).body
    provider.heal()
    provider.captive_portal()
    assert b"Internet Access Denied" in ask(provider, dialect).body


MEANINGS = [
    (Fault(Effect.SERVER_ERROR), {Kind.UPSTREAM_5XX}),
    (Fault(Effect.OVERLOADED), {Kind.OVERLOADED, Kind.UPSTREAM_5XX}),
    (Fault(Effect.THROTTLED), {Kind.SERVER_THROTTLE, Kind.RATE_LIMIT}),
    (Fault(Effect.QUOTA_WALL), {Kind.ACCOUNT_QUOTA, Kind.BILLING}),
    (Fault(Effect.BAD_GATEWAY), {Kind.UPSTREAM_5XX}),
]


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize(("fault", "kinds"), MEANINGS)
def test_a_refusal_means_the_same_in_every_dialect(
    provider: SimulatedProvider, dialect: str, fault: Fault, kinds: set[Kind]
) -> None:
    provider.strike(fault)
    got = ask(provider, dialect)
    vendor = dialect.partition("-")[0]
    seen = Observation.of_response(got.status, got.headers, got.body, provider=vendor)
    assert classify(seen, now=datetime.now(UTC)).kind in kinds


def test_a_named_limit_is_recognised_in_openais_text(provider: SimulatedProvider) -> None:
    provider.limits(BucketSettings(Counts.INPUT_TOKENS, 30))
    ask(provider, "openai-chat")
    got = ask(provider, "openai-chat")
    seen = Observation.of_response(got.status, got.headers, got.body, provider="openai")
    failure = classify(seen, now=datetime.now(UTC))
    assert failure.kind is Kind.RATE_LIMIT
    assert failure.retry_after
    assert got.json["error"]["type"] == "tokens"


def test_an_error_of_a_script_is_restated_and_its_own_body_is_not(
    provider: SimulatedProvider,
) -> None:
    own = {"error": {"message": "mine", "code": "odd"}}
    provider.says(
        Rule(Fail(404, "not_found_error", "no such model"), prompt="A"), Fail(418, body=own)
    )
    assert ask(provider, "openai-chat", "A").json["error"]["code"] == "model_not_found"
    assert ask(provider, "openai-chat", "B").json == own
    amazon = ask(provider, "bedrock", "A")
    assert amazon.headers["x-amzn-errortype"] == "ResourceNotFoundException"
    assert amazon.json["message"] == "no such model"
    assert ask(provider, "vertex", "A").json["error"]["status"] == "NOT_FOUND"


@pytest.mark.parametrize("dialect", PATHS)
def test_a_credential_is_demanded_only_where_that_is_set(
    provider: SimulatedProvider, dialect: str
) -> None:
    assert ask(provider, dialect).status == 200
    provider.demand_credential()
    refused = ask(provider, dialect)
    assert refused.status in (401, 403)
    assert "message" in refused.body.decode()
    assert ask(provider, dialect, headers={"authorization": "Bearer x"}).status == 200
    by_key = ask(provider, dialect, headers={"x-api-key": "x"}).status
    assert (by_key == 200) is (dialect not in ("bedrock", "vertex"))
    assert len(provider.recorded) == 2 + (by_key == 200) - 1, "a refused request gets no reply"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", f"{PUBLISHER}/count-tokens:rawPredict"),
    ],
)
def test_faults_strike_errands_but_limits_and_ledger_do_not_count_them(
    provider: SimulatedProvider, method: str, path: str
) -> None:
    body = document() if method == "POST" else None
    provider.limits(BucketSettings(Counts.REQUESTS, 1))
    assert [send(provider, method, path, body).status for _ in range(3)] == [200] * 3
    provider.outage()
    assert send(provider, method, path, body).status == 500
    provider.heal()
    provider.hang()
    with pytest.raises(TimeoutError):
        send(provider, method, path, body, timeout=0.2)
    provider.heal()
    provider.reset()
    with pytest.raises(ConnectionError):
        send(provider, method, path, body)
    provider.heal()
    provider.quota_wall()
    assert send(provider, method, path, body).status == 200, "windows count what models say"
    provider.heal()
    provider.demand_credential()
    assert send(provider, method, path, body).status == 401
    assert len(provider.ledger) == 0
    assert provider.order(lambda p: p.provider.in_flight) == 0


def test_models_are_listed_in_the_dialect_of_who_asks(provider: SimulatedProvider) -> None:
    openai = send(provider, "GET", "/v1/models", headers={"authorization": "Bearer x"}).json
    claude = {"authorization": "Bearer x", "anthropic-version": "2023-06-01"}
    anthropic = send(provider, "GET", "/v1/models", headers=claude).json
    assert (openai["object"], "object" in anthropic) == ("list", False)
    assert [one["id"] for one in openai["data"]] == [one["id"] for one in anthropic["data"]]


def test_a_body_that_cannot_be_read_is_refused_in_the_dialects_format(
    provider: SimulatedProvider,
) -> None:
    for dialect in PATHS:
        got = send(provider, "POST", PATHS[dialect][0], "no object")
        assert got.status == 400, dialect
        assert "not valid JSON" in got.body.decode()


# --- reading requests --------------------------------------------------------------------


def request(body: dict[str, Any]) -> ClientRequest:
    found = ClientRequest.parse("/", {}, json.dumps(body).encode())
    assert found is not None
    return found


CHAT = {
    "model": "gpt-5",
    "prompt_cache_key": "session-1",
    "tools": [{"type": "function", "function": {"name": "Bash"}}],
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "<system-reminder>today</system-reminder>"},
        {"role": "user", "content": [{"type": "text", "text": "PART-2: review"}]},
        {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]},
        {"role": "tool", "tool_call_id": "a", "content": "exit 3"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "exit 4"}]},
    ],
}
RESPONSES = {
    "model": "gpt-5",
    "prompt_cache_key": "session-1",
    "tools": [{"type": "function", "name": "Bash"}],
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "PART-2: review"}]},
        {"type": "message", "role": "assistant", "content": []},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "a", "name": "Bash", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "Bash", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "exit 3"},
        {"type": "function_call_output", "output": [{"type": "input_text", "text": "exit 4"}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("body", [CHAT, RESPONSES])
def test_openai_conversations_are_read_like_others(body: dict[str, Any]) -> None:
    one = request(body)
    assert (one.prompt, one.turn, one.results, one.latest) == (
        "PART-2: review", 1, "exit 3\nexit 4", "",
    )  # fmt: skip
    assert (one.session, one.tools) == ("session-1", frozenset({"Bash"}))
    key = "messages" if "messages" in body else "input"
    followed = request({**body, key: [*body[key], {"role": "user", "content": "go on"}]})
    assert (followed.latest, followed.results) == ("go on", "exit 3\nexit 4")
    answered = request({**body, key: [*body[key], {"role": "assistant", "content": "done"}]})
    assert (answered.turn, answered.results) == (2, "")


def test_an_input_may_be_plain_text() -> None:
    assert request({"input": "just this"}).prompt == "just this"


def test_structured_output_is_a_call_where_its_tool_is_offered(
    provider: SimulatedProvider,
) -> None:
    provider.says(structured({"x": 1}))
    schema = {"output_config": {"format": {"type": "json_schema", "schema": {}}}}
    tool = {"tools": [{"name": "StructuredOutput"}]}
    by_text = send(provider, "POST", "/v1/messages", {**document(), **schema}).json
    by_call = send(provider, "POST", "/v1/messages", {**document(), **schema, **tool}).json
    assert by_text["content"] == [{"type": "text", "text": '{"x": 1}'}]
    assert by_text["stop_reason"] == "end_turn"
    assert by_call["content"][0]["input"] == {"x": 1}


# --- bytes -------------------------------------------------------------------------------


def data_of(pieces: list[bytes]) -> list[dict[str, Any]]:
    lines = [line for piece in pieces for line in piece.decode().split("\n")]
    result = [line[6:] for line in lines if line.startswith("data: ")]
    return [json.loads(one) for one in result if one != "[DONE]"]


@given(TEXTS, CALLS)
def test_a_chat_stream_says_the_same_as_the_whole_completion(text: str, calls: Any) -> None:
    body = {**CHAT, "stream_options": {"include_usage": True}}
    message = PendingReply(7, request(body), Say(text, calls))
    whole = json.loads(OpenAIChat().whole(message).pieces[0])
    chunks = data_of(list(OpenAIChat().stream(message).pieces))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    spoken = whole["choices"][0]["message"]
    assert "".join(delta.get("content") or "" for delta in deltas) == (spoken["content"] or "")
    result: list[dict[str, Any]] = []
    for part in (part for delta in deltas for part in delta.get("tool_calls", ())):
        if "id" in part:
            result.append({"id": part["id"], "name": part["function"]["name"], "arguments": ""})
        result[part["index"]]["arguments"] += part["function"]["arguments"]
    assert result == [
        {"id": call["id"], **call["function"]} for call in spoken.get("tool_calls", ())
    ]
    assert chunks[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert chunks[-1]["usage"] == whole["usage"]


@given(TEXTS, CALLS)
def test_a_responses_stream_says_the_same_as_the_whole_response(text: str, calls: Any) -> None:
    message = PendingReply(7, request(RESPONSES), Say(text, calls))
    whole = json.loads(OpenAIResponses().whole(message).pieces[0])
    events = data_of(list(OpenAIResponses().stream(message).pieces))
    assert events[-1]["response"] == whole
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == whole["output"]
    for item in whole["output"]:
        parts = [e["delta"] for e in events if e.get("item_id") == item["id"] and "delta" in e]
        content = item["content"][0]["text"] if item["type"] == "message" else item["arguments"]
        assert "".join(parts) == content


@given(st.dictionaries(st.text("abc:-", min_size=1, max_size=20), TEXTS), st.binary())
def test_a_frame_holds_what_was_put_in(headers: dict[str, str], payload: bytes) -> None:
    raw = frame(headers, payload)
    total, length, checksum = struct.unpack_from(">III", raw)
    assert (total, checksum) == (len(raw), zlib.crc32(raw[:8]))
    assert struct.unpack(">I", raw[-4:])[0] == zlib.crc32(raw[:-4])
    assert raw[12 + length : -4] == payload
    result, rest = {}, raw[12 : 12 + length]
    while rest:
        end = 1 + rest[0]
        kind, size = struct.unpack_from(">BH", rest, end)
        assert kind == 7
        result[rest[1:end].decode()] = rest[end + 3 : end + 3 + size].decode()
        rest = rest[end + 3 + size :]
    assert result == headers


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (0, "0s"), (0.02, "20ms"), (1, "1s"), (360, "6m0s"), (3723, "1h2m3s")],
)
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


def test_scenarios_know_no_dialect_but_may_demand_a_credential() -> None:
    assert Scenario.parse("s", "").settings.demands_credential is False
    assert Scenario.parse("s", "demands_credential = true").settings.demands_credential is True
