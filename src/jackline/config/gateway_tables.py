"""The tables of the gateway: where it listens, where calls go, what it takes and keeps.

Laws: (1) every key has a description, from which the JSON Schema is made; (2) defaults are those of
the settings' own classes, written nowhere twice.
Not here: flows, agents and notifications (work_tables.py), the whole document (document.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from jackline.config.references import INSTEAD, is_reference
from jackline.config.table import (
    NOT_SET,
    Beat,
    Count,
    Duration,
    HostName,
    InProject,
    Name,
    PerMinute,
    Size,
    Table,
    Text,
    between,
    plain_url,
    reference,
)
from jackline.gateway.settings import GatewaySettings
from jackline.journal.settings import JournalSettings
from jackline.providers.presets import PRESETS
from jackline.providers.settings import Credential

Kind: TypeAlias = Literal["anthropic", "bedrock", "vertex", "openai-chat", "openai-responses"]

_DEFAULT = GatewaySettings()
_JOURNAL = JournalSettings()
_LOG_LEVEL: Literal["info"] = "info"
_WRITTEN_BY_US = ("host", "content-length", "transfer-encoding", "connection")
_CREDENTIALS = ("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie")


def _proxy(text: str) -> str:
    if is_reference(text):
        return text
    parts = urlsplit(text)
    if parts.password:
        raise ValueError(f"must not hold a password; {INSTEAD}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address like http://proxy.example:3128, or a reference")
    return text


def _credential(text: str) -> str:
    if text in (Credential.PASS_THROUGH, Credential.NONE):
        return text
    if not is_reference(text) or not text.partition(":")[2].strip():
        raise ValueError(f'must be "pass-through", "none" or a reference; {INSTEAD}')
    return text


def _preset(text: str) -> str:
    if text not in PRESETS:
        raise ValueError(f"must be one of {', '.join(PRESETS)}")
    return text


def _headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ValueError("holds a name that no header can have")
        if name.lower() in _WRITTEN_BY_US:
            raise ValueError(f"{name} is written by Jackline itself")
        if name.lower() in _CREDENTIALS and not is_reference(value):
            raise ValueError(f"the value of {name} must not stand here itself; {INSTEAD}")
        if not value.isprintable() or not value.isascii() or value != value.strip() or not value:
            raise ValueError(f"the value of {name} must be plain text on one line")
    return headers


class ListenTable(Table):
    """Where the gateway listens."""

    host: Text = Field(
        default=_DEFAULT.listen.host,
        description="Address to listen on. Anything but loopback needs a token.",
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=_DEFAULT.listen.port, description="Port to listen on; 0 takes a free one."
    )
    token: Annotated[str, AfterValidator(reference)] = Field(
        default=NOT_SET,
        description="Where the token is that clients must send: env:NAME, file:PATH, cmd:COMMAND.",
    )
    names: list[HostName] = Field(
        default=list(_DEFAULT.listen.names),
        description="Host names under which clients may address the gateway, beside loopback and"
        " `host`: a container's or a team's, without port.",
    )
    read_only: bool = Field(
        default=_DEFAULT.listen.read_only,
        description="Take no orders from the page in the browser, nor from models by `/mcp`"
        " (`--read-only`).",
    )


class LimitsTable(Table):
    """What an account may take, where it is known beforehand; the rest is learned."""

    requests_per_minute: Annotated[PerMinute, InProject.CONSENT] = Field(
        default=NOT_SET, description="Requests per minute."
    )
    input_tokens_per_minute: Annotated[PerMinute, InProject.CONSENT] = Field(
        default=NOT_SET, description="Tokens of prompts per minute."
    )
    output_tokens_per_minute: Annotated[PerMinute, InProject.CONSENT] = Field(
        default=NOT_SET, description="Tokens of answers per minute."
    )
    parallel: Annotated[Count, InProject.CONSENT] = Field(
        default=NOT_SET, description="Calls in flight at once."
    )


class UpstreamTable(Table):
    """A place that calls are sent to. The first of them is preferred."""

    name: Annotated[Name, InProject.CONSENT] = Field(
        default=_DEFAULT.upstream.name,
        description="What its lanes are called; else its preset's name, or its kind's.",
    )
    preset: Annotated[str, AfterValidator(_preset), InProject.CONSENT] = Field(
        default=NOT_SET,
        description="A known sort of upstream that fills in what is not written here.",
        json_schema_extra={"enum": list(PRESETS)},
    )
    kind: Annotated[Kind, InProject.CONSENT] = Field(
        default=_DEFAULT.upstream.kind.value, description="Which protocol it speaks."
    )
    url: Annotated[str, AfterValidator(plain_url), InProject.CONSENT] = Field(
        default=_DEFAULT.upstream.url,
        description="Its address, with a path prefix if it has one; clouds have it by region.",
    )
    credential: Annotated[str, AfterValidator(_credential), InProject.CONSENT] = Field(
        default=_DEFAULT.upstream.credential.value,
        description="Whose key is sent: the client's own (pass-through), none, or the one that is"
        " kept at env:NAME, file:PATH, cmd:COMMAND. By itself, the first upstream of kind anthropic"
        " passes through, clouds find their own, and any other gets none.",
    )
    auth: Annotated[Literal["api-key", "bearer", "vendor"], InProject.CONSENT] = Field(
        default=NOT_SET,
        description="How the key is sent, or that the vendor's own library finds it (vendor).",
    )
    region: Annotated[Text, InProject.CONSENT] = Field(
        default=NOT_SET, description="Region of a cloud, such as us-east-1."
    )
    project: Annotated[Text, InProject.CONSENT] = Field(
        default=NOT_SET,
        description="Project at Google that pays; at OpenAI, the one whose rate limits `admin_key`"
        " reads.",
    )
    proxy: Annotated[str, AfterValidator(_proxy), InProject.CONSENT] = Field(
        default=NOT_SET,
        description="HTTP proxy on the way there: an address without password, or a reference.",
    )
    ca_file: Text = Field(
        default=NOT_SET,
        description="PEM file of the authorities to trust instead of the system's.",
    )
    status_page: Annotated[str, AfterValidator(plain_url), InProject.CONSENT] = Field(
        default=NOT_SET,
        description="Where its vendor tells of incidents (Statuspage), such as"
        " https://status.claude.com; looked at only while something is wrong.",
    )
    cost_class: Annotated[Literal["free", "low", "usual", "high"], InProject.CONSENT] = Field(
        default=_DEFAULT.upstream.cost_class.value,
        description="How dear it is beside the others; of upstreams that serve the same model, the"
        " cheaper is preferred.",
    )
    local: Annotated[bool, InProject.CONSENT] = Field(
        default=_DEFAULT.upstream.local,
        description="A server of your own, such as Ollama, which loads models on demand: it is"
        " waited for longer, and no call is asked of it twice.",
    )
    limits: LimitsTable = Field(
        default_factory=LimitsTable, description="Limits of every lane of this upstream."
    )
    model_limits: Annotated[dict[str, LimitsTable], InProject.CONSENT] = Field(
        default_factory=dict,
        description='Limits by model: patterns such as "claude-opus-*"; they replace `limits`.',
    )
    models: Annotated[dict[str, Text], InProject.CONSENT] = Field(
        default_factory=dict,
        description='Which model stands in here for which: "claude-opus-*" = "gpt-5.5".',
    )
    longest_answer: Annotated[Count, InProject.CONSENT] = Field(
        default=NOT_SET,
        description="Tokens that an answer may have, for models of OpenAI's dialects that refuse to"
        " be asked for more.",
    )
    cache_ttl: Annotated[Literal["client", "1h", "auto"], InProject.CONSENT] = Field(
        default=NOT_SET,
        description="What is asked of its prompt caches, as `cache.ttl` says; not set: that.",
    )
    counts_cached: Annotated[bool, InProject.CONSENT] = Field(
        default=NOT_SET,
        description="Whether tokens read from a prompt cache count toward its input limit; not set:"
        " as its vendor says.",
    )
    accept_rejected_clients: bool = Field(
        default=_DEFAULT.upstream.accept_rejected_clients,
        description="Serve clients here, with this upstream's own key, that send no credential or"
        " whose own one the upstream before it has refused (401, 403).",
    )
    admin_key: Annotated[str, AfterValidator(reference)] = Field(
        default=NOT_SET,
        description="Where an admin key of your organization is kept (env:NAME, file:PATH,"
        " cmd:COMMAND): its rate limits are then read from the vendor's API, at start and daily."
        " Used for nothing else.",
    )
    workspace: Text = Field(
        default=NOT_SET,
        description="Anthropic's workspace of the key, if not the default one: its rate limits go"
        " over those of the organization.",
    )
    headers: Annotated[dict[str, str], AfterValidator(_headers), InProject.CONSENT] = Field(
        default_factory=dict, description="Headers to send along; values may be references."
    )


class HoldTable(Table):
    """How long calls are held, and how their clients are kept alive meanwhile."""

    quota: Annotated[Duration, InProject.FREE] = Field(
        default=_DEFAULT.hold.quota,
        description="A quota that resets within this is waited for; a later reset is told at once.",
    )
    until_reset: bool = Field(
        default=_DEFAULT.hold.until_reset,
        description="Wait for every known reset, however far away (`--afk`).",
    )
    other: Annotated[Duration, InProject.FREE] = Field(
        default=_DEFAULT.hold.other, description="The longest wait for throttling and outages."
    )
    # Claude Code gives up after 285 s without headers.
    commit_after: Annotated[Duration, between(0, 240)] = Field(
        default=_DEFAULT.hold.commit_after,
        description="Waits shorter than this end with the proper status; longer ones are streamed.",
    )
    ping_every: Beat = Field(
        default=_DEFAULT.hold.ping_every, description="Pause between pings to a waiting client."
    )
    placeholder_every: Beat = Field(
        default=_DEFAULT.hold.placeholder_every,
        description="Pause between the events that Claude Code counts as life.",
    )


class CapsTable(Table):
    """How many calls may be in flight at once; what is not set is not capped."""

    session: Annotated[Count, InProject.LOWER] = Field(
        default=NOT_SET, description="For each session."
    )
    agent: Annotated[Count, InProject.LOWER] = Field(
        default=NOT_SET, description="For each sub-agent."
    )
    tags: Annotated[dict[str, Count], InProject.LOWER] = Field(
        default_factory=dict, description="For each tag (`/t/TAG/` in the address)."
    )


class CacheTable(Table):
    """For how long vendors that serve Claude are asked to cache what clients mark for it."""

    ttl: Literal["client", "1h", "auto"] = Field(
        default=_DEFAULT.cache.ttl.value,
        description="As the client asks (client), for an hour at twice the input price (1h), or for"
        " an hour where pauses of more than five minutes are likely (auto).",
    )
    tags: dict[str, Literal["client", "1h", "auto"]] = Field(
        default_factory=dict,
        description="The same for each tag (`/t/TAG/` in the address), before anything else.",
    )
    classes: dict[str, Literal["client", "1h", "auto"]] = Field(
        default_factory=dict,
        description="The same for each class of traffic, before what an upstream says.",
    )


class TakenTable(Table):
    """What the gateway takes from its clients, and from upstreams, before it says no."""

    headers: Size = Field(default=_DEFAULT.limits.header_bytes, description="Size of the headers.")
    body: Size = Field(default=_DEFAULT.limits.body_bytes, description="Size of a request's body.")
    unfinished_bodies: Size = Field(
        default=_DEFAULT.limits.unfinished_bytes,
        description="Size of all requests together that have begun to come and are not whole;"
        " above it, the one that takes most for longest is refused with status 503.",
    )
    held_bodies: Size = Field(
        default=_DEFAULT.limits.held_bytes,
        description="Size of the bodies of all calls together that are under way or wait.",
    )
    answer: Size = Field(
        default=_DEFAULT.limits.answer_bytes,
        description="Size of an upstream's answer to a model call, unpacked; a larger one is broken"
        " off, and not asked for again there.",
    )
    answer_time: Annotated[Duration, between(60, 7 * 86400)] = Field(
        default=_DEFAULT.limits.answer_seconds,
        description="How long an answer may take from its first byte to its last.",
    )
    connections: Count = Field(
        default=_DEFAULT.limits.connections, description="Open connections of clients."
    )
    waiting_calls: Count = Field(
        default=_DEFAULT.limits.waiting_calls, description="Calls that wait at once."
    )
    header_time: Annotated[Duration, between(1, 3600)] = Field(
        default=_DEFAULT.limits.header_seconds, description="Time to send all headers."
    )
    body_pause: Annotated[Duration, between(1, 3600)] = Field(
        default=_DEFAULT.limits.body_pause_seconds, description="Longest pause inside a body."
    )
    body_pace: Annotated[Size, Field(ge=1)] = Field(
        default=_DEFAULT.limits.body_pace,
        description="Bytes per second that a body must come at, once it has taken longer than"
        " `body_pause`.",
    )
    idle: Annotated[Duration, between(1, 86400)] = Field(
        default=_DEFAULT.limits.idle_seconds,
        description="An unused connection is closed after this.",
    )
    drain: Duration = Field(
        default=_DEFAULT.limits.drain_seconds,
        description="Running calls may take so long to finish when the gateway is stopped.",
    )


class JournalTable(Table):
    """How much of the past is kept."""

    keep: Annotated[Duration, between(3600, 3660 * 86400)] = Field(
        default=_JOURNAL.keep_days * 86400, description="Older records are deleted."
    )
    size: Size = Field(
        default=_JOURNAL.keep_bytes, description="The oldest records go when there is more."
    )


class LogTable(Table):
    """What is written to the log."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default=_LOG_LEVEL, description="The least important thing that is written."
    )
