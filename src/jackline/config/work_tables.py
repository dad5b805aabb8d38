"""The tables of work: flows and their brakes, budgets and prices, agents, batches, messages.

Laws: (1) every key has a description, from which the JSON Schema is made; (2) defaults are those of
the settings' own classes, written nowhere twice.
Not here: the gateway's tables (gateway_tables.py), the whole document (document.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from jackline.config.references import INSTEAD, is_reference
from jackline.config.table import (
    NOT_SET,
    Count,
    Dollars,
    Duration,
    InProject,
    Model,
    Table,
    Text,
    between,
    plain_url,
    reference,
)
from jackline.errors import UsageError
from jackline.flows.settings import Reserve, RunSettings
from jackline.flows.waking import read_hours
from jackline.mcp_server.settings import AgentSettings
from jackline.notifications.settings import NotifySettings

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
        read_hours(text)
    except UsageError as error:
        raise ValueError(f"{error.message} {error.next}") from error
    return text


class RunTable(Table):
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


class ReserveTable(Table):
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


class ResumeTable(Table):
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


class RollingTable(Table):
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


class BudgetTable(Table):
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


class PriceTable(Table):
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


class AgentsTable(Table):
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


class BatchTable(Table):
    """What models may run without asking, through the tool `batch` and as release commands."""

    allow: list[Text] = Field(
        default=[],
        description='Commands such as "pytest *" or "git log *", run without a shell (the star'
        " stands for operands inside the project and options known to be harmless; others are"
        " written out, and what git is to change is allowed as a whole command, such as"
        ' "git add -A"), and addresses such as "fetch:https://docs.python.org/*". Reading and'
        " searching in the project always may.",
    )


class OtlpTable(Table):
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
