"""Run one clean-up action: a command, a function, or the removal of a git worktree.

Rules: (1) it returns a fault as a sentence and raises nothing but CancelledError; (2) nothing is
waited for beyond the limit: a command is ended with all that it started; a function in a thread
cannot be ended, and is left; (3) a command of the user's own flow runs in the run's folder with
the whole environment, one that a model ordered as actions.py says; (4) a worktree with a changed,
new or unreadable file, or with commits on no branch, is not removed, and nothing is forced; files
that git ignores are no work; (5) within an action, `ctx` is about the run and agent that are
cleaned up, also when no process runs them any more, and what it notes or rents is saved before
the action counts as done.
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
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any

from jackline.batches.processes import without_secrets
from jackline.batches.threads import LeavingError, call_function, contain_exits
from jackline.clock import Clock
from jackline.errors import JacklineError
from jackline.flows.actions import find_function, function_name, permitted_words
from jackline.flows.records import ResourceRecord, parse_allowed_command
from jackline.flows.settings import AllowPatterns
from jackline.flows.store.run_store import NOT_OURS, RunStore
from jackline.foreign_repositories import ForeignRepositoryError, ask_git

_MOST_ERROR_TEXT = 200


async def run_command(
    command: str | Sequence[str],
    *,
    stdin: bytes,
    environment: Mapping[str, str],
    cwd: str,
    limit: float,
    clock: Clock,
) -> str:
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
            return f"it could not be started: {error}"
        if not await _ended_in_time(process, clock.sleep(limit)):
            return f"it took longer than {limit:g} seconds and was ended"
        if process.returncode == 0:
            return ""
        errors.seek(0)
        lines = errors.read().decode("utf-8", "replace").strip().splitlines()
        last = lines[-1][-_MOST_ERROR_TEXT:] if lines else "it wrote nothing to stderr"
        return f"exit {process.returncode}: {last}"


async def _ended_in_time(
    process: asyncio.subprocess.Process, limit: Coroutine[Any, Any, object]
) -> bool:
    """Whether it ended by itself; it has ended in any case."""
    ended = asyncio.ensure_future(process.wait())
    try:
        return await _done_before(ended, limit)
    finally:
        if not ended.done():
            # It may have ended in the meantime, which is what we want.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if sys.platform == "win32":
                    process.kill()
                else:
                    os.killpg(process.pid, signal.SIGKILL)
            await asyncio.wait({ended})


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
    try:
        return await _remove(path)
    except ForeignRepositoryError as error:
        return f"kept: git is not run there: {error.why}; look at it, then `git worktree remove`"


async def _remove(path: Path) -> str:
    code, output = await _git(path, "status", "--porcelain", "--ignore-submodules=all")
    if code:
        return f"kept: git cannot tell whether it is clean ({_text(output)[:100] or code})"
    if output.strip():
        return f"kept: {len(output.splitlines())} changed or new files are not committed"
    if overlooked := await _overlooked(path):
        return f"kept: git is set to overlook changes, in {overlooked} files"
    # With the worktree goes the only name of what was committed without a branch.
    code, output = await _git(path, "for-each-ref", "--count=1", "--contains", "HEAD")
    if code or not output.strip():
        return "kept: its last commit is on no branch (`git branch NAME` there saves it)"
    code, output = await _git(path, "worktree", "remove", str(path))
    return f"kept: {_text(output)[:200]}" if code else ""


async def _overlooked(path: Path) -> int:
    """How many files are there whose changes `git status` never shows."""
    code, output = await _git(path, "ls-files", "-v", "-z")
    if code:
        return 1
    # A small letter: assumed to be unchanged. S: not checked out, if it is really not there.
    marked = [line[2:] for line in output.split(b"\0") if line[:1].islower() or line[:1] == b"S"]

    def there() -> int:
        return sum(os.path.lexists(path / os.fsdecode(name)) for name in marked)

    return await asyncio.to_thread(there)


async def _git(cwd: Path, *words: str) -> tuple[int, bytes]:
    return await ask_git(cwd, *_PLAIN, *words)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace").strip()


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


CLEANUP_SCOPE: ContextVar[CleanupScope | None] = ContextVar(
    "jackline_clean_up_standing", default=None
)


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

    async def do(self, act: CleanupAction) -> str:
        """Why it failed; empty when it did not."""
        if not self.trusted:
            return NOT_OURS
        token = CLEANUP_SCOPE.set(CleanupScope(act.run_id, act.task_id, self.left, act.key))
        try:
            trouble = await self._in_time(act)
        finally:
            CLEANUP_SCOPE.reset(token)
        if self.left is not None:
            try:
                await self.left.settle()
            except JacklineError as error:
                return trouble or f"its notes could not be saved: {error.message}"
        return trouble

    async def _in_time(self, act: CleanupAction) -> str:
        doing = asyncio.ensure_future(self._done(act))
        try:
            await _done_before(doing, self.hurry.wait())
        finally:
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing})
        return _BROKEN_OFF if doing.cancelled() else doing.result()

    async def _done(self, act: CleanupAction) -> str:
        if act.action.startswith(_WORKTREE_PREFIX):
            # From the run's folder, like a command: whoever cleans up may be in another.
            return await self._remove(Path(self.cwd, act.action.removeprefix(_WORKTREE_PREFIX)))
        name = function_name(act.action)
        if name is not None:
            return await self._call(name, act.argument)
        command: str | tuple[str, ...] = act.action
        environment, cwd, stdin = {**os.environ}, self.cwd, act.stdin
        if allowed := parse_allowed_command(act.action):
            command = await permitted_words(allowed, self.allow())
            if isinstance(command, str):
                return command
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

    async def _remove(self, worktree: Path) -> str:
        try:
            # By the loop's own time, like each question to git in it.
            async with asyncio.timeout(self.limit):
                return await remove_if_clean(worktree)
        except TimeoutError:
            return f"kept: git took longer than {self.limit:g} seconds there"

    async def _call(self, name: str, argument: object) -> str:
        try:
            function = find_function(name, self.flow_module())
        except JacklineError as error:
            return error.message
        calling = asyncio.ensure_future(_called(function, argument))
        try:
            in_time = await _done_before(calling, self.clock.sleep(self.limit))
        finally:
            if not calling.done():
                calling.cancel()
        return calling.result() if in_time else f"it took longer than {self.limit:g} seconds"


async def _called(function: Callable[..., object], argument: object) -> str:
    try:
        with contain_exits():
            await call_function(lambda: function(argument), function)
    except LeavingError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 -- a border: a hook's fault is returned
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""
