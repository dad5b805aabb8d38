"""Find the words of a command that mean something else on the disk than they say.

Rules: (1) only reads; (2) every word that may be a path is followed through all links: none leads
out of the folder, none that may be written to into a git folder; (3) nor does what such a program
makes below a folder among its words: an entry by the name of another word, a link, a git folder
over which another folder would be laid; (4) where a program may read or write what links below a
folder lead to, the folder is walked, with all folders inside to which links lead, within bounds of
number and time beyond which it is refused; of a command that the user wrote out whole, only links
into a git folder count, within the same bounds; (5) what is not there leads nowhere.
Not here: paths that leave by their text (policy.py), what is a git folder (git_places.py), what a
program finds or unpacks by itself when it runs.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path

from jackline.batches.git_places import is_in_git
from jackline.batches.policy import Denied, into_git, names_git, outside, paths_in
from jackline.foreign_repositories import is_git_folder

_MOST_ENTRIES = 100_000
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Habits:
    """What the program of a command does with files."""

    looking: bool
    """It changes nothing."""
    walks: bool = False
    """It may read or write what links below a folder lead to."""
    may_name_files: bool = False
    """It may write files in its working folder that no word names."""
    names_files: bool = False
    """It is known to."""
    written: bool = False
    """The user wrote the whole command out: what links it reads is their word."""


def trouble_on_disk(
    folder: Path, place: Path, words: Sequence[str], habits: Habits
) -> Denied | None:
    """Why these operands and options mean another place than they say; None where they do not."""
    look = _Look(folder, place, habits)
    try:
        return look.at_words(words) or look.at_working_folder() or look.below_folders()
    except _TooMuchError as error:
        return Denied(f"{error.word!r} {error.why}", "name single files, or a smaller folder")


class _TooMuchError(Exception):
    def __init__(self, word: str, why: str) -> None:
        super().__init__(why)
        self.word = word
        self.why = why


@dataclass(frozen=True, slots=True)
class _Operand:
    word: str
    part: str
    """The text in the word that may be a path."""
    path: Path


@dataclass(slots=True)
class _Walked:
    """A folder among the words, and the git folders in it, from there."""

    operand: _Operand
    git_folders: list[Path] = field(default_factory=list)


class _Look:
    """One look at the words of a command."""

    def __init__(self, folder: Path, place: Path, habits: Habits) -> None:
        self._root, self._place, self._habits = folder.resolve(), place, habits
        self._end = time.monotonic() + _PATIENCE_S
        # A word may name the folder as its user does, or as the file system does.
        self._inside = (Path(os.path.abspath(folder)), self._root)  # noqa: PTH100 -- without links
        self._operands: list[_Operand] = []
        self._folders: list[_Operand] = []

    def at_words(self, words: Sequence[str]) -> Denied | None:
        """Where the words themselves lead."""
        for word in words:
            for part in paths_in(word):
                self._check_time(word)
                path = self._place / part
                text = Path(os.path.normpath(path))
                if not any(text.is_relative_to(each) for each in self._inside):
                    continue  # by its text: it was written out, or the policy has refused it
                if denied := self._trouble_at(word, path, by_text=names_git(part)):
                    return denied
                operand = _Operand(word, part, path)
                self._operands.append(operand)
                if os.path.isdir(path):  # noqa: PTH112 -- Path's own fails for too long names
                    self._folders.append(operand)
        return None

    def at_working_folder(self) -> Denied | None:
        """What a program that names its files may write there."""
        if self._habits.looking or not self._habits.may_name_files:
            return None
        for entry in _entries(self._place):
            self._check_time(".")
            path = Path(entry.path)
            if not entry.is_symlink() or _ends_nowhere(path):
                continue
            if is_in_git(path, self._root):
                return into_git(entry.name)
            if self._habits.names_files and not path.is_dir() and _leaves(path, self._root):
                return _by_link(entry.name)
        return None

    def below_folders(self) -> Denied | None:
        """What the program may meet below the folders among its words."""
        if not self._habits.walks:
            return None
        if not self._habits.looking and (denied := self._put_into_folders()):
            return denied
        walked = []
        for operand in self._folders:
            found = _Walked(operand)
            walked.append(found)
            try:
                if denied := self._walk(found):
                    return denied
            except _TooMuchError:
                if not self._habits.written:
                    raise
        known = self._habits.looking or self._habits.written
        return None if known else _laid_over(walked)

    def _put_into_folders(self) -> Denied | None:
        """Why what one word names must not come into the folder that another names."""
        # A git folder that is named as such was written out, or the policy has refused it.
        for into in (each for each in self._folders if not names_git(each.part)):
            for each in self._operands:
                self._check_time(each.word)
                for name in {each.path.name, each.part} if each is not into else ():
                    place = Path(into.part, name)
                    if denied := self._trouble_at(str(place), into.path / name):
                        return denied
        return None

    def _trouble_at(self, word: str, path: Path, *, by_text: bool = False) -> Denied | None:
        """`by_text`: the policy has judged that it names a git folder."""
        if _leaves(path, self._root):
            return _by_link(word)
        into = not self._habits.looking and not by_text and is_in_git(path, self._root)
        return into_git(word) if into else None

    def _walk(self, found: _Walked) -> Denied | None:
        word, start = found.operand.word, found.operand.path.resolve()
        waiting, seen, entries = [start], set[Path](), 0
        while waiting:
            folder = waiting.pop()
            if folder in seen:
                continue
            seen.add(folder)
            for entry in _entries(folder):
                entries += 1
                if entries > _MOST_ENTRIES:
                    why = f"holds too many files ({_MOST_ENTRIES:,} may be)"
                    raise _TooMuchError(word, why)
                self._check_time(word)
                path = Path(entry.path)
                if entry.is_symlink():
                    if denied := self._trouble_by(word, path):
                        return denied
                    real = path.resolve()
                    if real.is_dir():
                        waiting.append(real)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                    if folder.is_relative_to(start) and _is_git(path):
                        found.git_folders.append(path.relative_to(start))
                elif names_git(entry.name) and folder.is_relative_to(start):
                    found.git_folders.append(path.relative_to(start))
        return None

    def _trouble_by(self, word: str, link: Path) -> Denied | None:
        """Why no program that follows links may meet this one."""
        if not self._habits.written and _leaves(link, self._root):
            return _by_link(word)
        if self._habits.looking or not is_in_git(link, self._root):
            return None
        # Git has links of its own in its folder.
        return None if is_in_git(link.parent, self._root) else into_git(f"{word}/…/{link.name}")

    def _check_time(self, word: str) -> None:
        if time.monotonic() > self._end:
            raise _TooMuchError(word, "took too long to look at")


def _is_git(path: Path) -> bool:
    return names_git(path.name) or is_git_folder(path)


def _laid_over(walked: Sequence[_Walked]) -> Denied | None:
    """Whether one folder holds a git folder and another what would be written over it.

    A program may put the other folder's content there, the folder itself, or all its path.
    """
    for into, other in permutations(walked, 2):
        source = other.operand
        for held in into.git_folders:
            for above in {Path(), Path(source.path.name), Path(source.part)}:
                if held.is_relative_to(above) and os.path.lexists(
                    source.path / held.relative_to(above)
                ):
                    return into_git(str(Path(into.operand.part, held)))
    return None


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            yield from found
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # gone since, or the program cannot read it either


def _leaves(path: Path, root: Path) -> bool:
    try:
        return not path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return True  # a circle of links, or no name for a file: nobody knows where it leads


def _ends_nowhere(link: Path) -> bool:
    """Whether it is one of a circle, which nothing can be written through."""
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _by_link(word: str) -> Denied:
    denied = outside(word)
    return Denied(f"{denied.why} by a link", denied.next)
