"""Saving what lanes know takes a bounded share of the loop, whatever outsiders make of lanes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jackline.calls import CallManager
from jackline.calls.wall_words import limit_headers, wall_words
from jackline.clock import VirtualClock
from jackline.events import Event
from jackline.gateway.lane_memory import LaneMemory
from jackline.gateway.lane_registry import LaneRegistry
from jackline.gateway.settings import HoldSettings
from jackline.lanes import LaneController
from jackline.providers.provided_upstream import ProvidedUpstream
from jackline.providers.settings import UpstreamSettings
from tests.assembly.world import ask, gateway, http, provider, question, request, run
from tests.gateway.jumping_loop import JumpingLoop, on_jumping_loop

JSON = (b"Content-Type", b"application/json")
WALL = (
    (b"anthropic-ratelimit-unified-status", b"rejected"),
    (b"anthropic-ratelimit-unified-representative-claim", b"five_hour"),
    (b"anthropic-ratelimit-unified-reset", b"4102444800"),
)


def wall(words: bytes) -> bytes:
    body = b'{"type":"error","error":{"type":"rate_limit_error","message":"%b"}}' % words
    return http(429, body, JSON, *WALL)


@pytest.mark.parametrize("size", [200, 200_000])
def test_long_words_at_a_wall_are_not_kept_for_others(tmp_path: Path, size: int) -> None:
    """They were kept for each lane, and searched for secrets at each change of any lane."""

    async def main() -> None:
        hold = HoldSettings(quota=0.0, other=1.0)
        async with (
            provider(wall(b"w" * size)) as (_, url),
            gateway(tmp_path, url, hold=hold) as service,
        ):
            raw = request(b"POST", b"/v1/messages", question())
            assert (await ask(service.url, raw)).status == 429
            got = await ask(service.url, raw)
            assert got.status == 429
            is_short = size < 4096
            assert bool(service.carrier.walls.export()) is is_short
            assert b"w" * size not in got.body

    run(main())


def test_the_same_words_are_looked_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            provider(wall(b"once and for all lanes")) as (_, url),
            gateway(tmp_path, url, hold=HoldSettings(quota=0.0, other=1.0)) as service,
        ):
            for number in range(5):
                raw = request(b"POST", b"/v1/messages", question(model=f"claude-{number}"))
                assert (await ask(service.url, raw)).status == 429
        assert wall_words.cache_info().misses == 1
        assert wall_words.cache_info().hits

    wall_words.cache_clear()
    run(main())


def test_saving_takes_a_small_share_of_the_loop() -> None:
    """Whoever invents accounts makes lanes, and each change of one saves all of them."""

    async def play(loop: JumpingLoop) -> None:
        saved: list[Event] = []

        def save(event: Event) -> None:
            saved.append(event)
            loop.ahead += 2.0

        clock = VirtualClock(datetime(2026, 3, 1, tzinfo=UTC))
        controller = LaneController([], lambda: 0.5, now=clock.steady())
        upstream = ProvidedUpstream({})
        async with CallManager(controller, upstream, clock) as calls:
            book = LaneRegistry(controller, (UpstreamSettings(),), b"salt")
            memory = LaneMemory(calls, book, lambda: "here", save, clock)
            for _ in range(100):
                memory.remember_soon()
                await asyncio.sleep(0)
            assert len(saved) == 1  # at once
            for _ in range(30):
                memory.remember_soon()
                await loop.run_on_time(1.0)
            assert len(saved) == 1
            await loop.run_on_time(12.0)
            assert len(saved) == 2  # and what came meanwhile, in time
            memory.remember_soon()
            memory.remember()
            assert len(saved) == 3  # at the end it is not put off
            memory.close()
        await upstream.close()

    on_jumping_loop(play)


def test_of_the_headers_at_a_wall_only_limits_are_saved() -> None:
    pairs = [
        (b"anthropic-ratelimit-unified-reset", b"1794851125"),
        (b"anthropic-ratelimit-tokens-reset", b"2026-11-16T20:00:00Z"),
        (b"x-ratelimit-reset-requests", b"6m0s"),
        (b"anthropic-ratelimit-unified-status", b"rejected"),
        (b"anthropic-ratelimit-unified-echo", b"sk-ant-api03-abcdefghijklmnop"),
        (b"anthropic-echo", b"sk-ant-api03-abcdefghijklmnop"),
        (b"x-ratelimit-limit", b"x" * 60_000),
    ]
    assert limit_headers(pairs) == pairs[:4]
    assert len(limit_headers([(b"x-ratelimit-limit", b"1")] * 500)) <= 40
