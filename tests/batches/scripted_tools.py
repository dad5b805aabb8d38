"""Tools that do what a test tells them to, and programs that misbehave."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from jackline.batches.tool import JsonObject, ToolContext, ToolFailedError, ToolOutput
from jackline.clock import Clock


@dataclass
class Scripted:
    """Waits, then ends as `ending` says; remembers how often it ran."""

    ending: str = "ok"
    delay: float = 0.0
    clock: Clock | None = None
    answers: list[str] = field(default_factory=list)
    harmless: bool = False
    name: str = "scripted"
    description: str = "Does as told."
    input_schema: JsonObject = field(default_factory=lambda: {"type": "object"})
    stubborn_until: asyncio.Event | None = None
    runs: int = 0
    was_cancelled: bool = False

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- the port's words
        return self.harmless

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        self.runs += 1
        context.on_output(f"heard {context.call_id}")
        while self.stubborn_until is not None and not self.stubborn_until.is_set():
            with suppress(asyncio.CancelledError):
                await self.stubborn_until.wait()
        try:
            if self.clock is not None and self.delay:
                await self.clock.sleep(self.delay)
            if self.ending == "hang":
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.answers:
            return ToolOutput(self.answers.pop(0))
        return ENDINGS[self.ending](context.call_id)


def _ok(call_id: str) -> ToolOutput:
    return ToolOutput(f"text of {call_id}", exit_code=0)


def _fail(call_id: str) -> ToolOutput:
    raise ToolFailedError("failed: exit 3", output=f"text of {call_id}", exit_code=3)


def _crash(call_id: str) -> ToolOutput:
    raise ValueError(f"bug in {call_id}")


def _cancel(_call_id: str) -> ToolOutput:
    raise asyncio.CancelledError


def _leave(_call_id: str) -> ToolOutput:
    raise SystemExit(3)


def _leak(_call_id: str) -> ToolOutput:
    raise RuntimeError("refused for sk-ant-REDACTED")


class WordlessError(Exception):
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise ValueError


def _wordless(_call_id: str) -> ToolOutput:
    raise WordlessError


ENDINGS: dict[str, Callable[[str], ToolOutput]] = {
    "ok": _ok,
    "fail": _fail,
    "crash": _crash,
    "cancel": _cancel,
    "leave": _leave,
    "leak": _leak,
    "wordless": _wordless,
}


def is_alive(process: int) -> bool:
    """Whether the process still runs; a zombie does not."""
    try:
        os.kill(process, 0)
        stat = Path(f"/proc/{process}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def gone(process: int) -> bool:
    """Whether the process ends within a few seconds; the system may take a moment."""
    for _ in range(500):
        if not is_alive(process):
            return True
        await asyncio.sleep(0.01)
    return False


async def written(path: Path) -> str:
    """The file's text, as soon as a program has written it."""
    for _ in range(2_000):
        if (text := _text(path)).endswith("\n"):
            return text.strip()
        await asyncio.sleep(0.01)
    raise AssertionError(f"{path.name} was never written")


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
