"""What code inside a run may ask and say about it: `from jackline import ctx`.

Laws: (1) it is the current run's, in the flow, in steps, in tools and in threads of them; (2) a
resource is on the ledger when `ctx.resource(…)` was awaited, or has returned in a thread; (3) notes
are the author's own words: nothing is added to them.
Not here: releasing (cleanup/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from jackline.flows.cleanup.functions import action_words
from jackline.flows.durations import Duration, seconds_of
from jackline.flows.records import ResourceRecord, ResourceState
from jackline.flows.scope import Scope, scope_for
from jackline.flows.spending import Left


class Registering:
    """Something that is being kept; await it, where one can."""

    def __init__(self, kept: asyncio.Future[None] | None) -> None:
        self._kept = kept

    def __await__(self) -> Generator[Any, Any, None]:
        if self._kept is not None:
            yield from asyncio.shield(self._kept).__await__()


class Context:
    """The current run, as its own code sees it."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return scope_for("ctx.run_id").run.run_id

    @property
    def phase(self) -> str:
        """The current phase; empty outside any."""
        return scope_for("ctx.phase").phase

    @property
    def task_id(self) -> str:
        """The agent for which this tool works; empty in the flow itself."""
        return scope_for("ctx.task_id").task_id

    @property
    def budget(self) -> Left:
        """What is left here: of the run's budgets, the child flow's, and so on."""
        scope = scope_for("ctx.budget")
        return scope.account.left(scope.run.worked())

    def note(self, text: str, **detail: object) -> None:
        """Write a line to the run's log; `detail` is plain data."""
        scope = scope_for("ctx.note()")
        run = scope.run
        self._on_loop(
            scope, lambda: run.telling.log(run.clock.wall(), "note", "", {"says": text, **detail})
        )

    def resource(
        self,
        name: str,
        *,
        release: str | Callable[..., object] = "",
        lease: Duration | None = None,
        release_on_park: bool = False,
    ) -> Registering:
        """Put something rented on the ledger, to be released at the end of this agent or run.

        `release` is a shell command, or a function at the top level of the flow's file that is
        given the name; `lease` is how long it may be held at most.
        """
        scope = scope_for("ctx.resource()")
        now = scope.run.clock.wall()
        record = ResourceRecord(
            scope.run.run_id,
            name,
            scope.task_id,
            action_words(release, scope.run.flow_module_name) if release else "",
            release_on_park,
            None if lease is None else now + seconds_of(lease),
            ResourceState.HELD,
            now,
        )
        return self._kept(scope, scope.run.resources.take(record))

    def _kept(self, scope: Scope, keeping: Coroutine[Any, Any, None]) -> Registering:
        loop = scope.run.loop
        if _here() is loop:
            # Begun at once, so that it is kept even if nobody awaits it.
            task = loop.create_task(keeping)
            scope.run.registering.add(task)
            task.add_done_callback(scope.run.registering.discard)
            return Registering(task)
        asyncio.run_coroutine_threadsafe(keeping, loop).result()
        return Registering(None)

    def _on_loop(self, scope: Scope, act: Callable[[], None]) -> None:
        if _here() is scope.run.loop:
            act()
        else:
            scope.run.loop.call_soon_threadsafe(act)


def _here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None  # a thread


ctx = Context()
