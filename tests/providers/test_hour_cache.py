"""Which upstreams get requests for prompt caches of an hour, and how a request is rewritten."""

from __future__ import annotations

import gzip
import random

import pytest

from jackline.gateway.lane_registry import LaneRegistry
from jackline.lanes import CacheTtl, LaneController
from jackline.providers.sent_request import with_hour_marks, with_hours
from jackline.providers.settings import UpstreamKind, UpstreamSettings
from jackline.upstream import UpstreamRequest

HOUR, AUTO, CLIENT = CacheTtl.HOUR, CacheTtl.AUTO, CacheTtl.CLIENT
ANTHROPIC, BEDROCK, VERTEX = UpstreamKind.ANTHROPIC, UpstreamKind.BEDROCK, UpstreamKind.VERTEX
BRIDGE = "https://bridge.example"
OWN = "https://api.anthropic.com"
BODY = b'{"model":"m","system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]}'


@pytest.mark.parametrize(
    ("kind", "url", "model", "by_default", "by_own_word"),
    [
        (ANTHROPIC, OWN, "claude-opus-4-8", True, True),
        (ANTHROPIC, OWN, "claude-3-7-sonnet-20250219", True, True),
        (ANTHROPIC, BRIDGE, "claude-opus-4-8", False, True),
        (BEDROCK, BRIDGE, "claude-sonnet-4-5-20250929", True, True),
        (BEDROCK, BRIDGE, "us.anthropic.claude-haiku-4-5-20251001-v1:0", True, True),
        (BEDROCK, BRIDGE, "claude-opus-4-8", False, True),
        (BEDROCK, BRIDGE, "claude-opus-4-10", False, True),
        (
            BEDROCK,
            BRIDGE,
            "arn:aws:bedrock:eu-west-1:1:application-inference-profile/x",
            False,
            True,
        ),
        (BEDROCK, BRIDGE, "claude-opus-4-1-20250805", False, False),
        (BEDROCK, BRIDGE, "anthropic.claude-sonnet-4-20250514-v1:0", False, False),
        (BEDROCK, BRIDGE, "claude-opus-4", False, False),
        (BEDROCK, BRIDGE, "claude-3-5-haiku-20241022", False, False),
        (VERTEX, BRIDGE, "claude-opus-4-8", True, True),
        (VERTEX, BRIDGE, "claude-opus-4-1@20250805", True, True),
        (VERTEX, BRIDGE, "claude-3-7-sonnet@20250219", False, False),
        (UpstreamKind.OPENAI_CHAT, BRIDGE, "claude-opus-4-8", False, False),
        (UpstreamKind.OPENAI_RESPONSES, BRIDGE, "gpt-5", False, False),
    ],
)
def test_an_hour_is_requested_where_documented_or_configured_and_not_refused(
    kind: UpstreamKind, url: str, model: str, by_default: bool, by_own_word: bool
) -> None:
    silent = UpstreamSettings(kind=kind, url=url)
    assert silent.cache_ttl_of(model, HOUR) is (HOUR if by_default else None)
    assert silent.cache_ttl_of(model) is (CLIENT if by_default else None)
    explicit = UpstreamSettings(kind=kind, url=url, cache_ttl=AUTO)
    assert explicit.cache_ttl_of(model, HOUR) is (AUTO if by_own_word else None)


@pytest.mark.parametrize(
    ("upstream", "counts"),
    [
        (UpstreamSettings(), False),
        (UpstreamSettings(counts_cached=True), True),
        (UpstreamSettings(kind=VERTEX), True),
        (UpstreamSettings(kind=VERTEX, counts_cached=False), False),
    ],
)
def test_the_settings_decide_whether_cached_tokens_count(
    upstream: UpstreamSettings, counts: bool
) -> None:
    draw = random.Random(1).random  # noqa: S311 -- seeded, so that tests repeat
    controller = LaneController([], draw)
    book = LaneRegistry(controller, (upstream,), b"salt")
    name = book.lane(upstream, "claude-opus-4-8", "a", 0.0)
    assert controller.lanes[name].caches.reads_count is counts


def message(
    body: bytes, *headers: tuple[bytes, bytes], plain: bytes | None = None
) -> UpstreamRequest:
    return UpstreamRequest(
        b"POST", b"/v1/messages", headers, body, b"lines", plain, hour_marks=True
    )


def test_a_plain_body_is_rewritten_and_its_headers_stay() -> None:
    given = message(BODY, (b"X-A", b"1"))
    changed = with_hours(given)
    assert changed == given._replace(body=with_hour_marks(BODY))
    assert with_hours(changed) is changed


def test_what_came_compressed_is_sent_plain() -> None:
    packed = message(
        gzip.compress(BODY), (b"X-A", b"1"), (b"Content-Encoding", b"gzip"), plain=BODY
    )
    changed = with_hours(packed)
    assert changed.body == with_hour_marks(BODY)
    assert list(changed.headers) == [(b"X-A", b"1")]
    assert (changed.lines, changed.plain) == (None, None)


def test_a_body_that_is_unreadable_or_has_no_marks_is_the_same_object() -> None:
    for given in (
        message(b"\x28\xb5\x2f\xfd", (b"content-encoding", b"zstd")),
        message(gzip.compress(b"{}"), (b"content-encoding", b"gzip"), plain=b"{}"),
        message(b'{"model":"m"}'),
    ):
        assert with_hours(given) is given
