"""Say what an agent was asked to be: checked where it is written, with its tools and its key.

Rules: (1) the key is made of what changes the answer: prompt, schema, model, tools, system, runner,
folder and the session that is continued; not of budgets, time limits, retries, hooks, class or
phase; (2) what cannot be meant is a UsageError where `agent(...)` is written; (3) our own loop gets
tools that are ready to run; runners that bring their own tools get the names as they are; (4) a
tool that is requested by name writes no file by which a program would be started: git folders, the
settings of agents' programs and of Jackline, judged with all links followed; names also come from
models (`agents.tools`).
Not here: running the agent (execution/agent_execution.py), the tools (batches/).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import Any, TypeAlias, TypedDict

from jackline.agents.outcome import Outcome
from jackline.batches.tool import JsonObject, Tool
from jackline.budgets.budget import Budget, Duration, seconds_of
from jackline.errors import BadArgumentError
from jackline.flows.actions import render_action
from jackline.flows.records import CallKind, call_key
from jackline.flows.values import Shape

ToolGiven: TypeAlias = str | Tool | Callable[..., object] | Mapping[str, Mapping[str, object]]
"""A tool's name, a tool, a typed Python function, or MCP servers by name."""
HookGiven: TypeAlias = str | Callable[..., object]
"""A shell command, or a function at the top level of the flow's file."""
Resumed: TypeAlias = Outcome[Any] | str
"""An earlier agent: its outcome or its task id."""


class AgentOptions(TypedDict, total=False):
    """What `agent(…)` takes by name beside its schema, which alone decides what it gives."""

    model: str | None
    tools: Iterable[ToolGiven] | None
    system: str | None
    runner: str | None
    label: str
    cwd: str | os.PathLike[str] | None
    budget: Budget | None
    max_tokens: int | None
    timeout: Duration | None
    deadline: datetime | Duration | None
    retries: int
    resume: str | None
    continue_from: Resumed | None
    on_end: HookGiven | Iterable[HookGiven] | None
    class_: str | None


OWN_LOOP = "messages"
"""The runner that is ours: it brings no tools, keeps sessions only in notebooks, and is light."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of an agent, sorted by how a runner gets them."""

    tools: tuple[Tool, ...] = ()
    names: tuple[str, ...] | None = None
    servers: Mapping[str, JsonObject] = field(default_factory=dict)

    def in_key(self) -> object:
        """What a key knows of them."""
        told = [[tool.name, tool.input_schema] for tool in self.tools]
        return [told, self.names, self.servers] if told or self.names or self.servers else None


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent as it was written."""

    prompt: str
    shape: Shape
    label: str = ""
    model: str | None = None
    toolbox: Toolbox = field(default_factory=Toolbox)
    system: str | None = None
    runner: str | None = None
    cwd: str | None = None
    budget: Budget | None = None
    max_tokens: int | None = None
    """Of each answer."""
    timeout: float | None = None
    """Seconds of its own work."""
    deadline: datetime | float | None = None
    """A moment, or seconds from the start of the agent, both by the wall clock."""
    retries: int = 1
    resume: str | None = None
    continue_from: str | None = None
    """The task id of the earlier agent."""
    on_end: tuple[str, ...] = ()
    class_: str | None = None

    def key(self) -> str:
        """What this agent is known by."""
        arguments = {
            "prompt": self.prompt,
            "schema": self.shape.json_schema,
            "model": self.model,
            "tools": self.toolbox.in_key(),
            "system": self.system,
            "runner": self.runner,
            "cwd": self.cwd,
            "resume": self.resume,
            "continue_from": self.continue_from,
            "max_tokens": self.max_tokens,
        }
        # Left out where nothing was said, so that a later argument changes no old key.
        said = {name: value for name, value in arguments.items() if value is not None}
        return call_key(CallKind.AGENT, self.label, said)


def toolbox(given: Iterable[ToolGiven] | ToolGiven | None) -> Toolbox:
    """The tools as given to `agent(tools=…)`; one alone needs no list."""
    if given is None:
        return Toolbox()
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        given = [given]
    tools: list[Tool] = []
    names: list[str] = []
    servers: dict[str, JsonObject] = {}
    for one in given:
        if isinstance(one, str):
            names.append(one)
        elif isinstance(one, Mapping):
            servers |= {str(name): dict(server) for name, server in one.items()}
        else:
            tools.append(_tool(one))
    return Toolbox(tuple(tools), tuple(names), servers)


def hooks(given: HookGiven | Iterable[HookGiven] | None, flow_module: str) -> tuple[str, ...]:
    """The hooks as given to `agent(on_end=…)`, in words that the next process understands."""
    if given is None:
        return ()
    if isinstance(given, str) or callable(given) or not isinstance(given, Iterable):
        given = [given]
    return tuple(render_action(one, flow_module) for one in given)


def text(name: str, given: object) -> str:
    """The text that an argument must be."""
    if not isinstance(given, str):
        raise BadArgumentError(
            f"agent({name}=…) must be text, not {type(given).__name__}.",
            hint="Await the call that gives it first, or write it with str(…).",
        )
    return given


def text_or_none(name: str, given: object) -> str | None:
    """The text that an argument must be, if it is given."""
    return None if given is None else text(name, given)


def folder(given: str | os.PathLike[str] | None) -> str | None:
    """The folder as it was written."""
    if isinstance(given, os.PathLike):
        given = given.__fspath__()
    return text_or_none("cwd", given)


def limits(given: Budget | None) -> Budget | None:
    """The budget as given to `agent(budget=…)`."""
    if given is not None and not isinstance(given, Budget):
        raise BadArgumentError(
            f"agent(budget=…) must be a Budget, not {type(given).__name__}.",
            hint="Write it so: budget=Budget(turns=20, dollars=0.5).",
        )
    return given


def duration(given: Duration | None) -> float | None:
    """The seconds as given to `agent(timeout=…)`."""
    return None if given is None else seconds_of(given)


def moment(given: datetime | Duration | None) -> datetime | float | None:
    """What was given to `agent(deadline=…)`: a moment, or seconds."""
    return given if isinstance(given, datetime) else duration(given)


def answer_limit(given: object, runner: str) -> int | None:
    """How long one answer may be, as given to `agent(max_tokens=…)`."""
    if given is None:
        return None
    if not isinstance(given, int) or given < 1:
        raise BadArgumentError(
            f"agent(max_tokens=…) cannot be {given!r}.", hint="Give a number, 1 or more."
        )
    if runner != OWN_LOOP:
        raise BadArgumentError(
            f"agent(max_tokens=…) cannot be set for the runner {runner}, which decides it itself.",
            hint=f'Leave it out, or use runner="{OWN_LOOP}".',
        )
    return given


def retry_count(given: object) -> int:
    """How often to try again, as given to `agent(retries=…)`."""
    if not isinstance(given, int) or given < 0:
        raise BadArgumentError(
            f"agent(retries=…) cannot be {given!r}.", hint="Give a number, 0 or more."
        )
    return given


def continued_task_id(given: Resumed | None) -> str | None:
    """The task id of the agent to go on from."""
    if isinstance(given, Outcome):
        if not given.task_id:
            raise BadArgumentError(
                "continue_from= needs the outcome of an agent, and this is none.",
                hint="Give what `await agent(…).outcome()` gave.",
            )
        return given.task_id
    return text_or_none("continue_from", given)


def _tool(given: object) -> Tool:
    if all(hasattr(given, name) for name in ("name", "input_schema", "read_only", "run")):
        return given  # type: ignore[return-value]
    if not callable(given):
        raise BadArgumentError(
            f"agent(tools=…) cannot use a {type(given).__name__}.",
            hint="Give a name, a tool, a Python function with types, or a dict of MCP servers.",
        )
    from jackline.batches.function_tool import function_tool  # noqa: PLC0415 -- loads pydantic

    return function_tool(given)


_READY: Mapping[str, tuple[str, str]] = {
    "shell": ("jackline.batches.shell", "ShellTool"),
    "read": ("jackline.batches.files", "ReadTool"),
    "write": ("jackline.batches.files", "WriteTool"),
    "edit": ("jackline.batches.files", "EditTool"),
    "search": ("jackline.batches.files", "SearchTool"),
    "fetch": ("jackline.batches.fetch", "FetchTool"),
}
_WRITING = frozenset(("write", "edit"))


def tools_for(box: Toolbox, runner: str) -> tuple[tuple[Tool, ...], tuple[str, ...] | None]:
    """The tools to hand over and the names to allow; BadArgumentError for an unknown name."""
    if runner != OWN_LOOP:
        return box.tools, box.names
    return (*box.tools, *(_ready(name) for name in box.names or ())), None


def _ready(name: str) -> Tool:
    place = _READY.get(name)
    if place is None:
        known = ", ".join(_READY)
        raise BadArgumentError(f"There is no tool {name!r}.", hint=f"Choose from these: {known}.")
    made: Callable[[], Tool] = getattr(import_module(place[0]), place[1])
    if name not in _WRITING:
        return made()
    from jackline.flows.protected_files import ProtectedFilesTool  # noqa: PLC0415 -- loads pydantic

    return ProtectedFilesTool(made())
