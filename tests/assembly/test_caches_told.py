"""Status says what a wall costs that prompt caches do not outlast, and no word of a prompt."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, cast

from jackline.assembly import Service
from tests.assembly.world import (
    MODEL,
    ask,
    gateway,
    http,
    port_of,
    provider,
    question,
    request,
    run,
    until,
    whole,
)
from tests.planted import PROMPT, holds_planted

TOKENS = 200_000
JSON = (b"content-type", b"application/json")
LANE = f"anthropic/{MODEL}"
# The model has spoken before: a call that begins a conversation reads nothing of it.
MESSAGES = [
    {"role": "user", "content": PROMPT},
    {"role": "assistant", "content": "?"},
    {"role": "user", "content": "go on"},
]


def cached() -> bytes:
    usage = {
        "input_tokens": 3,
        "output_tokens": 5,
        "cache_creation_input_tokens": TOKENS,
        "cache_read_input_tokens": 0,
    }
    return http(200, whole(usage=usage), JSON)


def wall(seconds: float) -> bytes:
    message = "This request would exceed your account's rate limit. Please try again later."
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": message}}
    return http(
        429,
        json.dumps(body).encode(),
        JSON,
        (b"anthropic-ratelimit-unified-status", b"rejected"),
        (b"anthropic-ratelimit-unified-representative-claim", b"five_hour"),
        (b"anthropic-ratelimit-unified-reset", b"%d" % (time.time() + seconds)),
    )


def call(session: str) -> bytes:
    return request(
        b"POST",
        b"/v1/messages",
        question(messages=MESSAGES),
        (b"x-claude-code-session-id", session.encode()),
    )


def rows(service: Service, part: str) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", service.status()[part])


async def told_at_wall(folder: Path, seconds: float) -> dict[str, Any]:
    """What status says of two conversations, one of which has met the wall and waits."""
    async with provider(cached(), cached(), wall(seconds)) as (_, url), gateway(folder, url) as one:
        for session in ("s1", "s2"):
            assert (await ask(one.url, call(session))).status == 200
        assert rows(one, "cache_advice") == []
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(one.url))
        writer.write(call("s1"))
        await until(lambda: rows(one, "lanes")[0]["state"] == "parked")
        await until(lambda: bool(rows(one, "waiting")))
        told = one.status()
        writer.close()
        await until(lambda: not rows(one, "waiting"))
        return told


def test_a_wall_that_outlasts_caches_is_told_with_its_price(tmp_path: Path) -> None:
    told = run(told_at_wall(tmp_path, 840.0))
    (advice,) = told["cache_advice"]
    assert (advice["lane"], advice["lost"], advice["losing"]) == (LANE, 0, 2)
    assert advice["again"]["tokens"] == 2 * TOKENS
    assert round(advice["again"]["dollars"], 2) == 2.50
    assert round(advice["again"]["dollars_warm"], 2) == 0.20
    assert round(advice["dollars_1h"], 2) == 1.50
    sentence = advice["sentence"]
    assert f"{LANE}: 2 conversations lose their prompt caches in 5 min, before it is" in sentence
    assert "400,000 tokens to write again, $2.50 instead of $0.20" in sentence
    assert 'A life of 1 h (cache.ttl = "1h") would have kept them for $1.50 more.' in sentence
    assert sentence in told["notes"]
    (waiting,) = told["waiting"]
    assert waiting["turn"]["rank"] == "normal"
    assert waiting["turn"]["cached_tokens"] == TOKENS
    assert not holds_planted(json.dumps(told).encode())


def test_a_wall_that_is_over_before_is_not_spoken_of(tmp_path: Path) -> None:
    told = run(told_at_wall(tmp_path, 60.0))
    assert told["cache_advice"] == []
    assert not any("prompt cache" in note for note in told["notes"])
