"""Check a repository before git runs there: its settings, its place, its hooks, its submodules.

Rules: (1) no other module starts git, and every question has the guard's variables and a time
limit; (2) settings come first; one that is not known to be inert, or cannot be read, is a refusal;
(3) a git folder is at home above or inside the user's folder, or when it and the work tree name
each other, as those of worktrees and submodules do; no link and no list of borrowed objects leads
out of it; (4) submodules are checked like the repository, because git starts a git of its own
there; (5) before a git that changes something, every submodule, worktree and nested repository is
checked, and nothing may be left half done; (6) a hook that git would run is a refusal, unless the
user has set or written out which may run; (7) only regular files are read, and what cannot be read,
or is too much, is a refusal.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from jackline.foreign_repositories.git_folders import (
    GitFolders,
    KeptFolder,
    MisplacedRepositoryError,
    kept_folders,
    leads_to,
    nested_repositories,
)
from jackline.foreign_repositories.guard import GitGuard, kind_of
from jackline.outside_names import printable
from jackline.programs import find_program

_Given = ParamSpec("_Given")
_T = TypeVar("_T")

_OF_THE_USER = frozenset(("system", "global", "command"))
_PATIENCE_S = 20.0
_DEEPEST_SUBMODULE = 8
# Verbs that know no hooks but those which any change of index or references has.
_WITHOUT_HOOKS = frozenset(
    ("add", "branch", "clean", "config", "fetch", "init", "ls-remote", "mv", "reset", "rm", "stash")
) | {"tag", "update-index"}
_OF_ANY_VERB = frozenset(("post-index-change", "pre-auto-gc", "reference-transaction"))
# Git goes on by what it finds there: programs to start, or a merge strategy that is one.
_LEFT_HALF_DONE = ("rebase-merge", "rebase-apply", "sequencer")
_FETCHING = frozenset(("clone", "fetch", "pull", "remote", "submodule"))
_CONNECTING = _FETCHING | {"ls-remote", "push"}
_OPENING_TOOLS = frozenset(("difftool", "mergetool"))
_NO_GIT = (1, b"there is no git on the PATH")
_USUAL_HINT = "the user may run git there"


class ForeignRepositoryError(Exception):
    """Git must not be run there: `why`, and `hint`, what would help."""

    def __init__(self, why: str, *, hint: str = _USUAL_HINT) -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint


@dataclass(frozen=True, slots=True)
class GitRun:
    """A git that somebody wants to run."""

    cwd: Path
    leading: tuple[str, ...] = ()
    """`--git-dir` and `--work-tree` with their values: they say which repository it is."""
    verb: str = ""
    looking: bool = True
    names_hooks: bool = False
    """The user has written out which hooks may run."""


async def ask_git(cwd: Path, *words: str) -> tuple[int, bytes]:
    """The exit code of git, and what it printed or why it failed; ForeignRepositoryError as above.

    The question must not look into submodules: those are not asked.
    """
    git = find_program("git")
    if git is None:
        return _NO_GIT
    await _check(_Place(git, GitRun(cwd)))
    return await _run(git, cwd, words, GitGuard())


async def guard_for(wanted: GitRun, folder: Path) -> GitGuard:
    """With what this git may run; ForeignRepositoryError when it must not.

    `folder` is where its user works: what lies inside belongs to it, wherever git would put it.
    """
    git = find_program("git")
    if git is None:
        raise ForeignRepositoryError("there is no git on the PATH", hint="install git")
    place = _Place(git, wanted, folder)
    found = await _check(place)
    own_hooks = None if found is None else found.hooks_of_the_user
    if found is not None and wanted.looking:
        await _check_submodules(place)
    elif found is not None:
        if own_hooks is None and not wanted.names_hooks:
            of_any_verb = wanted.verb in _WITHOUT_HOOKS
            await _check_hooks(place, _OF_ANY_VERB if of_any_verb else None)
        await asyncio.to_thread(_check_finished, found.folders.own)
        await _check_kept(place, found)
        await _check_nested(place, {await _looked(Path.resolve, found.folders.common)})
    if wanted.looking:
        return GitGuard()
    return GitGuard(
        looking=False,
        hooks=own_hooks or os.devnull,
        connecting=wanted.verb in _CONNECTING,
        fetching=wanted.verb in _FETCHING,
    )


@dataclass(frozen=True, slots=True)
class _Setting:
    scope: str
    name: str
    value: str

    @property
    def foreign(self) -> bool:
        return self.scope not in _OF_THE_USER


@dataclass(frozen=True, slots=True)
class _Found:
    """A repository that may be used: its settings, with the user's, and where it is."""

    settings: Sequence[_Setting]
    folders: GitFolders

    @property
    def hooks_of_the_user(self) -> str | None:
        """The folder of hooks that the user has set for all repositories, if none else counts."""
        named = [each for each in self.settings if each.name == "core.hookspath"]
        own = [each.value for each in named if each.scope in ("system", "global")]
        return own[-1] if own and not any(each.foreign for each in named) else None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where git is asked."""

    git: str
    wanted: GitRun
    folder: Path | None = None
    depth: int = 0
    """Above 0, it is a submodule: a git that is started there has no settings of ours."""

    @property
    def where(self) -> str:
        return f" in the submodule {printable(self.wanted.cwd.name)}" if self.depth else ""

    async def ask(self, *words: str, guard: GitGuard = GitGuard()) -> tuple[int, bytes]:  # noqa: B008
        words = (*self.wanted.leading, *words)
        return await _run(self.git, self.wanted.cwd, words, guard)


async def _check(place: _Place) -> _Found | None:
    """The repository, if nothing that it says can do harm; None where git sees none."""
    settings = await _settings(place)
    own = [each for each in settings if each.foreign]
    folders = await _folders(place, known=bool(own))
    if folders is None:
        return None
    work_trees = []
    for each in own:
        kind = kind_of(each.name, each.value)
        if kind == "work tree" and await _looked(
            leads_to, folders.own / each.value / ".git", folders.own
        ):
            work_trees.append(folders.own / each.value)
        elif (kind == "file" and await _is_inside(place, each.value)) or (
            kind == "tool" and place.wanted.verb not in _OPENING_TOOLS
        ):
            continue
        elif kind in ("foreign", "work tree", "file", "tool") or (
            place.depth and kind in ("guarded", "hooks")
        ):
            raise _refusal(each, place)
    await _looked(folders.check, place.wanted.cwd, place.folder, work_trees)
    return _Found(settings, folders)


async def _looked(look: Callable[_Given, _T], *given: _Given.args, **more: _Given.kwargs) -> _T:
    """What a look at the disk finds, in a thread."""
    try:
        return await asyncio.to_thread(look, *given, **more)
    except MisplacedRepositoryError as error:
        raise ForeignRepositoryError(f"the repository is not as git makes one: {error}") from error
    except (OSError, ValueError) as error:
        why = f"the repository cannot be looked through ({type(error).__name__})"
        raise ForeignRepositoryError(why) from error


async def _is_inside(place: _Place, named: str) -> bool:
    """Whether this file, of which git tells when it cannot read it, is the work tree's."""
    top = await _top(place)
    if top is None or named.startswith(("~", "%", ":")):
        return False
    return await asyncio.to_thread(lambda: (top / named).resolve().is_relative_to(top.resolve()))


async def _settings(place: _Place) -> list[_Setting]:
    code, said = await place.ask("config", "--list", "--includes", "--show-scope", "-z")
    if code:
        why = f"git cannot read the settings of the repository ({_first_line(said)})"
        raise ForeignRepositoryError(why)
    parts = os.fsdecode(said).split("\0")
    found = []
    for scope, entry in zip(parts[::2], parts[1::2], strict=False):
        name, _, value = entry.partition("\n")
        found.append(_Setting(scope, name, value))
    return found


async def _folders(place: _Place, *, known: bool) -> GitFolders | None:
    code, said = await place.ask("rev-parse", "--absolute-git-dir", "--git-common-dir")
    if code and not known:
        return None  # git sees no repository, and the git that runs will say so
    lines = os.fsdecode(said).split("\n")
    if code or len(lines) != 3:
        why = f"git cannot tell where the repository is ({_first_line(said)})"
        raise ForeignRepositoryError(why)
    return GitFolders(Path(lines[0]), place.wanted.cwd / lines[1])


async def _check_submodules(place: _Place) -> None:
    top = await _top(place)
    if top is None:
        return  # and so there is no submodule that is checked out
    code, listed = await place.ask("ls-files", "--stage", "-z", "--full-name", ":/")
    if code:
        why = f"git cannot list the files of the repository ({_first_line(listed)})"
        raise ForeignRepositoryError(why)
    for entry in listed.split(b"\0"):
        if not entry.startswith(b"160000 "):
            continue
        path = top / os.fsdecode(entry.partition(b"\t")[2])
        if await asyncio.to_thread(os.path.lexists, path / ".git"):
            await _check_submodule(path, place)


async def _check_submodule(path: Path, place: _Place) -> tuple[_Place, _Found] | None:
    """The repository there and how it is asked, if it can do no harm; None without one."""
    if place.depth >= _DEEPEST_SUBMODULE:
        raise ForeignRepositoryError("its submodules have too many submodules of their own")
    # As git itself enters it: by this name, and no other repository above it.
    wanted = GitRun(path, ("--git-dir=.git",))
    inner = _Place(place.git, wanted, place.folder, place.depth + 1)
    found = await _check(inner)
    if found is None:
        return None
    if found.hooks_of_the_user is None:
        await _check_hooks(inner)
    await _check_submodules(inner)
    return inner, found


async def _check_hooks(place: _Place, which: frozenset[str] | None = None) -> None:
    """ForeignRepositoryError if the repository brings a hook, one of these or any."""
    code, said = await place.ask("rev-parse", "--git-path", "hooks", guard=GitGuard(hooks=None))
    named = os.fsdecode(said).rstrip("\n")
    if code:
        raise ForeignRepositoryError(f"git cannot tell where its hooks are ({_first_line(said)})")
    hooks = await asyncio.to_thread(_hooks_in, place.wanted.cwd / named)
    hook = next((each for each in hooks if which is None or each in which), None)
    if hook is not None:
        written = f"git -c core.hooksPath={printable(shlex.quote(named))} VERB …"
        raise ForeignRepositoryError(
            f"the repository has a hook, {printable(hook)}, a program that git would start"
            f"{place.where}",
            hint="the user may run git there, or write out, in the whole command, that hooks may"
            f" run: {written!r}",
        )


def _hooks_in(folder: Path) -> list[str]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 -- names alone
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        why = "the folder of its hooks cannot be listed"
        raise ForeignRepositoryError(why) from error
    return [name for name in names if not name.endswith(".sample")]


def _check_finished(git_folder: Path) -> None:
    """Nothing was left half done: git would go on with whatever is written there."""
    left = next((name for name in _LEFT_HALF_DONE if os.path.lexists(git_folder / name)), None)
    if left is not None:
        raise ForeignRepositoryError(
            f"a rebase, cherry-pick or the like was left half done there ({left}), and git would"
            " start what it says",
            hint="the user may go on with it, or end it with `--abort`",
        )


async def _check_kept(place: _Place, found: _Found) -> None:
    """No submodule or worktree names a program, even if only this git would bring it in."""
    common = await _looked(Path.absolute, found.folders.common)
    folders = await _looked(kept_folders, common, place.folder)
    work_trees = [each.work_tree for each in folders if each.work_tree is not None]
    work_trees += [each for each in (await _top(place), place.folder) if each is not None]
    work_trees += [common.parent] if common.name == ".git" else []
    for each in folders:
        for file in await _looked(lambda kept: kept.settings, each):
            await _check_kept_settings(place, file, common, work_trees)
        if found.hooks_of_the_user is None:
            await _check_kept_hooks(each, common)


async def _check_kept_settings(
    place: _Place, file: Path, common: Path, work_trees: Sequence[Path]
) -> None:
    code, said = await place.ask("config", "--file", str(file), "--list", "-z")
    where = printable(str(file.relative_to(common)))
    if code:
        raise ForeignRepositoryError(f"git cannot read {where} ({_first_line(said)})")
    for entry in os.fsdecode(said).split("\0")[:-1]:
        name, _, value = entry.partition("\n")
        kind = kind_of(name, value)
        if kind in ("inert", "tool") or (
            kind == "work tree" and await _looked(_is_in, file.parent / value, work_trees, common)
        ):
            continue
        command = shlex.join(["git", "config", "--file", str(file), "--unset-all", name])
        raise ForeignRepositoryError(
            f"{where} sets {printable(name)}, which may start a program or lead elsewhere",
            hint=f"the user may run git there, or take it out: {printable(command)}",
        )


async def _check_kept_hooks(kept: KeptFolder, common: Path) -> None:
    hooks = await asyncio.to_thread(_hooks_in, kept.path / "hooks")
    if hooks:
        where = printable(str(kept.path.relative_to(common)))
        raise ForeignRepositoryError(
            f"there is a hook in {where}, {printable(hooks[0])}, a program that git would start"
        )


def _is_in(path: Path, work_trees: Sequence[Path], git_folder: Path) -> bool:
    """Whether a path is in one of these work trees, and not in the git folder that lies there."""
    at, own = path.resolve(), git_folder.resolve()
    tops = [top for each in work_trees if at.is_relative_to(top := each.resolve())]
    return any(not (own.is_relative_to(top) and at.is_relative_to(own)) for top in tops)


async def _check_nested(place: _Place, seen: set[Path]) -> None:
    """Every repository in the work tree is as a submodule has to be: it may become one.

    `seen` are the git folders of which it is known what is kept inside.
    """
    top = await _top(place)
    if top is None:
        return
    for path in await _looked(nested_repositories, top):
        nested = await _check_submodule(path, place)
        if nested is None:
            continue
        inner, found = nested
        common = await _looked(Path.resolve, found.folders.common)
        if common not in seen:
            seen.add(common)
            await _check_kept(inner, found)


async def _top(place: _Place) -> Path | None:
    """The work tree; None without one."""
    code, said = await place.ask("rev-parse", "--show-toplevel")
    return None if code else Path(os.fsdecode(said.rstrip(b"\n")))


def _refusal(setting: _Setting, place: _Place) -> ForeignRepositoryError:
    scope = "--worktree" if setting.scope == "worktree" else "--local"
    words = ["git", "-C", str(place.wanted.cwd)] if place.depth else ["git"]
    command = shlex.join([*words, "config", scope, "--unset-all", setting.name])
    return ForeignRepositoryError(
        f"the repository sets {printable(setting.name)}{place.where}, which may start a program"
        " or lead elsewhere",
        hint=f"the user may run git there, or take it out: {printable(command)}",
    )


async def _run(git: str, cwd: Path, words: Sequence[str], guard: GitGuard) -> tuple[int, bytes]:
    try:
        process = await asyncio.create_subprocess_exec(
            git,
            *words,
            cwd=cwd,
            env=guard.environment(os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return 1, (error.strerror or type(error).__name__).encode()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            said, problem = await process.communicate()
    except TimeoutError:
        raise ForeignRepositoryError("git does not answer there in time") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    code = process.returncode or 0
    return code, problem if code and not said else said


def _first_line(said: bytes) -> str:
    text = said.decode("utf-8", "replace").strip().partition("\n")[0]
    return printable(text[:200]) or "without a word"
