"""Notebooks in memory and in a file, and leave that is always given: one agent driven by hand."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from jackline.agents.runner import JsonObject, LogEntry, NextCall, StopAgentError, TimeLimit
from jackline.agents.task_meter import TaskReading
from jackline.dialects import TokenUsage
from jackline.failures import Failure


@dataclass
class Pages:
    """A notebook; `written` is called with each line once it is in."""

    lines: list[LogEntry] = field(default_factory=list)
    written: Callable[[LogEntry], None] = lambda _entry: None

    @property
    def entries(self) -> Sequence[LogEntry]:
        return self.lines

    async def write(self, kind: str, data: JsonObject) -> None:
        await asyncio.sleep(0)
        self.append_nowait(kind, data)

    def append_nowait(self, kind: str, data: JsonObject) -> None:
        self.lines.append(LogEntry(kind, data))
        self.written(self.lines[-1])

    def of(self, kind: str) -> list[JsonObject]:
        return [entry.data for entry in self.lines if entry.kind == kind]


class FilePages(Pages):
    """A notebook that survives whoever wrote it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        for line in file.read_text().splitlines() if file.exists() else ():
            super().append_nowait(*json.loads(line))

    def append_nowait(self, kind: str, data: JsonObject) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps([kind, data]) + "\n")
            file.flush()
            os.fsync(file.fileno())
        super().append_nowait(kind, data)


async def nothing() -> None:
    """What happens at a wall that nobody has built."""


@dataclass
class FreeLeave:
    """Leave that is given, but `stop` after so many calls; at a wall `at_wall` is waited for."""

    at_wall: Callable[[], Awaitable[None]] = nothing
    asked: int = 0
    usage: TokenUsage = field(default_factory=TokenUsage)
    walls: list[tuple[Failure, str]] = field(default_factory=list)
    stop: StopAgentError | None = None
    stop_after: int = 1_000_000
    time_limit: TimeLimit | None = None
    works_meanwhile: list[bool] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    over: list[StopAgentError | None] = field(default_factory=list)
    """What is said of used-up budgets, look by look; after these there is room."""
    reading: TaskReading | None = None
    """What the gateway says of the agent."""

    async def over_budget(self) -> StopAgentError | None:
        return self.over.pop(0) if self.over else None

    async def metered(self, *, fresh: bool = False) -> TaskReading | None:  # noqa: ARG002
        return self.reading

    def warn(self, says: str) -> None:
        self.warnings.append(says)

    def process(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def before_call(
        self, call: NextCall | None = None, *, works_meanwhile: bool = False
    ) -> None:
        assert call is None, "a program makes its calls by itself"
        self.works_meanwhile.append(works_meanwhile)
        await asyncio.sleep(0)
        self.asked += 1
        if self.stop is not None and self.asked > self.stop_after:
            raise self.stop

    def spent(self, model: str, usage: TokenUsage, cost: float | None = None) -> None:  # noqa: ARG002
        self.usage = self.usage + usage

    async def wall(self, failure: Failure, says: str) -> None:
        self.walls.append((failure, says))
        await self.at_wall()

    def waits(self, why: str, until: float | None) -> None:
        pass
