"""Name the command that carries a stopped agent on, and from when it makes sense.

Laws: (1) pure; (2) one way per session, run and reset; (3) nothing is promised that the clients do
not offer: a workflow run resumes only inside its own session.
Not here: resuming (flows/ will), why the agent stopped (causes.py).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackline.autopsy.figures import listed
from jackline.autopsy.story import AgentStory, Role

MANY = 6

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Way:
    """One way back: a shell command, what to say then, whom it brings back, and from when."""

    command: str
    then: str | None
    agents: tuple[str, ...]
    not_before: datetime | None


@dataclass(frozen=True, slots=True)
class _Door:
    command: str
    run_id: str | None
    role: Role
    not_before: datetime | None


def ways_back(
    stopped: Iterable[tuple[AgentStory, datetime | None]], *, now: datetime
) -> tuple[Way, ...]:
    """The ways to resume these agents, each given with its wall's reset; soonest first."""
    doors: dict[_Door, list[AgentStory]] = {}
    for story, resets_at in stopped:
        not_before = resets_at if resets_at is not None and resets_at > now else None
        door = _Door(_command(story), story.run_id, story.role, not_before)
        doors.setdefault(door, []).append(story)
    ways = [
        Way(door.command, _then(door, agents), tuple(a.agent_id for a in agents), door.not_before)
        for door, agents in doors.items()
    ]
    return tuple(sorted(ways, key=lambda way: way.not_before or now))


def _command(story: AgentStory) -> str:
    session = shlex.quote(story.session_id)
    if story.client.startswith("codex"):
        return f"codex resume {session}"
    # Claude Code looks sessions up by the folder that it is started in.
    return (
        f"cd {shlex.quote(story.cwd)} && claude --resume {session}"
        if story.cwd
        else (f"claude --resume {session}")
    )


def _then(door: _Door, agents: list[AgentStory]) -> str | None:
    if door.role is Role.WORKFLOW and door.run_id:
        return (
            f"ask it to run the workflow again with resumeFromRunId: '{door.run_id}' "
            "(only inside this session; finished agents answer from the journal)"
        )
    if door.role is Role.SUBAGENT:
        to = listed([agent.agent_id for agent in agents], most=MANY)
        return f"ask it to use SendMessage to {to}: an agent goes on from its own transcript"
    return None
