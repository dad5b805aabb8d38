"""Say what to do about a cause now, and name the command that resumes a stopped agent.

Rules: (1) pure; advice follows from the failure's fields, never from its text; (2) one command per
session, run and reset, and only what the clients offer: a workflow run resumes only inside its own
session; (3) a transcript is foreign text and the command is made to be copied: an id that no client
creates, or a folder with control characters, gives no command; (4) a Windows folder is quoted so
that cmd.exe, PowerShell and POSIX shells read the same; where that is impossible, the report says
what to do by hand.
Not here: why the agent stopped (causes.py), whose fault a failure is (failures/sentences.py).
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackline.autopsy.figures import clock, listed
from jackline.failures import Kind
from jackline.failures.sentences import explain
from jackline.transcripts.story import AgentStory, Role

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from jackline.autopsy.causes import Cause


def what_to_do(cause: Cause, *, now: datetime) -> tuple[str, ...]:
    """The steps for this cause."""
    what_it_is, what_helps = explain(cause.failure, now)[:2]
    if cause.resets_at is not None and cause.resets_at <= now:
        passed = f"The reset ({clock(cause.resets_at, beside=now)}) has passed: resume now."
        return (passed, what_it_is)
    if cause.resets_at is not None:
        wait = f"Wait until {clock(cause.resets_at, beside=now)}, then resume."
        return (wait, what_helps, what_it_is)
    if cause.failure.kind is Kind.ACCOUNT_QUOTA:
        return ("Wait for the limit to refill; no text said when.", what_helps, what_it_is)
    return (what_helps, what_it_is)


MANY = 6
_BY_HAND = (
    "go by hand to the folder that it worked in, whose name has signs that a shell would read, and"
    " start there"
)
# As clients name sessions and runs; none begins with a dash, which would be an option.
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")
_ON_A_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
# What double quotes keep together in all of those shells: no `%` and `!` of cmd.exe, no `$`, no
# back quotes, and none of the letters that PowerShell takes for quotes.
_QUOTABLE = re.compile(r"[\w .,:;+=@~#()\[\]{}'&^\\/-]*")
_ON_WINDOWS = os.name == "nt"


@dataclass(frozen=True, slots=True)
class ResumeOption:
    """One way back: a shell command, what to say then, whom it brings back, and from when.

    Without a command `then` says what to do instead.
    """

    command: str | None
    then: str | None
    agents: tuple[str, ...]
    not_before: datetime | None


@dataclass(frozen=True, slots=True)
class _Door:
    command: str | None
    instead: str | None
    run_id: str | None
    role: Role
    not_before: datetime | None


def resume_options(
    stopped: Iterable[tuple[AgentStory, datetime | None]],
    *,
    now: datetime,
    windows: bool = _ON_WINDOWS,
) -> tuple[ResumeOption, ...]:
    """The ways to resume these agents, each given with its wall's reset; soonest first.

    `windows` tells whether they are read where commands are pasted into a shell of Windows.
    """
    doors: dict[_Door, list[AgentStory]] = {}
    for story, resets_at in stopped:
        client = _client_command(story)
        if client is None:
            continue
        command = _in_its_folder(client, story, windows=windows)
        if command is None and not _has_folder(story):
            continue
        instead = None if command else f"{_BY_HAND}: {client}"
        not_before = resets_at if resets_at is not None and resets_at > now else None
        run_id = story.run_id if story.run_id and _ID.fullmatch(story.run_id) else None
        door = _Door(command, instead, run_id, story.role, not_before)
        doors.setdefault(door, []).append(story)
    ways = [
        ResumeOption(
            door.command, _then(door, agents), tuple(a.agent_id for a in agents), door.not_before
        )
        for door, agents in doors.items()
    ]
    return tuple(sorted(ways, key=lambda way: way.not_before or now))


def _client_command(story: AgentStory) -> str | None:
    """What resumes the session in its own folder; None for a session that no client has named."""
    session = story.session_id
    if not _ID.fullmatch(session):
        return None
    is_codex = story.client.startswith("codex")
    return f"codex resume {session}" if is_codex else f"claude --resume {session}"


def _in_its_folder(client: str, story: AgentStory, *, windows: bool) -> str | None:
    """The same from anywhere; None when the folder cannot be named safely.

    Claude Code looks sessions up by the folder that it is started in.
    """
    folder = story.cwd
    if not folder or story.client.startswith("codex"):
        return client
    if not _has_folder(story):
        return None
    if folder.startswith("/") and not windows:
        return f"cd -- {shlex.quote(folder)} && {client}"
    quoted = _quoted_for_windows(folder)
    # Unlike `cd` it changes the drive in cmd.exe, and all of these shells have it.
    return None if quoted is None else f"pushd {quoted} && {client}"


def _has_folder(story: AgentStory) -> bool:
    """Whether the transcript names a folder as a system would; `..` and `-P` are none."""
    folder = story.cwd or ""
    if not folder.isprintable():
        return False
    return folder.startswith(("/", "\\\\")) or _ON_A_DRIVE.match(folder) is not None


def _quoted_for_windows(folder: str) -> str | None:
    if folder.startswith("\\") or not _QUOTABLE.fullmatch(folder):
        return None  # a share has no drive, and its backslashes are read differently
    if folder.endswith("\\"):
        # Behind it a quote would be a letter in a POSIX shell.
        folder = folder[:-1]
        folder += "/" if folder.endswith(":") else ""
    return None if "\\\\" in folder or folder.endswith("\\") else f'"{folder}"'


def _then(door: _Door, agents: list[AgentStory]) -> str | None:
    asked = _asked(door, agents)
    if door.instead is None:
        return asked
    return f"{door.instead}; {asked}" if asked else door.instead


def _asked(door: _Door, agents: list[AgentStory]) -> str | None:
    """What the resumed session is to be asked."""
    if door.role is Role.WORKFLOW and door.run_id:
        return (
            f"ask it to run the workflow again with resumeFromRunId: '{door.run_id}' "
            "(only inside this session; finished agents answer from the journal)"
        )
    if door.role is Role.SUBAGENT:
        to = listed([agent.agent_id for agent in agents], most=MANY)
        return f"ask it to use SendMessage to {to}: an agent goes on from its own transcript"
    return None
