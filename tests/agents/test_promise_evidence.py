"""What the gateway and an agent tell each other: its class, how often was tried, the reset."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from jackline.agents.gateway_model import GatewayModel
from jackline.agents.outcome import Ending
from jackline.agents.runner import ModelCaller, ModelFailedError, ending_of
from tests.agents.test_gateway_model import ask_scripted
from tests.agents.world import run
from tests.assembly.world import http, provider

WALL = json.dumps(
    {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "You've hit your session limit"},
    }
).encode()


def refused(*headers: str) -> ModelFailedError:
    head = "\r\n".join(
        (
            "HTTP/1.1 429 Too Many Requests",
            "content-type: application/json",
            f"content-length: {len(WALL)}",
            "connection: close",
            *headers,
        )
    )
    told, _ = ask_scripted(head.encode() + b"\r\n\r\n" + WALL)
    assert isinstance(told, ModelFailedError)
    return told


def test_attempts_request_id_and_reset_are_those_that_the_gateway_tells() -> None:
    error = refused(
        "request-id: req_7",
        "x-jackline-attempts: 7",
        "x-jackline-resets-at: 2026-11-15T22:10:00+00:00",
    )
    ending, evidence = ending_of(error.failure), error.evidence
    assert ending is Ending.QUOTA
    assert (evidence.status, evidence.attempts, evidence.request_id) == (429, 7, "req_7")
    assert evidence.resets_at == datetime(2026, 11, 15, 22, 10, tzinfo=UTC)


def test_what_a_gateway_does_not_tell_or_tells_without_sense_is_left_open() -> None:
    error = refused("x-jackline-attempts: many", "x-jackline-resets-at: tomorrow")
    evidence = error.evidence
    assert (evidence.attempts, evidence.request_id, evidence.resets_at) == (1, None, None)


def test_a_calls_class_goes_to_the_gateway_and_nothing_where_none_was_said() -> None:
    answer = json.dumps(
        {"type": "message", "content": [], "stop_reason": "end_turn", "usage": {}}
    ).encode()

    async def sent(class_: str | None) -> bytes | None:
        caller = ModelCaller("session-1", "task-1", class_=class_)
        told = http(200, answer, (b"content-type", b"application/json"))
        async with provider(told) as (scripted, url), GatewayModel(url) as model:
            await model.ask({"model": "m", "messages": []}, caller)
        return scripted.asked[0].header(b"x-jackline-class")

    assert run(sent("background")) == b"background"
    assert run(sent(None)) is None
