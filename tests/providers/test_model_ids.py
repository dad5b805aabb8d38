"""The clouds' own names for Claude's models, as their documentation lists them."""

from __future__ import annotations

import pytest

from jackline.providers.clouds import bedrock_id, vertex_id


@pytest.mark.parametrize(
    ("model", "region", "expected"),
    [
        ("claude-opus-4-8", "us-east-1", "us.anthropic.claude-opus-4-8"),
        ("claude-opus-4-8", "global", "global.anthropic.claude-opus-4-8"),
        ("claude-opus-4-6", "eu-west-1", "eu.anthropic.claude-opus-4-6-v1"),
        ("claude-sonnet-4-6", "ca-central-1", "us.anthropic.claude-sonnet-4-6"),
        ("claude-opus-4-5", "us-west-2", "us.anthropic.claude-opus-4-5-20251101-v1:0"),
        ("claude-opus-4-5-20251101", "us-west-2", "us.anthropic.claude-opus-4-5-20251101-v1:0"),
        ("claude-sonnet-4-0", "ap-south-1", "apac.anthropic.claude-sonnet-4-20250514-v1:0"),
        ("claude-sonnet-4-5", "ap-northeast-1", "jp.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("claude-haiku-4-5", "ap-southeast-2", "au.anthropic.claude-haiku-4-5-20251001-v1:0"),
        ("claude-opus-4-8", "ap-southeast-2", "au.anthropic.claude-opus-4-8"),
        ("claude-opus-5", "ap-southeast-4", "au.anthropic.claude-opus-5"),
        ("claude-opus-4-5", "ap-southeast-2", "global.anthropic.claude-opus-4-5-20251101-v1:0"),
        ("claude-opus-4-8", "ap-northeast-1", "global.anthropic.claude-opus-4-8"),
        ("claude-sonnet-4-6", "ap-northeast-3", "jp.anthropic.claude-sonnet-4-6"),
        ("claude-haiku-4-5", "ap-south-1", "global.anthropic.claude-haiku-4-5-20251001-v1:0"),
        ("claude-opus-4-8", "sa-east-1", "global.anthropic.claude-opus-4-8"),
        ("claude-sonnet-4-5", "us-gov-west-1", "us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("claude-3-5-sonnet-latest", "eu-west-1", "eu.anthropic.claude-3-5-sonnet-20241022-v2:0"),
        ("claude-3-5-haiku-latest", "us-east-1", "us.anthropic.claude-3-5-haiku-20241022-v1:0"),
    ],
)
def test_claudes_own_names_become_profiles_of_the_region(
    model: str, region: str, expected: str
) -> None:
    assert bedrock_id(model, region) == expected
    assert bedrock_id(expected, region) == expected, "an id is no name any more"


@pytest.mark.parametrize(
    "model",
    [
        "anthropic.claude-opus-4-8",
        "arn:aws:bedrock:us-east-1:123:application-inference-profile/abc",
        "amazon.nova-pro-v1:0",
    ],
)
def test_other_names_are_unchanged(model: str) -> None:
    assert bedrock_id(model, "us-east-1") == model
    assert vertex_id(model) == model


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-opus-4-8", "claude-opus-4-8"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5@20251101"),
        ("claude-opus-4-5", "claude-opus-4-5@20251101"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4@20250514"),
        ("claude-3-5-sonnet-20241022", "claude-3-5-sonnet-v2@20241022"),
        ("claude-3-5-sonnet-20240620", "claude-3-5-sonnet@20240620"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5@20251001"),
    ],
)
def test_dates_follow_an_at_sign_at_vertex(model: str, expected: str) -> None:
    assert vertex_id(model) == expected
