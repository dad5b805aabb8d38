"""Know whose clean-up a piece of code does, also when nobody carries the run any more.

Laws: (1) within a hook or a release, `ctx` speaks of the run and agent that it cleans up after, in
whatever process; (2) what is noted or rented there is in the store before the act counts as done.
Not here: `ctx` itself (context.py), where code of a live run stands (scope.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from jackline.clock import Clock
from jackline.flows.engine import Engine
from jackline.flows.records import ResourceRecord


@dataclass(frozen=True, slots=True)
class LeftRun:
    """A run that nobody carries any more, as those see it who clean up after it."""

    run_id: str
    engine: Engine
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
        said = {"says": text, **detail}
        self.write(self.engine.note(self.run_id, self.clock.wall(), "note", "", said))

    async def keep(self, resource: ResourceRecord) -> None:
        """Put something on the ledger."""
        await self.engine.keep_resource(resource)

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
class Standing:
    """Whose clean-up it is; `task_id` is empty where the run itself ended."""

    run_id: str
    task_id: str
    left: LeftRun | None = None
    """Set when no process carries the run."""
    key: str = ""
    """The hook's idempotency key; empty in a release."""

    @property
    def phase(self) -> str:
        """The phase of the agent, where only the store knows it."""
        return "" if self.left is None else self.left.phases.get(self.task_id, "")


STANDING: ContextVar[Standing | None] = ContextVar("jackline_clean_up_standing", default=None)
