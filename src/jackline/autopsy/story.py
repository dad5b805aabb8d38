"""Hold what transcripts tell: one story per agent, in a shape that no vendor owns.

Laws: (1) a story holds ids, times, counts and error texts; prompts, answers and tool output only
in `label` and `last_words`, which faces hide unless asked; (2) keys and tokens that an error quotes
are blanked before anything else sees them; (3) times are aware; (4) token counts are lower bounds,
because transcripts are known to under-report input tokens.
Not here: reading files (claude_code.py, codex.py, stream_json.py), judging (causes.py, report.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from jackline.failures import Failure
from jackline.failures.wording import redact


class Role(StrEnum):
    """Which seat the agent had."""

    MAIN = "main"
    SUBAGENT = "subagent"
    WORKFLOW = "workflow"


class Ending(StrEnum):
    """How the transcript stops."""

    FINISHED = "finished"
    FAILED = "failed"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One failure as the transcript shows it, classified.

    `text` is the error's own words, at most 300 characters. `fatal` is False for a retry that the
    client reported and went on from.
    """

    at: datetime | None
    failure: Failure
    text: str
    status: int | None = None
    request_id: str | None = None
    fatal: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", redact(self.text))


@dataclass(frozen=True, slots=True)
class Told:
    """What someone was told about an agent: a parent by a tool result, a user by a last line.

    `claim` is the reporter's own verdict word ("completed", "success", "failed", "error").
    """

    at: datetime | None
    teller: str
    claim: str
    text: str
    is_error: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", redact(self.text))


@dataclass(slots=True)
class AgentStory:
    """Everything one transcript tells about one agent.

    `spent` maps whole epoch seconds to tokens, so that spending before and after any moment can be
    told apart without keeping every message.
    """

    agent_id: str
    session_id: str
    role: Role
    client: str
    path: Path
    parent_id: str | None = None
    run_id: str | None = None
    agent_type: str | None = None
    model: str | None = None
    client_version: str | None = None
    cwd: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    turns: int = 0
    tool_calls: int = 0
    spent: dict[int, int] = field(default_factory=dict)
    sightings: list[Sighting] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    ending: Ending = Ending.CUT
    result_at: str | None = None
    label: str | None = None
    last_words: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens that the transcript admits to; the truth is at least this."""
        return sum(self.spent.values())


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that could not be read, told at the end of every report."""

    path: Path
    what: str
    count: int = 1


@dataclass(slots=True)
class Evidence:
    """All that was read: the stories, the troubles, and how much was looked at."""

    stories: list[AgentStory] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    files_read: int = 0
    bytes_read: int = 0
