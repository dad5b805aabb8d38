"""The settings of an upstream, as its user describes it.

Rules: (1) frozen; (2) a credential is stored as the value of its reference, and hidden in `repr`;
an admin key is stored as its reference only, and resolved each time it is used.
Not here: reading them from files (config/), how each kind works (the file of each kind).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jackline.lanes import CacheTtl, KnownLimits

_COUNTED_ANYWAY = "claude-3-5-haiku"


class UpstreamKind(StrEnum):
    """Which protocol an upstream speaks."""

    ANTHROPIC = "anthropic"
    BEDROCK = "bedrock"
    VERTEX = "vertex"
    OPENAI_CHAT = "openai-chat"
    OPENAI_RESPONSES = "openai-responses"

    def counts_cached(self, model: str) -> bool:
        """Whether tokens read from a prompt cache count toward the limit of input per minute.

        Google says nothing of Claude on Vertex AI, and counts them for its own models.
        """
        if self in (UpstreamKind.ANTHROPIC, UpstreamKind.BEDROCK):
            return _COUNTED_ANYWAY in model
        return True


class Credential(StrEnum):
    """Whose credentials go to an upstream, and in which header."""

    # The client's own, untouched. Never sent anywhere that does not say so.
    PASS_THROUGH = "pass-through"  # noqa: S105 -- a word, no password
    NONE = "none"
    API_KEY = "api-key"
    BEARER = "bearer"
    # Found by the vendor's own library: AWS's chain, Google's defaults.
    VENDOR = "vendor"


class CostClass(StrEnum):
    """How dear an upstream is to its user, beside the others: in their order, cheapest first."""

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
    """One place that calls are sent to.

    `models` maps patterns (fnmatch) of the model that is asked for to the model that is asked here;
    the first that fits counts. A model that no pattern names is asked under its own name by kinds
    that serve Claude, and is not asked here at all by the others. `model_limits` are limits of
    single lanes by pattern. Of upstreams that serve the same model the cheaper `cost_class` comes
    first, and of equal ones that which is written first. `region` is for clouds, `project` for
    Google's and for OpenAI's rate limits, `workspace` for Anthropic's.
    `headers` are sent along. `local` servers are the user's own, which load models on demand.
    """

    name: str = "anthropic"
    url: str = "https://api.anthropic.com"
    kind: UpstreamKind = UpstreamKind.ANTHROPIC
    credential: Credential = Credential.PASS_THROUGH
    secret: str | None = field(default=None, repr=False)
    models: Mapping[str, str] = field(default_factory=dict)
    proxy: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    limits: KnownLimits = field(default_factory=KnownLimits)
    model_limits: Mapping[str, KnownLimits] = field(default_factory=dict)
    region: str | None = None
    project: str | None = None
    cost_class: CostClass = CostClass.USUAL
    local: bool = False
    # Where its vendor tells of incidents (Statuspage); looked at only while something is wrong.
    status_page: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Tokens of an answer at most, for models that refuse to be asked for more.
    longest_answer: int | None = None
    # What is asked of its prompt caches; not set: what is said of all upstreams.
    cache_ttl: CacheTtl | None = None
    # Whether tokens read from a prompt cache count toward its limits; not set: as its kind does.
    counts_cached: bool | None = None
    # Also for clients without a credential, or whose own one the preferred upstream has refused.
    accept_rejected_clients: bool = False
    # Where the key is kept that the vendor's rate-limits API is asked with; calls never get it.
    admin_key: str | None = None
    workspace: str | None = None

    def counts_cached_of(self, model: str) -> bool:
        """Whether tokens read from a prompt cache count toward the limit of input per minute."""
        if self.counts_cached is not None:
            return self.counts_cached
        return self.kind.counts_cached(model)
