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
from jackline.batches.links import way_out
from jackline.batches.policy import Allowed, Denied, Judgement, Policy
from jackline.batches.results import BatchCall
from jackline.foreign_repositories import ForeignRepositoryError, GitRun, Guard, guard_for


async def permit(policy: Policy, call: BatchCall) -> Judgement:
    """Whether the call may run now, and under which guard."""
    said = policy.judge(call)
    if isinstance(said, Denied) or call.tool.name != "shell":
        return said
    out = await asyncio.to_thread(way_out, policy.folder, call.arguments)
    if out is not None:
        return Denied(
            f"{out!r} leads out of the project folder by a link",
            "give paths inside the project folder",
        )
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


async def _guard(gits: Sequence[GitCall], place: Path, folder: Path) -> Guard:
    """One guard for all of them, since they are started by one shell."""
    guards = [
        await guard_for(
            GitRun(place.joinpath(*git.folders), git.leading, git.looking, git.names_hooks), folder
        )
        for git in gits
    ]
    changing = {guard for guard in guards if not guard.looking}
    if len(changing) > 1:
        return Guard(looking=False, hooks=os.devnull)
    return next(iter(changing), Guard())
