"""What an agent is: its arguments, checked where they are written, its tools and its key.

Rules: (1) the key is made of what changes the answer: prompt, schema, model, tools, system, runner,
folder and the session that is continued; not of budgets, time limits, retries, hooks, class or
phase; (2) an argument that makes no sense is a UsageError where `agent(...)` is written; (3) our
own loop gets tools that are ready to run; runners that bring their own tools get the names as they
are; (4) a tool that is requested by name writes no file by which a program would be started: git
folders, the settings of agents' programs and of Jackline, judged with all links followed; names
also come from models (`agents.tools`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from typing import Any, TypeAlias, TypedDict, cast

from jackline.agents.outcome import Outcome
from jackline.batches.tool import JsonObject, Tool
from jackline.budgets.budget import Budget, Duration
from jackline.errors import BadArgumentError
from jackline.flows.cleanup.action_runner import render_action
from jackline.flows.records import CallKind, call_key
from jackline.flows.values import Shape

ToolLike: TypeAlias = str | Tool | Callable[..., object] | Mapping[str, Mapping[str, object]]
"""A tool's name, a tool, a typed Python function, or MCP servers by name."""
HookLike: TypeAlias = str | Callable[..., object]
"""A shell command, or a function at the top level of the flow's file."""
EarlierAgent: TypeAlias = Outcome[Any] | str
"""An earlier agent: its outcome or its task id."""


class AgentOptions(TypedDict, total=False):
    """What `agent(…)` takes by name beside its schema, which alone decides what it returns."""

    model: str | None
    tools: Iterable[ToolLike] | None
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
    continue_from: EarlierAgent | None
    on_end: HookLike | Iterable[HookLike] | None
    class_: str | None


OWN_LOOP = "messages"
"""The runner that is ours: it brings no tools, saves sessions only in logs, and is light."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of an agent, sorted by how a runner gets them."""

    tools: tuple[Tool, ...] = ()
    names: tuple[str, ...] | None = None
    servers: Mapping[str, JsonObject] = field(default_factory=dict)

    def in_key(self) -> object:
        """What a key knows of them."""
        tools = [[tool.name, tool.input_schema] for tool in self.tools]
        return [tools, self.names, self.servers] if tools or self.names or self.servers else None


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent as it was written; BadArgumentError for an argument that makes no sense."""

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
    accepts_edits: bool = True
    """Whether a client may edit files in its folder unasked, where no tools are named."""

    def __post_init__(self) -> None:
        for name in ("prompt", "label"):
            check_text(name, getattr(self, name))
        for name in ("model", "system", "runner", "cwd", "resume", "continue_from", "class_"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        budget: object = self.budget
        if budget is not None and not isinstance(budget, Budget):
            raise BadArgumentError(
                f"agent(budget=…) must be a Budget, not {type(budget).__name__}.",
                hint="Write it like this: budget=Budget(turns=20, dollars=0.5).",
            )
        if self.max_tokens is not None:
            check_count("agent", "max_tokens", self.max_tokens, least=1)
        check_count("agent", "retries", self.retries, least=0)

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
        # Without those that are None, so that a later argument changes no old key.
        passed = {name: value for name, value in arguments.items() if value is not None}
        return call_key(CallKind.AGENT, self.label, passed)


def toolbox(tools: Iterable[ToolLike] | ToolLike | None) -> Toolbox:
    """The tools of `agent(tools=…)`; one alone needs no list."""
    if tools is None:
        return Toolbox()
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        tools = [tools]
    ready: list[Tool] = []
    names: list[str] = []
    servers: dict[str, JsonObject] = {}
    for tool in tools:
        if isinstance(tool, str):
            names.append(tool)
        elif isinstance(tool, Mapping):
            servers |= {str(name): dict(server) for name, server in tool.items()}
        else:
            if all(hasattr(tool, name) for name in ("name", "input_schema", "read_only", "run")):
                ready.append(cast("Tool", tool))
                continue
            if not callable(tool):
                raise BadArgumentError(
                    f"agent(tools=…) cannot use a {type(tool).__name__}.",
                    hint="Give a name, a tool, a Python function with types, or a dict of MCP"
                    " servers.",
                )
            from jackline.batches.function_tool import function_tool  # noqa: PLC0415 -- loads pydantic

            ready.append(function_tool(tool))
    return Toolbox(tuple(ready), tuple(names), servers)


def hooks(on_end: HookLike | Iterable[HookLike] | None, flow_module: str) -> tuple[str, ...]:
    """The hooks of `agent(on_end=…)` as texts that the next process understands."""
    if on_end is None:
        return ()
    if isinstance(on_end, str) or callable(on_end) or not isinstance(on_end, Iterable):
        on_end = [on_end]
    return tuple(render_action(hook, flow_module) for hook in on_end)


def check_text(name: str, value: object) -> None:
    """Refuse an argument that is no text."""
    if not isinstance(value, str):
        raise BadArgumentError(
            f"agent({name}=…) must be text, not {type(value).__name__}.",
            hint="Await the call that gives it first, or write it with str(…).",
        )


def check_count(function: str, name: str, value: object, *, least: int) -> None:
    """Refuse an argument that is no whole number from `least` on."""
    if not isinstance(value, int) or value < least:
        raise BadArgumentError(
            f"{function}({name}={value!r}) makes no sense.", hint=f"Give a number, {least} or more."
        )


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
    tools = list(box.tools)
    for name in box.names or ():
        if name not in _READY:
            known = ", ".join(_READY)
            raise BadArgumentError(
                f"There is no tool {name!r}.", hint=f"Choose from these: {known}."
            )
        module, class_name = _READY[name]
        tool: Tool = getattr(import_module(module), class_name)()
        if name in _WRITING:
            from jackline.batches.files import ProtectedFilesTool  # noqa: PLC0415 -- pydantic

            tool = ProtectedFilesTool(tool)
        tools.append(tool)
    return tuple(tools), None
