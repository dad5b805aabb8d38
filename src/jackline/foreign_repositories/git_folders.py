"""Find out whether a git folder lies where git itself would put it, and which others it holds.

Rules: (1) only reads, and only regular files; (2) a git folder is at home above or inside the
folder in which its user works, or when it and the work tree name each other, as those of worktrees
and submodules do; (3) neither a link in a git folder nor its list of borrowed objects leads out of
it; (4) the folders of submodules and worktrees inside it are found by their names, as git finds
them, used now or not, and each is as git makes it: no link, and no `commondir` but that of a
worktree; (5) what is there and cannot be read, or is too much, is never taken for nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from jackline.foreign_files import read_foreign

_MOST_ENTRIES = 100_000
_MOST_FILES = 1_000_000
_MOST_NESTED = 100
_MOST_BYTES = 1 << 20
_DEEPEST = 5
"""So many stores may borrow from each other, as git allows."""
# Worktrees and submodules are checked when git is to run there; hooks by repository_check.py.
_NOT_FOLLOWED = frozenset(("hooks", "modules", "worktrees"))
_LOOSE = re.compile(r"[0-9a-f]{2}")
_COMMONDIR_OF_WORKTREE = re.compile(r"\.\./\.\.\n?")


class MisplacedRepositoryError(Exception):
    """The repository is not where it should be; the text says how."""


def is_git_layout(names: Collection[str]) -> bool:
    """Whether git takes a folder with these names, in lower case, for a repository's own."""
    return "head" in names and ("objects" in names or "commondir" in names)


def is_git_folder(path: Path) -> bool:
    """Whether git may take it for one, whatever its name; a folder of branches can hold a `HEAD`.

    It is asked for names, as git does, since some file systems ignore case or signs.
    """
    shares = os.path.lexists(path / "commondir")
    whole = all(os.path.lexists(path / name) for name in ("objects", "refs"))
    return os.path.lexists(path / "HEAD") and (shares or whole)


def leads_to(file: Path, git_folder: Path) -> bool:
    """Whether this `.git` file says that its repository is there."""
    named = None if file.is_symlink() else named_git_folder(file)
    try:
        return named is not None and named.resolve() == git_folder.resolve()
    except (OSError, RuntimeError, ValueError):
        return False


def named_git_folder(file: Path) -> Path | None:
    """The git folder that a `.git` file names; None where it is no such file."""
    if not file.is_file():
        return None
    found = re.fullmatch(r"gitdir: (.+?)\n*", _text_of(file), re.DOTALL)
    return None if found is None else file.parent / found[1]


def nested_repositories(top: Path) -> list[Path]:
    """The folders below a work tree that are repositories of their own."""
    found, left = [], _MOST_FILES
    for at, folders, files in os.walk(top, onerror=_unlisted_below):
        left -= len(folders) + len(files)
        if left < 0:
            raise MisplacedRepositoryError("its work tree holds too many files to look through")
        if Path(at) != top and any(name.lower() == ".git" for name in (*folders, *files)):
            found.append(Path(at))
        folders[:] = [name for name in folders if name.lower() != ".git"]
    if len(found) > _MOST_NESTED:
        raise MisplacedRepositoryError("its work tree holds too many other repositories")
    return found


def _unlisted_below(error: OSError) -> None:
    """Git cannot enter a folder of somebody else either; one without a list alone, it can."""
    if os.access(error.filename, os.X_OK):
        raise MisplacedRepositoryError("a folder of its work tree cannot be listed") from error


def _text_of(path: Path) -> str:
    """A small file's text; empty without one."""
    try:
        return os.fsdecode(read_foreign(path, _MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError):
        raise MisplacedRepositoryError(
            f"{path.name} in its git folder cannot be read, or is too long"
        ) from None


def _links_in(folder: Path) -> Iterator[Path]:
    ahead, left = [folder], _MOST_ENTRIES
    while ahead:
        at = ahead.pop()
        try:
            entries = list(os.scandir(at))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # git may open by its name what nobody can list
            raise MisplacedRepositoryError("a folder in its git folder cannot be listed") from error
        left -= len(entries)
        if left < 0:
            raise MisplacedRepositoryError("its git folder holds too many files to look through")
        for entry in entries:
            if at == folder and entry.name in _NOT_FOLLOWED:
                continue
            if entry.is_symlink():
                yield _followed(Path(entry.path))
            # Loose objects are known by their hashes, which nobody can guess.
            elif entry.is_dir(follow_symlinks=False) and not _LOOSE.fullmatch(entry.name):
                ahead.append(Path(entry.path))


def _followed(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        raise MisplacedRepositoryError(
            "its git folder holds a circle of links, or no path"
        ) from None


@dataclass(frozen=True, slots=True)
class GitFolders:
    """A repository's git folder, and the one that it shares with its worktrees; as git named them.

    All methods raise MisplacedRepositoryError where something is not as git makes it.
    """

    own: Path
    common: Path

    def check_place(self, start: Path, folder: Path | None, work_trees: list[Path]) -> None:
        """Check that a git started in `start` finds these folders where they belong.

        `folder` is where the user works; `work_trees` are those that settings name.
        """
        here, start = GitFolders(self.own.resolve(), self.common.resolve()), start.resolve()
        own, common = here.own, here.common
        if own != common and own.parent != common / "worktrees":
            raise MisplacedRepositoryError(
                "it takes its settings from a folder that git would not have chosen"
            )
        home = [folder.resolve()] if folder else []
        if not any(start.is_relative_to(each.resolve()) for each in work_trees):
            inside = any(own.is_relative_to(each) and common.is_relative_to(each) for each in home)
            if work_trees or not (inside or here.is_above(start)):
                raise MisplacedRepositoryError(
                    "its git folder is another one than git itself would have made"
                )
        here.check_ways_out([own, common, *home])

    def is_above(self, start: Path) -> bool:
        """Whether a folder above is the repository's: by its place, or as each names the other."""
        own, common = self.own, self.common
        if own == common:
            return own.name == ".git" and start.is_relative_to(own.parent)
        back = own / _text_of(own / "gitdir").strip()  # of a worktree: the file that names it
        is_worktree = own.parent == common / "worktrees" and leads_to(back, own)
        return is_worktree and start.is_relative_to(back.resolve().parent)

    def check_ways_out(self, allowed: list[Path]) -> None:
        """Check that no link and no list of borrowed objects leads out."""
        for path in self._ways_out():
            if not any(path.is_relative_to(each) for each in allowed):
                raise MisplacedRepositoryError("a file in its git folder leads out of it")

    def _ways_out(self) -> Iterator[Path]:
        """Where links lead, and where objects are borrowed."""
        for each in {self.own, self.common}:
            yield from _links_in(each)
        stores, seen = [self.common / "objects"], set[Path]()
        for _ in range(_DEEPEST):
            borrowed = {
                # A quoted line is one that only git can read: wherever it leads, it is not inside.
                _followed(store / ("/" if line.startswith('"') else line))
                for store in stores
                # Other ends of lines belong to git's names.
                for line in _text_of(store / "info" / "alternates").split("\n")
                if line and not line.startswith("#")
            }
            stores = sorted(borrowed - seen)
            seen.update(stores)
            yield from stores
            for store in stores:
                yield from _links_in(store)
        if stores:
            raise MisplacedRepositoryError("its objects are borrowed from too many places")

    def inner_folders(self, folder: Path | None) -> list[tuple[Path, Path | None]]:
        """All git folders inside of this one, however deep, each with its work tree if it has one.

        `folder` is where the user works: what lies inside belongs to it. A work tree is known of
        worktrees that are still there.
        """
        common = self.common.absolute()
        inside = [each.resolve() for each in (common, folder) if each is not None]
        inside += [common.resolve().parent] if common.name == ".git" else []
        paths = list(self._inner_paths(common))
        homes = {common, *paths}
        found = []
        for path in paths:
            is_worktree = path.parent.name == "worktrees" and path.parent.parent in homes
            file = path / "commondir"
            if os.path.lexists(file) and (
                not is_worktree
                or file.is_symlink()
                or not _COMMONDIR_OF_WORKTREE.fullmatch(_text_of(file))
            ):
                raise MisplacedRepositoryError(
                    "a git folder inside its own takes its settings from somewhere else"
                )
            GitFolders(path.resolve(), path.resolve()).check_ways_out(inside)
            work_tree = None
            back = path / _text_of(path / "gitdir").strip() if is_worktree else path
            if back != path and os.path.lexists(back.parent):  # else it is gone
                if leads_to(back, path):
                    work_tree = back.parent
                elif not any(back.resolve().is_relative_to(each) for each in inside):
                    raise MisplacedRepositoryError(
                        "it claims a folder as its worktree that knows nothing of it"
                    )
            found.append((path, work_tree))
        return found

    def _inner_paths(self, common: Path) -> Iterator[Path]:
        left = _MOST_ENTRIES
        for name in ("modules", "worktrees"):
            if (common / name).is_symlink():
                raise MisplacedRepositoryError(f"{name} in its git folder is a link")
            for at, folders, files in os.walk(common / name, onerror=self._unlisted):
                left -= len(folders) + len(files)
                if left < 0:
                    raise MisplacedRepositoryError(
                        "its git folder holds too many files to look through"
                    )
                if any(Path(at, each).is_symlink() for each in folders):
                    raise MisplacedRepositoryError(
                        "a folder of a submodule in its git folder is a link"
                    )
                if is_git_folder(Path(at)):
                    yield Path(at)

    def _unlisted(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise MisplacedRepositoryError("a folder in its git folder cannot be listed") from error
