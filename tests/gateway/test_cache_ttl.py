"""Prompt caches of an hour through the gateway, against the simulator's caches in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jackline.agents.prices import dollars
from jackline.calls import CallManager
from jackline.clock import VirtualClock
from jackline.dialects import TokenUsage
from jackline.events import CallEnded
from jackline.gateway.call_intake import CallIntake
from jackline.gateway.connection import Exchange
from jackline.gateway.settings import CacheSettings, GatewaySettings
from jackline.http1.requests import parse_head
from jackline.lane_id import LaneId
from jackline.lanes import CacheTtl
from jackline.providers.provided_upstream import ProvidedUpstream, provider_for
from jackline.providers.provider import Provider
from jackline.providers.sent_request import with_hour_marks
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.exchange import ProviderRefusal
from jackline.simulator.prompt_cache import Hit, PromptCache
from jackline.simulator.vendor_facts import price_of
from jackline.upstream.interface import ResponseHandler, UpstreamAttempt, UpstreamRequest
from tests.gateway.desk_world import MODEL, ClientOnPaper, World

AUTO, HOUR, CLIENT = CacheTtl.AUTO, CacheTtl.HOUR, CacheTtl.CLIENT
JSON = ((b"content-type", b"application/json"),)
BODY = json.dumps(
    {
        "model": MODEL,
        "max_tokens": 99,
        "system": [
            {
                "type": "text",
                "text": "You review code. " * 2000,
                "cache_control": {"type": "ephemeral"},
            }
        ],
        "messages": [{"role": "user", "content": 'Is "cache_control": {"type": "x"} right?'}],
    }
).encode()
STREAMED = BODY[:-1] + b', "stream": true}'
OUTPUT = 5
KEY = {"x-api-key": "sk-ant-one"}
LOGIN = {"Authorization": "Bearer sk-ant-oat01-mine"}


class CachingVendor(ProvidedUpstream):
    """All upstreams in memory: requests are rendered as always, and answered by one cache."""

    def __init__(self, upstreams: tuple[UpstreamSettings, ...], clock: VirtualClock) -> None:
        super().__init__({each.name: provider_for(each, {}) for each in upstreams})
        self.clock = clock
        self.cache = PromptCache()
        self.sent: list[UpstreamRequest] = []
        self.hits: list[Hit] = []
        self.down: set[str] = set()

    def _send(
        self,
        provider: Provider,
        message: UpstreamRequest,
        lane: LaneId,
        model: str,
        ear: ResponseHandler,
    ) -> UpstreamAttempt:
        rendered = provider.render(message, model)
        self.sent.append(rendered)
        status, body = 529, b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}'
        if lane.upstream not in self.down:
            status, body = self._answer(rendered)
        return Spoken(status, body, ear)

    def _answer(self, rendered: UpstreamRequest) -> tuple[int, bytes]:
        headers = {name.decode().lower(): value.decode() for name, value in rendered.headers}
        asked = ClientRequest.parse("/v1/messages", headers, bytes(rendered.body))
        assert asked is not None
        prompt = asked.read_prompt("anthropic")
        if isinstance(prompt, ProviderRefusal):
            return prompt.status, prompt.body.encode()
        now = self.clock.steady()
        hit = self.cache.look(replace(prompt, model=MODEL), now)
        self.cache.admitted(hit)
        self.cache.begun(hit, now)
        self.hits.append(hit)
        usage = {
            "input_tokens": hit.plain,
            "output_tokens": OUTPUT,
            "cache_read_input_tokens": hit.read,
            "cache_creation_input_tokens": hit.written,
            "cache_creation": {
                "ephemeral_5m_input_tokens": hit.written_5m,
                "ephemeral_1h_input_tokens": hit.written_1h,
            },
        }
        answer = {"id": "m", "type": "message", "role": "assistant", "model": MODEL}
        block = {"type": "text", "text": "Yes"}
        if not asked.stream:
            said = {"content": [block], "stop_reason": "end_turn"}
            return 200, json.dumps({**answer, **said, "usage": usage}).encode()
        ends = {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": OUTPUT}}
        events: list[dict[str, object]] = [
            {"type": "message_start", "message": {**answer, "content": [], "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", **ends},
            {"type": "message_stop"},
        ]
        return 200, b"".join(
            f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events
        )


class Spoken:
    """An attempt that is answered at once."""

    def __init__(self, status: int, body: bytes, ear: ResponseHandler) -> None:
        asyncio.get_running_loop().call_soon(self._speak, status, body, ear)

    def _speak(self, status: int, body: bytes, ear: ResponseHandler) -> None:
        is_stream = body.startswith(b"event:")
        ear.began(status, ((b"content-type", b"text/event-stream"),) if is_stream else JSON)
        ear.received(body)
        ear.ended()

    def hang_up(self) -> None:
        """It has said all."""

    def pause(self) -> None:
        """There is nothing to pause."""

    def resume(self) -> None:
        """There is nothing to resume."""


class CachedWorld(World):
    """A desk whose vendors have prompt caches."""

    def __init__(self, settings: GatewaySettings) -> None:
        super().__init__([], settings)
        controller = self.carrier.controller
        self.vendor = CachingVendor(settings.upstreams, self.clock)
        self.carrier = CallManager(controller, self.vendor, self.clock, self.events.append)
        ticks = self.clock.monotonic
        self.desk = CallIntake(
            settings, self.carrier, self.book, self.clock, self.events.append, ticks
        )

    async def call(
        self,
        body: bytes = BODY,
        headers: Mapping[str, str] = KEY,
        tag: str | None = None,
        session: str = "s1",
    ) -> ClientOnPaper:
        client = self.send(body, {"X-Claude-Code-Session-Id": session, **headers}, tag)
        await self.until_over(client)
        assert client.status == 200, client.body
        return client


def play(
    scene: Callable[[CachedWorld], Awaitable[None]],
    *upstreams: UpstreamSettings,
    cache: CacheSettings | None = None,
) -> CachedWorld:
    async def whole() -> CachedWorld:
        settings = GatewaySettings(
            upstreams=upstreams or (UpstreamSettings(),), cache=cache or CacheSettings()
        )
        world = CachedWorld(settings)
        async with world.carrier:
            keeper = asyncio.create_task(world.desk.look_after())
            await scene(world)
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        return world

    return asyncio.run(whole())


def three_calls(pause: float = 600.0) -> Callable[[CachedWorld], Awaitable[None]]:
    async def scene(world: CachedWorld) -> None:
        for _ in range(3):
            await world.call()
            await world.pass_time(pause)

    return scene


def kinds(world: CachedWorld) -> list[str]:
    """What each request did with the cache."""
    return [
        "read" if hit.read else "1h" if hit.written_1h else "5m" if hit.written_5m else "nothing"
        for hit in world.vendor.hits
    ]


def paid(event: CallEnded) -> float | None:
    usage = TokenUsage(
        event.input_tokens,
        event.output_tokens,
        event.cache_read_tokens,
        event.cache_write_tokens,
        event.cache_write_1h_tokens,
    )
    return dollars(event.model, usage)


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [
        (CLIENT, ["5m", "5m", "5m"]),
        (HOUR, ["1h", "read", "read"]),
        (AUTO, ["5m", "1h", "read"]),
    ],
)
def test_what_is_asked_for_again_after_ten_minutes_is_read_where_an_hour_was_asked_for(
    ttl: CacheTtl, expected: list[str]
) -> None:
    world = play(three_calls(), cache=CacheSettings(ttl))
    assert kinds(world) == expected


def test_without_long_pauses_auto_changes_nothing() -> None:
    world = play(three_calls(pause=200.0), cache=CacheSettings(AUTO))
    assert kinds(world) == ["5m", "read", "read"]
    assert [sent.body for sent in world.vendor.sent] == [BODY] * 3


@pytest.mark.parametrize("ttl", [CLIENT, HOUR, AUTO])
def test_every_call_is_counted_as_what_the_vendor_bills(ttl: CacheTtl) -> None:
    world = play(three_calls(), cache=CacheSettings(ttl))
    price = price_of(MODEL)
    assert price is not None
    billed = [
        price.dollars(
            plain=hit.plain,
            read=hit.read,
            written_5m=hit.written_5m,
            written_1h=hit.written_1h,
            output=OUTPUT,
        )
        for hit in world.vendor.hits
    ]
    assert [paid(event) for event in world.ended] == pytest.approx(billed)


def test_nothing_but_the_marks_is_changed_on_the_way_out() -> None:
    world = play(three_calls(), cache=CacheSettings(HOUR))
    rewritten = with_hour_marks(BODY)
    assert rewritten != BODY
    assert [sent.body for sent in world.vendor.sent] == [rewritten] * 3
    assert all(b"beta" not in name for sent in world.vendor.sent for name, _ in sent.headers)


@pytest.mark.parametrize(
    ("tag", "headers", "expected"),
    [
        (None, {}, "5m"),
        ("night", {}, "1h"),
        (None, {"x-jackline-class": "careful"}, "1h"),
        ("day", {"x-jackline-class": "careful"}, "5m"),
        (None, {"x-jackline-class": "other"}, "5m"),
    ],
)
def test_a_tag_comes_before_a_class_and_both_before_the_rest(
    tag: str | None, headers: dict[str, str], expected: str
) -> None:
    async def scene(world: CachedWorld) -> None:
        await world.call(headers={**KEY, **headers}, tag=tag)

    said = CacheSettings(tags={"night": HOUR, "day": CLIENT}, classes={"careful": HOUR})
    assert kinds(play(scene, cache=said)) == [expected]


@pytest.mark.parametrize(
    ("upstream", "expected"),
    [
        (UpstreamSettings(cache_ttl=CLIENT), "5m"),
        (UpstreamSettings(), "1h"),
        # Others that speak the dialect get what they do not know only by their own setting.
        (UpstreamSettings(url="https://bridge.example"), "5m"),
        (UpstreamSettings(url="https://bridge.example", cache_ttl=HOUR), "1h"),
    ],
)
def test_what_an_upstream_says_comes_before_what_is_said_of_all(
    upstream: UpstreamSettings, expected: str
) -> None:
    async def scene(world: CachedWorld) -> None:
        await world.call()

    assert kinds(play(scene, upstream, cache=CacheSettings(HOUR))) == [expected]


@pytest.mark.parametrize(
    ("ttl", "headers", "expected"),
    [
        (AUTO, KEY, ["5m", "1h"]),
        (AUTO, LOGIN, ["5m", "5m"]),
        (HOUR, LOGIN, ["1h", "read"]),
    ],
)
def test_a_subscriptions_login_is_touched_only_by_the_users_explicit_word(
    ttl: CacheTtl, headers: dict[str, str], expected: list[str]
) -> None:
    async def scene(world: CachedWorld) -> None:
        for _ in range(2):
            await world.call(headers=headers)
            await world.pass_time(600.0)

    assert kinds(play(scene, cache=CacheSettings(ttl))) == expected


def test_auto_gives_an_hour_to_new_conversations_where_calls_wait_for_long() -> None:
    async def scene(world: CachedWorld) -> None:
        world.vendor.down.add("anthropic")
        waiting = world.send(STREAMED, {"X-Claude-Code-Session-Id": "s1", **KEY})
        await world.pass_time(400.0)
        world.vendor.down.clear()
        await world.until_over(waiting)
        assert waiting.status == 200, waiting.body
        await world.call(session="s2", body=BODY.replace(b"review", b"write "))

    assert kinds(play(scene, cache=CacheSettings(AUTO))) == ["1h", "1h"]


def test_each_lane_gets_its_own_and_the_call_is_kept_as_the_client_sent_it() -> None:
    first = UpstreamSettings(cache_ttl=HOUR)
    second = UpstreamSettings(
        name="spare",
        url="https://spare.example",
        credential=Credential.API_KEY,
        secret="k",  # noqa: S106 -- nobody's
        cache_ttl=CLIENT,
    )

    async def scene(world: CachedWorld) -> None:
        world.vendor.down.add("anthropic")
        await world.call()

    world = play(scene, first, second)
    bodies = [sent.body for sent in world.vendor.sent]
    assert bodies[0] == with_hour_marks(BODY)
    assert bodies[-1] == BODY


def test_a_cloud_gets_its_marks_before_its_request_is_rendered_and_signed() -> None:
    model = "claude-opus-4-5"
    cloud = UpstreamSettings(
        name="aws",
        url="https://bedrock-runtime.us-east-1.amazonaws.com",
        kind=UpstreamKind.BEDROCK,
        credential=Credential.BEARER,
        secret="ABSK-key",  # noqa: S106 -- nobody's
        region="us-east-1",
        models={"*": model},
    )

    async def scene(world: CachedWorld) -> None:
        await world.call()

    world = play(scene, cloud, cache=CacheSettings(HOUR))
    assert kinds(world) == ["1h"]


def test_a_count_of_tokens_is_left_alone() -> None:
    target = b"/v1/messages/count_tokens"

    async def scene(world: CachedWorld) -> None:
        client = ClientOnPaper(world.clock)
        head = (
            f"POST {target.decode()} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: sk-ant-one\r\n\r\n"
        )
        client.exchange = Exchange(client, parse_head(head.encode()), BODY)
        world.desk.take_side_call(
            client.exchange, target, "night", "count_tokens", client.exchange.body
        )
        await world.until_over(client)

    cache = CacheSettings(HOUR, tags={"night": HOUR})
    world = play(scene, UpstreamSettings(cache_ttl=HOUR), cache=cache)
    assert [sent.body for sent in world.vendor.sent] == [BODY]


def test_the_figures_in_the_documents_are_those_of_the_simulators_prices() -> None:
    price = price_of("claude-opus-4-8")
    assert price is not None
    million = 1_000_000 / 100_000
    short, hour, read = (
        each / million for each in (price.cache_write_5m, price.cache_write_1h, price.cache_read)
    )
    page = (Path(__file__).parents[2] / "docs" / "lanes.md").read_text("utf-8")
    for row in (
        f"| written once | ${short:.3f} | ${hour:.2f} |",
        f"| read again within five minutes | ${read:.2f} | ${read:.2f} |",
        f"| asked for again after ten minutes | ${short:.3f} (written anew) | ${read:.2f} |",
        f"| written, and asked for after one such pause | ${2 * short:.2f} | ${hour + read:.2f} |",
    ):
        assert row in page, row
    assert (hour - short) / (short - read) == pytest.approx(0.65, abs=0.01)
