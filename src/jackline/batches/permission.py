"""Decide whether a call may run without asking a person, with a look at the disk.

Rules: (1) the policy comes first and touches nothing; looking only reads, in its own threads, and
ends within bounds of number and time, beyond which the call is refused; (2) a command is permitted
as the very words that will run, with its program as an absolute file; (3) what may do more than
read runs in the project's own folder alone: in another folder, `./check` and `make` are other
programs; (4) every word that may be a path is followed through all links: none leads out of the
folder, and none that may be written to leads into a git folder; where a program may follow links
below a folder, the folder is walked; (5) a git folder is what is called `.git`, what git would take
for one whatever its name, and what a `.git` file names; what cannot be read counts as one; (6) git
runs only where foreign_repositories/ allows it, in the folder in which it really runs, with its
guard.
Not here: paths that leave by their text (policy.py), whether a repository can do harm
(foreign_repositories/), what a program finds by itself when it runs.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import TypeVar

from jackline.batches.known_commands import (
    GitCall,
    UnjudgedGitError,
    follows_folder,
    git_call,
    is_harmless,
    may_name_files,
    names_files,
    reads_links,
)
from jackline.batches.policy import (
    SETTINGS,
    Allowed,
    CallPermission,
    Denied,
    Policy,
    into_git,
    into_settings,
    names_git,
    names_settings,
    outside,
    paths_in,
)
from jackline.batches.tool import BatchCall
from jackline.foreign_repositories import (
    ForeignRepositoryError,
    GitGuard,
    GitRun,
    MisplacedRepositoryError,
    guard_for,
    is_git_folder,
    named_git_folder,
)
from jackline.outside_names import printable
from jackline.programs import find_program


def is_in_git(path: Path, root: Path) -> bool:
    """Whether a path, with all links followed, is a git folder or lies in one.

    `root` is the project's folder, resolved.
    """
    try:
        real = path.resolve()
        return is_in_dot_git(real) or _is_in_other(real, root)
    except (OSError, RuntimeError, MisplacedRepositoryError):
        return True


def is_in_dot_git(real: Path) -> bool:
    """Whether a path without links has a folder `.git` above it, or is one."""
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


def _is_in_other(real: Path, root: Path) -> bool:
    for each in (real, *real.parents):
        if not each.is_relative_to(root):
            return False
        if is_git_folder(each):
            return True
        if os.path.lexists(each / ".git"):  # the top of a work tree
            named = named_git_folder(each / ".git")
            return named is not None and real.is_relative_to(named.resolve())
    return False


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
                if denied := self._trouble_at(word, path, by_text=_is_named_protected(part)):
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
            if denied := _into_protected(entry.name, path, self._root):
                return denied
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
        # What is named as such was written out, or the policy has refused it.
        for into in (each for each in self._folders if not _is_named_protected(each.part)):
            for each in self._operands:
                self._check_time(each.word)
                for name in {each.path.name, each.part} if each is not into else ():
                    place = Path(into.part, name)
                    if denied := self._trouble_at(str(place), into.path / name):
                        return denied
        return None

    def _trouble_at(self, word: str, path: Path, *, by_text: bool = False) -> Denied | None:
        """`by_text`: the policy has judged that it names a git folder or settings."""
        if _leaves(path, self._root):
            return _by_link(word)
        if self._habits.looking or by_text:
            return None
        return _into_protected(word, path, self._root)

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
                if self._brings_settings(folder, entry.name, start):
                    return into_settings(f"{word}/…/{entry.name}")
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
        if self._habits.looking:
            return None
        denied = _into_protected(f"{word}/…/{link.name}", link, self._root)
        # Git has links of its own in its folder.
        return denied and (None if is_in_git(link.parent, self._root) else denied)

    def _brings_settings(self, folder: Path, name: str, start: Path) -> bool:
        """Whether a folder that may be copied or moved would bring settings to another place."""
        may_move = not (self._habits.looking or self._habits.written)
        # What is in the folder in which the program runs is there already.
        moved = may_move and not self._place.resolve().is_relative_to(start)
        return moved and folder.is_relative_to(start) and names_settings(name)

    def _check_time(self, word: str) -> None:
        if time.monotonic() > self._end:
            raise _TooMuchError(word, "took too long to look at")


def is_in_settings(real: Path, root: Path) -> bool:
    """Whether a path without links is what one of the settings' names leads to, or lies in it."""
    for name in SETTINGS:
        try:
            if os.path.lexists(root / name) and real.is_relative_to((root / name).resolve()):
                return True
        except (OSError, RuntimeError):
            return True
    return False


def _is_named_protected(text: str) -> bool:
    return names_git(text) or names_settings(text)


def _into_protected(word: str, path: Path, root: Path) -> Denied | None:
    """Why nothing may be written to a path, with all links followed."""
    if is_in_git(path, root):
        return into_git(word)
    try:
        real = path.resolve()
    except (OSError, RuntimeError):
        return into_settings(word)
    below = real.relative_to(root) if real.is_relative_to(root) else real
    return into_settings(word) if names_settings(str(below)) or is_in_settings(real, root) else None


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
    return Denied(f"{denied.why} by a link", denied.hint)


_WRITING = frozenset({"write", "edit"})
_T = TypeVar("_T")
# Not the usual pool, which everybody waits for: whoever fills a disk with links fills this one.
_LOOKING = ThreadPoolExecutor(max_workers=4, thread_name_prefix="jackline-permission")


async def permit(policy: Policy, call: BatchCall) -> CallPermission:
    """Whether the call may run now, as which words and under which guard."""
    said = policy.judge(call)
    if isinstance(said, Denied):
        return said
    if call.tool.name != "shell":
        return await _aside(lambda: _writing_into_protected(policy, call)) or said
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
        return Denied(error.why, error.hint)


async def _aside(work: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(_LOOKING, work)


def _by_disk(policy: Policy, place: Path, said: Allowed) -> CallPermission:
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


def _writing_into_protected(policy: Policy, call: BatchCall) -> Denied | None:
    path = call.arguments.get("path")
    if call.tool.name not in _WRITING or not isinstance(path, str):
        return None
    if _is_named_protected(path):
        return None  # where the text itself names it, the policy has judged
    return _into_protected(path, policy.folder / path, policy.folder.resolve())


async def _guard(git: GitCall, place: Path, folder: Path) -> GitGuard:
    at = place.joinpath(*git.folders)
    return await guard_for(GitRun(at, git.leading, git.verb, git.looking, git.names_hooks), folder)
