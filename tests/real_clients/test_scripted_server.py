"""The scripted server answers by rule, records, and fails the way the script says."""

from __future__ import annotations

import asyncio
import http.client
import json
from contextlib import closing
from typing import Any

import pytest

from tests.real_clients.scripted_server import Fail, Hangup, Rule, Say, ScriptedServer, Vanish


def ask(
    server: ScriptedServer, prompt: str, agent: str = "", path: str = "/v1/messages", **body: Any
) -> tuple[int, str]:
    reminder = "<system-reminder>today</system-reminder>"
    content = [{"type": "text", "text": reminder}, {"type": "text", "text": prompt}]
    headers = {"x-claude-code-agent-id": agent} if agent else {}
    document = {"model": "m", "messages": [{"role": "user", "content": content}], **body}
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)) as connection:
        connection.request("POST", f"{path}?beta=true", json.dumps(document), headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


def test_first_fitting_rule_answers_and_is_recorded() -> None:
    rules = [Rule(Say("sub"), prompt="PART", sub_agent=True), Rule(Say("main"), prompt="PART")]
    with ScriptedServer(rules) as server:
        assert json.loads(ask(server, "PART 1")[1])["content"][0]["text"] == "main"
        assert json.loads(ask(server, "PART 1", agent="a1")[1])["content"][0]["text"] == "sub"
        assert json.loads(ask(server, "other")[1])["content"][0]["text"] == "Understood."
    assert [(r.agent_id, r.prompt) for r in server.requests] == [
        (None, "PART 1"),
        ("a1", "PART 1"),
        (None, "other"),
    ]


def test_a_stream_holds_every_parallel_call() -> None:
    say = Say("go", (("Agent", {"prompt": "a"}), ("Agent", {"prompt": "b"})))
    with ScriptedServer([Rule(say)]) as server:
        status, text = ask(server, "x", stream=True)
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    starts = [e["content_block"]["type"] for e in events if e["type"] == "content_block_start"]
    assert (status, starts) == (200, ["text", "tool_use", "tool_use"])
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_an_error_carries_status_headers_and_request_id() -> None:
    with ScriptedServer(
        [Rule(Fail(429, "rate_limit_error", "slow", {"retry-after": "2"}))]
    ) as server:
        status, text = ask(server, "x")
    assert (status, json.loads(text)["error"]["type"]) == (429, "rate_limit_error")
    assert json.loads(text)["request_id"] == "req_lab00001"


def test_call_counts_retries_and_turn_does_not() -> None:
    with ScriptedServer([Rule(Fail(529), call=0), Rule(Say("second"), turn=0)]) as server:
        assert ask(server, "x")[0] == 529
        assert ask(server, "x")[0] == 200


def test_hangup_drops_one_connection_and_vanish_refuses_the_rest() -> None:
    with ScriptedServer([Rule(Hangup(), prompt="drop"), Rule(Vanish(), prompt="gone")]) as server:
        with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
            ask(server, "drop")
        assert ask(server, "still here")[0] == 200
        with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
            ask(server, "gone")
        with pytest.raises(ConnectionRefusedError):
            ask(server, "anyone")


def test_count_tokens_and_responses_dialects() -> None:
    with ScriptedServer([Rule(Say("hi"))]) as server:
        assert json.loads(ask(server, "x", path="/v1/messages/count_tokens")[1])["input_tokens"] > 0
        assert (
            json.loads(ask(server, "x", path="/v1/responses")[1])["output"][0]["content"][0]["text"]
            == "hi"
        )


def test_it_runs_in_the_running_loop() -> None:
    async def run() -> int:
        async with ScriptedServer([Rule(Say("hi"))]) as server:
            status, _ = await asyncio.to_thread(ask, server, "x")
            return status

    assert asyncio.run(run()) == 200
