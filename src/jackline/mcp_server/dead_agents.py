"""Find a sub-agent or session of Claude Code that died, and say how another goes on from it.

Laws: (1) one that seems alive is left alone: two must not do one agent's work; (2) who goes on is
told what was finished and what it gave, and what may or may not have run; (3) only reads; (4) one
of a folder that the asker does not see is unknown, however it stands.
Not here: reading the transcript (agents/claude_code/), starting the next agent (agent_orders.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jackline.agents.claude_code.dead_agent import DeadAgent, read_dead_agent
from jackline.agents.claude_code.transcript import config_folder, transcript_of
from jackline.agents.process.going_on import going_on
from jackline.autopsy.story import AgentStory, Ending
from jackline.errors import UnreadableError, UsageError
from jackline.mcp_server.places import Sight

_ID = re.compile(r"[A-Za-z0-9_-]{4,80}")
_FRESH = 60.0
"""A transcript that was written to since, and does not end, may belong to somebody alive."""
_MOST_TOLD = 60_000
_LEAST_TOLD = 200


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of one, as far as going on needs it."""

    agent_id: str
    prompt: str
    """With which another goes on."""
    cwd: str | None
    model: str | None
    agent_type: str | None = None


def remains_of_agent(
    agent_id: str, environ: Mapping[str, str], now: float, sees: Sight
) -> Remains | None:
    """What is left of this sub-agent; None when there is no such transcript, or it is not seen."""
    path = _find(agent_id, config_folder(environ) / "projects")
    if path is None:
        return None
    dead = read_dead_agent(path)
    if not sees(dead.story.cwd):
        return None
    _check_dead(dead.story, path, now)
    if dead.story.ending is Ending.FINISHED:
        raise UsageError(
            f"The sub-agent {dead.agent_id} finished; nothing was cut off.",
            next="Use its result, or start a new agent.",
        )
    story = dead.story
    return Remains(
        dead.agent_id, _told(dead), story.cwd, _real_model(story.model), story.agent_type
    )


def remains_of_session(
    session_id: str, environ: Mapping[str, str], now: float, sees: Sight
) -> Remains | None:
    """Where a session of Claude Code can be gone on with; None when none of that id is seen."""
    path = transcript_of(session_id, environ)
    if path is None:
        return None
    story = read_dead_agent(path).story
    if not sees(story.cwd):
        return None
    _check_dead(story, path, now)
    prompt = "Go on with your task from where you were cut off, to its end."
    return Remains(session_id, prompt, story.cwd, _real_model(story.model))


def _find(agent_id: str, projects: Path) -> Path | None:
    if not _ID.fullmatch(agent_id):
        return None
    agent_id = agent_id.removeprefix("agent-")
    name = f"agent-{agent_id}.jsonl"
    found = [*projects.glob(f"*/*/subagents/**/{name}"), *projects.glob(f"*/{name}")]
    if len(found) > 1:
        raise UnreadableError(f"Several sub-agents have the id {agent_id}.")
    return found[0] if found else None


class MaybeAliveError(UsageError):
    """The transcript has not ended, and was written to a moment ago."""


def _check_dead(story: AgentStory, path: Path, now: float) -> None:
    if story.ending is Ending.CUT and now - path.stat().st_mtime < _FRESH:
        raise MaybeAliveError(
            f"{path.stem} was at work a moment ago, and may be alive.",
            next="Ask again a minute after its last sign of life.",
        )


def _real_model(model: str | None) -> str | None:
    return None if model is None or model.startswith("<") else model


def _told(dead: DeadAgent) -> str:
    calls = [(call, turn.results[call.id]) for turn in dead.turns for call in turn.calls]
    # Every call is told; how much of what each gave depends on how many there are.
    room = max(_LEAST_TOLD, _MOST_TOLD // max(1, len(calls)))
    finished = [(call, result[:room]) for call, result in calls]
    said = [turn.text for turn in dead.turns if turn.text]
    fatal = [seen.text for seen in dead.story.sightings if seen.fatal]
    cut = f": {fatal[-1]}" if fatal else "."
    happened = f"Another agent had this task before you and was cut off{cut}"
    if said:
        happened += "\n\nWhat it said on its way, the latest last:\n" + "\n".join(
            f"- {text[:room]}" for text in said
        )
    return going_on(happened, dead.lost, finished=finished, task=dead.prompt)
