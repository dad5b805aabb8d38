"""Find the words of a command that mean something else on the disk than they say.

Rules: (1) only reads; (2) every word that may be a path is followed through all links: none leads
out of the folder, none that may be written to into `.git`; (3) where a program may read what links
below a folder lead to, the folder is walked, with all folders inside to which links lead, within
bounds of number and time beyond which it is refused; (4) what is not there leads nowhere.
Not here: paths that leave by their text (policy.py), what a program finds by itself when it runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from jackline.batches.policy import Denied, into_git, names_git, outside, paths_in

_MOST_ENTRIES = 100_000
_PATIENCE_S = 10.0


def trouble_on_disk(
    folder: Path, place: Path, words: Sequence[str], *, looking: bool, walks: bool
) -> Denied | None:
    """Why these operands and options mean another place than they say; None where they do not.

    `looking` says that the program changes nothing, `walks` that it may read links below folders.
    """
    end, root = time.monotonic() + _PATIENCE_S, folder.resolve()
    # A word may name the folder as its user does, or as the file system does.
    inside = (Path(os.path.abspath(folder)), root)  # noqa: PTH100 -- without following links
    folders: list[tuple[str, Path]] = []
    for word in words:
        for part in paths_in(word):
            if time.monotonic() > end:
                return _too_much(word, "took too long to look at")
            path = place / part
            text = Path(os.path.normpath(path))
            if not any(text.is_relative_to(each) for each in inside):
                continue  # by its text: it was written out, or the policy has refused it
            if _leaves(path, root):
                return _by_link(word)
            if not looking and not names_git(part) and is_in_git(path):
                return into_git(word)
            if os.path.isdir(path):  # noqa: PTH112 -- Path's own fails for names that are too long
                folders.append((word, path))
    if not walks:
        return None
    for word, path in folders:
        if denied := _walked(word, path, root, end):
            return denied
    return None


def is_in_git(path: Path) -> bool:
    """Whether a path, with all links followed, is a repository's own folder or lies in one."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError):
        return True
    for each in (real, *real.parents):
        if names_git(each.name):
            return True
        try:
            # As the file system sees it: some ignore case, some have short names.
            if each.samefile(each.parent / ".git"):
                return True
        except OSError:
            continue
    return False


def _walked(word: str, start: Path, root: Path, end: float) -> Denied | None:
    waiting, seen, entries = [start.resolve()], set[Path](), 0
    while waiting:
        folder = waiting.pop()
        if folder in seen:
            continue
        seen.add(folder)
        for entry in _entries(folder):
            entries += 1
            if entries > _MOST_ENTRIES:
                return _too_much(word, f"holds too many files ({_MOST_ENTRIES:,} may be)")
            if time.monotonic() > end:
                return _too_much(word, "took too long to look at")
            if entry.is_symlink():
                if _leaves(Path(entry.path), root):
                    return _by_link(word)
                real = Path(entry.path).resolve()
                if real.is_dir():
                    waiting.append(real)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
    return None


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from found
    except (FileNotFoundError, PermissionError):
        return  # gone since, or the program cannot read it either


def _leaves(path: Path, root: Path) -> bool:
    try:
        return not path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return True  # a circle of links, or no name for a file: nobody knows where it leads


def _by_link(word: str) -> Denied:
    denied = outside(word)
    return Denied(f"{denied.why} by a link", denied.next)


def _too_much(word: str, why: str) -> Denied:
    return Denied(f"{word!r} {why}", "name single files, or a smaller folder")
