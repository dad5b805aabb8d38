"""Requests to vendors' rate-limits APIs, and their answers, parsed without trust."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.lanes import KnownLimits
from jackline.providers.rate_limits_api import (
    limit_paths,
    limits_of,
    limits_request,
    merged_limits,
    parse_limits_page,
)
from jackline.providers.settings import UpstreamKind, UpstreamSettings

ANTHROPIC, OPENAI = UpstreamKind.ANTHROPIC, UpstreamKind.OPENAI_RESPONSES
KEY = "sk-ant-admin01-planted"
KINDS = [kind for kind in UpstreamKind if kind.facts.limits_of is not None]
OPUS = ["claude-opus-4-5", "claude-opus-4-5-20251101"]


def limiters(**values: object) -> list[dict[str, object]]:
    return [{"type": name, "value": value} for name, value in values.items()]


def group(models: object, limits: object, **more: Any) -> dict[str, Any]:
    return {
        "type": "rate_limit",
        "group_type": "model_group",
        "models": models,
        "limits": limits,
        **more,
    }


def page(*entries: object, **more: object) -> bytes:
    return json.dumps({"data": entries, "next_page": None, **more}).encode()


def test_groups_of_models_share_their_limits() -> None:
    opus = limiters(
        requests_per_minute=50, input_tokens_per_minute=30_000, output_tokens_per_minute=8_000
    )
    read = parse_limits_page(
        ANTHROPIC,
        page(
            group(OPUS, opus, strange={"a": 1}),
            group(["claude-haiku-4-5"], limiters(requests_per_minute=100, fast_otpm=3)),
            {"group_type": "batch", "models": None, "limits": limiters(enqueued_batch_requests=9)},
            {"group_type": "token_count", "limits": limiters(requests_per_minute=1)},
        ),
    )
    assert read is not None
    assert read.next_page is None
    assert read.limits == {
        **dict.fromkeys(OPUS, KnownLimits(50, 30_000, 8_000)),
        "claude-haiku-4-5": KnownLimits(100),
    }


def test_the_newer_form_of_a_group_is_read_as_well() -> None:
    entry = {
        "group": {"type": "model_group", "id": "rlg_1", "display_name": "Opus"},
        "models": OPUS,
        "limits": limiters(input_tokens_per_minute_cache_aware=7, input_tokens_per_minute=9),
    }
    read = parse_limits_page(ANTHROPIC, page(entry))
    assert read is not None
    assert read.limits == dict.fromkeys(OPUS, KnownLimits(None, 7))


def test_openai_reports_one_model_at_a_time() -> None:
    body = json.dumps(
        {
            "object": "list",
            "data": [
                {
                    "object": "project.rate_limit",
                    "id": "rl-gpt",
                    "model": "gpt-5.5",
                    "max_requests_per_1_minute": 500,
                    "max_tokens_per_1_minute": 200_000,
                    "max_requests_per_1_day": 10,
                },
                {"model": "dall-e-3", "max_requests_per_1_minute": 0, "max_tokens_per_1_minute": 0},
            ],
            "last_id": "rl-gpt",
            "has_more": True,
        }
    ).encode()
    read = parse_limits_page(OPENAI, body)
    assert read is not None
    assert read.limits == {"gpt-5.5": KnownLimits(500, 200_000)}
    assert read.next_page == "rl-gpt"


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("gpt-5.5", True),
        ("gpt-5.5-2026-04-01", True),
        ("gpt-5.5-20260401", True),
        ("gpt-5.5-mini", False),
        ("gpt-5", False),
        ("", False),
    ],
)
def test_a_dated_snapshot_has_the_limits_of_its_model_and_no_other(model: str, found: bool) -> None:
    assert (limits_of(model, {"gpt-5.5": KnownLimits(500)}) is not None) is found


def test_a_workspaces_limits_go_over_the_organizations_one_by_one() -> None:
    below, above = KnownLimits(50, 30_000, 8_000), KnownLimits(None, 500)
    assert merged_limits(below, above) == KnownLimits(50, 500, 8_000)


def test_requests_to_anthropic() -> None:
    plain = UpstreamSettings(url="https://api.anthropic.com")
    (path,) = limit_paths(plain)
    requested = limits_request(plain, path, None, KEY)
    assert requested.method == b"GET"
    assert requested.target == b"/v1/organizations/rate_limits?group_type=model_group"
    assert (b"x-api-key", KEY.encode()) in requested.headers
    assert (b"anthropic-version", b"2023-06-01") in requested.headers
    following = limits_request(plain, path, "a b&c", KEY)
    assert following.target.endswith(b"?group_type=model_group&page=a+b%26c")
    inside = UpstreamSettings(workspace="wrkspc_1/../../x")
    assert limit_paths(inside) == (
        "/v1/organizations/rate_limits",
        "/v1/organizations/workspaces/wrkspc_1%2F..%2F..%2Fx/rate_limits",
    )


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://api.openai.com/v1", "/organization/projects/proj_1/rate_limits"),
        ("https://api.openai.com", "/v1/organization/projects/proj_1/rate_limits"),
    ],
)
def test_requests_to_openai(url: str, path: str) -> None:
    settings = UpstreamSettings(url=url, kind=OPENAI, project="proj_1")
    assert limit_paths(settings) == (path,)
    requested = limits_request(settings, path, "rl-x", KEY)
    assert requested.target == f"{path}?limit=100&after=rl-x".encode()
    assert (b"Authorization", b"Bearer " + KEY.encode()) in requested.headers


def test_the_key_is_not_shown() -> None:
    settings = UpstreamSettings()
    assert KEY not in repr(limits_request(settings, limit_paths(settings)[0], None, KEY))


@pytest.mark.parametrize(
    "value", [0, -1, True, "50", None, 1e13, [], {}, float("inf"), float("nan")]
)
def test_a_number_that_is_no_limit_is_left_out(value: object) -> None:
    body = page(group(OPUS, limiters(requests_per_minute=value, output_tokens_per_minute=8)))
    read = parse_limits_page(ANTHROPIC, body)
    # JSON has no infinity: such a page as a whole is none.
    assert read is None or read.limits == dict.fromkeys(OPUS, KnownLimits(None, None, 8))


def test_sizes_are_bounded() -> None:
    many = [f"m{number}" for number in range(20_000)]
    read = parse_limits_page(
        ANTHROPIC, page(group([*many, "x" * 300], limiters(requests_per_minute=1)))
    )
    assert read is not None
    assert len(read.limits) <= 5_000
    entries = [group([name], limiters(requests_per_minute=1)) for name in many]
    read = parse_limits_page(ANTHROPIC, page(*entries))
    assert read is not None
    assert len(read.limits) <= 1_000


_NAMES = (
    *("data", "models", "limits", "type", "value", "group", "group_type", "model", "next_page"),
    *("has_more", "last_id", "max_requests_per_1_minute", "max_tokens_per_1_minute"),
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(_NAMES),
            inner | st.sampled_from(["model_group", "requests_per_minute"]),
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(_json, st.sampled_from(KINDS))
def test_no_document_can_do_harm(document: object, kind: UpstreamKind) -> None:
    _check(parse_limits_page(kind, json.dumps({"data": document, "next_page": document}).encode()))
    _check(parse_limits_page(kind, json.dumps(document).encode()))


@given(st.binary(max_size=200), st.sampled_from(KINDS))
def test_no_bytes_can_do_harm(body: bytes, kind: UpstreamKind) -> None:
    _check(parse_limits_page(kind, body))


def test_deep_nesting_is_no_document() -> None:
    assert parse_limits_page(ANTHROPIC, b'{"data":' + b"[" * 100_000) is None


def _check(read: Any) -> None:
    if read is None:
        return
    assert read.next_page is None or 0 < len(read.next_page) <= 800
    for model, limits in read.limits.items():
        assert 0 < len(model) <= 200
        reported = [limits.requests_per_minute, limits.input_tokens_per_minute]
        reported.append(limits.output_tokens_per_minute)
        assert limits.parallel is None
        assert all(each is None or 0 < each <= 1e12 for each in reported)
        assert any(each is not None for each in reported)
