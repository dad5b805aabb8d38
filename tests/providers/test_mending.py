"""A signature that Claude refuses is mended by asking once more, visibly, and never in a loop."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jackline.event_loop import run
from jackline.providers.provided_upstream import ProvidedUpstream, provider_for
from jackline.providers.reasoning import RefusedSignatures
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.upstream import UpstreamRequest
from tests.providers.asking import CLIENT, answer
from tests.upstream.loopback import Recorder, Server, Wire

LANE = "claude/claude-opus-4-8#account"
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "RWFybGllcg=="}
HIDDEN = {"type": "redacted_thinking", "data": "SGlkZGVu"}
FRESH = {"type": "thinking", "thinking": "Oh.", "signature": "TGF0ZXI="}
GOOD = b'{"type":"message","content":[{"type":"text","text":"Hi"}]}'
JSON = b"Content-Type: application/json"


def error(message: str) -> bytes:
    told = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    return json.dumps(told).encode()


REFUSED = error("messages.1.content.0: Invalid `signature` in `thinking` block")


def asked(*thoughts: dict[str, str]) -> UpstreamRequest:
    turns = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": [*thoughts, {"type": "text", "text": "Yes?"}]},
        {"role": "user", "content": "Go on."},
    ]
    body = {"model": "claude-opus-4-8", "max_tokens": 64, "messages": turns}
    return UpstreamRequest(b"POST", b"/v1/messages", CLIENT, json.dumps(body).encode())


class World:
    """Claude with a script of answers, another family beside it, and what was told."""

    def __init__(self, url: str, kind: UpstreamKind) -> None:
        claude = UpstreamSettings("claude", url)
        gpt = UpstreamSettings("gpt", url, kind, Credential.NONE)
        made = {each.name: provider_for(each, {}) for each in (claude, gpt)}
        self.told: list[tuple[str, str]] = []
        self.upstream = ProvidedUpstream(made, {"gpt"}, lambda *each: self.told.append(each))
        self.requests: list[dict[str, Any]] = []

    async def ask(self, message: UpstreamRequest) -> Recorder:
        ear = Recorder()
        self.upstream.start(message, LANE, ear)
        await ear.last_word()
        return ear

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


def test_a_refused_signature_is_left_out_and_asked_again_once_and_told() -> None:
    async def scene(world: World) -> None:
        ear = await world.ask(asked(THOUGHT, HIDDEN))
        assert (ear.status, ear.body, ear.words) == (200, GOOD, ["began", "heard", "ended"])
        assert b"signature" in dict(ear.headers)[b"x-jackline-translated"]

    world = play([NO, YES], scene)
    assert world.sent(0) == ["thinking", "redacted_thinking", "text"]
    assert world.sent(1) == ["text"]
    ((lane, words),) = world.told
    assert lane == LANE
    assert "asked again" in words


def test_what_was_refused_is_not_sent_again_and_what_claude_says_since_is_kept() -> None:
    async def scene(world: World) -> None:
        await world.ask(asked(THOUGHT))
        ear = await world.ask(asked(THOUGHT, FRESH))
        assert b"x-jackline-translated" in dict(ear.headers)

    world = play([NO, YES, YES], scene)
    assert world.sent(2) == ["thinking", "text"]
    assert world.requests[2]["messages"][1]["content"][0] == FRESH
    assert len(world.told) == 1


def test_a_second_refusal_is_told_as_it_came() -> None:
    async def scene(world: World) -> None:
        ear = await world.ask(asked(THOUGHT))
        assert (ear.status, ear.body, ear.words) == (400, REFUSED, ["began", "heard", "ended"])

    play([NO, NO], scene)


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (asked(), REFUSED),
        (asked(THOUGHT), error("messages.0.content: Field required")),
        (asked(THOUGHT), b"<html>a proxy's page</html>"),
        (asked(THOUGHT), b""),
    ],
)
def test_what_cannot_be_mended_is_told_as_it_came(message: UpstreamRequest, body: bytes) -> None:
    async def scene(world: World) -> None:
        ear = await world.ask(message)
        assert (ear.status, ear.body) == (400, body)
        assert b"x-jackline-translated" not in dict(ear.headers)

    world = play([(b"400 Bad Request", body)], scene)
    assert world.told == []


def test_who_has_hung_up_hears_nothing_of_the_mending() -> None:
    async def scene(world: World) -> None:
        ear = Recorder()
        attempt = world.upstream.start(asked(THOUGHT), LANE, ear)
        attempt.pause()
        attempt.resume()
        attempt.hang_up()
        assert (await world.ask(asked())).status == 200
        assert ear.words == []

    play([YES], scene)


def test_a_conversation_that_was_fitted_says_so() -> None:
    async def scene(world: World) -> None:
        ear = await world.ask(asked({"type": "thinking", "thinking": "Hm.", "signature": ""}))
        assert b"thinking block" in dict(ear.headers)[b"x-jackline-translated"]

    world = play([YES], scene)
    assert world.sent(0) == ["text"]


def test_thoughts_that_another_server_encrypted_are_left_out_once_they_are_refused() -> None:
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
            ear = Recorder()
            message = UpstreamRequest(b"POST", b"/v1/responses", headers, body)
            world.upstream.start(message, "gpt/gpt-5.5#account", ear)
            await ear.last_word()
            assert (ear.status, ear.body) == (200, GOOD)
            assert b"x-jackline-translated" in dict(ear.headers)

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
