"""An independent server takes our requests, and its answers reach the client as Anthropic's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from jackline.dialects import TokenUsage
from jackline.dialects.neutral.answer import to_anthropic_error
from jackline.dialects.neutral.options import AnswerOptions
from tests.dialects.strict_client import StrictClient
from tests.dialects.translation.aimock_server import AimockServer
from tests.dialects.translation.bridge import DIALECTS, Dialect

Json = dict[str, Any]


BOTH = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
LIVE = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture(scope="module")
def server() -> Iterator[AimockServer]:
    with AimockServer() as running:
        yield running


def request(messages: list[Json], *, stream: bool) -> bytes:
    tool = {"name": "Bash", "description": "Run it.", "input_schema": {"type": "object"}}
    sent = {
        "model": "claude-opus-4-8",
        "max_tokens": 1000,
        "system": "Be brief.",
        "tools": [tool],
        "messages": messages,
        "stream": stream,
    }
    return json.dumps(sent).encode()


def say(server: AimockServer, dialect: Dialect, messages: list[Json], *, stream: bool) -> Json:
    """One turn with the server, as an Anthropic client sees it."""
    result = dialect.ask(request(messages, stream=stream), "gpt-x")
    status, body = server.post(dialect.path, result.body)
    assert status == 200, body
    face = AnswerOptions("claude-opus-4-8", result.tool_names)
    if not stream:
        answer: Json = json.loads(dialect.answer(body, face).body)
        assert answer["usage"]["output_tokens"] == 12
        return answer
    translator = dialect.translator(face)
    client = StrictClient()
    client.read(translator.feed(body))
    assert translator.whole
    assert client.complete
    assert translator.usage == TokenUsage(30, 12)
    return {"content": client.blocks, "stop_reason": client.stop_reason}


@BOTH
@LIVE
def test_text_arrives_and_reasoning_does_not(
    server: AimockServer, dialect: Dialect, stream: bool
) -> None:
    answer = say(server, dialect, [{"role": "user", "content": "say hello"}], stream=stream)
    text = "Hello, Grüße 🌍! A somewhat longer sentence."
    assert answer["content"] == [{"type": "text", "text": text}]
    assert answer["stop_reason"] == "end_turn"


@BOTH
@LIVE
def test_a_task_with_parallel_tools_goes_on_to_its_end(
    server: AimockServer, dialect: Dialect, stream: bool
) -> None:
    messages: list[Json] = [{"role": "user", "content": "list both"}]
    answer = say(server, dialect, messages, stream=stream)
    assert answer["stop_reason"] == "tool_use"
    text, first, second = answer["content"]
    assert text == {"type": "text", "text": "I look at both."}
    assert [first["input"], second["input"]] == [{"command": "ls a"}, {"command": "ls b"}]
    assert first["id"] != second["id"]
    results = [
        {"type": "tool_result", "tool_use_id": second["id"], "content": "none", "is_error": True},
        {"type": "tool_result", "tool_use_id": first["id"], "content": "x.txt"},
    ]
    messages += [
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": results},
    ]
    last = say(server, dialect, messages, stream=stream)
    assert last["content"] == [{"type": "text", "text": "There is one file."}]
    assert last["stop_reason"] == "end_turn"


@BOTH
@LIVE
def test_tools_before_text_arrive_both(
    server: AimockServer, dialect: Dialect, stream: bool
) -> None:
    answer = say(server, dialect, [{"role": "user", "content": "first the tool"}], stream=stream)
    kinds = [block["type"] for block in answer["content"]]
    assert sorted(kinds) == ["text", "tool_use"]
    assert not stream or kinds == ["tool_use", "text"]
    assert answer["stop_reason"] == "tool_use"


@BOTH
def test_a_stream_that_the_server_cuts_off_has_no_end(
    server: AimockServer, dialect: Dialect
) -> None:
    result = dialect.ask(request([{"role": "user", "content": "cut off"}], stream=True), "gpt-x")
    _, body = server.post(dialect.path, result.body)
    translator = dialect.translator(AnswerOptions("claude-opus-4-8"))
    stream = translator.feed(body)
    assert b"This " in stream
    assert b"message_stop" not in stream
    assert not translator.whole


@BOTH
def test_an_error_becomes_anthropics(server: AimockServer, dialect: Dialect) -> None:
    result = dialect.ask(request([{"role": "user", "content": "too much"}], stream=True), "gpt-x")
    status, body = server.post(dialect.path, result.body)
    assert status == 429
    error = json.loads(to_anthropic_error(status, body))["error"]
    assert error == {"type": "rate_limit_error", "message": "Rate limit reached for gpt-x"}
