"""Make the provider that an upstream's settings describe.

Laws: (1) what cannot work is told here, with what to change, and not with the first call; (2) a
vendor's library is asked for only by the kind that needs it.
Not here: reading settings (config/), speaking (the file of each kind).
"""

from __future__ import annotations

from collections.abc import Mapping

from jackline.errors import UsageError
from jackline.providers.anthropic import AnthropicProvider
from jackline.providers.bedrock import BedrockProvider
from jackline.providers.openai import OpenAiProvider
from jackline.providers.provider import Provider
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.providers.vertex import VertexProvider
from jackline.upstream.origin import Origin
from jackline.upstream.proxying import proxy_from_environment


def provider_for(settings: UpstreamSettings, environ: Mapping[str, str]) -> Provider:
    """The provider of an upstream; UsageError when it cannot be made as described."""
    origin = origin_of(settings, environ)
    if settings.kind is UpstreamKind.ANTHROPIC:
        _refuse(settings, Credential.VENDOR, "name the key it shall use, or pass-through")
        return AnthropicProvider(settings, origin)
    if settings.kind in (UpstreamKind.OPENAI_CHAT, UpstreamKind.OPENAI_RESPONSES):
        _refuse(settings, Credential.VENDOR, "name the key it shall use, or none")
        return OpenAiProvider(settings, origin)
    _refuse(settings, Credential.PASS_THROUGH, "name its key, or leave it to the vendor's tools")
    if settings.kind is UpstreamKind.BEDROCK:
        return BedrockProvider(settings, origin, environ)
    return VertexProvider(settings, origin, environ)


def origin_of(settings: UpstreamSettings, environ: Mapping[str, str]) -> Origin:
    """Where an upstream is, through the proxy that its settings or the environment name."""
    proxy = settings.proxy or proxy_from_environment(settings.url, environ)
    return Origin(settings.url, proxy=proxy, ca_file=settings.ca_file)


def _refuse(settings: UpstreamSettings, credential: Credential, instead: str) -> None:
    if settings.credential is credential:
        raise UsageError(
            f"Upstream {settings.name} of kind {settings.kind} has no credential of the sort"
            f" “{credential}”.",
            next=f"In its credential, {instead}.",
        )
