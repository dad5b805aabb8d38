"""Say what models may have done for them, and how long they are kept waiting.

Laws: (1) what is not allowed here, or by the client's own settings, does not run unasked; (2) a
call is answered before its client's patience ends.
Not here: files and flags (config/), judging single calls (batches/policy.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

# What Claude Code lets an agent do in its folder that accepts edits.
USUAL_TOOLS = (
    *("Read", "Grep", "Glob", "LS", "NotebookRead", "TodoWrite"),
    *("Edit", "MultiEdit", "Write", "NotebookEdit"),
    *("read", "search"),
)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """`[agents]`: agents that models start."""

    runner: str = "claude-code"
    model: str | None = None
    """For agents that name none, nor does their definition; None: the runner's own."""
    runners: tuple[str, ...] = ()
    """Which a model may choose beside `runner`."""
    tools: tuple[str, ...] = ()
    """Used without asking, beside reading and editing in the folder."""
    folders: tuple[Path, ...] = ()
    """Where agents and batches may work, beside the folder of their client."""
    wait: float = 50.0
    """Codex and most SDKs give a call 60 s."""
    depth: int = 3
    """How many agents deep: 1 means that agents which models start may start none themselves."""
    long_wait: float = 1500.0
    """Claude Code gives a call 28 h, and 30 min without a sign of life."""


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """`[batch]`: commands and addresses that models may use, as `batches.Policy` reads them."""

    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """All of it."""

    agents: AgentSettings = field(default_factory=AgentSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
