"""The settings of the lane controller, each with the reason for its value.

Rules: (1) frozen: a running controller never changes them; (2) times are in seconds, sizes in
tokens; (3) the defaults are the values that `bench/lanes.py` was measured with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from jackline.lane_id import LaneId
from jackline.settings import InProject, setting


class CacheTtl(StrEnum):
    """For how long prompts are asked to be cached."""

    CLIENT = "client"
    """As the client has written."""
    HOUR = "1h"
    """For an hour, wherever the client asks for caching."""
    AUTO = "auto"
    """For an hour where that pays, see lanes/prompt_caches.py."""


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """What the user or the vendor says a lane may take per minute; None is not known."""

    requests_per_minute: float | None = setting(
        None, "Requests per minute.", above=0, in_project=InProject.CONSENT
    )
    input_tokens_per_minute: float | None = setting(
        None, "Tokens of prompts per minute.", above=0, in_project=InProject.CONSENT
    )
    output_tokens_per_minute: float | None = setting(
        None, "Tokens of answers per minute.", above=0, in_project=InProject.CONSENT
    )
    parallel: int | None = setting(
        None, "Calls in flight at once.", least=1, in_project=InProject.CONSENT
    )


class LimitOrigin(StrEnum):
    """Who gave the number of a per-minute limit."""

    WRITTEN = "written"
    VENDOR = "vendor"
    HEADERS = "headers"


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """One lane, and what is known of its limits beforehand.

    `limits` are the user's, `vendor_limits` those of the vendor's rate-limits API; each
    number of the first outweighs that of the second.
    """

    id: LaneId
    limits: KnownLimits = field(default_factory=KnownLimits)
    vendor_limits: KnownLimits = field(default_factory=KnownLimits)
    # A server of the user's own, which loads models on demand and works off one call after another.
    local: bool = False
    # Whether tokens that are read from a prompt cache count toward its input limit.
    cached_counts: bool = False
    # What is asked of its prompt caches; None where an hour is not known to be taken.
    cache_ttl: CacheTtl | None = None


@dataclass(frozen=True, slots=True)
class PatienceSettings:
    """How much silence is borne before a call is asked for once more beside the silent attempt.

    What a lane was seen to take outweighs all of these (estimators.py). Pings count as bytes.
    """

    # Before the first byte, however quick the lane was so far; and a whole lane is not silent
    # before, unless it was in the middle of its answers. A cold model, or one that thinks, takes as
    # long.
    first_byte: float = 60.0
    # The same of a local server, which may first have to read a model of many gigabytes.
    first_byte_local: float = 300.0
    # A prompt of 150,000 tokens may be thought about for a minute before the first byte.
    first_byte_per_token: float = 0.0004
    # Of a probe of a lane that is left alone: it is listened to for as long as any call, but its
    # call may be sent elsewhere meanwhile, and another may probe the lane.
    probe: float = 10.0
    # In the middle of an answer, after which it is cut. Each time that happens to a call it may be
    # silent for twice as long; but a stream that froze for the first time froze by chance.
    between_bytes: float = 20.0
    # Without a stream nothing comes until the whole answer is there.
    whole_answer: float = 300.0
    whole_answer_per_token: float = 0.03
    # A lane on which several answers stop in the middle and nothing else comes is left alone.
    lane_silence: float = 8.0
    lane_silence_calls: int = 3


@dataclass(frozen=True, slots=True)
class HedgeSettings:
    """How often a call on a lane that works is asked for twice.

    Only those count that were not needed, because the silent attempt answered first.
    """

    at_first: float = 2.0
    per_answer: float = 0.01
    most: float = 8.0
    # What a hedge that was needed gives back: where many attempts are lost, they are all replaced.
    when_needed: float = 2.0


@dataclass(frozen=True, slots=True)
class ConcurrencyWindowSettings:
    """How the number of parallel calls grows and shrinks (after CUBIC, slowed for LLM calls)."""

    start: float = 8.0
    decrease: float = 0.9
    epoch_start: float = 30.0
    epoch_shortest: float = 20.0
    epoch_longest: float = 60.0
    # In epochs without a rejection: after so many, what was learned about the peak is out of date.
    outdated: float = 1.5
    load_memory: float = 60.0


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When a lane is left alone, and how it is tried again."""

    in_a_row: int = 5
    in_a_row_while_probing: int = 3
    quiet: float = 5.0
    in_a_row_unquiet: int = 20
    share: float = 0.7
    share_of_at_least: int = 12
    share_window: float = 20.0
    probe_shortest: float = 5.0
    probe_longest: float = 60.0
    ramp: float = 120.0
    blind_probe_shortest: float = 15.0
    blind_probe_longest: float = 300.0
    ramp_after_parking: float = 10.0
    throttles_to_park_blind: int = 8
    silence_to_park_blind: float = 60.0
    clean_to_open: float = 300.0


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """When another lane is worth taking, and how waiting calls are ordered."""

    other_lane_cost: float = 10.0
    error_cost: float = 20.0
    spill_after: float = 10.0
    # Each second of waiting counts as this much longer a remaining path, so that nobody starves.
    ageing: float = 0.1
    identical_failures: int = 3


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Everything together."""

    patience: PatienceSettings = field(default_factory=PatienceSettings)
    hedges: HedgeSettings = field(default_factory=HedgeSettings)
    window: ConcurrencyWindowSettings = field(default_factory=ConcurrencyWindowSettings)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    routing: RoutingSettings = field(default_factory=RoutingSettings)
    retry_budget: float = 10.0
    retry_refill: float = 0.2
