"""Refuse to start an agent's program in a folder that brings programs of its own.

Rules: (1) the user trusted the folder of their session, whose client reads nothing from the folders
inside; a program that is started in one of those would take its settings, hooks, servers and git
settings for the user's word; (2) every folder from below the trusted one down to where the agent
works is looked at; (3) what cannot be looked at is a refusal; (4) it is asked again whenever a
process takes the run up: the folder may have changed since.
Not here: in which folders one may work at all (places.py).
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from jackline.errors import RefusedError
from jackline.foreign_repositories import ForeignRepositoryError, ask_git
from jackline.foreign_repositories.settings import kind_of
from jackline.outside_names import printable

# Of Claude Code and of Codex: settings with hooks, servers, agents, commands, skills and plugins.
_BRINGS = (".claude", ".mcp.json", ".codex", ".agents")
_OF_A_REPOSITORY = ("local", "worktree")


async def check_nested(folder: Path, trusted: Path) -> None:
    """RefusedError if an agent's program must not be started there; `folder` has no links left."""
    found = await asyncio.to_thread(_look, folder, trusted)
    why = found.why
    if why is None and found.repository:
        try:
            why = await _why_not_git(folder)
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
            if brought := next((name for name in _BRINGS if name in names), None):
                return _Found(f"{where} brings {brought}, which the program would follow")
            # What git takes for a repository without a work tree, which no `.git` gives away.
            if "head" in names and not names.isdisjoint({"objects", "commondir"}):
                return _Found(f"{where} is laid out as a git folder, whose settings git follows")
            repository = repository or ".git" in names
    except (OSError, RuntimeError, ValueError):
        return _Found("it cannot be looked at")
    return _Found(repository=repository)


async def _why_not_git(folder: Path) -> str | None:
    """The clients ask git how the folder stands, and nothing keeps that git from starting things.

    ForeignRepositoryError tells of settings that no git of ours would follow either.
    """
    code, said = await ask_git(folder, "config", "--list", "--includes", "--show-scope", "-z")
    parts = os.fsdecode(said).split("\0")
    for scope, entry in zip(parts[::2], parts[1::2], strict=False):
        name, _, value = entry.partition("\n")
        if scope in _OF_A_REPOSITORY and kind_of(name, value) in ("guarded", "hooks"):
            return f"its repository sets {printable(name)}, which may start a program"
    common, at = await ask_git(folder, "rev-parse", "--git-common-dir")
    if code or common:
        return "git cannot tell how its repository is set up"
    hooks = folder / os.fsdecode(at).rstrip("\n") / "hooks"
    hook = await asyncio.to_thread(_first_hook, hooks)
    return f"its repository has a hook, {printable(hook)}, which git would start" if hook else None


def _first_hook(folder: Path) -> str | None:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 -- names alone
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return "whose folder cannot be listed"
    return next((name for name in names if not name.endswith(".sample")), None)
