"""The document that `jackline.toml` is: every key with its type, bounds and meaning.

Laws: (1) unknown keys and loose types are faults; (2) every key has a description, from which the
JSON Schema is made; (3) defaults are those of the settings' own classes, written nowhere twice.
Not here: sentences for faults (faults.py), where files are (places.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo

from jackline.config.keys import Key, plain
from jackline.config.quantities import duration_text, read_duration, read_size
from jackline.config.references import INSTEAD, is_reference
from jackline.errors import UsageError
from jackline.flows.settings import Reserve, RunSettings
from jackline.flows.waking import read_hours
from jackline.gateway.settings import GatewaySettings
from jackline.journal.settings import JournalSettings
from jackline.mcp_server.settings import AgentSettings
from jackline.notifications.settings import NotifySettings
from jackline.providers.presets import PRESETS
from jackline.providers.settings import Credential

_DEFAULT = GatewaySettings()
_JOURNAL = JournalSettings()
_RUNS = RunSettings()
_NOTIFY = NotifySettings()
_AGENTS = AgentSettings()
_LOG_LEVEL: Literal["info"] = "info"
# Never seen by whoever reads a document: only what was written is taken from it.
_NOT_SET: Any = None


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address like https://api.anthropic.com")
    if parts.username or parts.password:
        raise ValueError("must not hold a user or password: clients send their own credentials")
    if parts.query or parts.fragment:
        raise ValueError("must end with the path: no ? and no #")
    _ = parts.port  # raises ValueError when it is no port
    return text.rstrip("/")


def _proxy(text: str) -> str:
    if is_reference(text):
        return text
    parts = urlsplit(text)
    if parts.password:
        raise ValueError(f"must not hold a password; {INSTEAD}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address like http://proxy.example:3128, or a reference")
    return text


def _absolute(text: str) -> str:
    if not Path(text).expanduser().is_absolute():
        raise ValueError("must be a whole path, such as /srv/work or ~/work")
    return text


def _reference(text: str) -> str:
    if not is_reference(text) or not text.partition(":")[2].strip():
        raise ValueError(f"must not stand here itself; {INSTEAD}")
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


def _webhook(text: str) -> str:
    if is_reference(text):
        return text
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address like https://hooks.example/jackline, or a reference")
    if parts.username or parts.password or parts.query:
        raise ValueError(f"must not hold a secret; {INSTEAD}")
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


_WRITTEN_BY_US = ("host", "content-length", "transfer-encoding", "connection")
_CREDENTIALS = ("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie")


def _hours(text: str) -> str:
    try:
        read_hours(text)
    except UsageError as error:
        raise ValueError(f"{error.message} {error.next}") from error
    return text


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", text):
        raise ValueError("must be made of letters, digits, dots, dashes and underscores")
    return text


def _between(low: float, high: float) -> AfterValidator:
    def check(seconds: float) -> float:
        if not low <= seconds <= high:
            raise ValueError(f"must be from {duration_text(low)} to {duration_text(high)}")
        return seconds

    return AfterValidator(check)


def _listed(value: object) -> object:
    if isinstance(value, dict):
        raise ValueError("is a list: write [[upstream]] with two brackets")  # noqa: TRY004 -- pydantic turns only ValueError into a fault
    return value


IS_DURATION = BeforeValidator(read_duration)
IS_SIZE = BeforeValidator(read_size)
Duration: TypeAlias = Annotated[
    float,
    IS_DURATION,
    WithJsonSchema({"type": ["string", "number"], "examples": ["15m", "2h30m", 90]}),
]
Size: TypeAlias = Annotated[
    int,
    IS_SIZE,
    WithJsonSchema({"type": ["string", "integer"], "examples": ["64MB", "512KB", 65536]}),
]
# Below a second, a slip of the pen would keep the gateway busy with nothing else.
Beat: TypeAlias = Annotated[Duration, _between(1, 240)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
PerMinute: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Dollars: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name: TypeAlias = Annotated[str, AfterValidator(_name)]
Text: TypeAlias = Annotated[str, Field(min_length=1)]
Kind: TypeAlias = Literal["anthropic", "bedrock", "vertex", "openai-chat", "openai-responses"]


class Table(BaseModel):
    """Any table of the document: strict, and closed to unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class ListenTable(Table):
    """Where the gateway listens."""

    host: Text = Field(
        default=_DEFAULT.listen.host,
        description="Address to listen on. Anything but loopback needs a token.",
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=_DEFAULT.listen.port, description="Port to listen on; 0 takes a free one."
    )
    token: Annotated[str, AfterValidator(_reference)] = Field(
        default=_NOT_SET,
        description="Where the token is that clients must send: env:NAME, file:PATH, cmd:COMMAND.",
    )
    read_only: bool = Field(
        default=_DEFAULT.listen.read_only,
        description="Take no orders from the page in the browser (`--read-only`).",
    )


class LimitsTable(Table):
    """What an account may take, where it is known beforehand; the rest is learned."""

    requests_per_minute: PerMinute = Field(default=_NOT_SET, description="Requests per minute.")
    input_tokens_per_minute: PerMinute = Field(
        default=_NOT_SET, description="Tokens of prompts per minute."
    )
    output_tokens_per_minute: PerMinute = Field(
        default=_NOT_SET, description="Tokens of answers per minute."
    )
    parallel: Count = Field(default=_NOT_SET, description="Calls in flight at once.")


class UpstreamTable(Table):
    """A place that calls are sent to. The first of them is preferred."""

    name: Name = Field(
        default=_DEFAULT.upstream.name,
        description="What its lanes are called; else its preset's name, or its kind's.",
    )
    preset: Annotated[str, AfterValidator(_preset)] = Field(
        default=_NOT_SET,
        description="A known sort of upstream that fills in what is not written here.",
        json_schema_extra={"enum": list(PRESETS)},
    )
    kind: Kind = Field(
        default=_DEFAULT.upstream.kind.value, description="Which protocol it speaks."
    )
    url: Annotated[str, AfterValidator(_url)] = Field(
        default=_DEFAULT.upstream.url,
        description="Its address, with a path prefix if it has one; clouds have it by region.",
    )
    credential: Annotated[str, AfterValidator(_credential)] = Field(
        default=_DEFAULT.upstream.credential.value,
        description="Whose key is sent: the client's own (pass-through), none, or the one that is"
        " kept at env:NAME, file:PATH, cmd:COMMAND. By itself, the first upstream of kind anthropic"
        " passes through, clouds find their own, and any other gets none.",
    )
    auth: Literal["api-key", "bearer", "vendor"] = Field(
        default=_NOT_SET,
        description="How the key is sent, or that the vendor's own library finds it (vendor).",
    )
    region: Text = Field(default=_NOT_SET, description="Region of a cloud, such as us-east-1.")
    project: Text = Field(default=_NOT_SET, description="Project at Google that pays.")
    proxy: Annotated[str, AfterValidator(_proxy)] = Field(
        default=_NOT_SET,
        description="HTTP proxy on the way there: an address without password, or a reference.",
    )
    ca_file: Text = Field(
        default=_NOT_SET,
        description="PEM file of the authorities to trust instead of the system's.",
    )
    status_page: Annotated[str, AfterValidator(_url)] = Field(
        default=_NOT_SET,
        description="Where its vendor tells of incidents (Statuspage), such as"
        " https://status.claude.com; looked at only while something is wrong.",
    )
    cost_class: Literal["free", "low", "usual", "high"] = Field(
        default=_DEFAULT.upstream.cost_class.value,
        description="How dear it is beside the others; of upstreams that serve the same model, the"
        " cheaper is preferred.",
    )
    limits: LimitsTable = Field(
        default_factory=LimitsTable, description="Limits of every lane of this upstream."
    )
    model_limits: dict[str, LimitsTable] = Field(
        default_factory=dict,
        description='Limits by model: patterns such as "claude-opus-*"; they replace `limits`.',
    )
    models: dict[str, Text] = Field(
        default_factory=dict,
        description='Which model stands in here for which: "claude-opus-*" = "gpt-5.5".',
    )
    longest_answer: Count = Field(
        default=_NOT_SET,
        description="Tokens that an answer may have, for models of OpenAI's dialects that refuse to"
        " be asked for more.",
    )
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(
        default_factory=dict, description="Headers to send along; values may be references."
    )


class HoldTable(Table):
    """How long calls are held, and how their clients are kept alive meanwhile."""

    quota: Duration = Field(
        default=_DEFAULT.hold.quota,
        description="A quota that resets within this is waited for; a later reset is told at once.",
    )
    until_reset: bool = Field(
        default=_DEFAULT.hold.until_reset,
        description="Wait for every known reset, however far away (`--afk`).",
    )
    other: Duration = Field(
        default=_DEFAULT.hold.other, description="The longest wait for throttling and outages."
    )
    # Claude Code gives up after 285 s without headers.
    commit_after: Annotated[Duration, _between(0, 240)] = Field(
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

    session: Count = Field(default=_NOT_SET, description="For each session.")
    agent: Count = Field(default=_NOT_SET, description="For each sub-agent.")
    tags: dict[str, Count] = Field(
        default_factory=dict, description="For each tag (`/t/TAG/` in the address)."
    )


class TakenTable(Table):
    """What the gateway takes from its clients before it says no."""

    headers: Size = Field(default=_DEFAULT.limits.header_bytes, description="Size of the headers.")
    body: Size = Field(default=_DEFAULT.limits.body_bytes, description="Size of a request's body.")
    connections: Count = Field(
        default=_DEFAULT.limits.connections, description="Open connections of clients."
    )
    waiting_calls: Count = Field(
        default=_DEFAULT.limits.waiting_calls, description="Calls that wait at once."
    )
    header_time: Annotated[Duration, _between(1, 3600)] = Field(
        default=_DEFAULT.limits.header_seconds, description="Time to send all headers."
    )
    body_pause: Annotated[Duration, _between(1, 3600)] = Field(
        default=_DEFAULT.limits.body_pause_seconds, description="Longest pause inside a body."
    )
    idle: Annotated[Duration, _between(1, 86400)] = Field(
        default=_DEFAULT.limits.idle_seconds,
        description="An unused connection is closed after this.",
    )
    drain: Duration = Field(
        default=_DEFAULT.limits.drain_seconds,
        description="Running calls may take so long to finish when the gateway is stopped.",
    )


class JournalTable(Table):
    """How much of the past is kept."""

    keep: Annotated[Duration, _between(3600, 3660 * 86400)] = Field(
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


class RunTable(Table):
    """How flows run that say nothing else."""

    runner: Literal["messages", "claude-code", "codex"] = Field(
        default="messages", description="Who carries agents that name no runner."
    )
    model: Text = Field(
        default=_NOT_SET, description="For agents that name no model; else the runner's own."
    )
    on_quota: Literal["park", "abort"] = Field(
        default=_RUNS.on_quota,
        description="At a quota wall: wait for its reset with everything kept (park), or fail.",
    )
    at_once: Count = Field(
        default=_RUNS.at_once, description="So many agents at a time; others wait their turn."
    )
    guard: Annotated[int, Field(ge=0)] = Field(
        default=_RUNS.guard,
        description="So many agents in a row that fail the same way stop the run; 0: never.",
    )
    grace: Duration = Field(
        default=_RUNS.grace, description="How long a stop waits for agents to end their turns."
    )


class ReserveTable(Table):
    """Keep the last part of a subscription's window for what matters more."""

    share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=_NOT_SET,
        description="From this used share of the fullest window on, no agent of these classes is"
        " started; not set: never.",
    )
    classes: list[Text] = Field(
        default=list(Reserve(1.0).classes),
        description="The classes (`agent(class_=…)`) that are kept back then.",
    )


class ResumeTable(Table):
    """The brakes on parked runs that wake by themselves."""

    hours: Annotated[str, AfterValidator(_hours)] = Field(
        default=_NOT_SET,
        description='Wake only then, such as "22:00-07:00" or "22:00-07:00 Europe/Kiev".',
    )
    spend: Dollars = Field(
        default=_NOT_SET, description="A run that has cost so many dollars waits for a person."
    )
    confirm: bool = Field(
        default=_RUNS.wake.confirm, description="Wake only after a person said yes."
    )
    sessions: bool = Field(
        default=False,
        description="A session of Claude Code that a quota wall has ended is continued at the"
        " reset, by a process of its own (needs the plugin).",
    )


class RollingTable(Table):
    """What all runs together may use within a span of time; a spent span is waited for."""

    per: Annotated[Duration, _between(60, 366 * 86400)] = Field(
        default=_NOT_SET, description='The span, such as "5h".'
    )
    tokens: Count = Field(default=_NOT_SET, description="Tokens within the span.")
    dollars: Dollars = Field(default=_NOT_SET, description="Dollars within the span.")


class BudgetTable(Table):
    """What each run may use; the next call is refused, never the last one undone."""

    tokens: Count = Field(default=_NOT_SET, description="Tokens of one run.")
    dollars: Dollars = Field(default=_NOT_SET, description="Dollars of one run.")
    agents: Count = Field(default=_NOT_SET, description="Agents of one run.")
    turns: Count = Field(default=_NOT_SET, description="Model calls of one run.")
    time: Duration = Field(default=_NOT_SET, description="Time at work of one run.")
    rolling: RollingTable = Field(default_factory=RollingTable)


class PriceTable(Table):
    """What a model costs, in dollars for a million tokens."""

    input: Dollars = Field(default=_NOT_SET, description="A million tokens that are sent.")
    output: Dollars = Field(default=_NOT_SET, description="A million tokens that are answered.")
    cache_read: Dollars = Field(
        default=_NOT_SET, description="A million from the vendor's cache; not set: as `input`."
    )
    cache_write: Dollars = Field(
        default=_NOT_SET, description="A million into the vendor's cache; not set: as `input`."
    )


class AgentsTable(Table):
    """Agents that models start through the tools of `jackline mcp`."""

    runner: Literal["messages", "claude-code", "codex"] = Field(
        default="claude-code", description="Who carries them when they name no runner."
    )
    model: Text = Field(
        default=_NOT_SET, description="For agents that name no model; else the runner's own."
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
    wait: Annotated[Duration, _between(1, 86400)] = Field(
        default=_AGENTS.wait,
        description="A call is answered by then, with an id if its agent works on.",
    )
    long_wait: Annotated[Duration, _between(1, 86400)] = Field(
        default=_AGENTS.long_wait,
        description="The same for Claude Code, which waits longer while it hears of progress.",
    )


class BatchTable(Table):
    """What models may run without asking, through the tool `batch` and as release commands."""

    allow: list[Text] = Field(
        default=[],
        description='Commands such as "pytest *" or "git log *", and addresses such as'
        ' "fetch:https://docs.python.org/*". Reading and searching in the project always may.',
    )


class OtlpTable(Table):
    """Where spans of flows, agents, calls and attempts are sent; taken up at the next start."""

    endpoint: Annotated[str, AfterValidator(_url)] = Field(
        default=_NOT_SET,
        description="Address of an OpenTelemetry collector, such as http://127.0.0.1:4318.",
    )
    authorization: Annotated[str, AfterValidator(_reference)] = Field(
        default=_NOT_SET,
        description="Where the value of its authorization header is: env:NAME, file:PATH, …",
    )


class NotifyTable(Table):
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
        default=_NOT_SET,
        description="Address that messages are posted to as JSON, or a reference to it.",
    )
    secret: Annotated[str, AfterValidator(_reference)] = Field(
        default=_NOT_SET,
        description="Where the secret is that signs them: env:NAME, file:PATH, cmd:COMMAND.",
    )
    apprise: Annotated[str, AfterValidator(_reference)] = Field(
        default=_NOT_SET,
        description="Where addresses for Apprise are, one a line (extra: jackline[notify]).",
    )
    quiet: Annotated[str, AfterValidator(_hours)] = Field(
        default=_NOT_SET,
        description='Send nothing then, such as "22:00-07:00"; what still counts is told after.',
    )
    budget_share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = Field(
        default=_NOTIFY.budget_share, description="A budget is nearly used from this share on."
    )


class Document(Table):
    """The whole of `jackline.toml`, or of `[tool.jackline]` in `pyproject.toml`."""

    state: Text = Field(
        default=_NOT_SET, description="Folder of the journal and of what a running gateway leaves."
    )
    stream: Literal["auto", "live", "block"] = Field(
        default=_DEFAULT.stream.value,
        description="How answers are passed on: as they come (live), in whole content blocks that"
        " can be repaired (block), or block for sub-agents and headless clients (auto).",
    )
    never_degrade: list[Text] = Field(
        default=list(_DEFAULT.never_degrade),
        description="Patterns of models, tags (tag:night), agents (agent:review-*) and classes"
        " (class:careful) that are never answered by another model than their own.",
    )
    listen: ListenTable = Field(default_factory=ListenTable)
    upstream: Annotated[list[UpstreamTable], BeforeValidator(_listed)] = Field(default_factory=list)
    hold: HoldTable = Field(default_factory=HoldTable)
    caps: CapsTable = Field(default_factory=CapsTable)
    limits: TakenTable = Field(default_factory=TakenTable)
    journal: JournalTable = Field(default_factory=JournalTable)
    log: LogTable = Field(default_factory=LogTable)
    run: RunTable = Field(default_factory=RunTable)
    reserve: ReserveTable = Field(default_factory=ReserveTable)
    resume: ResumeTable = Field(default_factory=ResumeTable)
    budget: BudgetTable = Field(default_factory=BudgetTable)
    prices: dict[str, PriceTable] = Field(
        default_factory=dict,
        description="Prices by a pattern of models, the first that fits; listed ones need none.",
    )
    notify: NotifyTable = Field(default_factory=NotifyTable)
    otlp: OtlpTable = Field(default_factory=OtlpTable)
    agents: AgentsTable = Field(default_factory=AgentsTable)
    batch: BatchTable = Field(default_factory=BatchTable)


def written(table: Table, under: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Every key that was really written, with its value as the settings take it."""
    for name in table.model_fields_set:
        yield from _leaves((*under, name), getattr(table, name))


def defaults() -> dict[tuple[str, ...], Any]:
    """Every key outside tables of free names, with its default; upstreams' without a place."""
    return dict(_defaults(Document, ()))


def field_of(key: Key) -> FieldInfo | None:
    """What the document says of this key; None when it stands in a table of free names."""
    table: type[Table] = Document
    *tables, name = plain(key)
    for part in tables:
        found = table_class(table, part)
        if found is None:
            return None
        table = found
    return table.model_fields.get(name)


def table_class(table: type[Table], name: str) -> type[Table] | None:
    """The class of the table that stands under this name, if it is a table."""
    if table is Document and name == "upstream":
        return UpstreamTable
    info = table.model_fields.get(name)
    kind = None if info is None else info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Table) else None


def _defaults(table: type[Table], under: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, info in table.model_fields.items():
        inner = table_class(table, name)
        if inner is not None:
            yield from _defaults(inner, (*under, name))
        elif info.default_factory is None:
            yield (*under, name), info.default


def _leaves(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, Table):
        yield from written(value, key)
    elif key == ("upstream",):
        for place, table in enumerate(value):
            yield from written(table, (*key, place))
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _leaves((*key, name), one)
    else:
        yield key, value
