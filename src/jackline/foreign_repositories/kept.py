"""Find the git folders of submodules and worktrees that are kept inside another, used now or not.

Rules: (1) only reads; (2) a folder is one of them if git would take it for one: it is asked for
names, as git does, since some file systems ignore case or signs; (3) each is as git makes it: no
link is a folder, no `commondir` but that of a worktree, which names the folder that it is kept in,
and a worktree's place knows of it or is gone; (4) none leads out of the folders that its repository
may use. So the settings that count for each lie beside its `HEAD`, or are the repository's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jackline.foreign_repositories.places import (
    AstrayError,
    check_ways_out,
    is_git_folder,
    leads_to,
    text_of,
)

_MOST_ENTRIES = 100_000
_KEPT_IN = ("modules", "worktrees")
_SETTINGS = ("config", "config.worktree")
_AS_GIT_WRITES_IT = re.compile(r"\.\./\.\.\n?")


@dataclass(frozen=True, slots=True)
class KeptFolder:
    """A git folder inside another."""

    path: Path
    work_tree: Path | None
    """Of a worktree that is still there: its place."""

    @property
    def settings(self) -> list[Path]:
        """The files with settings that it has."""
        return [file for name in _SETTINGS if os.path.lexists(file := self.path / name)]


def kept_folders(common: Path, folder: Path | None) -> list[KeptFolder]:
    """All of them, however deep; AstrayError if one is not as git makes it.

    `folder` is where the user works: what lies inside belongs to it.
    """
    inside = [each.resolve() for each in (common, folder) if each is not None]
    inside += [common.resolve().parent] if common.name == ".git" else []
    paths = list(_git_folders(common))
    homes = {common, *paths}
    found = []
    for path in paths:
        is_worktree = path.parent.name == "worktrees" and path.parent.parent in homes
        _check_common_folder(path, is_worktree=is_worktree)
        check_ways_out(path.resolve(), path.resolve(), inside)
        found.append(KeptFolder(path, _work_tree_of(path, inside) if is_worktree else None))
    return found


def _git_folders(common: Path) -> Iterator[Path]:
    left = _MOST_ENTRIES
    for kept in _KEPT_IN:
        if (common / kept).is_symlink():
            raise AstrayError(f"{kept} in its git folder is a link")
        for at, folders, files in os.walk(common / kept, onerror=_unlisted):
            left -= len(folders) + len(files)
            if left < 0:
                raise AstrayError("its git folder holds too many files to look through")
            if any(Path(at, name).is_symlink() for name in folders):
                raise AstrayError("a folder of a submodule in its git folder is a link")
            if is_git_folder(Path(at)):
                yield Path(at)


def _unlisted(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise AstrayError("a folder in its git folder cannot be listed") from error


def _check_common_folder(path: Path, *, is_worktree: bool) -> None:
    file = path / "commondir"
    if not os.path.lexists(file):
        return
    if not is_worktree or file.is_symlink() or not _AS_GIT_WRITES_IT.fullmatch(text_of(file)):
        raise AstrayError("a git folder inside its own takes its settings from somewhere else")


def _work_tree_of(path: Path, inside: list[Path]) -> Path | None:
    """Where a worktree is; None when it is gone."""
    file = path / text_of(path / "gitdir").strip()
    if file == path or not os.path.lexists(file.parent):
        return None
    if leads_to(file, path):
        return file.parent
    if not any(file.resolve().is_relative_to(each) for each in inside):
        raise AstrayError("it claims a folder as its worktree that knows nothing of it")
    return None
