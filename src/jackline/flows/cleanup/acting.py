"""Do one act of clean-up: a command, a function, or the removal of a worktree.

Laws: (1) it returns the trouble as a sentence and raises nothing but CancelledError; (2) nothing is
waited for beyond the limit; a Python function in a thread cannot be ended, and is left; (3) a
command of the user's own flow runs in the run's folder with the whole environment, one that a model
ordered as allowed_commands.py says.
Not here: the ledger of what was done (hooks.py, resources.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from jackline.batches.calling import called_aside
from jackline.batches.environment import without_secrets
from jackline.batches.leaving import LeavingError, failing_at_most
from jackline.clock import Clock
from jackline.errors import JacklineError
from jackline.flows.cleanup.allowed_commands import allowed_command, permitted_words
from jackline.flows.cleanup.commands import run_command
from jackline.flows.cleanup.functions import find_function, function_name
from jackline.flows.cleanup.standing import STANDING, LeftRun, Standing
from jackline.flows.cleanup.worktree import remove_if_clean, worktree_of
from jackline.flows.trusting import NOT_OURS

_BROKEN_OFF = "it was broken off, since the program was told to end at once"


@dataclass(frozen=True, slots=True)
class Act:
    """One thing to do: `told` is a command's standard input, `argument` what a function gets.

    `task_id` is the agent that it cleans up after; empty when it is the run itself. `key` is a
    hook's idempotency key; empty for a release.
    """

    run_id: str
    task_id: str
    action: str
    told: bytes
    argument: object
    environment: dict[str, str] = field(default_factory=dict)
    key: str = ""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does it, and where."""

    clock: Clock
    limit: float
    cwd: str
    flow_module: Callable[[], ModuleType | None]
    """The flow's module, loaded when a function of it is first needed."""
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    """Once set, what is being done is broken off, and left to the next process."""
    left: LeftRun | None = None
    """The run, when no process carries it any more."""
    trusted: bool = True
    """Whether this installation wrote the run: its folder and its flow are only then used."""

    async def do(self, act: Act) -> str:
        """Why it failed; empty when it did not."""
        if not self.trusted:
            return NOT_OURS
        token = STANDING.set(Standing(act.run_id, act.task_id, self.left, act.key))
        try:
            trouble = await self._in_time(act)
        finally:
            STANDING.reset(token)
        if self.left is not None:
            try:
                await self.left.settle()
            except JacklineError as error:
                return trouble or f"what it said could not be kept: {error.message}"
        return trouble

    async def _in_time(self, act: Act) -> str:
        doing = asyncio.ensure_future(self._done(act))
        hurrying = asyncio.ensure_future(self.hurry.wait())
        try:
            await asyncio.wait({doing, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurrying.cancel()
            if not doing.done():
                doing.cancel()
                await asyncio.wait({doing})
        return _BROKEN_OFF if doing.cancelled() else doing.result()

    async def _done(self, act: Act) -> str:
        worktree = worktree_of(act.action)
        if worktree is not None:
            # From the run's folder, like a command: who cleans up may stand in another.
            return await self._remove(Path(self.cwd, worktree))
        name = function_name(act.action)
        if name is not None:
            return await self._call(name, act.argument)
        allowed = allowed_command(act.action)
        if allowed is None:
            return await self._run(act.action, self.cwd, {**os.environ, **act.environment}, act)
        words = await permitted_words(allowed)
        if isinstance(words, str):
            return words
        environment = {**without_secrets(os.environ), **act.environment}
        return await self._run(words, allowed.folder, environment, act)

    async def _remove(self, worktree: Path) -> str:
        try:
            # By the loop's own time, like each question to git in it.
            async with asyncio.timeout(self.limit):
                return await remove_if_clean(worktree)
        except TimeoutError:
            return f"kept: git took longer than {self.limit:g} seconds there"

    async def _run(
        self, command: str | tuple[str, ...], cwd: str, environment: dict[str, str], act: Act
    ) -> str:
        return await run_command(
            command,
            told=act.told,
            environment=environment,
            cwd=cwd,
            limit=self.limit,
            clock=self.clock,
        )

    async def _call(self, name: str, argument: object) -> str:
        try:
            function = find_function(name, self.flow_module())
        except JacklineError as error:
            return error.message
        calling = asyncio.ensure_future(_called(function, argument))
        limiting = asyncio.ensure_future(self.clock.sleep(self.limit))
        try:
            await asyncio.wait({calling, limiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            limiting.cancel()
            if not calling.done():
                calling.cancel()
        return calling.result() if calling.done() else f"it took longer than {self.limit:g} seconds"


async def _called(function: Callable[..., object], argument: object) -> str:
    try:
        with failing_at_most():
            await called_aside(lambda: function(argument), function)
    except LeavingError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 -- a border: a hook's trouble is told, not raised
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""
