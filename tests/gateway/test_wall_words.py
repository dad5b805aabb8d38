"""Of a vendor's words at a wall nothing is saved that a stranger could have written."""

from __future__ import annotations

import json
import re
import time
from base64 import b64decode
from pathlib import Path

import pytest

from jackline.failures import Failure, Kind, Observation, classify
from jackline.failures.failure import Scope
from jackline.gateway.lane_memory import wall_words
from jackline.gateway.settings import HoldSettings
from tests.assembly.world import ask, gateway, http, provider, question, request, run
from tests.failures.examples import NOW, load

JSON = (b"Content-Type", b"application/json")
RESET = (
    (b"anthropic-ratelimit-unified-status", b"rejected"),
    (b"anthropic-ratelimit-unified-reset", str(int(time.time()) + 7200).encode()),
)
HEX_KEY = "7f3c9a1be2d04c55a8e6f0b1c2d3e4f5"
PROMPT = "my secret prompt xyzzy"
WALLS = (Kind.ACCOUNT_QUOTA, Kind.BILLING)


def saved(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in (folder / "state").glob("journal.db*"))


def test_neither_keys_nor_prompts_in_a_refusal_are_kept_and_it_is_told_after_a_restart(
    tmp_path: Path,
) -> None:
    says = f"You've hit your session limit for key {HEX_KEY}. Last prompt: {PROMPT}"
    error = {"type": "rate_limit_error", "code": f"{PROMPT} {HEX_KEY}", "message": says}
    body = json.dumps({"type": "error", "error": error, "request_id": HEX_KEY, HEX_KEY: PROMPT})

    async def main() -> None:
        hold = HoldSettings(quota=0.0, other=1.0)
        echo = (f"x-ratelimit-{HEX_KEY}".encode(), b"1")
        answer = http(429, body.encode(), JSON, *RESET, echo)
        told = []
        async with provider(answer) as (_, url):
            for _ in range(2):
                async with gateway(tmp_path, url, hold=hold) as service:
                    told.append(await ask(service.url, request(body=question())))
                    told.append(await ask(service.url, request(body=question())))
        first, also, *later = told
        assert first.body == body.encode(), "nothing changes for who met it"
        assert also.json["error"]["message"].startswith(f"{says} It resets at ")
        for each in later:
            assert each.status == 429
            assert each.header(RESET[1][0]) == RESET[1][1]
            assert each.json["type"] == "error"
            assert each.json["error"]["type"] == "rate_limit_error"
            assert "session limit" in each.json["error"]["message"]
            assert each.header(b"x-jackline-resets-at") == first.header(b"x-jackline-resets-at")
            assert HEX_KEY not in each.body.decode()

    run(main())
    kept = saved(tmp_path)
    assert b"walls" in kept
    # The words are saved in base64, whose text depends on where in them they stand.
    kept += b"".join(b64decode(each) for each in re.findall(rb'"body": ?"([\w+/=]*)"', kept))
    for secret in (HEX_KEY, PROMPT, "xyzzy"):
        assert secret.encode() not in kept


@pytest.mark.parametrize(
    "message",
    [
        "This request would exceed your account's rate limit. Please try again later.",
        "You've hit your session limit · resets 3pm",
        "You've hit your weekly limit · resets Sep 12 at 4:30am (UTC)",
        "Claude AI usage limit reached|1794851125",
        "The usage limit has been reached",
    ],
)
def test_a_sentence_that_vendors_are_known_to_say_is_kept_as_it_is(message: str) -> None:
    body = json.dumps({"type": "error", "error": {"type": "rate_limit_error", "message": message}})
    assert wall_words(429, (), body) == body


def test_the_reset_of_a_document_is_kept_in_its_own_form() -> None:
    error = {"type": "usage_limit_reached", "message": "The usage limit has been reached"}
    numbers = {"plan_type": "plus", "resets_at": 1794851125, "resets_in_seconds": 7200}
    body = json.dumps({"error": {**error, **numbers, "eligible_promo": PROMPT, "user": HEX_KEY}})
    assert json.loads(wall_words(429, (), body)) == {"error": {**error, **numbers}}


def test_a_name_that_stands_twice_hides_nothing() -> None:
    body = '{"type": "error", "type": "error", "error": {"message": "%s"}}'
    body = body % "The usage limit has been reached"
    assert PROMPT not in wall_words(429, (), body.replace('"error",', f'"{PROMPT}",', 1))


@pytest.mark.parametrize(
    "body",
    [PROMPT, f"<html>{HEX_KEY}</html>", f'["{PROMPT}"]', f'"{PROMPT}"', "[" * 5_000, "\udcff", ""],
)
def test_what_is_no_document_becomes_a_sentence_of_our_own(body: str) -> None:
    words = wall_words(402, (), body)
    assert PROMPT not in words
    assert HEX_KEY not in words
    assert classify(Observation.of_response(402, {}, words.encode()), now=NOW).kind in WALLS


@pytest.mark.parametrize("name", ["corpus.jsonl", "examples.jsonl", "gathered.jsonl"])
def test_what_is_saved_of_a_known_wall_is_the_same_kind_of_wall(name: str) -> None:
    """Of each that was observed, with the headers about limits."""
    seen = 0
    for example in load(name):
        body, status = example.observation.body, example.observation.status
        if not isinstance(body, dict) or not body or status not in (402, 403, 429):
            continue
        headers = tuple(example.observation.headers.items())
        text = json.dumps(body)
        before = kind_of(status, dict(headers), text)
        if before.kind in WALLS:
            seen += 1
            words = wall_words(status, headers, text)
            after = kind_of(status, dict(headers), words)
            assert after.kind is before.kind, (example.id, text, words)
            assert wall_words(status, headers, words) == words, "what was saved stays"
    assert seen


def kind_of(status: int, headers: dict[str, str], body: str) -> Failure:
    found = classify(Observation.of_response(status, headers, body.encode()), now=NOW)
    assert found.scope in Scope
    return found
