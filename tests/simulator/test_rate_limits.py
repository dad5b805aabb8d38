"""The simulated provider reports its limits by the vendors' APIs, to its admin key alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jackline.providers.rate_limits_api import parse_limits_page
from jackline.providers.settings import UpstreamKind
from jackline.simulator.endpoints import answer_rate_limits
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.scenario import Scenario

KEY = "sk-ant-admin-simulated"
ORGANIZATION = "/v1/organizations/rate_limits?group_type=model_group"
WORKSPACE = "/v1/organizations/workspaces/wrkspc_1/rate_limits"
PROJECT = "/v1/organization/projects/proj_1/rate_limits?limit=100"
SETTINGS = ProviderSettings(
    buckets=(
        BucketSettings(Counts.REQUESTS, 50),
        BucketSettings(Counts.INPUT_TOKENS, 30_000, model="opus"),
        BucketSettings(Counts.REQUESTS, 20, model="opus"),
    ),
    models=("claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5"),
    admin_key=KEY,
)


def result(path: str, **headers: str) -> Any:
    value = answer_rate_limits(SETTINGS, path, {"x-api-key": KEY} | headers)
    assert value is not None
    assert value[0] == 200
    return json.loads(value[1])


def test_models_with_the_same_limits_are_one_group() -> None:
    groups = result(ORGANIZATION)["data"]
    assert [(each["models"], each["limits"]) for each in groups] == [
        (
            ["claude-opus-4-8"],
            [
                {"type": "requests_per_minute", "value": 20},
                {"type": "input_tokens_per_minute", "value": 30_000},
            ],
        ),
        (
            ["claude-sonnet-4-6", "claude-haiku-4-5"],
            [{"type": "requests_per_minute", "value": 50}],
        ),
    ]


def test_no_workspace_has_limits_of_its_own() -> None:
    assert result(WORKSPACE) == {"data": [], "next_page": None}


def test_announced_limits_can_be_parsed() -> None:
    value = answer_rate_limits(SETTINGS, f"/prefix{PROJECT}", {"authorization": f"Bearer {KEY}"})
    assert value is not None
    read = parse_limits_page(UpstreamKind.OPENAI_RESPONSES, value[1])
    assert read is not None
    assert read.limits["claude-opus-4-8"].requests_per_minute == 20
    assert read.limits["claude-opus-4-8"].input_tokens_per_minute == 30_000


@pytest.mark.parametrize("path", [ORGANIZATION, WORKSPACE, PROJECT])
@pytest.mark.parametrize(
    "headers",
    [{}, {"x-api-key": "another"}, {"authorization": "Bearer another"}, {"x-api-key": ""}],
)
def test_requests_without_the_admin_key_are_refused(path: str, headers: dict[str, str]) -> None:
    value = answer_rate_limits(SETTINGS, path, headers)
    assert value is not None
    assert value[0] == 401


def test_a_key_counts_in_its_own_vendors_header_alone() -> None:
    swapped = answer_rate_limits(SETTINGS, PROJECT, {"x-api-key": KEY})
    assert swapped is not None
    assert swapped[0] == 401


def test_without_an_admin_key_there_is_no_such_api() -> None:
    assert answer_rate_limits(ProviderSettings(), ORGANIZATION, {"x-api-key": ""}) is None
    assert answer_rate_limits(SETTINGS, "/v1/organizations/me", {"x-api-key": KEY}) is None


def test_a_scenario_names_the_key() -> None:
    assert Scenario.parse("own", f'admin_key = "{KEY}"').settings.admin_key == KEY
