"""Codex and other clients of OpenAI's dialects get the same lanes, holding and honest errors."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from jackline.calls import Dialect
from jackline.gateway.settings import GatewaySettings, HoldSettings
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.testing import Step
from tests.calls.test_foreign_stitch import chat_events, responses_events
from tests.gateway.desk_world import World, play

PATHS: dict[Dialect, str] = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}
DIALECTS = list(PATHS)
THROTTLED = Step(
    status=429,
    body=b'{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}',
    headers={"content-type": "application/json"},
    after=0.2,
)
NO_MONEY = Step(
    status=429,
    body=b'{"error":{"message":"You exceeded your current quota, please check your plan and '
    b'billing details.","type":"insufficient_quota","code":"insufficient_quota"}}',
    headers={"content-type": "application/json"},
    after=0.2,
)
BROKEN = Step(status=500, body=b'{"error":{"message":"The server had an error"}}', after=0.2)


def whole(dialect: Dialect) -> bytes:
    return b"".join(chat_events() if dialect == "openai-chat" else responses_events())


def settings(dialect: Dialect, hold: HoldSettings | None = None) -> GatewaySettings:
    upstream = UpstreamSettings(
        "openai",
        "https://api.openai.example",
        kind=UpstreamKind(dialect),
        credential=Credential.NONE,
        models={"none": "gpt-5.5"},
    )
    return replace(GatewaySettings(), upstreams=(upstream,), hold=hold or HoldSettings())


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "trouble",
    [[THROTTLED] * 2, [BROKEN] * 3, [Step(cut=30)], [Step(breaks=ConnectionResetError())]],
)
def test_trouble_that_passes_is_not_seen(dialect: Dialect, trouble: list[Step]) -> None:
    good = Step(says=whole(dialect))
    bad = [replace(step, says=whole(dialect)) for step in trouble]

    async def scene(world: World) -> None:
        client = world.send_foreign(PATHS[dialect], dialect)
        await world.until_over(client, longest=120)
        assert client.status == 200
        assert client.body.endswith(whole(dialect))
        assert client.complete

    world = play({"openai": [*bad, good]}, scene, settings(dialect))
    assert world.ended[0].input_tokens == 7


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_long_wait_is_kept_alive_with_comments_alone(dialect: Dialect) -> None:
    async def scene(world: World) -> None:
        client = world.send_foreign(PATHS[dialect], dialect)
        await world.until_over(client, longest=400)
        before = client.body.removesuffix(whole(dialect))
        assert before
        assert all(line.startswith(b":") for line in before.splitlines() if line)

    bad = [THROTTLED] * 7
    play({"openai": [*bad, Step(says=whole(dialect))]}, scene, settings(dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_bill_that_must_be_paid_is_told_at_once_in_the_vendors_words(dialect: Dialect) -> None:
    async def scene(world: World) -> None:
        client = world.send_foreign(PATHS[dialect], dialect)
        await world.until_over(client, longest=5)
        assert (client.status, client.body) == (429, NO_MONEY.body)

    world = play({"openai": [NO_MONEY]}, scene, settings(dialect))
    assert len(world.upstream.attempts) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_after_the_headers_an_error_has_the_shape_of_the_dialect(dialect: Dialect) -> None:
    async def scene(world: World) -> None:
        client = world.send_foreign(PATHS[dialect], dialect)
        await world.until_over(client, longest=100)
        last = client.body.rstrip().split(b"\n\n")[-1]
        told = json.loads(last.rpartition(b"data: ")[2])
        if dialect == "openai-chat":
            assert told["error"]["code"] == "rate_limit_exceeded"
        else:
            assert told["response"]["error"]["code"] == "rate_limit_exceeded"

    play({"openai": [THROTTLED]}, scene, settings(dialect, HoldSettings(other=60)))


def test_without_such_an_upstream_the_client_is_told_what_to_add() -> None:
    async def scene(world: World) -> None:
        client = world.send_foreign("/v1/responses", "openai-responses")
        assert client.status == 404
        assert b"jackline upstream add" in client.body

    play({}, scene)
