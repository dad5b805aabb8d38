"""Save clean-up actions, find them again and run them: commands, functions, git worktrees.

Rules: (1) running returns a fault as a sentence, with the words of the command or function apart,
and raises nothing but CancelledError; (2) nothing
is waited for beyond the limit: a command is ended with all that it started; a function in a thread
cannot be ended, and is left; (3) only functions at the top level of a module are saved: another
process finds them through the flow's file or their module; (4) a model's command is saved with the
folder that it was judged in and the patterns that permit it; it is judged again right before it
runs, by those and by the user's of that time, and gets no secret; any other command is the user's,
runs in the run's folder and has the whole environment; (5) a worktree with a changed, new or
unreadable file, or with commits on no branch, is not removed, and nothing is forced; files that git
ignores are no work; (6) within an action, `ctx` is about the run and agent that are cleaned up, and
what it notes or rents is saved before the action counts as done.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any, cast

from jackline.batches.permission import permit
from jackline.batches.policy import Allowed, CallPermission, Denied, Policy
from jackline.batches.processes import without_secrets
from jackline.batches.threads import call_function, contain_exits
from jackline.batches.tool import BatchCall
from jackline.clock import Clock
from jackline.errors import BadArgumentError, JacklineError, UnreadableError
from jackline.flows.flow_sources import check_user_code
from jackline.flows.records import AllowedCommand, ResourceRecord, parse_allowed_command
from jackline.flows.settings import AllowPatterns
from jackline.flows.store.run_store import NOT_OURS, RunStore
from jackline.foreign_repositories import ForeignRepositoryError, ask_git
from jackline.user_errors import ErrorTexts, error_texts

_MOST_ERROR_TEXT = 200
_DONE = ErrorTexts("")
_FUNCTION_PREFIX = "function "


def render_action(action: object, flow_module: str) -> str:
    """A hook or release as it is saved: a command, or `function NAME`; UsageError for others."""
    if isinstance(action, str):
        if action.strip():
            return action
    elif callable(action):
        name, module = getattr(action, "__qualname__", ""), getattr(action, "__module__", "")
        if name and getattr(sys.modules.get(module), name, None) is action:
            place = "" if module == flow_module else f"{module}:"
            return f"{_FUNCTION_PREFIX}{place}{name}"
    raise BadArgumentError(
        f"{getattr(action, '__qualname__', repr(action))} cannot clean up after a crash: "
        "the next process could not find it.",
        hint="Pass a shell command, or a function at the top level of the flow's file.",
    )


def find_function(name: str, flow_module: ModuleType | None) -> Callable[..., object]:
    """The function of that name."""
    module_name, _, own = name.rpartition(":")
    if not module_name:
        found = getattr(flow_module, own, None)
    else:
        check_user_code(f"{own}() of {module_name}")
        try:
            found = getattr(import_module(module_name), own, None)
        except Exception as error:
            brief, private = error_texts(error)
            says = f"{module_name} cannot be imported: {brief}."
            raise UnreadableError(says, private=private) from error
    if not callable(found):
        raise UnreadableError(
            f"There is no function {own}() in {module_name or 'the flow’s file'} any more.",
            hint="Put it back, or release by hand what it would have released.",
        )
    return cast("Callable[..., object]", found)


async def denial(
    command: str, folder: Path, allow: Sequence[str], trusted: tuple[Path, ...] | None = None
) -> Denied | None:
    """Why the command may not run in this folder now; None when it may.

    `trusted` are the folders that the user chose, where a model may have chosen `folder`.
    """
    verdict = await _judged(command, folder, allow, trusted)
    return verdict if isinstance(verdict, Denied) else None


async def permitted_words(
    allowed: AllowedCommand, allow_now: Sequence[str]
) -> tuple[str, ...] | str:
    """The words that may run now, without a shell; or why none may any more."""
    folder = Path(allowed.folder)
    try:
        # It is there, and no link on the way to it leads elsewhere.
        resolved = await asyncio.to_thread(partial(folder.resolve, strict=True))
        is_itself = resolved == folder and await asyncio.to_thread(folder.is_dir)
    except (OSError, RuntimeError):
        is_itself = False
    if not is_itself:
        return f"not run: the folder {folder} is gone, or a link by now; run it by hand"
    verdict = await _judged(allowed.command, folder, allowed.allow)
    if not isinstance(verdict, Denied):
        # The user may have withdrawn the permission since it was ordered.
        verdict = await _judged(allowed.command, folder, allow_now)
    if isinstance(verdict, Denied):
        return f"not run: {verdict.why}; look at the folder {folder}, then run it by hand"
    return verdict.argv


async def _judged(
    command: str, folder: Path, allow: Sequence[str], trusted: tuple[Path, ...] | None = None
) -> CallPermission:
    from jackline.batches.shell import ShellTool  # noqa: PLC0415 -- loads pydantic

    call = BatchCall("release", ShellTool(), {"command": command})
    verdict = await permit(Policy(folder, tuple(allow), trusted=trusted), call)
    if isinstance(verdict, Allowed) and verdict.guard is not None:
        # It runs later, without the guard, when the repository may say something else.
        return Denied("it starts git", "let the agent itself clean up what git made")
    return verdict


async def run_command(
    command: str | Sequence[str],
    *,
    stdin: bytes,
    environment: Mapping[str, str],
    cwd: str,
    limit: float,
    clock: Clock,
) -> ErrorTexts:
    """Why the command failed; empty when it did not. `environment` has all of its variables."""
    # Files, not pipes: a command need not read its input, and a child that it leaves behind
    # cannot keep us waiting for the end of its output.
    with TemporaryFile() as input_file, TemporaryFile() as errors:
        input_file.write(stdin)
        input_file.seek(0)
        try:
            start = (
                partial(asyncio.create_subprocess_shell, command)
                if isinstance(command, str)
                else partial(asyncio.create_subprocess_exec, *command)
            )
            process = await start(
                stdin=input_file,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=errors,
                cwd=cwd or None,
                env=dict(environment),
                # Its own group: a limit ends its children too, and Ctrl-C does not end it.
                start_new_session=sys.platform != "win32",
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            return ErrorTexts(f"it could not be started: {reason}")
        ended = asyncio.ensure_future(process.wait())
        try:
            in_time = await _done_before(ended, clock.sleep(limit))
        finally:
            if not ended.done():
                # It may have ended in the meantime, which is what we want.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    if sys.platform == "win32":
                        process.kill()
                    else:
                        os.killpg(process.pid, signal.SIGKILL)
                await asyncio.wait({ended})
        if not in_time:
            return ErrorTexts(f"it took longer than {limit:g} seconds and was ended")
        if process.returncode == 0:
            return _DONE
        errors.seek(0)
        lines = errors.read().decode("utf-8", "replace").strip().splitlines()
        last = lines[-1][-_MOST_ERROR_TEXT:] if lines else "it wrote nothing to stderr"
        return ErrorTexts(f"exit {process.returncode}", last)


async def _done_before(work: asyncio.Future[Any], limit: Coroutine[Any, Any, object]) -> bool:
    limiting = asyncio.ensure_future(limit)
    try:
        await asyncio.wait({work, limiting}, return_when=asyncio.FIRST_COMPLETED)
        return work.done()
    finally:
        limiting.cancel()


_WORKTREE_PREFIX = "worktree "
# For our questions, and for git's own check before it removes.
_PLAIN = ("-c", "status.showUntrackedFiles=normal")


def release_of_worktree(path: Path) -> str:
    """The `release=` of a worktree: `ctx.resource(name, release=release_of_worktree(p))`."""
    return f"{_WORKTREE_PREFIX}{path.resolve()}"


async def remove_if_clean(path: Path) -> str:
    """Why the worktree was kept; empty when it is gone."""
    if not await asyncio.to_thread(path.exists):
        return ""
    git = partial(ask_git, path, *_PLAIN)
    try:
        code, output = await git("status", "--porcelain", "--ignore-submodules=all")
        if code:
            says = output.decode("utf-8", "replace").strip()[:100]
            return f"kept: git cannot say whether it is clean ({says or code})"
        if output.strip():
            return f"kept: {len(output.splitlines())} changed or new files are not committed"
        code, output = await git("ls-files", "-v", "-z")
        overlooked = 1 if code else await asyncio.to_thread(_overlooked, path, output)
        if overlooked:
            return f"kept: git is set to overlook changes, in {overlooked} files"
        # With the worktree goes the only name of what was committed without a branch.
        code, output = await git("for-each-ref", "--count=1", "--contains", "HEAD")
        if code or not output.strip():
            return "kept: its last commit is on no branch (`git branch NAME` there saves it)"
        code, output = await git("worktree", "remove", str(path))
    except ForeignRepositoryError as error:
        return f"kept: git is not run there: {error.why}; look at it, then `git worktree remove`"
    return f"kept: {output.decode('utf-8', 'replace').strip()[:200]}" if code else ""


def _overlooked(path: Path, listed: bytes) -> int:
    """How many files are there whose changes `git status` never shows."""
    # A small letter: assumed to be unchanged. S: not checked out, if it is really not there.
    marked = [line[2:] for line in listed.split(b"\0") if line[:1].islower() or line[:1] == b"S"]
    return sum(os.path.lexists(path / os.fsdecode(name)) for name in marked)


@dataclass(frozen=True, slots=True)
class OwnerlessRun:
    """A run that no process carries any more, while it is cleaned up after."""

    run_id: str
    store: RunStore
    clock: Clock
    flow_module: Callable[[], ModuleType | None]
    phases: Mapping[str, str] = field(default_factory=dict)
    """The phase of each agent, by its task id."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _writing: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def flow_module_name(self) -> str:
        """The name under which the flow's file is loaded here; empty when it cannot be."""
        module = self.flow_module()
        return "" if module is None else module.__name__

    def note(self, text: str, detail: Mapping[str, object]) -> None:
        """Write a line to the run's log; on the loop's thread."""
        line = {"says": text, **detail}
        self.write(self.store.note(self.run_id, self.clock.wall(), "note", "", line))

    async def keep(self, resource: ResourceRecord) -> None:
        """Put something on the ledger."""
        await self.store.save_resource(resource)

    def write(self, writing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin to write something at once; on the loop's thread."""
        task = self.loop.create_task(writing)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    async def settle(self) -> None:
        """Returns when all that was noted or rented so far is written."""
        if self._writing:
            await asyncio.gather(*self._writing)


@dataclass(frozen=True, slots=True)
class CleanupScope:
    """Whose clean-up it is; `task_id` is empty where the run itself ended."""

    run_id: str
    task_id: str
    left: OwnerlessRun | None = None
    """Set when no process carries the run."""
    key: str = ""
    """The hook's idempotency key; empty in a release."""

    @property
    def phase(self) -> str:
        """The phase of the agent, where only the store knows it."""
        return "" if self.left is None else self.left.phases.get(self.task_id, "")


CLEANUP_SCOPE: ContextVar[CleanupScope | None] = ContextVar("jackline_cleanup_scope", default=None)


_BROKEN_OFF = "it was broken off, since the program has to end at once"


@dataclass(frozen=True, slots=True)
class CleanupAction:
    """One thing to do: `stdin` is for a command, `argument` for a function.

    `task_id` is the agent that it cleans up after; empty when it is the run itself. `key` is a
    hook's idempotency key; empty for a release.
    """

    run_id: str
    task_id: str
    action: str
    stdin: bytes
    argument: object
    environment: dict[str, str] = field(default_factory=dict)
    key: str = ""


@dataclass(frozen=True, slots=True)
class ActionRunner:
    """Runs the actions of one run."""

    clock: Clock
    limit: float
    cwd: str
    flow_module: Callable[[], ModuleType | None]
    """The flow's module, loaded when a function of it is first needed."""
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    """Once set, what is running is broken off, and left to the next process."""
    left: OwnerlessRun | None = None
    """The run, when no process carries it any more."""
    trusted: bool = True
    """Whether this installation wrote the run: its folder and its flow are only then used."""
    allow: AllowPatterns = tuple
    """Gives the user's patterns of now for commands that models have ordered."""

    async def do(self, act: CleanupAction) -> ErrorTexts:
        """Why it failed; empty when it did not."""
        if not self.trusted:
            return ErrorTexts(NOT_OURS)
        token = CLEANUP_SCOPE.set(CleanupScope(act.run_id, act.task_id, self.left, act.key))
        try:
            doing = asyncio.ensure_future(self._done(act))
            try:
                await _done_before(doing, self.hurry.wait())
            finally:
                if not doing.done():
                    doing.cancel()
                    await asyncio.wait({doing})
            trouble = ErrorTexts(_BROKEN_OFF) if doing.cancelled() else doing.result()
        finally:
            CLEANUP_SCOPE.reset(token)
        if self.left is not None:
            try:
                await self.left.settle()
            except JacklineError as error:
                return trouble or ErrorTexts(f"its notes could not be saved: {error.message}")
        return trouble

    async def _done(self, act: CleanupAction) -> ErrorTexts:
        if act.action.startswith(_WORKTREE_PREFIX):
            # From the run's folder, like a command: whoever cleans up may be in another.
            worktree = Path(self.cwd, act.action.removeprefix(_WORKTREE_PREFIX))
            try:
                # By the loop's own time, like each question to git in it.
                async with asyncio.timeout(self.limit):
                    return ErrorTexts(await remove_if_clean(worktree))
            except TimeoutError:
                return ErrorTexts(f"kept: git took longer than {self.limit:g} seconds there")
        if act.action.startswith(_FUNCTION_PREFIX):
            return await self._call(act.action.removeprefix(_FUNCTION_PREFIX), act.argument)
        command: str | tuple[str, ...] = act.action
        environment, cwd, stdin = {**os.environ}, self.cwd, act.stdin
        if allowed := parse_allowed_command(act.action):
            command = await permitted_words(allowed, self.allow())
            if isinstance(command, str):
                return ErrorTexts(command)
            # Its input would be a model's text, which some programs read as commands.
            environment, cwd, stdin = without_secrets(os.environ), allowed.folder, b""
        return await run_command(
            command,
            stdin=stdin,
            environment={**environment, **act.environment},
            cwd=cwd,
            limit=self.limit,
            clock=self.clock,
        )

    async def _call(self, name: str, argument: object) -> ErrorTexts:
        try:
            function = find_function(name, self.flow_module())
        except JacklineError as error:
            return ErrorTexts(error.message, error.private)
        calling = asyncio.ensure_future(_called(function, argument))
        try:
            in_time = await _done_before(calling, self.clock.sleep(self.limit))
        finally:
            if not calling.done():
                calling.cancel()
        late = ErrorTexts(f"it took longer than {self.limit:g} seconds")
        return calling.result() if in_time else late


async def _called(function: Callable[..., object], argument: object) -> ErrorTexts:
    try:
        with contain_exits():
            await call_function(lambda: function(argument), function)
    except Exception as error:  # noqa: BLE001 -- a border: a hook's fault is returned
        return error_texts(error)
    return _DONE
