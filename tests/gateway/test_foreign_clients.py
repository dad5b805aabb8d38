"""Codex and other clients of OpenAI's dialects get the same lanes, holding and honest errors."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from jackline.calls import Dialect
from jackline.clock import VirtualClock
from jackline.gateway.connection import Exchange
from jackline.gateway.control_plane import OperatorOrders
from jackline.gateway.placement import upstream_for
from jackline.gateway.settings import GatewaySettings, HoldSettings
from jackline.http1.requests import parse_head
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.testing import Step
from tests.calls.test_foreign_stitch import chat_events, responses_events
from tests.gateway.desk_world import START, ClientOnPaper, World, play, wall

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


CODEX = "codex_exec/0.166.0 (Debian 12.0.0; x86_64) unknown (codex_exec; 0.166.0)"
CODEX_TERMINAL = "codex_cli_rs/0.166.0 (Debian 12.0.0; x86_64)"


def whole(dialect: Dialect) -> bytes:
    return b"".join(chat_events() if dialect == "openai-chat" else responses_events())


RESPONSE = Step(says=whole("openai-responses"))


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


def test_codex_is_kept_alive_with_events_which_alone_it_counts() -> None:
    async def scene(world: World) -> None:
        client = world.send_foreign("/v1/responses", "openai-responses", user_agent=CODEX)
        await world.until_over(client, longest=900)
        assert client.body.endswith(whole("openai-responses"))
        before = client.body.removesuffix(whole("openai-responses"))
        assert before.count(b"event: keepalive\n") >= 5, "one a minute; it gives up after five"

    play({"openai": [wall(400), RESPONSE]}, scene, settings("openai-responses"))


def test_an_unattended_codex_never_sees_half_an_answer() -> None:
    cut = replace(RESPONSE, cut=len(RESPONSE.says) - 20)

    async def scene(world: World) -> None:
        for agent, unseen in ((CODEX, True), (CODEX_TERMINAL, False)):
            client = world.send_foreign("/v1/responses", "openai-responses", user_agent=agent)
            await world.until_over(client, longest=120)
            assert client.complete is unseen

    play({"openai": [cut, RESPONSE, cut]}, scene, settings("openai-responses"))


def test_the_sessions_of_codex_are_told_apart() -> None:
    async def scene(world: World) -> None:
        for thread in ("t1", "s1"):
            named = {"session-id": "s1", "thread-id": thread}
            client = world.send_foreign("/v1/responses", "openai-responses", headers=named)
            await world.until_over(client)

    world = play({"openai": [RESPONSE]}, scene, settings("openai-responses"))
    assert [(each.session, each.agent) for each in world.ended] == [("s1", "t1"), ("s1", None)]


def test_orders_by_hand_move_clients_of_openai_too() -> None:
    async def scene(world: World) -> None:
        orders = OperatorOrders(world.desk, lambda _: None)
        waits = world.send_foreign("/v1/responses", "openai-responses")
        await world.pass_time(5)
        orders.use({"upstream": "other"})
        await world.until_over(waits, longest=20)
        assert world.ended[0].lane is not None
        assert world.ended[0].lane.upstream == "other"

    both = settings("openai-responses")
    other = replace(both.upstreams[0], name="other", url="https://other.example")
    script = {"openai": [wall(600)], "other": [RESPONSE]}
    play(script, scene, replace(both, upstreams=(*both.upstreams, other)))


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


BEARER = {"Authorization": "Bearer sk-openai"}


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        (BEARER, "openai"),
        ({**BEARER, "anthropic-version": "2023-06-01"}, "anthropic"),
        ({**BEARER, "x-api-key": "sk-ant-one"}, "anthropic"),
        ({"x-api-key": "sk-ant-one"}, "anthropic"),
        ({}, "anthropic"),
    ],
)
def test_a_key_for_one_vendor_is_not_shown_to_another(headers: dict[str, str], name: str) -> None:
    lines = "".join(f"{each}: {value}\r\n" for each, value in headers.items())
    head = parse_head(f"GET /v1/models HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
    exchange = Exchange(ClientOnPaper(VirtualClock(START)), head, b"")
    upstreams = (UpstreamSettings(), *settings("openai-responses").upstreams)
    assert upstream_for(exchange, upstreams).name == name
    assert upstream_for(exchange, upstreams[:1]).name == "anthropic"


def test_without_such_an_upstream_the_client_is_told_what_to_add() -> None:
    async def scene(world: World) -> None:
        client = world.send_foreign("/v1/responses", "openai-responses")
        assert client.status == 404
        assert b"jackline upstream add" in client.body

    play({}, scene)
