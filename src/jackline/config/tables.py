"""The tables of `jackline.toml`: the gateway's, and those of flows, budgets, agents and messages.

Rules: (1) every key has a description, from which the JSON Schema is made; (2) defaults are those
of the settings' own classes, written nowhere twice.
Not here: the whole document (document.py), the types of values (field_types.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from jackline.config.field_types import (
    NOT_SET,
    Beat,
    ConfigTable,
    Count,
    Dollars,
    Duration,
    HostName,
    InProject,
    Model,
    Name,
    PerMinute,
    Size,
    Text,
    between,
    plain_url,
    reference,
)
from jackline.config.references import INSTEAD, is_reference
from jackline.errors import UsageError
from jackline.flows.settings import Reserve, RunSettings, parse_hours
from jackline.gateway.settings import GatewaySettings
from jackline.journal.store import JournalSettings
from jackline.mcp_server.permissions import AgentSettings
from jackline.notifications.settings import NotifySettings
from jackline.providers.settings import PRESETS, Credential, UpstreamKind

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


def _kind(text: str) -> str:
    if text not in list(UpstreamKind):
        raise ValueError(f"must be one of {', '.join(UpstreamKind)}")
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


class ListenTable(ConfigTable):
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


class LimitsTable(ConfigTable):
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


class UpstreamTable(ConfigTable):
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
    kind: Annotated[str, AfterValidator(_kind), InProject.CONSENT] = Field(
        default=_DEFAULT.upstream.kind.value,
        description="Which protocol it speaks.",
        json_schema_extra={"enum": [each.value for each in UpstreamKind]},
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


class HoldTable(ConfigTable):
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


class CapsTable(ConfigTable):
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


class CacheTable(ConfigTable):
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


class TakenTable(ConfigTable):
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


class JournalTable(ConfigTable):
    """How much of the past is kept."""

    keep: Annotated[Duration, between(3600, 3660 * 86400)] = Field(
        default=_JOURNAL.keep_days * 86400, description="Older records are deleted."
    )
    size: Size = Field(
        default=_JOURNAL.keep_bytes, description="The oldest records go when there is more."
    )


class LogTable(ConfigTable):
    """What is written to the log."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default=_LOG_LEVEL, description="The least important thing that is written."
    )


_RUNS = RunSettings()
_NOTIFY = NotifySettings()
_AGENTS = AgentSettings()
_Runner: TypeAlias = Literal["messages", "claude-code", "codex"]


def _absolute(text: str) -> str:
    if not Path(text).expanduser().is_absolute():
        raise ValueError("must be a whole path, such as /srv/work or ~/work")
    return text


def _webhook(text: str) -> str:
    if is_reference(text):
        return text
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address like https://hooks.example/jackline, or a reference")
    if parts.username or parts.password or parts.query:
        raise ValueError(f"must not hold a secret; {INSTEAD}")
    return text


def _hours(text: str) -> str:
    try:
        parse_hours(text)
    except UsageError as error:
        raise ValueError(f"{error.message} {error.hint}") from error
    return text


class RunTable(ConfigTable):
    """How flows run that say nothing else."""

    runner: _Runner = Field(
        default="messages", description="Who carries agents that name no runner."
    )
    model: Annotated[Model, InProject.PRICED] = Field(
        default=NOT_SET, description="For agents that name no model; else the runner's own."
    )
    on_quota: Literal["park", "abort"] = Field(
        default=_RUNS.on_quota,
        description="At a quota wall: wait for its reset with everything kept (park), or fail.",
    )
    at_once: Annotated[Count, InProject.LOWER] = Field(
        default=_RUNS.at_once, description="So many agents at a time; others wait their turn."
    )
    guard: Annotated[int, Field(ge=0)] = Field(
        default=_RUNS.guard,
        description="So many agents in a row that fail the same way stop the run; 0: never.",
    )
    grace: Duration = Field(
        default=_RUNS.grace, description="How long a stop waits for agents to end their turns."
    )


class ReserveTable(ConfigTable):
    """Keep the last part of a subscription's window for what matters more."""

    share: Annotated[float, Field(gt=0, le=1), InProject.LOWER] = Field(
        default=NOT_SET,
        description="From this used share of the fullest window on, no agent of these classes is"
        " started; not set: never.",
    )
    classes: Annotated[list[Text], InProject.MORE] = Field(
        default=list(Reserve(1.0).classes),
        description="The classes (`agent(class_=…)`) that are kept back then.",
    )


class ResumeTable(ConfigTable):
    """The brakes on parked runs that wake by themselves."""

    hours: Annotated[str, AfterValidator(_hours)] = Field(
        default=NOT_SET,
        description='Wake only then, such as "22:00-07:00" or "22:00-07:00 Europe/Kiev".',
    )
    spend: Annotated[Dollars, InProject.LOWER] = Field(
        default=NOT_SET, description="A run that has cost so many dollars waits for a person."
    )
    confirm: bool = Field(
        default=_RUNS.wake.confirm, description="Wake only after a person said yes."
    )
    max_wakes: Annotated[int, Field(ge=0)] = Field(
        default=_RUNS.wake.max_wakes,
        description="So many wake-ups in a row that meet a wall before any call is answered, each"
        " after a longer pause; then the run waits for a person (`jackline resume ID`). 0: no"
        " limit.",
    )
    sessions: bool = Field(
        default=False,
        description="A session of Claude Code that a quota wall has ended is continued at the"
        " reset, by a process of its own (needs the plugin).",
    )


class RollingTable(ConfigTable):
    """What all runs together may use within a span of time; a spent span is waited for."""

    per: Annotated[Duration, between(60, 366 * 86400)] = Field(
        default=NOT_SET, description='The span, such as "5h".'
    )
    tokens: Count = Field(default=NOT_SET, description="Tokens within the span.")
    dollars: Dollars = Field(default=NOT_SET, description="Dollars within the span.")
    strict: bool = Field(
        default=NOT_SET,
        description="As budget.strict; what other processes have in flight is not known.",
    )


class BudgetTable(ConfigTable):
    """What each run may use; the next call is refused, never the last one undone."""

    tokens: Annotated[Count, InProject.LOWER] = Field(
        default=NOT_SET, description="Tokens of one run."
    )
    dollars: Annotated[Dollars, InProject.LOWER] = Field(
        default=NOT_SET, description="Dollars of one run."
    )
    agents: Annotated[Count, InProject.LOWER] = Field(
        default=NOT_SET, description="Agents of one run."
    )
    turns: Annotated[Count, InProject.LOWER] = Field(
        default=NOT_SET, description="Model calls of one run."
    )
    time: Annotated[Duration, InProject.LOWER] = Field(
        default=NOT_SET, description="Own work of all agents of one run together; waiting is none."
    )
    strict: bool = Field(
        default=NOT_SET,
        description="Reserve the most that a call can use before it is sent, so that tokens and"
        " dollars are never passed; fewer calls run side by side.",
    )
    rolling: RollingTable = Field(default_factory=RollingTable)


class PriceTable(ConfigTable):
    """What a model costs, in dollars for a million tokens."""

    input: Dollars = Field(default=NOT_SET, description="A million tokens that are sent.")
    output: Dollars = Field(default=NOT_SET, description="A million tokens that are answered.")
    cache_read: Dollars = Field(
        default=NOT_SET, description="A million from the vendor's cache; not set: as `input`."
    )
    cache_write: Dollars = Field(
        default=NOT_SET, description="A million into the vendor's cache; not set: as `input`."
    )
    cache_write_1h: Dollars = Field(
        default=NOT_SET,
        description="A million into the vendor's cache for an hour; not set: twice `input`, or as"
        " `cache_write` where that is more.",
    )


class AgentsTable(ConfigTable):
    """Agents that models start through the tools of `jackline mcp`."""

    runner: _Runner = Field(
        default="claude-code", description="Who carries them when they name no runner."
    )
    runners: list[_Runner] = Field(
        default=[], description="Which other runners a model may choose; by default none."
    )
    model: Annotated[Model, InProject.PRICED] = Field(
        default=NOT_SET, description="For agents that name no model; else the runner's own."
    )
    tools: list[Text] = Field(
        default=list(_AGENTS.tools),
        description="Tools that they use without asking, beside reading and editing in their"
        ' folder, by Claude Code\'s names: "Bash(pytest *)", "WebFetch". With any named here, they'
        " are offered these and no others.",
    )
    folders: list[Annotated[str, AfterValidator(_absolute)]] = Field(
        default=[],
        description="Where agents and batches may work, beside the folder of their client.",
    )
    depth: Annotated[int, Field(ge=1, le=20)] = Field(
        default=_AGENTS.depth,
        description="How many agents deep: with 1, the agents that models start may start none.",
    )
    wait: Annotated[Duration, between(1, 86400)] = Field(
        default=_AGENTS.wait,
        description="A call is answered by then, with an id if its agent works on.",
    )
    long_wait: Annotated[Duration, between(1, 86400)] = Field(
        default=_AGENTS.long_wait,
        description="The same for Claude Code, which waits longer while it hears of progress.",
    )


class BatchTable(ConfigTable):
    """What models may run without asking, through the tool `batch` and as release commands."""

    allow: list[Text] = Field(
        default=[],
        description='Commands such as "pytest *" or "git log *", run without a shell (the star'
        " stands for operands inside the project and options known to be harmless; others are"
        " written out, and what git is to change is allowed as a whole command, such as"
        ' "git add -A"), and addresses such as "fetch:https://docs.python.org/*". Reading and'
        " searching in the project always may.",
    )


class OtlpTable(ConfigTable):
    """Where spans of flows, agents, calls, attempts and tools are sent; taken up at a start."""

    endpoint: Annotated[str, AfterValidator(plain_url)] = Field(
        default=NOT_SET,
        description="Address of an OpenTelemetry collector, such as http://127.0.0.1:4318.",
    )
    authorization: Annotated[str, AfterValidator(reference)] = Field(
        default=NOT_SET,
        description="Where the value of its authorization header is: env:NAME, file:PATH, …",
    )
    receive: bool = Field(
        default=False,
        description="Whether clients may send their own telemetry to the gateway's port; jackline"
        " claude then tells Claude Code to.",
    )
    prompts: bool = Field(
        default=False,
        description="Whether clients' words (prompts, answers, what tools were given) are sent on.",
    )


class NotifyTable(ConfigTable):
    """Who is told what goes on, without looking: one message an incident, not one an agent."""

    on: list[Literal["parked", "needs-you", "run-finished", "budget-near", "upstream-moved"]] = (
        Field(
            default=[about.value for about in _NOTIFY.on],
            description="What is worth a message.",
        )
    )
    desktop: bool = Field(
        default=_NOTIFY.desktop, description="Show messages on the desktop of the gateway's user."
    )
    webhook: Annotated[str, AfterValidator(_webhook)] = Field(
        default=NOT_SET,
        description="Address that messages are posted to as JSON, or a reference to it.",
    )
    secret: Annotated[str, AfterValidator(reference)] = Field(
        default=NOT_SET,
        description="Where the secret is that signs them: env:NAME, file:PATH, cmd:COMMAND.",
    )
    apprise: Annotated[str, AfterValidator(reference)] = Field(
        default=NOT_SET,
        description="Where addresses for Apprise are, one a line (extra: jackline[notify]).",
    )
    quiet: Annotated[str, AfterValidator(_hours)] = Field(
        default=NOT_SET,
        description='Send nothing then, such as "22:00-07:00"; what still counts is told after.',
    )
    budget_share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = Field(
        default=_NOTIFY.budget_share, description="A budget is nearly used from this share on."
    )
