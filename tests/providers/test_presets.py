"""Presets have what is known of each sort of upstream, and nothing that could surprise."""

from __future__ import annotations

import pytest

from jackline.providers.provided_upstream import provider_for
from jackline.providers.settings import (
    PRESETS,
    Credential,
    Preset,
    UpstreamKind,
    UpstreamSettings,
)
from jackline.upstream.origin import Origin

ALL = pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)


@ALL
def test_a_preset_has_an_address_or_an_example_of_one(preset: Preset) -> None:
    if preset.kind in (UpstreamKind.BEDROCK, UpstreamKind.VERTEX):
        assert preset.url is None
        return
    assert bool(preset.url) != bool(preset.url_example)
    address = Origin(preset.url or preset.url_example).address
    assert address.scheme == "https" or address.is_loopback
    assert preset.about.endswith(".")


@ALL
def test_openai_addresses_end_in_their_version_and_others_do_not(preset: Preset) -> None:
    url = preset.url or preset.url_example
    is_openai = preset.kind in (UpstreamKind.OPENAI_CHAT, UpstreamKind.OPENAI_RESPONSES)
    assert url.endswith("/v1") is is_openai


@ALL
def test_only_anthropic_itself_gets_what_clients_send(preset: Preset) -> None:
    passes_through = preset.credential == Credential.PASS_THROUGH
    (anthropic,) = UpstreamKind.ANTHROPIC.facts.own_hosts
    assert passes_through is (preset.url == f"https://{anthropic}")
    assert (preset.credential or "none").startswith(("pass-through", "none", "env:"))


@ALL
def test_every_preset_has_a_provider(preset: Preset) -> None:
    cloud = preset.kind.facts.cloud
    region = None if cloud is None else cloud.example_region
    url = preset.url or preset.url_example
    if cloud is not None:
        url = cloud.url(cloud.example_region)
    auth = preset.auth or preset.credential or "none"
    if auth == Credential.VENDOR:
        auth = Credential.BEARER  # so that no vendor's library has to be installed
    settings = UpstreamSettings(
        preset.name, url, preset.kind, Credential(auth), "a-key", region=region, project="p"
    )
    assert provider_for(settings, {}).origin.url == url


@pytest.mark.parametrize(
    ("kind", "region", "url"),
    [
        ("bedrock", "us-east-1", "https://bedrock-runtime.us-east-1.amazonaws.com"),
        ("bedrock", "us-gov-west-1", "https://bedrock-runtime.us-gov-west-1.amazonaws.com"),
        ("bedrock", "cn-north-1", "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"),
        ("vertex", "us-east5", "https://us-east5-aiplatform.googleapis.com"),
        ("vertex", "europe-west1", "https://europe-west1-aiplatform.googleapis.com"),
        ("vertex", "global", "https://aiplatform.googleapis.com"),
        ("vertex", "eu", "https://aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_a_cloud_is_found_by_its_region(kind: str, region: str, url: str) -> None:
    cloud = UpstreamKind(kind).facts.cloud
    assert cloud is not None
    assert cloud.url(region) == url


@pytest.mark.parametrize(
    ("kind", "region"),
    [
        ("bedrock", "us-east5"),
        ("bedrock", "global"),
        ("bedrock", "x/y-1"),
        ("vertex", "a/b"),
        ("vertex", "evil.example#"),
        ("vertex", ""),
    ],
)
def test_an_invalid_region_has_no_address(kind: str, region: str) -> None:
    cloud = UpstreamKind(kind).facts.cloud
    assert cloud is not None
    with pytest.raises(ValueError, match=r"region"):
        cloud.url(region)
