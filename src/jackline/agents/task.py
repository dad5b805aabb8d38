"""Say what one agent is to do: everything that a runner needs, and nothing of where it came from.

Laws: (1) immutable; (2) ids are given from outside and stay the same after a crash, so that a
runner finds its own notebook again; (3) the schema is JSON Schema, whatever the user wrote.
Not here: how it ended (outcome.py), what it may spend (ports.py: Leave).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from jackline.agents.prices import Price
from jackline.batches.tool import Tool

JsonObject: TypeAlias = dict[str, object]
Check: TypeAlias = Callable[[object], Sequence[tuple[str, str]]]
"""Gives the faults of an answer that fits the schema: where each is, and what is wrong there."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One agent's work."""

    task_id: str
    session_id: str
    prompt: str
    label: str = ""
    schema: JsonObject | None = None
    check: Check | None = field(default=None, compare=False, repr=False)
    """Rules of the user's own type that no JSON Schema can say."""
    model: str | None = None
    """None: the runner's default."""
    system: str | None = None
    tools: tuple[Tool, ...] = ()
    tool_names: tuple[str, ...] | None = None
    """For runners that bring their own tools: which are allowed; None allows the usual ones."""
    mcp_servers: Mapping[str, JsonObject] = field(default_factory=dict)
    """By name, as in `.mcp.json`: {"command": …, "args": […]} or {"type": "http", "url": …}."""
    cwd: Path = field(default_factory=Path.cwd)
    max_tokens: int | None = None
    """Of one answer, for our own loop; None: the runner's default."""
    max_turns: int | None = None
    max_dollars: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict, compare=False, repr=False)
    """The user's own, for runners that are not told what a call cost."""
    resume_session: str | None = None
    """Go on with this session of an earlier agent instead of beginning one."""
    what_happened: str = ""
    """What cut the last attempt off, for a runner to tell where the agent must know it."""
    class_: str | None = None
    """The class of traffic, for ladders and `never-degrade`."""
