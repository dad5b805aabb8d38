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
    MisplacedRepositoryError,
    leads_to,
    nested_repositories,
)
from jackline.foreign_repositories.guard import GitGuard, kind_of
from jackline.outside_names import printable
from jackline.programs import find_program

_Arguments = ParamSpec("_Arguments")
_T = TypeVar("_T")

_OF_THE_USER = frozenset(("system", "global", "command"))
_TIMEOUT_S = 20.0
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
_LOOK_ONLY = GitGuard()


class ForeignRepositoryError(Exception):
    """Git must not be run there: `why`, and `hint`, what would help."""

    def __init__(self, why: str, *, hint: str = "the user may run git there") -> None:
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
    """The exit code of git, and its output or why it failed; ForeignRepositoryError as above.

    The question must not look into submodules: those are not checked.
    """
    git = find_program("git")
    if git is None:
        return 1, b"there is no git on the PATH"
    repository = _Repository(git, GitRun(cwd))
    await repository.check()
    return await repository.ask(*words)


async def guard_for(wanted: GitRun, folder: Path) -> GitGuard:
    """The guard with which this git may run; ForeignRepositoryError when it must not.

    `folder` is where its user works: what lies inside belongs to it, wherever git would put it.
    """
    git = find_program("git")
    if git is None:
        raise ForeignRepositoryError("there is no git on the PATH", hint="install git")
    repository = _Repository(git, wanted, folder)
    exists = await repository.check()
    if wanted.looking:
        if exists:
            await repository.check_submodules()
        return GitGuard()
    if exists:
        if repository.user_hooks is None and not wanted.names_hooks:
            of_any_verb = wanted.verb in _WITHOUT_HOOKS
            await repository.check_hooks(_OF_ANY_VERB if of_any_verb else None)
        await asyncio.to_thread(repository.check_finished)
        await repository.check_inner_folders()
        await repository.check_nested()
    return GitGuard(
        looking=False,
        hooks=repository.user_hooks or os.devnull,
        connecting=wanted.verb in _CONNECTING,
        fetching=wanted.verb in _FETCHING,
    )


class _Repository:
    """What git finds in one place; everything but `ask` needs `check` first.

    With a `depth` above 0 it is a submodule: a git that is started there has no settings of ours.
    """

    def __init__(
        self, git: str, wanted: GitRun, folder: Path | None = None, depth: int = 0
    ) -> None:
        self._git = git
        self._wanted = wanted
        self._folder = folder
        self._depth = depth
        self._where = f" in the submodule {printable(wanted.cwd.name)}" if depth else ""
        self.folders = GitFolders(Path(), Path())
        self.user_hooks: str | None = None
        """The folder of hooks that the user has set for all repositories, if none else counts."""

    async def ask(self, *words: str, guard: GitGuard = _LOOK_ONLY) -> tuple[int, bytes]:
        """The exit code of git there, and its output or why it failed."""
        try:
            process = await asyncio.create_subprocess_exec(
                self._git,
                *self._wanted.leading,
                *words,
                cwd=self._wanted.cwd,
                env=guard.environment(os.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            return 1, (error.strerror or type(error).__name__).encode()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                output, problem = await process.communicate()
        except TimeoutError:
            raise ForeignRepositoryError("git does not answer there in time") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        code = process.returncode or 0
        return code, problem if code and not output else output

    async def _ask_or_refuse(
        self, problem: str, *words: str, guard: GitGuard = _LOOK_ONLY
    ) -> bytes:
        """The output of git; ForeignRepositoryError with the problem when it fails."""
        code, output = await self.ask(*words, guard=guard)
        if code:
            raise ForeignRepositoryError(f"{problem} ({self._first_line(output)})")
        return output

    def _first_line(self, output: bytes) -> str:
        text = output.decode("utf-8", "replace").strip().partition("\n")[0]
        return printable(text[:200]) or "without a message"

    async def _top(self) -> Path | None:
        """The work tree; None without one."""
        code, output = await self.ask("rev-parse", "--show-toplevel")
        return None if code else Path(os.fsdecode(output.rstrip(b"\n")))

    async def check(self) -> bool:
        """Whether there is a repository; ForeignRepositoryError if one of its settings can harm."""
        listed = await self._ask_or_refuse(
            "git cannot read the settings of the repository",
            *("config", "--list", "--includes", "--show-scope", "-z"),
        )
        parts = os.fsdecode(listed).split("\0")
        settings = [
            (scope, *entry.partition("\n")[::2])
            for scope, entry in zip(parts[::2], parts[1::2], strict=False)
        ]
        own = [each for each in settings if each[0] not in _OF_THE_USER]
        code, output = await self.ask("rev-parse", "--absolute-git-dir", "--git-common-dir")
        if code and not own:
            return False  # git sees no repository, and the git that runs will report that
        lines = os.fsdecode(output).split("\n")
        if code or len(lines) != 3:
            why = f"git cannot say where the repository is ({self._first_line(output)})"
            raise ForeignRepositoryError(why)
        git_folder = Path(lines[0])
        self.folders = GitFolders(git_folder, self._wanted.cwd / lines[1])
        work_trees = []
        for scope, name, value in own:
            named = git_folder / value
            is_work_tree = kind_of(name, value) == "work tree"
            if is_work_tree and await _look(leads_to, named / ".git", git_folder):
                work_trees.append(named)
            elif not await self._is_harmless(name, value):
                raise self._refusal(scope, name)
        await _look(self.folders.check_place, self._wanted.cwd, self._folder, work_trees)
        hooks = [(scope, value) for scope, name, value in settings if name == "core.hookspath"]
        if hooks and all(scope in _OF_THE_USER for scope, _ in hooks):
            users = [value for scope, value in hooks if scope in ("system", "global")]
            self.user_hooks = users[-1] if users else None
        return True

    async def _is_harmless(self, name: str, value: str) -> bool:
        match kind_of(name, value):
            case "inert":
                return True
            case "guarded" | "hooks":
                return not self._depth
            case "tool":
                return self._wanted.verb not in ("difftool", "mergetool")
            case "file":
                # Git quotes a file that it cannot read: it must be the work tree's.
                top = await self._top()
                if top is None or value.startswith(("~", "%", ":")):
                    return False
                return await asyncio.to_thread(
                    lambda: (top / value).resolve().is_relative_to(top.resolve())
                )
            case _:
                return False

    def _refusal(self, scope: str, name: str) -> ForeignRepositoryError:
        option = "--worktree" if scope == "worktree" else "--local"
        words = ["git", "-C", str(self._wanted.cwd)] if self._depth else ["git"]
        command = shlex.join([*words, "config", option, "--unset-all", name])
        return ForeignRepositoryError(
            f"the repository sets {printable(name)}{self._where}, which may start a program"
            " or lead elsewhere",
            hint=f"the user may run git there, or take it out: {printable(command)}",
        )

    async def check_submodules(self) -> None:
        """ForeignRepositoryError if a submodule that is checked out can do harm."""
        top = await self._top()
        if top is None:
            return  # and so there is no submodule that is checked out
        listed = await self._ask_or_refuse(
            "git cannot list the files of the repository",
            *("ls-files", "--stage", "-z", "--full-name", ":/"),
        )
        for entry in listed.split(b"\0"):
            if not entry.startswith(b"160000 "):
                continue
            path = top / os.fsdecode(entry.partition(b"\t")[2])
            if await asyncio.to_thread(os.path.lexists, path / ".git"):
                await self._check_submodule(path)

    async def _check_submodule(self, path: Path) -> _Repository | None:
        """The repository there, if it can do no harm; None without one."""
        if self._depth >= _DEEPEST_SUBMODULE:
            raise ForeignRepositoryError("its submodules have too many submodules of their own")
        # As git itself enters it: by this name, and no other repository above it.
        wanted = GitRun(path, ("--git-dir=.git",))
        inner = _Repository(self._git, wanted, self._folder, self._depth + 1)
        if not await inner.check():
            return None
        if inner.user_hooks is None:
            await inner.check_hooks()
        await inner.check_submodules()
        return inner

    async def check_hooks(self, which: frozenset[str] | None = None) -> None:
        """ForeignRepositoryError if the repository brings a hook, one of these or any."""
        output = await self._ask_or_refuse(
            "git cannot say where its hooks are",
            *("rev-parse", "--git-path", "hooks"),
            guard=GitGuard(hooks=None),
        )
        named = os.fsdecode(output).rstrip("\n")
        hooks = await asyncio.to_thread(_hooks_in, self._wanted.cwd / named)
        hook = next((each for each in hooks if which is None or each in which), None)
        if hook is not None:
            written = f"git -c core.hooksPath={printable(shlex.quote(named))} VERB …"
            raise ForeignRepositoryError(
                f"the repository has a hook, {printable(hook)}, a program that git would start"
                f"{self._where}",
                hint="the user may run git there, or write out, in the whole command, that hooks"
                f" may run: {written!r}",
            )

    def check_finished(self) -> None:
        """Nothing was left half done: git would go on with whatever is written there."""
        own = self.folders.own
        left = next((name for name in _LEFT_HALF_DONE if os.path.lexists(own / name)), None)
        if left is not None:
            raise ForeignRepositoryError(
                f"a rebase, cherry-pick or the like was left half done there ({left}), and git"
                " would start what it says",
                hint="the user may go on with it, or end it with `--abort`",
            )

    async def check_inner_folders(self) -> None:
        """No submodule or worktree names a program, even if only this git would bring it in."""
        common = await _look(Path.absolute, self.folders.common)
        folders = await _look(self.folders.inner_folders, self._folder)
        work_trees = [work_tree for _, work_tree in folders if work_tree is not None]
        work_trees += [each for each in (await self._top(), self._folder) if each is not None]
        work_trees += [common.parent] if common.name == ".git" else []
        for path, _ in folders:
            for name in ("config", "config.worktree"):
                if await _look(os.path.lexists, path / name):
                    await self._check_inner_settings(path / name, common, work_trees)
            hooks = []
            if self.user_hooks is None:
                hooks = await asyncio.to_thread(_hooks_in, path / "hooks")
            if hooks:
                where = printable(str(path.relative_to(common)))
                raise ForeignRepositoryError(
                    f"there is a hook in {where}, {printable(hooks[0])}, a program that git would"
                    " start"
                )

    async def _check_inner_settings(
        self, file: Path, common: Path, work_trees: Sequence[Path]
    ) -> None:
        where = printable(str(file.relative_to(common)))
        listed = await self._ask_or_refuse(
            f"git cannot read {where}", *("config", "--file", str(file), "--list", "-z")
        )
        for entry in os.fsdecode(listed).split("\0")[:-1]:
            name, _, value = entry.partition("\n")
            kind = kind_of(name, value)
            if kind in ("inert", "tool") or (
                kind == "work tree" and await _look(self._is_in, file.parent / value, work_trees)
            ):
                continue
            command = shlex.join(["git", "config", "--file", str(file), "--unset-all", name])
            raise ForeignRepositoryError(
                f"{where} sets {printable(name)}, which may start a program or lead elsewhere",
                hint=f"the user may run git there, or take it out: {printable(command)}",
            )

    def _is_in(self, path: Path, work_trees: Sequence[Path]) -> bool:
        """Whether a path is in one of these work trees, and not in the git folder there."""
        at, own = path.resolve(), self.folders.common.resolve()
        tops = [top for each in work_trees if at.is_relative_to(top := each.resolve())]
        return any(not (own.is_relative_to(top) and at.is_relative_to(own)) for top in tops)

    async def check_nested(self) -> None:
        """Every repository in the work tree is as a submodule has to be: it may become one."""
        top = await self._top()
        if top is None:
            return
        checked = {await _look(Path.resolve, self.folders.common)}
        for path in await _look(nested_repositories, top):
            inner = await self._check_submodule(path)
            if inner is None:
                continue
            common = await _look(Path.resolve, inner.folders.common)
            if common not in checked:
                checked.add(common)
                await inner.check_inner_folders()


async def _look(
    look: Callable[_Arguments, _T], *arguments: _Arguments.args, **more: _Arguments.kwargs
) -> _T:
    """The result of a look at the disk, in a thread."""
    try:
        return await asyncio.to_thread(look, *arguments, **more)
    except MisplacedRepositoryError as error:
        raise ForeignRepositoryError(f"the repository is not as git makes one: {error}") from error
    except (OSError, ValueError) as error:
        why = f"the repository cannot be looked through ({type(error).__name__})"
        raise ForeignRepositoryError(why) from error


def _hooks_in(folder: Path) -> list[str]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 -- names alone
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        why = "the folder of its hooks cannot be listed"
        raise ForeignRepositoryError(why) from error
    return [name for name in names if not name.endswith(".sample")]
