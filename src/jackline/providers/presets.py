"""Presets for well-known upstreams.

Rules: (1) a preset only fills in what its user has not configured; (2) none maps a model to another
one: an answer of lesser or other quality needs the user's consent; (3) none has a credential, and
only Anthropic's own address gets the client's.
Not here: reading files (config/), facts about each kind (settings.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from jackline.providers.settings import ANTHROPIC_HOST, OPENAI_HOST, UpstreamKind


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings of a well-known upstream.

    `url` is its usual address, or None where each user has another one, like `url_example`.
    `credential` is the reference that its own documentation suggests, or `none`.
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
        "A LiteLLM proxy, by its Anthropic-format endpoint.",
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
