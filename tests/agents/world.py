"""Notebooks, leaves and tools for tests of agents.

Rules: (1) no mocks: each is a small real implementation of its port; (2) a file-backed notebook is
on disk before `write` returns, so that `kill -9` may come at any time.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from jackline import event_loop
from jackline.agents.outcome import Ending, Evidence
from jackline.agents.runner import (
    AgentTask,
    JsonObject,
    LogEntry,
    ModelCaller,
    NextCall,
    StopAgentError,
    TimeLimit,
    WholeAnswer,
)
from jackline.agents.task_meter import TaskReading
from jackline.batches.tool import Tool, ToolContext, ToolFailedError, ToolOutput
from jackline.dialects import TokenUsage
from jackline.failures import Failure

T = TypeVar("T")
PATIENCE = 60.0  # only a test that fails ever waits so long
CAPITALS: JsonObject = {
    "type": "object",
    "properties": {"capital": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["capital", "people"],
    "additionalProperties": False,
}


def run(main: Coroutine[object, object, T]) -> T:
    async def patiently() -> T:
        return await asyncio.wait_for(main, PATIENCE)

    return event_loop.run(patiently())


class ProcessDiedError(BaseException):
    """Stands for the end of the process in tests that cannot afford a real one."""


class MemoryNotebook:
    """A notebook in memory; `dies_after` ends the process at that many lines."""

    def __init__(self, entries: Sequence[LogEntry] = (), dies_after: int | None = None) -> None:
        self.entries: list[LogEntry] = [_on_disk(entry) for entry in entries]
        self._dies_after = dies_after

    async def write(self, kind: str, data: JsonObject) -> None:
        await asyncio.sleep(0)
        self.append_nowait(kind, data)

    def append_nowait(self, kind: str, data: JsonObject) -> None:
        if self._dies_after is not None and len(self.entries) >= self._dies_after:
            raise ProcessDiedError
        self.entries.append(_on_disk(LogEntry(kind, data)))

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.entries]


def _on_disk(entry: LogEntry) -> LogEntry:
    """What a store would give back: nothing is shared with whoever wrote it."""
    return LogEntry(entry.kind, json.loads(json.dumps(entry.data)), entry.at)


class FileNotebook:
    """A notebook of JSON lines, each synced before it counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: list[LogEntry] = []
        if path.exists():
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):  # a line that was cut off was never there
                    told = json.loads(line)
                    self.entries.append(LogEntry(told["kind"], told["data"]))

    async def write(self, kind: str, data: JsonObject) -> None:
        self.append_nowait(kind, data)

    def append_nowait(self, kind: str, data: JsonObject) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"kind": kind, "data": data}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(LogEntry(kind, data))


@dataclass
class Limit:
    """A time limit that is reached when `until` returns."""

    until: Callable[[], Awaitable[object]]
    ending: Ending = Ending.TIMEOUT

    async def reached(self) -> StopAgentError:
        await self.until()
        return StopAgentError(self.ending, Evidence(says="Its time is up."))


@dataclass
class OpenLeave:
    """Lets every call through, and keeps what it heard."""

    asked: int = 0
    calls: list[NextCall | None] = field(default_factory=list)
    received: list[tuple[str, TokenUsage, float | None]] = field(default_factory=list)
    walls: list[Failure] = field(default_factory=list)
    on_call: Callable[[int], Awaitable[None]] | None = None
    on_wall: Callable[[Failure], Awaitable[None]] | None = None
    time_limit: TimeLimit | None = None

    async def before_call(
        self, call: NextCall | None = None, *, works_meanwhile: bool = False
    ) -> None:
        assert not works_meanwhile, "our own loop does nothing while it waits"
        self.calls.append(call)
        self.asked += 1
        if self.on_call is not None:
            await self.on_call(self.asked)

    def spent(self, model: str, usage: TokenUsage, cost: float | None = None) -> None:
        self.received.append((model, usage, cost))

    async def wall(self, failure: Failure, says: str) -> None:
        assert says
        self.walls.append(failure)
        if self.on_wall is not None:
            await self.on_wall(failure)

    def waits(self, why: str, until: float | None) -> None:
        """Nobody watches."""

    async def over_budget(self) -> StopAgentError | None:
        return None

    async def metered(self, *, fresh: bool = False) -> TaskReading | None:
        raise AssertionError(f"our own loop knows what it uses: {fresh}")

    def warn(self, says: str) -> None:
        raise AssertionError(f"our own loop follows no settings of a folder: {says}")

    def process(self) -> AbstractAsyncContextManager[None]:
        raise AssertionError("our own loop is no process")


@dataclass
class Answering:
    """A model that gives these very answers, one after the other."""

    answers: list[WholeAnswer]
    asked: list[JsonObject] = field(default_factory=list)

    async def ask(self, body: JsonObject, caller: ModelCaller) -> WholeAnswer:
        assert caller.session_id
        self.asked.append(json.loads(json.dumps(body)))
        return self.answers[len(self.asked) - 1]


@dataclass
class Counter:
    """A tool that adds, and remembers how often it was run with what."""

    name: str = "add"
    description: str = "Adds two numbers."
    runs: list[JsonObject] = field(default_factory=list)
    during: Callable[[JsonObject, ToolContext], Awaitable[None]] | None = None
    input_schema: JsonObject = field(
        default_factory=lambda: {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        }
    )

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- the protocol
        return False

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        self.runs.append(arguments)
        if self.during is not None:
            await self.during(arguments, context)
        if arguments.get("a") == 13:
            raise ToolFailedError("13 is bad luck", exit_code=3)
        return ToolOutput(str(int(str(arguments["a"])) + int(str(arguments["b"]))))


def task(
    prompt: str = "What is 1 + 2?",
    *,
    tools: Sequence[Tool] = (),
    schema: JsonObject | None = None,
    folder: Path = Path(),
    **more: object,
) -> AgentTask:
    given = {"task_id": "task-1", "session_id": "session-1", **more}
    return AgentTask(prompt=prompt, tools=tuple(tools), schema=schema, cwd=folder, **given)  # type: ignore[arg-type]
