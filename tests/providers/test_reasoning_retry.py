"""A request with a refused signature is retried once without it, visibly, and never in a loop."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jackline.event_loop import run
from jackline.lane_id import LaneId
from jackline.providers.provided_upstream import ProvidedUpstream, provider_for
from jackline.providers.reasoning import RefusedSignatures
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.upstream import UpstreamRequest
from tests.providers.exchanges import CLIENT, answer
from tests.upstream.loopback import Recorder, Server, Wire

LANE = LaneId("claude", "claude-opus-4-8", "account")
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "RWFybGllcg=="}
HIDDEN = {"type": "redacted_thinking", "data": "SGlkZGVu"}
FRESH = {"type": "thinking", "thinking": "Oh.", "signature": "TGF0ZXI="}
GOOD = b'{"type":"message","content":[{"type":"text","text":"Hi"}]}'
JSON = b"Content-Type: application/json"


def error(message: str) -> bytes:
    told = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    return json.dumps(told).encode()


REFUSED = error("messages.1.content.0: Invalid `signature` in `thinking` block")


def requested(*thoughts: dict[str, str]) -> UpstreamRequest:
    turns = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": [*thoughts, {"type": "text", "text": "Yes?"}]},
        {"role": "user", "content": "Go on."},
    ]
    body = {"model": "claude-opus-4-8", "max_tokens": 64, "messages": turns}
    return UpstreamRequest(b"POST", b"/v1/messages", CLIENT, json.dumps(body).encode())


class World:
    """Claude with a script of answers, another family beside it, and what was reported."""

    def __init__(self, url: str, kind: UpstreamKind) -> None:
        claude = UpstreamSettings("claude", url)
        gpt = UpstreamSettings("gpt", url, kind, Credential.NONE)
        made = {each.name: provider_for(each, {}) for each in (claude, gpt)}
        self.told: list[tuple[LaneId, str]] = []
        self.upstream = ProvidedUpstream(made, {"gpt"}, lambda *each: self.told.append(each))
        self.requests: list[dict[str, Any]] = []

    async def ask(self, message: UpstreamRequest) -> Recorder:
        handler = Recorder()
        self.upstream.start(message, LANE, handler)
        await handler.last_word()
        return handler

    def sent(self, number: int) -> list[str]:
        """The kinds of blocks of the assistant's turn in the request of this number."""
        content = self.requests[number]["messages"][1]["content"]
        return [block["type"] for block in content]


def play(
    script: list[tuple[bytes, bytes]],
    scene: Callable[[World], Awaitable[None]],
    kind: UpstreamKind = UpstreamKind.OPENAI_CHAT,
) -> World:
    """Each request gets the next answer of the script: its status and its body."""

    async def main() -> World:
        async def handler(wire: Wire) -> None:
            while request := await wire.request():
                world.requests.append(json.loads(request.partition(b"\r\n\r\n")[2]))
                status, body = script[len(world.requests) - 1]
                await wire.say(answer(body, JSON, status=status))

        async with Server(handler) as server:
            world = World(server.url, kind)
            try:
                await scene(world)
            finally:
                await world.upstream.close()
        assert len(world.requests) == len(script)
        return world

    return run(main())


NO, YES = (b"400 Bad Request", REFUSED), (b"200 OK", GOOD)


def test_a_refused_signature_is_left_out_retried_once_and_reported() -> None:
    async def scene(world: World) -> None:
        handler = await world.ask(requested(THOUGHT, HIDDEN))
        assert (handler.status, handler.body, handler.words) == (
            200,
            GOOD,
            ["began", "heard", "ended"],
        )
        assert b"signature" in dict(handler.headers)[b"x-jackline-translated"]

    world = play([NO, YES], scene)
    assert world.sent(0) == ["thinking", "redacted_thinking", "text"]
    assert world.sent(1) == ["text"]
    ((lane, words),) = world.told
    assert lane == LANE
    assert "retried without it" in words


def test_refused_reasoning_is_not_sent_again_and_later_reasoning_is() -> None:
    async def scene(world: World) -> None:
        await world.ask(requested(THOUGHT))
        handler = await world.ask(requested(THOUGHT, FRESH))
        assert b"x-jackline-translated" in dict(handler.headers)

    world = play([NO, YES, YES], scene)
    assert world.sent(2) == ["thinking", "text"]
    assert world.requests[2]["messages"][1]["content"][0] == FRESH
    assert len(world.told) == 1


def test_a_second_refusal_is_passed_on_as_it_came() -> None:
    async def scene(world: World) -> None:
        handler = await world.ask(requested(THOUGHT))
        assert (handler.status, handler.body, handler.words) == (
            400,
            REFUSED,
            ["began", "heard", "ended"],
        )

    play([NO, NO], scene)


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (requested(), REFUSED),
        (requested(THOUGHT), error("messages.0.content: Field required")),
        (requested(THOUGHT), b"<html>a proxy's page</html>"),
        (requested(THOUGHT), b""),
    ],
)
def test_an_error_that_a_retry_cannot_fix_is_passed_on_as_it_came(
    message: UpstreamRequest, body: bytes
) -> None:
    async def scene(world: World) -> None:
        handler = await world.ask(message)
        assert (handler.status, handler.body) == (400, body)
        assert b"x-jackline-translated" not in dict(handler.headers)

    world = play([(b"400 Bad Request", body)], scene)
    assert world.told == []


def test_after_hang_up_nothing_of_the_retry_is_reported() -> None:
    async def scene(world: World) -> None:
        handler = Recorder()
        attempt = world.upstream.start(requested(THOUGHT), LANE, handler)
        attempt.pause()
        attempt.resume()
        attempt.hang_up()
        assert (await world.ask(requested())).status == 200
        assert handler.words == []

    play([YES], scene)


def test_a_changed_conversation_is_noted_in_a_header() -> None:
    async def scene(world: World) -> None:
        handler = await world.ask(
            requested({"type": "thinking", "thinking": "Hm.", "signature": ""})
        )
        assert b"thinking block" in dict(handler.headers)[b"x-jackline-translated"]

    world = play([YES], scene)
    assert world.sent(0) == ["text"]


def test_reasoning_of_another_server_is_left_out_once_it_was_refused() -> None:
    foreign = error("The encrypted content could not be verified.")
    items = [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
        {"type": "function_call_output", "call_id": "c", "output": "seen"},
    ]
    body = json.dumps({"model": "gpt-5.5", "input": items}).encode()
    headers = ((b"content-type", b"application/json"),)

    async def scene(world: World) -> None:
        for _ in range(2):
            handler = Recorder()
            message = UpstreamRequest(b"POST", b"/v1/responses", headers, body)
            world.upstream.start(message, LaneId("gpt", "gpt-5.5", "account"), handler)
            await handler.last_word()
            assert (handler.status, handler.body) == (200, GOOD)
            assert b"x-jackline-translated" in dict(handler.headers)

    world = play([(b"400 Bad Request", foreign), YES, YES], scene, UpstreamKind.OPENAI_RESPONSES)
    for asked_then in world.requests[1:]:
        kinds = [item["type"] for item in asked_then["input"]]
        assert kinds == ["message", "function_call_output"]
    assert len(world.told) == 1, "the second time it was known"


def test_refused_signatures_are_remembered_within_bounds_and_without_themselves() -> None:
    known = RefusedSignatures()
    assert not known
    for number in range(30_000):
        known.remember(b'{"signature": "sig%d"}' % number)
    assert "sig29999" in known
    assert "sig0" not in known
    assert "sig29999" not in repr(vars(known))
