"""What code inside a run may read and report about it: `from jackline import ctx`.

Rules: (1) `ctx` is the current run's, in the flow, in steps, in tools and in their threads;
during clean-up it is the run's that is cleaned up; (2) a resource is saved when `ctx.resource(…)`
was awaited, or has returned in a thread; (3) notes are the author's own text: nothing is added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from jackline.budgets.budget import BudgetLeft, Duration, seconds_of
from jackline.errors import UsageError
from jackline.flows.cleanup.action_runner import CLEANUP_SCOPE, OwnerlessRun, render_action
from jackline.flows.execution.execution import scope_for
from jackline.flows.records import ResourceRecord, ResourceState


class PendingRegistration:
    """A resource that is being saved; await it, where one can."""

    def __init__(self, saved: asyncio.Future[None] | None) -> None:
        self._saved = saved

    def __await__(self) -> Generator[Any, Any, None]:
        if self._saved is not None:
            yield from asyncio.shield(self._saved).__await__()


class Context:
    """The current run, as its own code sees it."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        cleanup = CLEANUP_SCOPE.get()
        return cleanup.run_id if cleanup else scope_for("ctx.run_id").run.run_id

    @property
    def phase(self) -> str:
        """The current phase; empty outside any."""
        cleanup = CLEANUP_SCOPE.get()
        if cleanup is not None and cleanup.left is not None:
            return cleanup.phase
        return scope_for("ctx.phase").phase

    @property
    def task_id(self) -> str:
        """The agent for which this tool works, or whose end is cleaned up after; or empty."""
        cleanup = CLEANUP_SCOPE.get()
        return cleanup.task_id if cleanup else scope_for("ctx.task_id").task_id

    @property
    def idempotency_key(self) -> str:
        """The key of the hook that is running; commands have it as `JACKLINE_IDEMPOTENCY_KEY`.

        A hook runs at least once per ending, each time with the same idempotency key.
        """
        cleanup = CLEANUP_SCOPE.get()
        if cleanup is None or not cleanup.key:
            raise UsageError(
                "ctx.idempotency_key is known only in an on_end hook.",
                hint="In a step, use ctx.run_id and the arguments of the step.",
            )
        return cleanup.key

    @property
    def budget(self) -> BudgetLeft:
        """What is left here: of the run's budgets, the child flow's, and so on."""
        if self._left_run is not None:
            raise UsageError(
                "ctx.budget is not known here: no process runs this flow any more.",
                hint="Use the outcome that the hook gets: it has usage and cost.",
            )
        return scope_for("ctx.budget").account.left()

    @property
    def _left_run(self) -> OwnerlessRun | None:
        """The run that is cleaned up after here, if no process runs it."""
        cleanup = CLEANUP_SCOPE.get()
        return None if cleanup is None else cleanup.left

    def note(self, text: str, **detail: object) -> None:
        """Write a line to the run's log; `detail` is plain data."""
        run = self._left_run or scope_for("ctx.note()").run
        act = partial(run.note, text, detail)
        if _current_loop() is run.loop:
            act()
        else:
            run.loop.call_soon_threadsafe(act)

    def resource(
        self,
        name: str,
        *,
        release: str | Callable[..., object] = "",
        lease: Duration | None = None,
        release_on_park: bool = False,
    ) -> PendingRegistration:
        """Put something rented on the ledger, to be released at the end of this agent or run.

        `release` is a shell command, or a function at the top level of the flow's file that is
        called with the name; `lease` is how long it may be held at most.
        """
        left = self._left_run
        run = scope_for("ctx.resource()").run if left is None else left
        now = run.clock.wall()
        record = ResourceRecord(
            run.run_id,
            name,
            self.task_id,
            render_action(release, run.flow_module_name) if release else "",
            release_on_park,
            None if lease is None else now + seconds_of(lease),
            ResourceState.HELD,
            now,
        )
        keeping = run.keep(record) if isinstance(run, OwnerlessRun) else run.resources.take(record)
        if _current_loop() is not run.loop:
            asyncio.run_coroutine_threadsafe(keeping, run.loop).result()
            return PendingRegistration(None)
        # Begun at once, so that it is saved even if nobody awaits it.
        if isinstance(run, OwnerlessRun):
            return PendingRegistration(run.write(keeping))
        task = run.loop.create_task(keeping)
        run.registering.add(task)
        task.add_done_callback(run.registering.discard)
        return PendingRegistration(task)


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None  # a thread


ctx = Context()
