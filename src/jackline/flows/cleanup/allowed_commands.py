"""Clean-up commands that a model has ordered and an allow-list permits.

    allowed_words("docker rm x", folder, ("docker rm *",))

Rules: (1) such a command is kept together with the folder that it was judged in and the patterns
that permit it, in the words of the action, which are signed with the rest of the record; (2) it
runs in that folder and nowhere else, whoever runs it; (3) it is judged again right before it runs,
since the agent has worked in the folder, and runs as the words that were judged, without a shell;
(4) it is given no secret of the process that runs it.
Commands of a user's own flow are run as they are (acting.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jackline.batches.permission import permit
from jackline.batches.policy import Allowed, Denied, Judgement, Policy
from jackline.batches.results import BatchCall
from jackline.batches.shell import ShellTool

_PREFIX = "allowed "


class AllowedCommand(NamedTuple):
    """A command, the folder that it was judged in, and the patterns that permit it."""

    command: str
    folder: str
    allow: tuple[str, ...]


def allowed_words(command: str, folder: str, allow: Sequence[str]) -> str:
    """Such a command as it is kept."""
    kept = {"command": command, "folder": folder, "allow": list(allow)}
    return f"{_PREFIX}{json.dumps(kept)}"


def allowed_command(action: str) -> AllowedCommand | None:
    """The command that such an action means; None when it means something else.

    Whatever is no command of this form is none of a model: a program named `allowed` can still be
    run by a flow.
    """
    if not action.startswith(f"{_PREFIX}{{"):
        return None
    try:
        kept = json.loads(action.removeprefix(_PREFIX))
        command, folder, allow = kept["command"], kept["folder"], kept["allow"]
    except (ValueError, KeyError):
        return None
    return AllowedCommand(str(command), str(folder), tuple(map(str, allow)))


def shown_action(action: str) -> str:
    """An action for people: of such a command, what it runs and where."""
    found = allowed_command(action)
    return action if found is None else f"{found.command}   (in {found.folder})"


async def denial(
    command: str, folder: Path, allow: Sequence[str], trusted: tuple[Path, ...] = ()
) -> Denied | None:
    """Why the command may not run in this folder now; None when it may.

    `trusted` are the folders that the user chose, where a model may have chosen `folder`.
    """
    said = await _judged(command, folder, allow, trusted)
    return said if isinstance(said, Denied) else None


async def permitted_words(allowed: AllowedCommand) -> tuple[str, ...] | str:
    """The words that may run now, without a shell; or why none may any more."""
    folder = Path(allowed.folder)
    if not await asyncio.to_thread(_is_itself, folder):
        return f"not run: the folder {folder} is gone, or a link by now; run it by hand"
    said = await _judged(allowed.command, folder, allowed.allow)
    if isinstance(said, Denied):
        return f"not run: {said.why}; look at the folder {folder}, then run it by hand"
    return said.argv


async def _judged(
    command: str, folder: Path, allow: Sequence[str], trusted: tuple[Path, ...] = ()
) -> Judgement:
    call = BatchCall("release", ShellTool(), {"command": command})
    said = await permit(Policy(folder, tuple(allow), trusted=trusted), call)
    if isinstance(said, Allowed) and said.guard is not None:
        # It runs later, without the guard, when the repository may say something else.
        return Denied("it starts git", "let the agent itself clean up what git made")
    return said


def _is_itself(folder: Path) -> bool:
    """Whether the folder is there, and no link on the way to it leads elsewhere."""
    try:
        return folder.is_dir() and folder.resolve(strict=True) == folder
    except (OSError, RuntimeError):
        return False
