"""What is known of vendors beforehand: presets for well-known upstreams, prompt caches of an hour.

Rules: (1) a preset only fills in what its user has not configured; (2) none maps a model to another
one: an answer of lesser or other quality needs the user's consent; (3) none has a credential, and
only Anthropic's own address gets the client's; (4) where the vendor's documents do not mention an
hour for a model, only the upstream's own `cache_ttl` requests it; (5) models that are known to
refuse an hour never get it: the vendor would refuse the whole request. Looked up on 2026-11-16:
- Anthropic: every model, without a beta header.
  https://platform.claude.com/docs/en/build-with-claude/prompt-caching
- Bedrock: Opus, Sonnet and Haiku 4.5. Older ones answer "Extra inputs are not permitted"
  (earendil-works/pi#1570); of newer ones reports differ (BerriAI/litellm#30454, archestra#5696).
  https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html
- Vertex AI: all but Sonnet 3.7, Sonnet 3.5 and Opus 3.
  https://docs.cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/prompt-caching
Not here: reading files (config/), how each kind works (the file of each kind), which calls request
an hour (lanes/prompt_caches.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from jackline.lanes import CacheTtl
from jackline.providers.settings import UpstreamKind, UpstreamSettings

ANTHROPIC_HOST = "api.anthropic.com"
OPENAI_HOST = "api.openai.com"
_AWS_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-\d")
_GOOGLE_REGION = re.compile(r"[a-z]+(?:-[a-z]+)*\d*")
# Vertex has Claude in places that are larger than a region, each with a host of its own.
_MULTI_REGIONS = ("us", "eu")


@dataclass(frozen=True, slots=True)
class Preset:
    """What is known beforehand of one sort of upstream.

    `url` is its usual address, or None where each user has another one, which `url_example` shows.
    `credential` is the reference that its own documentation suggests, or a word such as `none`.
    """

    name: str
    kind: UpstreamKind
    about: str
    url: str | None = None
    url_example: str = ""
    credential: str | None = None
    auth: str | None = None
    local: bool = False


_ALL = (
    Preset(
        "anthropic",
        UpstreamKind.ANTHROPIC,
        "Anthropic's own API, with the client's key or subscription.",
        url=f"https://{ANTHROPIC_HOST}",
        credential="pass-through",
    ),
    Preset(
        "bedrock",
        UpstreamKind.BEDROCK,
        "Claude on Amazon Bedrock, by AWS's own credentials; needs a region.",
        auth="vendor",
    ),
    Preset(
        "vertex",
        UpstreamKind.VERTEX,
        "Claude on Google's Vertex AI, by Google's own credentials; needs a region and a project.",
        auth="vendor",
    ),
    Preset(
        "openai",
        UpstreamKind.OPENAI_RESPONSES,
        "OpenAI's models by its Responses API.",
        url=f"https://{OPENAI_HOST}/v1",
        credential="env:OPENAI_API_KEY",
        auth="bearer",
    ),
    Preset(
        "openai-chat",
        UpstreamKind.OPENAI_CHAT,
        "OpenAI's models by its older Chat Completions API.",
        url=f"https://{OPENAI_HOST}/v1",
        credential="env:OPENAI_API_KEY",
        auth="bearer",
    ),
    Preset(
        "azure-openai",
        UpstreamKind.OPENAI_CHAT,
        "OpenAI's models in an Azure resource; models are named by their deployments.",
        url_example="https://RESOURCE.openai.azure.com/openai/v1",
        credential="env:AZURE_OPENAI_API_KEY",
        auth="api-key",
    ),
    Preset(
        "openrouter",
        UpstreamKind.ANTHROPIC,
        "OpenRouter in Anthropic's format: Claude from whichever host has it.",
        url="https://openrouter.ai/api",
        credential="env:OPENROUTER_API_KEY",
        auth="bearer",
    ),
    Preset(
        "openrouter-chat",
        UpstreamKind.OPENAI_CHAT,
        "OpenRouter in OpenAI's format: models of all families.",
        url="https://openrouter.ai/api/v1",
        credential="env:OPENROUTER_API_KEY",
        auth="bearer",
    ),
    Preset(
        "copilot-bridge",
        UpstreamKind.ANTHROPIC,
        "A bridge to GitHub Copilot on this machine that speaks Anthropic's format.",
        url="http://127.0.0.1:4141",
        credential="none",
    ),
    Preset(
        "litellm",
        UpstreamKind.ANTHROPIC,
        "A LiteLLM proxy, by its Anthropic-format door.",
        url="http://127.0.0.1:4000",
        credential="env:LITELLM_API_KEY",
        auth="bearer",
    ),
    Preset(
        "ollama",
        UpstreamKind.OPENAI_CHAT,
        "Models that Ollama runs on this machine.",
        url="http://127.0.0.1:11434/v1",
        credential="none",
        local=True,
    ),
    Preset(
        "llama-cpp",
        UpstreamKind.OPENAI_CHAT,
        "The model that a llama.cpp server runs on this machine.",
        url="http://127.0.0.1:8080/v1",
        credential="none",
        local=True,
    ),
    Preset(
        "vllm",
        UpstreamKind.OPENAI_CHAT,
        "The models that a vLLM server runs.",
        url="http://127.0.0.1:8000/v1",
        credential="none",
        local=True,
    ),
)

PRESETS = {preset.name: preset for preset in _ALL}


def cloud_url(kind: UpstreamKind, region: str) -> str:
    """Where a cloud answers for this region; ValueError when no region is called so."""
    if kind is UpstreamKind.BEDROCK:
        if not _AWS_REGION.fullmatch(region):
            raise ValueError("is no region of AWS, such as us-east-1")
        domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        return f"https://bedrock-runtime.{region}.{domain}"
    if kind is UpstreamKind.VERTEX:
        if not _GOOGLE_REGION.fullmatch(region):
            raise ValueError("is no region of Google's, such as us-east5 or global")
        if region == "global":
            return "https://aiplatform.googleapis.com"
        if region in _MULTI_REGIONS:
            return f"https://aiplatform.{region}.rep.googleapis.com"
        return f"https://{region}-aiplatform.googleapis.com"
    raise ValueError("has no regions")


def own_hosts(kind: UpstreamKind) -> tuple[str, ...]:
    """The hosts to which clients that speak this dialect send their credentials anyway."""
    if kind is UpstreamKind.ANTHROPIC:
        return (ANTHROPIC_HOST,)
    if kind in (UpstreamKind.OPENAI_CHAT, UpstreamKind.OPENAI_RESPONSES):
        return (OPENAI_HOST, "chatgpt.com")
    return ()


_SERVES_CLAUDE = (UpstreamKind.ANTHROPIC, UpstreamKind.BEDROCK, UpstreamKind.VERTEX)
# Behind the version there is a date, a revision, or nothing.
_NOT_BEDROCK = re.compile(r"claude-3-|claude-(?:opus|sonnet)-4(?:-[01])?(?:-\d{8}|-v\d|[@:\[]|$)")
_BEDROCK = re.compile(r"claude-(?:opus|sonnet|haiku)-4-5(?!\d)")
_NOT_VERTEX = re.compile(r"claude-3-7-sonnet|claude-3-5-sonnet|claude-3-opus")


def cache_ttl_of(
    upstream: UpstreamSettings, model: str, for_all: CacheTtl = CacheTtl.CLIENT
) -> CacheTtl | None:
    """What is asked of prompt caches on a lane; None where an hour is not known to be taken.

    `for_all` is what the user says of all upstreams.
    """
    name = model.replace(".", "-").lower()
    if upstream.kind not in _SERVES_CLAUDE or _refuses(upstream.kind, name):
        return None
    if upstream.cache_ttl is not None:
        return upstream.cache_ttl
    return for_all if _is_documented(upstream, name) else None


def _refuses(kind: UpstreamKind, name: str) -> bool:
    if kind is UpstreamKind.BEDROCK:
        return _NOT_BEDROCK.search(name) is not None
    return kind is UpstreamKind.VERTEX and _NOT_VERTEX.search(name) is not None


def _is_documented(upstream: UpstreamSettings, name: str) -> bool:
    if upstream.kind is UpstreamKind.BEDROCK:
        return _BEDROCK.search(name) is not None
    if upstream.kind is UpstreamKind.VERTEX:
        return True
    # Others that speak the same dialect may refuse, or ignore, what they do not know.
    return urlsplit(upstream.url).hostname == ANTHROPIC_HOST
