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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from jackline.batches.known_commands import (
    NAME_THEIR_FILES,
    Invocation,
    UnjudgedGitError,
    program_name,
)
from jackline.batches.policy import (
    SETTINGS,
    Allowed,
    CallPermission,
    Denied,
    Policy,
    names_git,
    names_settings,
    paths_in,
)
from jackline.batches.tool import BatchCall
from jackline.foreign_repositories import (
    ForeignRepositoryError,
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
        if is_in_dot_git(real):
            return True
        for each in (real, *real.parents):
            if not each.is_relative_to(root):
                return False
            if is_git_folder(each):
                return True
            if os.path.lexists(each / ".git"):  # the top of a work tree
                named = named_git_folder(each / ".git")
                return named is not None and real.is_relative_to(named.resolve())
    except (OSError, RuntimeError, MisplacedRepositoryError):
        return True
    return False


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


_MOST_ENTRIES = 100_000
_PATIENCE_S = 10.0


class _TooMuchError(Exception):
    """What a word names cannot be looked at within bounds."""

    def __init__(self, word: str, why: str) -> None:
        super().__init__(why)
        self.denied = Denied(f"{word!r} {why}", "name single files, or a smaller folder")


class _Look:
    """One look at where the words of a command lead; `harmless` programs change nothing."""

    def __init__(self, folder: Path, place: Path, *, harmless: bool) -> None:
        self._root, self._place, self._harmless = folder.resolve(), place, harmless
        self._end = time.monotonic() + _PATIENCE_S
        # A word may name the folder as its user does, or as the file system does.
        self._inside = (Path(os.path.abspath(folder)), self._root)  # noqa: PTH100 -- without links
        self._folders: list[tuple[str, Path]] = []

    def at_words(self, words: Sequence[str]) -> Denied | None:
        """Why these operands and options mean another place than they say."""
        for word in words:
            for part in paths_in(word):
                self._check_time(word)
                path = self._place / part
                text = Path(os.path.normpath(path))
                if not any(text.is_relative_to(each) for each in self._inside):
                    continue  # by its text: it was written out, or the policy has refused it
                # Where the text itself names it, the policy has judged.
                by_text = names_git(part) or names_settings(part)
                if denied := self._trouble_at(word, path, writes=not by_text):
                    return denied
                if os.path.isdir(path):  # noqa: PTH112 -- Path's own fails for too long names
                    self._folders.append((word, path))
        return None

    def at_working_folder(self) -> Denied | None:
        """Why a program must not write files there whose names no word says."""
        for entry in self._entries(self._place):
            self._check_time(".")
            link = Path(entry.path)
            if not entry.is_symlink():
                continue
            try:
                link.stat()
            except OSError as error:
                if error.errno == errno.ELOOP:
                    continue  # one of a circle, which nothing can be written through
            if denied := self._trouble_at(entry.name, link, writes=True):
                return denied
        return None

    def below_folders(self) -> Denied | None:
        """Why a program that follows links must not go through the folders among its words."""
        for word, folder in self._folders:
            if denied := self._walk(word, folder.resolve()):
                return denied
        return None

    def _walk(self, word: str, start: Path) -> Denied | None:
        waiting, seen, entries = [start], set[Path](), 0
        while waiting:
            folder = waiting.pop()
            if folder in seen:
                continue
            seen.add(folder)
            for entry in self._entries(folder):
                entries += 1
                if entries > _MOST_ENTRIES:
                    raise _TooMuchError(word, f"holds too many files ({_MOST_ENTRIES:,} may be)")
                self._check_time(word)
                path = Path(entry.path)
                if entry.is_symlink():
                    # Git has links of its own in its folder.
                    writes = not is_in_git(folder, self._root)
                    if denied := self._trouble_at(f"{word}/…/{entry.name}", path, writes=writes):
                        return denied
                    path = path.resolve()
                if path.is_dir():
                    waiting.append(path)
        return None

    def _trouble_at(self, word: str, path: Path, *, writes: bool) -> Denied | None:
        try:
            leaves = not path.resolve().is_relative_to(self._root)
        except (OSError, RuntimeError):
            leaves = True  # a circle of links, or no name for a file: nobody knows where it leads
        if leaves:
            denied = Denied.outside(word)
            return replace(denied, why=f"{denied.why} by a link")
        return _into_protected(word, path, self._root) if writes and not self._harmless else None

    def _entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as found:
                yield from found
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return  # gone since, or the program cannot read it either

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


def _into_protected(word: str, path: Path, root: Path) -> Denied | None:
    """Why nothing may be written to a path, with all links followed."""
    if is_in_git(path, root):
        return Denied.into_git(word)
    try:
        real = path.resolve()
    except (OSError, RuntimeError):
        return Denied.into_settings(word)
    below = real.relative_to(root) if real.is_relative_to(root) else real
    return (
        Denied.into_settings(word)
        if names_settings(str(below)) or is_in_settings(real, root)
        else None
    )


_WRITING = frozenset({"write", "edit"})
# Not the usual pool, which everybody waits for: whoever fills a disk with links fills this one.
_LOOKING = ThreadPoolExecutor(max_workers=4, thread_name_prefix="jackline-permission")


async def permit(policy: Policy, call: BatchCall) -> CallPermission:
    """Whether the call may run now, as which words and under which guard."""
    judged = policy.judge(call)
    if isinstance(judged, Denied):
        return judged
    loop = asyncio.get_running_loop()
    if call.tool.name != "shell":
        return await loop.run_in_executor(_LOOKING, _trouble_on_disk, policy, call) or judged
    cwd = call.arguments.get("cwd")
    place = policy.folder / (cwd if isinstance(cwd, str) else ".")
    permitted = await loop.run_in_executor(_LOOKING, _by_disk, policy, place.resolve(), judged)
    if isinstance(permitted, Denied):
        return permitted
    try:
        git = Invocation(judged.argv).git
        if git is None:
            return permitted
        at = place.joinpath(*git.folders)
        run = GitRun(at, git.leading, git.verb, git.looking, git.names_hooks)
        return replace(permitted, guard=await guard_for(run, policy.folder))
    except UnjudgedGitError as error:
        return Denied(
            f"`{error.by}` gives git words or a place that cannot be judged",
            "give git as a call of its own, with all its words",
        )
    except ForeignRepositoryError as error:
        return Denied(error.why, error.hint)


def _by_disk(policy: Policy, place: Path, judged: Allowed) -> CallPermission:
    """The command as it will run, or why what is on the disk makes another command of it."""
    root = policy.folder.resolve()
    program, *words = judged.argv
    command, inner = Invocation(judged.argv), Invocation(judged.argv[judged.inner :])
    if not place.is_relative_to(root):
        return Denied.outside(str(place))
    harmless = command.is_harmless
    if is_in_dot_git(place) or (not harmless and is_in_git(place, root)):
        return Denied.into_git(str(place))
    trusted = {each.resolve() for each in policy.chosen_folders}
    if command.follows_folder and place not in trusted:
        # One that may do more than look means another one in each folder: `./check`, `make`.
        return Denied(
            f"`{program}` may run in the project's own folder alone, since it may follow what lies"
            " in the folder in which it runs",
            "leave `cwd` out and name the folder in the words; or the user may trust that folder:"
            f' agents.folders = ["{printable(str(place))}"]',
        )
    look = _Look(policy.folder, place, harmless=harmless)
    try:
        denied = look.at_words(words)
        if denied is None and program_name(inner.words[0]) in NAME_THEIR_FILES:
            denied = look.at_working_folder()
        if denied is None and inner.reads_links:
            denied = look.below_folders()
    except _TooMuchError as error:
        # What a user has written out may be as large as it is.
        denied = None if judged.written else error.denied
    if denied is not None:
        return denied
    named_by_path = os.path.dirname(program)  # noqa: PTH120 -- `./x` has one, which Path drops
    found = str(place / program) if named_by_path else find_program(program)
    if found is None:
        return Denied(
            f"there is no program {program!r} in the absolute folders of the PATH",
            "name another program, or one of the project as './NAME'",
        )
    return replace(judged, argv=(found, *words))


def _trouble_on_disk(policy: Policy, call: BatchCall) -> Denied | None:
    """Why another tool than the shell may not write to its path, with all links followed."""
    path = call.arguments.get("path")
    if call.tool.name not in _WRITING or not isinstance(path, str):
        return None
    if names_git(path) or names_settings(path):
        return None  # where the text itself names it, the policy has judged
    return _into_protected(path, policy.folder / path, policy.folder.resolve())
