"""The kinds of upstreams with all facts about each, presets, and the settings of one upstream.

Rules: (1) a fact that depends on the kind of an upstream is in `KindFacts` and nowhere else: a new
kind needs one entry here, one file beside this one, and its constructor in provided_upstream.py;
(2) settings are frozen; (3) a credential is stored as the value of its reference, and hidden in
`repr`; an admin key is stored as its reference only; (4) a preset only fills in what its user has
not configured, maps no model to another one, and has no credential; only Anthropic's own address
gets the client's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from jackline.lanes import CacheTtl, KnownLimits
from jackline.settings import Form, InProject, setting

ANTHROPIC, OPENAI = "Anthropic", "OpenAI"
ANTHROPIC_HOST = "api.anthropic.com"
OPENAI_HOST = "api.openai.com"


class Credential(StrEnum):
    """Whose credentials go to an upstream, and in which header."""

    # The client's own, untouched. Never sent anywhere that is not configured so.
    PASS_THROUGH = "pass-through"  # noqa: S105 -- a setting, no password
    NONE = "none"
    API_KEY = "api-key"
    BEARER = "bearer"
    # Found by the vendor's own library: AWS's chain, Google's defaults.
    VENDOR = "vendor"


@dataclass(frozen=True, slots=True)
class Cloud:
    """The regions of a cloud that serves Claude.

    `urls` maps patterns of regions to the address of such a region; the first that fits counts.
    """

    owner: str
    example_region: str
    urls: Mapping[str, str]
    needs_project: bool = False

    def url(self, region: str) -> str:
        """Where the cloud answers for this region; ValueError when it has no such region."""
        for pattern, url in self.urls.items():
            if re.fullmatch(pattern, region):
                return url.format(region=region)
        raise ValueError(f"is no region of {self.owner}, such as {self.example_region}")


@dataclass(frozen=True, slots=True)
class KindFacts:
    """What all packages need to know about one kind of upstream.

    `client_vendor` is the vendor whose clients it serves, and whose logins may pass through;
    `telemetry_name` is the provider's name in OpenTelemetry's conventions. Clients of this kind
    send their credentials to `own_hosts` anyway, and read them from `key_variables`. `key_sent_as`
    is how a configured key is sent, `limits_of` the setting that names whose limits the vendor's
    rate-limits API reports (None: it has no such API). Prompt caches of an hour are documented for
    models that fit `hour_cache`, on `hour_cache_host` only if that is set, and are refused by
    models that fit `no_hour_cache`. Cached input counts toward the rate limit for models that fit
    `counts_cached`.
    """

    client_vendor: str
    telemetry_name: str
    cloud: Cloud | None = None
    own_hosts: tuple[str, ...] = ()
    url_example: str = ""
    key_sent_as: Credential = Credential.BEARER
    key_variables: tuple[str, ...] = ()
    smallest_answer: int = 1
    limits_of: str | None = None
    counts_cached: str = ""
    hour_cache: str | None = None
    hour_cache_host: str | None = None
    no_hour_cache: str | None = None

    @property
    def serves_claude(self) -> bool:
        """Whether Claude is served there, by names that can be derived from Anthropic's."""
        return self.client_vendor == ANTHROPIC


class UpstreamKind(StrEnum):
    """Which protocol an upstream speaks."""

    ANTHROPIC = "anthropic"
    BEDROCK = "bedrock"
    VERTEX = "vertex"
    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"

    @property
    def facts(self) -> KindFacts:
        """What is known about this kind."""
        return KIND_FACTS[self]


_OPENAI_FACTS = KindFacts(
    OPENAI,
    telemetry_name="openai",
    own_hosts=(OPENAI_HOST, "chatgpt.com"),
    url_example=f"https://{OPENAI_HOST}/v1",
    key_variables=("OPENAI_API_KEY",),
    # OpenAI refuses a smaller limit of the answer.
    smallest_answer=16,
    limits_of="project",
)
# Prompt caches of an hour, as of 2026-11-16:
# - Anthropic: every model, without a beta header. Other servers of this dialect may refuse it.
#   https://platform.claude.com/docs/en/build-with-claude/prompt-caching
# - Bedrock: Opus, Sonnet and Haiku 4.5. Older ones answer "Extra inputs are not permitted"
#   (earendil-works/pi#1570); of newer ones reports differ (BerriAI/litellm#30454, archestra#5696).
#   https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html
# - Vertex AI: all but Sonnet 3.7, Sonnet 3.5 and Opus 3.
#   https://docs.cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude/prompt-caching
KIND_FACTS: Mapping[UpstreamKind, KindFacts] = {
    UpstreamKind.ANTHROPIC: KindFacts(
        ANTHROPIC,
        telemetry_name="anthropic",
        own_hosts=(ANTHROPIC_HOST,),
        url_example=f"https://{ANTHROPIC_HOST}",
        key_sent_as=Credential.API_KEY,
        key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        limits_of="workspace",
        counts_cached="claude-3-5-haiku",
        hour_cache="",
        hour_cache_host=ANTHROPIC_HOST,
    ),
    UpstreamKind.BEDROCK: KindFacts(
        ANTHROPIC,
        telemetry_name="aws.bedrock",
        cloud=Cloud(
            "AWS",
            "us-east-1",
            {
                r"cn(?:-[a-z]+)+-\d": "https://bedrock-runtime.{region}.amazonaws.com.cn",
                r"[a-z]{2,4}(?:-[a-z]+)+-\d": "https://bedrock-runtime.{region}.amazonaws.com",
            },
        ),
        counts_cached="claude-3-5-haiku",
        hour_cache=r"claude-(?:opus|sonnet|haiku)-4-5(?!\d)",
        # Behind the version there is a date, a revision, or nothing.
        no_hour_cache=r"claude-3-|claude-(?:opus|sonnet)-4(?:-[01])?(?:-\d{8}|-v\d|[@:\[]|$)",
    ),
    UpstreamKind.VERTEX: KindFacts(
        ANTHROPIC,
        telemetry_name="gcp.vertex_ai",
        cloud=Cloud(
            "Google's",
            "global",
            {
                "global": "https://aiplatform.googleapis.com",
                # Places that are larger than a region have hosts of their own.
                "us|eu": "https://aiplatform.{region}.rep.googleapis.com",
                r"[a-z]+(?:-[a-z]+)*\d*": "https://{region}-aiplatform.googleapis.com",
            },
            needs_project=True,
        ),
        # Google does not document it for Claude, and counts cached input for its own models.
        counts_cached="",
        hour_cache="",
        no_hour_cache="claude-3-7-sonnet|claude-3-5-sonnet|claude-3-opus",
    ),
    UpstreamKind.OPENAI_CHAT: _OPENAI_FACTS,
    UpstreamKind.OPENAI_RESPONSES: _OPENAI_FACTS,
}


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


_PRESETS = (
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

PRESETS = {preset.name: preset for preset in _PRESETS}


class CostClass(StrEnum):
    """How expensive an upstream is to its user, compared with the others; cheapest first."""

    FREE = "free"
    LOW = "low"
    USUAL = "usual"
    HIGH = "high"

    @property
    def rank(self) -> int:
        """The place in that order."""
        return list(CostClass).index(self)


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """A place that calls are sent to. The first of them is preferred."""

    name: str = setting(
        "anthropic",
        "What its lanes are called; no two upstreams may share one. By default the name of its"
        " preset, or of its kind.",
        Form.NAME,
        in_project=InProject.CONSENT,
    )
    url: str = setting(
        f"https://{ANTHROPIC_HOST}",
        "Its address, with a path prefix if it has one. Clouds have it by region, most presets"
        " know it, other kinds need it.",
        Form.URL,
        in_project=InProject.CONSENT,
        flag="upstream",
        variable="JACKLINE_UPSTREAM",
    )
    kind: UpstreamKind = setting(
        UpstreamKind.ANTHROPIC, "Which protocol it speaks.", in_project=InProject.CONSENT
    )
    credential: Credential = setting(
        Credential.PASS_THROUGH,
        "Whose key is sent: the client's own (pass-through), none, or the one that is stored at"
        " env:NAME, file:PATH or cmd:COMMAND. By default the first upstream of kind anthropic"
        " passes through, clouds find their own, and any other gets none.",
        Form.CREDENTIAL,
        in_project=InProject.CONSENT,
    )
    secret: str | None = field(default=None, repr=False)
    region: str | None = setting(
        None,
        "Region of a cloud, such as us-east-1, or global at Google.",
        in_project=InProject.CONSENT,
    )
    project: str | None = setting(
        None,
        "Project at Google that pays; at OpenAI, the one whose rate limits `admin_key` reads.",
        in_project=InProject.CONSENT,
    )
    proxy: str | None = setting(
        None,
        "HTTP proxy on the way there: an address without password, or a reference.",
        Form.PROXY,
        in_project=InProject.CONSENT,
    )
    ca_file: str | None = setting(
        None, "PEM file of the authorities to trust instead of the system's.", Form.PATH
    )
    status_page: str | None = setting(
        None,
        "Where its vendor reports incidents (Statuspage), such as https://status.claude.com; read"
        " only while something is wrong.",
        Form.URL,
        in_project=InProject.CONSENT,
    )
    cost_class: CostClass = setting(
        CostClass.USUAL,
        "How expensive it is compared with the others. Of upstreams that serve the same model, the"
        " cheaper is preferred; of equal ones, the one that is written first.",
        in_project=InProject.CONSENT,
    )
    local: bool = setting(
        False,
        "A server of your own, such as Ollama, which loads models on demand: the gateway waits"
        " longer for it (5 min instead of 1 before it doubts a silent call), and sends it no call"
        " twice. The presets ollama, llama-cpp and vllm set it.",
        in_project=InProject.CONSENT,
    )
    limits: KnownLimits = setting(
        KnownLimits(), "Limits of every lane of this upstream; what is not set is learned."
    )
    model_limits: Mapping[str, KnownLimits] = setting(
        {},
        'Limits by pattern of models, such as model_limits."claude-opus-*" = { parallel = 4 }; they'
        " replace `limits`. The first pattern that fits counts.",
        in_project=InProject.CONSENT,
    )
    models: Mapping[str, str] = setting(
        {},
        'Which model is requested here instead: "claude-opus-*" = "gpt-5.5". The first pattern that'
        " fits counts. Kinds that serve Claude accept any other model under its own name. OpenAI"
        " kinds accept only what is listed from Claude's clients, and everything from OpenAI's.",
        in_project=InProject.CONSENT,
    )
    longest_answer: int | None = setting(
        None,
        "Tokens that an answer may have, for models of OpenAI's dialects that refuse a request for"
        " more; Claude Code requests 64,000.",
        least=1,
        in_project=InProject.CONSENT,
    )
    cache_ttl: CacheTtl | None = setting(
        None,
        "How long its prompt caches shall live, as `cache.ttl` explains; not set: as `cache.ttl`.",
        in_project=InProject.CONSENT,
    )
    counts_cached: bool | None = setting(
        None,
        "Whether tokens read from a prompt cache count toward its input limit. By default as the"
        " vendor documents: not at Anthropic and Bedrock, elsewhere they do.",
        in_project=InProject.CONSENT,
    )
    accept_rejected_clients: bool = setting(
        False,
        "Serve clients here, with this upstream's own key, that send no credential or whose own one"
        " the upstream before it has refused (401, 403). By default they get that refusal: your key"
        " is not spent for somebody whom the vendor does not know.",
    )
    admin_key: str | None = setting(
        None,
        "Where an admin key of your organization is stored (env:NAME, file:PATH, cmd:COMMAND): its"
        " rate limits are then read from the vendor's API, at start and daily. It is used for"
        " nothing else.",
        Form.UNRESOLVED,
    )
    workspace: str | None = setting(
        None,
        "Anthropic's workspace of the key, if not the default one: its rate limits replace those of"
        " the organization.",
    )
    headers: Mapping[str, str] = setting(
        {},
        "Headers to add to each request; values may be references, and those that carry credentials"
        " must be.",
        Form.HEADERS,
        in_project=InProject.CONSENT,
    )

    def counts_cached_of(self, model: str) -> bool:
        """Whether tokens read from a prompt cache count toward the limit of input per minute."""
        if self.counts_cached is not None:
            return self.counts_cached
        return self.kind.facts.counts_cached in model

    def cache_ttl_of(self, model: str, for_all: CacheTtl = CacheTtl.CLIENT) -> CacheTtl | None:
        """The lifetime of prompt caches on a lane; None where an hour may be refused.

        `for_all` is configured for all upstreams. Without documents of the vendor that mention an
        hour for a model, only this upstream's own `cache_ttl` requests it, and models that are
        known to refuse it never get it: the vendor would refuse the whole request.
        """
        facts, name = self.kind.facts, model.replace(".", "-").lower()
        if facts.hour_cache is None:
            return None
        if facts.no_hour_cache is not None and re.search(facts.no_hour_cache, name):
            return None
        if self.cache_ttl is not None:
            return self.cache_ttl
        if facts.hour_cache_host not in (None, urlsplit(self.url).hostname):
            return None
        return for_all if re.search(facts.hour_cache, name) else None
