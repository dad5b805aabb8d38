"""Decide whether a call may run for somebody who was not asked, with a look at the disk.

Rules: (1) the policy is asked first, which touches nothing; (2) a command is permitted as the very
words that will run, with its program as an absolute file; (3) what may do more than
look runs in the project's own folder alone: in another, `./check` and `make` are other programs;
(4) a link must not lead a command out of the folder, nor into a git folder; (5) git runs only where
foreign_repositories/ lets it, in the folder in which it will really run, and with the guard that it
gives: a repository's settings may have come with an archive, or from somebody who could write one
file; (6) looking only reads, in threads of its own, and ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from jackline.batches.git_commands import GitCall, UnjudgedGitError, git_call
from jackline.batches.git_places import is_in_dot_git, is_in_git
from jackline.batches.links import Habits, trouble_on_disk
from jackline.batches.policy import (
    Allowed,
    Denied,
    Judgement,
    Policy,
    into_git,
    names_git,
    outside,
)
from jackline.batches.results import BatchCall
from jackline.batches.usual_commands import (
    follows_folder,
    is_harmless,
    may_name_files,
    names_files,
    reads_links,
)
from jackline.foreign_repositories import ForeignRepositoryError, GitRun, Guard, guard_for
from jackline.outside_names import printable
from jackline.programs import find_program

_WRITING = frozenset({"write", "edit"})
_T = TypeVar("_T")
# Not the usual pool, which everybody waits for: whoever fills a disk with links fills this one.
_LOOKING = ThreadPoolExecutor(max_workers=4, thread_name_prefix="jackline-permission")


async def permit(policy: Policy, call: BatchCall) -> Judgement:
    """Whether the call may run now, as which words and under which guard."""
    said = policy.judge(call)
    if isinstance(said, Denied):
        return said
    if call.tool.name != "shell":
        return await _aside(lambda: _writing_into_git(policy, call)) or said
    given = call.arguments.get("cwd")
    place = policy.folder / (given if isinstance(given, str) else ".")
    judged = await _aside(lambda: _by_disk(policy, place.resolve(), said))
    if isinstance(judged, Denied):
        return judged
    try:
        git = git_call(said.argv)
        guard = None if git is None else await _guard(git, place, policy.folder)
        return replace(judged, guard=guard)
    except UnjudgedGitError as error:
        return Denied(
            f"`{error.by}` gives git words or a place that cannot be judged",
            "give git as a call of its own, with all its words",
        )
    except ForeignRepositoryError as error:
        return Denied(error.why, error.next)


async def _aside(work: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(_LOOKING, work)


def _by_disk(policy: Policy, place: Path, said: Allowed) -> Judgement:
    """The command as it will run, or why what is on the disk makes another command of it."""
    root = policy.folder.resolve()
    program, *words = said.argv
    if not place.is_relative_to(root):
        return outside(str(place))
    habits = _habits(said)
    if is_in_dot_git(place) or (not habits.looking and is_in_git(place, root)):
        return into_git(str(place))
    trusted = {each.resolve() for each in policy.trusted or (policy.folder,)}
    if follows_folder(said.argv) and place not in trusted:
        return _elsewhere(program, place)
    if denied := trouble_on_disk(policy.folder, place, words, habits):
        return denied
    named_by_path = os.path.dirname(program)  # noqa: PTH120 -- `./x` has one, which Path drops
    found = str(place / program) if named_by_path else find_program(program)
    if found is None:
        return Denied(
            f"there is no program {program!r} in the absolute folders of the PATH",
            "name another program, or one of the project as './NAME'",
        )
    return replace(said, argv=(found, *words))


def _habits(said: Allowed) -> Habits:
    program = said.argv[said.inner :]
    return Habits(
        looking=is_harmless(said.argv),
        walks=reads_links(program),
        may_name_files=may_name_files(program),
        names_files=names_files(program),
        written=said.written,
    )


def _elsewhere(program: str, place: Path) -> Denied:
    """A program that may do more than look means another one in each folder: `./check`, `make`."""
    return Denied(
        f"`{program}` may run in the project's own folder alone, since it may follow what lies in"
        " the folder in which it runs",
        "leave `cwd` out and name the folder in the words; or the user may trust that folder:"
        f' agents.folders = ["{printable(str(place))}"]',
    )


def _writing_into_git(policy: Policy, call: BatchCall) -> Denied | None:
    path = call.arguments.get("path")
    if call.tool.name not in _WRITING or not isinstance(path, str) or names_git(path):
        return None  # where the text itself names it, the policy has judged
    return into_git(path) if is_in_git(policy.folder / path, policy.folder.resolve()) else None


async def _guard(git: GitCall, place: Path, folder: Path) -> Guard:
    at = place.joinpath(*git.folders)
    return await guard_for(GitRun(at, git.leading, git.verb, git.looking, git.names_hooks), folder)
