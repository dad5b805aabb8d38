"""Say what to do about a cause now, and name the command that resumes a stopped agent.

Rules: (1) pure; advice follows from the failure's fields, never from its text; (2) one command per
session, run and reset, and only what the clients offer: a workflow run resumes only inside its own
session; (3) a transcript is foreign text and the command is made to be copied: an id that no client
creates, or a folder with control characters, gives no command; (4) a Windows folder is quoted so
that cmd.exe, PowerShell and POSIX shells read the same; where that is impossible, the report says
what to do by hand.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackline.autopsy.figures import clock, counted, listed
from jackline.failures import Kind
from jackline.failures.sentences import explain
from jackline.transcripts.story import AgentStory, Role

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from jackline.autopsy.causes import Cause

_BY_HAND = (
    "go by hand to the folder that it worked in, whose name has characters that a shell would"
    " interpret, and start there"
)
# As clients name sessions and runs; none begins with a dash, which would be an option.
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")
_ON_A_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
# Double quotes protect these characters in all of those shells: no `%` and `!` of cmd.exe, no `$`,
# no back quotes, and none of the characters that PowerShell reads as quotes.
_QUOTABLE = re.compile(r"[\w .,:;+=@~#()\[\]{}'&^\\/-]*")
_ON_WINDOWS = os.name == "nt"


def advice(cause: Cause, *, now: datetime) -> tuple[str, ...]:
    """The steps for this cause."""
    what_it_is, what_helps = explain(cause.failure, now)[:2]
    if cause.resets_at is not None and cause.resets_at <= now:
        passed = f"The reset ({clock(cause.resets_at, beside=now)}) has passed: resume now."
        return (passed, what_it_is)
    if cause.resets_at is not None:
        wait = f"Wait until {clock(cause.resets_at, beside=now)}, then resume."
        return (wait, what_helps, what_it_is)
    if cause.failure.kind is Kind.ACCOUNT_QUOTA:
        return ("Wait for the limit to refill; no text gave a time.", what_helps, what_it_is)
    return (what_helps, what_it_is)


@dataclass(frozen=True, slots=True)
class ResumeOption:
    """One way to resume: a shell command, what to do then, which agents resume, and from when.

    Without a command `then` says what to do instead.
    """

    command: str | None
    then: str | None
    agents: tuple[str, ...]
    not_before: datetime | None

    def heading(self, now: datetime) -> str:
        """`3 agents, from 22:10 UTC:`."""
        when = "now"
        if self.not_before is not None:
            when = f"from {clock(self.not_before, beside=now)}"
        return f"{counted(len(self.agents), 'agent')}, {when}:"

    @property
    def then_text(self) -> str:
        """The step after the command, or in its place."""
        return f"then {self.then}" if self.command else self.then or ""


def resume_options(
    stopped: Iterable[tuple[AgentStory, datetime | None]],
    *,
    now: datetime,
    windows: bool = _ON_WINDOWS,
) -> tuple[ResumeOption, ...]:
    """The ways to resume these agents, each passed with its cause's reset; soonest first.

    `windows` says whether the commands are pasted into a shell of Windows.
    """
    groups: dict[tuple[str | None, str, str | None, Role, datetime | None], list[str]] = {}
    for story, resets_at in stopped:
        if not _ID.fullmatch(story.session_id):
            continue
        is_codex = story.client.startswith("codex")
        client = f"{'codex resume' if is_codex else 'claude --resume'} {story.session_id}"
        command: str | None = client
        # Claude Code looks sessions up by the folder that it is started in.
        if story.cwd and not is_codex:
            is_absolute = story.cwd.startswith(("/", "\\\\")) or _ON_A_DRIVE.match(story.cwd)
            if not is_absolute or not story.cwd.isprintable():
                continue  # no system names a folder so
            enter = _enter_command(story.cwd, windows=windows)
            command = None if enter is None else f"{enter} && {client}"
        not_before = resets_at if resets_at is not None and resets_at > now else None
        run_id = story.run_id if story.run_id and _ID.fullmatch(story.run_id) else None
        key = (command, client, run_id, story.role, not_before)
        groups.setdefault(key, []).append(story.agent_id)
    options = []
    for (command, client, run_id, role, not_before), agents in groups.items():
        steps = [] if command else [f"{_BY_HAND}: {client}"]
        if role is Role.WORKFLOW and run_id:
            steps.append(
                f"ask it to run the workflow again with resumeFromRunId: '{run_id}' "
                "(only inside this session; finished agents answer from the journal)"
            )
        elif role is Role.SUBAGENT:
            steps.append(
                f"ask it to use SendMessage to {listed(agents, most=6)}:"
                " an agent goes on from its own transcript"
            )
        options.append(ResumeOption(command, "; ".join(steps) or None, tuple(agents), not_before))
    return tuple(sorted(options, key=lambda option: option.not_before or now))


def _enter_command(folder: str, *, windows: bool) -> str | None:
    """The command that enters the folder; None when no quoting is safe in every shell."""
    if folder.startswith("/") and not windows:
        return f"cd -- {shlex.quote(folder)}"
    if folder.startswith("\\") or not _QUOTABLE.fullmatch(folder):
        return None  # a share has no drive, and shells read its backslashes differently
    if folder.endswith("\\"):
        # In a POSIX shell it would escape the quote after it.
        folder = folder[:-1]
        folder += "/" if folder.endswith(":") else ""
    if "\\\\" in folder or folder.endswith("\\"):
        return None
    # Unlike `cd` it changes the drive in cmd.exe, and all of these shells have it.
    return f'pushd "{folder}"'
