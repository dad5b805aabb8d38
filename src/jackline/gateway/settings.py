"""The settings of the gateway.

Rules: (1) frozen: a running gateway gets a new value as a whole, and never changes one in place;
(2) times are in seconds, sizes in bytes. How they are read: config/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jackline.lanes import CacheTtl
from jackline.providers.settings import UpstreamSettings
from jackline.settings import Form, InProject, setting


class StreamMode(StrEnum):
    """How an answer is passed on: as it comes, in whole content blocks, or as suits the client."""

    AUTO = "auto"
    LIVE = "live"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Where the gateway listens."""

    host: str = setting(
        "127.0.0.1",
        "Address to listen on. Anything but loopback needs a token.",
        flag="host",
        variable="JACKLINE_HOST",
        needs_restart=True,
    )
    port: int = setting(
        8766,
        "Port to listen on; 0 takes a free one.",
        least=0,
        most=65535,
        flag="port",
        variable="JACKLINE_PORT",
        needs_restart=True,
    )
    token: str | None = setting(
        None,
        "Where the token is that clients must send: env:NAME, file:PATH or cmd:COMMAND.",
        Form.REFERENCE,
    )
    names: tuple[str, ...] = setting(
        (),
        "Host names by which clients may address the gateway, beside loopback and `host`: a"
        " container's or a team's, without port.",
        Form.HOST_NAME,
    )
    read_only: bool = setting(
        False,
        "Accept no orders from the page in the browser, nor from models by `/mcp`; both may only"
        " read.",
        flag="read_only",
    )


@dataclass(frozen=True, slots=True)
class HoldSettings:
    """How long calls are held, and how their clients are kept alive meanwhile."""

    quota: float = setting(
        900.0,
        "The gateway waits for a quota that resets within this time. The client gets a later"
        " reset as an error at once.",
        Form.DURATION,
        in_project=InProject.FREE,
    )
    until_reset: bool = setting(
        False, "Wait for every known reset, however far away (`--afk`).", flag="afk"
    )
    other: float = setting(
        6 * 3600.0,
        "The longest wait for throttling and outages.",
        Form.DURATION,
        in_project=InProject.FREE,
    )
    # Claude Code gives up after 285 s without headers.
    commit_after: float = setting(
        15.0,
        "Waits shorter than this end with the proper status; longer ones are streamed.",
        Form.DURATION,
        least=0,
        most=240,
    )
    # Below a second, a slip of the pen would keep the gateway busy with nothing else.
    ping_every: float = setting(
        15.0, "Pause between pings to a waiting client.", Form.DURATION, least=1, most=240
    )
    # Claude Code counts only message events as life; its watchdogs bite at 300 and 600 s.
    placeholder_every: float = setting(
        60.0,
        "Pause between the events that Claude Code counts as life.",
        Form.DURATION,
        least=1,
        most=240,
    )


@dataclass(frozen=True, slots=True)
class CapSettings:
    """How many calls may be in flight at once; what is not set is not capped."""

    session: int | None = setting(
        None, "Calls of one session.", least=1, in_project=InProject.LOWER
    )
    agent: int | None = setting(
        None, "Calls of one sub-agent.", least=1, in_project=InProject.LOWER
    )
    tags: Mapping[str, int] = setting(
        {},
        "Calls of one tag (`/t/TAG/` in the address): a table of tag to number.",
        least=1,
        in_project=InProject.LOWER,
    )


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """How long vendors that serve Claude cache the parts of prompts that clients mark."""

    ttl: CacheTtl = setting(
        CacheTtl.CLIENT,
        "As the client requests (client); an hour, at twice the input price instead of 1.25 times"
        " (1h); or an hour where pauses of more than five minutes are likely (auto). It holds for"
        " upstreams without a `cache_ttl` of their own whose vendor documents caches of an hour:"
        " Anthropic, Vertex AI, and Claude 4.5 on Bedrock.",
    )
    tags: Mapping[str, CacheTtl] = setting(
        {}, "The same by tag (`/t/TAG/` in the address); a tag comes before everything else."
    )
    classes: Mapping[str, CacheTtl] = setting(
        {}, "The same by class of traffic; a class comes before what an upstream says."
    )


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """How much the gateway accepts from its clients and from upstreams."""

    headers: int = setting(64 * 1024, "Size of a request's headers.", Form.SIZE)
    body: int = setting(64 * 1024 * 1024, "Size of a request's body.", Form.SIZE)
    unfinished_bodies: int = setting(
        256 * 1024 * 1024,
        "Size of all requests together that have begun to arrive and are not complete. Above it,"
        " the one that has used most for longest is refused with status 503.",
        Form.SIZE,
    )
    held_bodies: int = setting(
        1024 * 1024 * 1024,
        "Size of the bodies of all calls together that are running or waiting.",
        Form.SIZE,
    )
    # 128,000 tokens in events of their own are some 20 MB.
    answer: int = setting(
        64 * 1024 * 1024,
        "Size of an upstream's answer to a model call, unpacked. A larger one is cut off, and not"
        " requested again there.",
        Form.SIZE,
    )
    held_answers: int = setting(
        512 * 1024 * 1024,
        "Size of what the gateway holds of all unfinished answers together, unpacked. Above it, the"
        " answer that holds most is cut off, and not requested again there; an answer that alone"
        " holds anything is not.",
        Form.SIZE,
    )
    answer_time: float = setting(
        2 * 3600.0,
        "How long an answer may take from its first byte to its last.",
        Form.DURATION,
        least=60,
        most=7 * 86400,
    )
    connections: int = setting(20_000, "Open connections of clients.", least=1)
    waiting_calls: int = setting(50_000, "Calls that wait at the same time.", least=1)
    header_time: float = setting(
        20.0, "Time to send all headers.", Form.DURATION, least=1, most=3600
    )
    body_pause: float = setting(
        60.0, "Longest pause inside a body.", Form.DURATION, least=1, most=3600
    )
    body_pace: int = setting(
        4 * 1024,
        "Bytes per second at which a body must arrive, once it has taken longer than `body_pause`.",
        Form.SIZE,
        least=1,
    )
    idle: float = setting(
        300.0, "An unused connection is closed after this.", Form.DURATION, least=1, most=86400
    )
    drain: float = setting(
        30.0,
        "How long running calls may take to finish when the gateway is stopped.",
        Form.DURATION,
    )


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Everything together."""

    listen: ListenSettings = field(default_factory=ListenSettings)
    # The first is preferred, the others are fallbacks in their order.
    upstreams: tuple[UpstreamSettings, ...] = (UpstreamSettings(),)
    never_degrade: tuple[str, ...] = setting(
        (),
        "Patterns of models, tags (tag:night), agents (agent:review-*) and classes of flows'"
        " agents (class:careful) that no other model than their own may answer.",
        in_project=InProject.MORE,
    )
    stream: StreamMode = setting(
        StreamMode.AUTO,
        "How answers are passed on: as they arrive (live), in whole content blocks that can be"
        " repaired (block), or block for sub-agents and headless clients only (auto).",
        in_project=InProject.FREE,
        flag="stream",
    )
    hold: HoldSettings = field(default_factory=HoldSettings)
    caps: CapSettings = field(default_factory=CapSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)

    @property
    def upstream(self) -> UpstreamSettings:
        """The preferred upstream."""
        return self.upstreams[0]
