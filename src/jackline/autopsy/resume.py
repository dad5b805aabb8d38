"""Name the command that carries a stopped agent on, and from when it makes sense.

Laws: (1) pure; (2) one way per session, run and reset; (3) nothing is promised that the clients do
not offer: a workflow run resumes only inside its own session; (4) a transcript is somebody else's
text, and the command is made to be copied: an id that no client gives, or a folder with signs that
steer a terminal, makes no command.
Not here: resuming (flows/ will), why the agent stopped (causes.py).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackline.autopsy.figures import listed
from jackline.autopsy.story import AgentStory, Role

MANY = 6
# As clients name sessions and runs; none begins with a dash, which would be an option.
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")
_ON_A_DRIVE = re.compile(r"[A-Za-z]:[\\/]")

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
        command = _command(story)
        if command is None:
            continue
        not_before = resets_at if resets_at is not None and resets_at > now else None
        run_id = story.run_id if story.run_id and _ID.fullmatch(story.run_id) else None
        door = _Door(command, run_id, story.role, not_before)
        doors.setdefault(door, []).append(story)
    ways = [
        Way(door.command, _then(door, agents), tuple(a.agent_id for a in agents), door.not_before)
        for door, agents in doors.items()
    ]
    return tuple(sorted(ways, key=lambda way: way.not_before or now))


def _command(story: AgentStory) -> str | None:
    session, folder = story.session_id, story.cwd
    if not _ID.fullmatch(session):
        return None
    if story.client.startswith("codex"):
        return f"codex resume {session}"
    if not folder:
        return f"claude --resume {session}"
    # Claude Code looks sessions up by the folder that it is started in.
    if not folder.isprintable():
        return None
    if folder.startswith("/"):
        return f"cd -- {shlex.quote(folder)} && claude --resume {session}"
    # A shell of Windows knows no `--`, and no path on a drive begins with a dash.
    on_a_drive = _ON_A_DRIVE.match(folder)
    return f"cd {shlex.quote(folder)} && claude --resume {session}" if on_a_drive else None


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
