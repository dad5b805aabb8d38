"""Decide whether a call may run for somebody who was not asked, with a look at the disk.

Rules: (1) the policy is asked first, which touches nothing; (2) a link must not lead a command out
of the folder, nor into `.git`; (3) git runs only where foreign_repositories/ lets it, in the folder
in which it will really run, and with the guard that it gives: a repository's settings may have come
with an archive, or from somebody who could write one file; (4) looking only reads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from jackline.batches.commands import stages_of
from jackline.batches.git_commands import GitCall, UnjudgedGitError, git_calls
from jackline.batches.links import hidden_option, is_in_git, way_into_git, way_out
from jackline.batches.policy import Allowed, Denied, Judgement, Policy, into_git, names_git
from jackline.batches.results import BatchCall
from jackline.foreign_repositories import ForeignRepositoryError, GitRun, Guard, guard_for

_WRITING = frozenset({"write", "edit"})


async def permit(policy: Policy, call: BatchCall) -> Judgement:
    """Whether the call may run now, and under which guard."""
    said = policy.judge(call)
    if isinstance(said, Denied):
        return said
    if call.tool.name != "shell":
        denied = await asyncio.to_thread(_writing_into_git, policy, call)
        return denied or said
    denied = await asyncio.to_thread(_by_disk, policy, call)
    if denied is not None:
        return denied
    try:
        gits = git_calls(stages_of(call.arguments, windows=policy.windows))
        if not gits:
            return said
        given = call.arguments.get("cwd")
        place = policy.folder / (given if isinstance(given, str) else ".")
        return Allowed(await _guard(gits, place, policy.folder))
    except UnjudgedGitError as error:
        return Denied(
            f"`{error.by}` gives git words or a place that cannot be judged",
            "give git as a call of its own, with all its words",
        )
    except ForeignRepositoryError as error:
        return Denied(error.why, error.next)


def _by_disk(policy: Policy, call: BatchCall) -> Denied | None:
    """Why what is on the disk makes another command of it than was allowed."""
    folder, arguments, windows = policy.folder, call.arguments, policy.windows
    if out := way_out(folder, arguments, windows=windows):
        return Denied(
            f"{out!r} leads out of the project folder by a link",
            "give paths inside the project folder",
        )
    if inward := way_into_git(folder, arguments, windows=windows):
        return into_git(inward)
    if option := hidden_option(folder, arguments, windows=windows):
        return Denied(
            f"{option!r} stands for a file name that would be read as an option",
            f"give './{option}' instead",
        )
    return None


def _writing_into_git(policy: Policy, call: BatchCall) -> Denied | None:
    path = call.arguments.get("path")
    if call.tool.name not in _WRITING or not isinstance(path, str) or names_git(path):
        return None  # where the text itself names it, the policy has judged
    return into_git(path) if is_in_git(policy.folder / path) else None


async def _guard(gits: Sequence[GitCall], place: Path, folder: Path) -> Guard:
    """One guard for all of them, since they are started by one shell."""
    guards = []
    for git in gits:
        at = place.joinpath(*git.folders)
        wanted = GitRun(at, git.leading, git.verb, git.looking, git.names_hooks)
        guards.append(await guard_for(wanted, folder))
    changing = {guard for guard in guards if not guard.looking}
    if len(changing) > 1:
        connecting = any(guard.connecting for guard in changing)
        return Guard(looking=False, connecting=connecting, hooks=os.devnull)
    return next(iter(changing), Guard())
