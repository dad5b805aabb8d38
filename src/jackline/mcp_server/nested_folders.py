"""Refuse to start an agent's program in a folder that brings programs of its own.

Rules: (1) the user trusted the folder of their session, whose client reads nothing from the folders
inside; a program that is started in one of those would take its settings, hooks, servers and git
settings for the user's word; (2) every folder from below the trusted one down to where the agent
works is looked at; (3) what cannot be looked at is a refusal; (4) it is asked again whenever a
process takes the run up: the folder may have changed since; (5) the program asks git unguarded, so
a repository inside may hold no other one: git starts another git in each of its submodules, and
these follow the settings there.
Not here: in which folders one may work at all (places.py).
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from jackline.errors import RefusedError
from jackline.flows.closed_files import CLIENT_SETTINGS, is_git_layout
from jackline.foreign_repositories import ForeignRepositoryError, ask_git
from jackline.foreign_repositories.places import AstrayError, nested_repositories
from jackline.foreign_repositories.settings import kind_of
from jackline.outside_names import printable

# Git fetches by itself what such a repository lacks, from wherever it says.
_FETCHES = ("extensions.partialclone", "remote.*.promisor", "remote.*.partialclonefilter")
_OF_A_REPOSITORY = ("local", "worktree")


async def check_nested(folder: Path, trusted: Path) -> None:
    """RefusedError if an agent's program must not be started there; `folder` has no links left."""
    found = await asyncio.to_thread(_look, folder, trusted)
    why = found.why
    if why is None and found.repository:
        try:
            why = await _why_not_git(folder, trusted)
        except ForeignRepositoryError as error:
            why = error.why
    if why is not None:
        raise RefusedError(
            f"No agent is started in {printable(str(folder))}: {why}.",
            next="Start it in the project's own folder, and say in its prompt where to work. The"
            " user may trust that folder in their own jackline.toml:"
            f' agents.folders = ["{printable(str(folder))}"]',
        )


@dataclass(frozen=True, slots=True)
class _Found:
    why: str | None = None
    repository: bool = False
    """Whether there is a repository of its own, other than the trusted folder's."""


def _look(folder: Path, trusted: Path) -> _Found:
    repository = False
    try:
        if folder.resolve() != folder or not folder.is_relative_to(trusted):
            return _Found("it leads elsewhere by now")
        between = [each for each in (folder, *folder.parents) if each.is_relative_to(trusted)]
        for each in between[:-1]:
            # Some file systems ignore case.
            names = {name.lower() for name in os.listdir(each)}  # noqa: PTH208 -- names alone
            where = printable(str(each.relative_to(trusted)))
            if brought := next((name for name in CLIENT_SETTINGS if name in names), None):
                return _Found(f"{where} brings {brought}, which the program would follow")
            # What git takes for a repository without a work tree, which no `.git` gives away.
            if is_git_layout(names):
                return _Found(f"{where} is laid out as a git folder, whose settings git follows")
            repository = repository or ".git" in names
    except (OSError, RuntimeError, ValueError):
        return _Found("it cannot be looked at")
    return _Found(repository=repository)


async def _why_not_git(folder: Path, trusted: Path) -> str | None:
    """The clients ask git how the folder stands, and nothing keeps that git from starting things.

    ForeignRepositoryError tells of settings that no git of ours would follow either.
    """
    code, said = await ask_git(folder, "config", "--list", "--includes", "--show-scope", "-z")
    parts = os.fsdecode(said).split("\0")
    for scope, entry in zip(parts[::2], parts[1::2], strict=False):
        name, _, value = entry.partition("\n")
        if scope in _OF_A_REPOSITORY and kind_of(name, value) in ("guarded", "hooks"):
            return f"its repository sets {printable(name)}, which may start a program"
        if scope in _OF_A_REPOSITORY and any(fnmatchcase(name.lower(), each) for each in _FETCHES):
            return f"its repository sets {printable(name)}, by which git fetches unasked"
    failed, said = await ask_git(folder, "rev-parse", "--show-toplevel", "--git-common-dir")
    lines = os.fsdecode(said).split("\n")
    if code or failed or len(lines) != 3:
        return "git cannot tell how its repository is set up"
    return await asyncio.to_thread(_why_not_on_disk, Path(lines[0]), folder / lines[1], trusted)


def _why_not_on_disk(top: Path, common: Path, trusted: Path) -> str | None:
    if hook := _first_hook(common / "hooks"):
        return f"its repository has a hook, {printable(hook)}, which git would start"
    # Those that the trusted folder's own repository keeps are the user's own, as its settings are.
    own = common.resolve() == (trusted / ".git").resolve()
    if not own and os.path.lexists(common / "modules"):
        return "its repository keeps others, whose settings git would follow"
    try:
        inside = nested_repositories(top)
    except AstrayError as error:
        return str(error)
    if inside:
        where = printable(str(inside[0].relative_to(top)))
        return f"its repository holds another one, {where}, whose settings git would follow"
    return None


def _first_hook(folder: Path) -> str | None:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 -- names alone
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return "whose folder cannot be listed"
    return next((name for name in names if not name.endswith(".sample")), None)
