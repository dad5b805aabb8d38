"""The settings of the gateway, each with the reason for its value.

Rules: (1) frozen: a running gateway gets a new value as a whole, and never changes one in place;
(2) times are in seconds, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jackline.lanes import CacheTtl
from jackline.providers.settings import UpstreamSettings


class StreamMode(StrEnum):
    """How an answer is passed on: as it comes, in whole content blocks, or as suits the client."""

    AUTO = "auto"
    LIVE = "live"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Where the gateway listens; anything but loopback needs a token that clients must send."""

    host: str = "127.0.0.1"
    port: int = 8766
    token: str | None = field(default=None, repr=False)
    # Host names that requests may be addressed to, beside loopback's and `host`.
    names: tuple[str, ...] = ()
    # The page in the browser shows everything and may change nothing.
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class HoldSettings:
    """How long calls are held, and how their clients are prevented from giving up meanwhile."""

    # A call with a known reset farther away is refused at once (`--afk`: never too far).
    quota: float = 900.0
    until_reset: bool = False
    # The longest wait for anything else: throttling, outages.
    other: float = 6 * 3600.0
    # Nothing is committed before this: a short wait ends with the proper status.
    commit_after: float = 15.0
    ping_every: float = 15.0
    # Claude Code counts only message events as life; its watchdogs bite at 300 and 600 s.
    placeholder_every: float = 60.0


@dataclass(frozen=True, slots=True)
class CapSettings:
    """How many calls may be in flight at once for one session, one sub-agent, one tag."""

    session: int | None = None
    agent: int | None = None
    tags: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """How long prompts shall be cached: on upstreams that do not configure it, by tag, by class.

    A tag comes before a class, and both before an upstream's own setting.
    """

    ttl: CacheTtl = CacheTtl.CLIENT
    tags: Mapping[str, CacheTtl] = field(default_factory=dict)
    classes: Mapping[str, CacheTtl] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What the gateway accepts from its clients, and from upstreams, before it refuses."""

    header_bytes: int = 64 * 1024
    body_bytes: int = 64 * 1024 * 1024
    connections: int = 20_000
    waiting_calls: int = 50_000
    # Requests that have begun to come and are not whole, of all connections together.
    unfinished_bytes: int = 1024 * 1024 * 1024
    # The bodies of all calls under way, held or waiting.
    held_bytes: int = 4 * 1024 * 1024 * 1024
    # An answer of an upstream to a model call, unpacked: 128,000 tokens in events of their own are
    # some 20 MB. It may take so long in all, if something comes all the time.
    answer_bytes: int = 64 * 1024 * 1024
    answer_seconds: float = 2 * 3600.0
    # A client has so long to send its headers, and may pause so long inside a body.
    header_seconds: float = 20.0
    body_pause_seconds: float = 60.0
    # A body that came for longer than that pause must have come at so many bytes a second.
    body_pace: int = 4 * 1024
    idle_seconds: float = 300.0
    # Running calls may take so long to finish when the gateway is stopped.
    drain_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Everything together."""

    listen: ListenSettings = field(default_factory=ListenSettings)
    # The first is preferred, the others are the fallback order.
    upstreams: tuple[UpstreamSettings, ...] = (UpstreamSettings(),)
    # Models, agents and tags (patterns) that never get another model than their own.
    never_degrade: tuple[str, ...] = ()
    stream: StreamMode = StreamMode.AUTO
    hold: HoldSettings = field(default_factory=HoldSettings)
    caps: CapSettings = field(default_factory=CapSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)

    @property
    def upstream(self) -> UpstreamSettings:
        """The preferred upstream."""
        return self.upstreams[0]
