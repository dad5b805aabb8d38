"""Tell a run's events to its listener, and keep those that a person wants in the run's log.

Laws: (1) telling never waits: lines are written behind, in order, and all of them before the run is
let go; (2) what is the same for all is one line: ten thousand replays, or agents at a wall; (3) a
log that cannot be written stops nobody: the run's own record would fail first.
Not here: the events (progress.py), the log's place (engine.py).
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime

from jackline.errors import JacklineError
from jackline.flows.engine import Engine
from jackline.flows.progress import (
    AT_WALL,
    AgentAnswered,
    AgentBegan,
    AgentEnded,
    AgentReplayed,
    AgentWaits,
    BudgetNear,
    CleanupEnded,
    FlowEvent,
    GuardTripped,
    Listener,
    PhaseBegan,
    PhaseEnded,
    RunEnded,
    RunParked,
    RunStarted,
    RunStopping,
    RunWoke,
    StepBegan,
    StepEnded,
    Warned,
)

_LOGGED: dict[type[FlowEvent], str] = {
    RunStarted: "started",
    RunParked: "parked",
    RunWoke: "woke",
    RunStopping: "stopping",
    PhaseBegan: "phase began",
    PhaseEnded: "phase ended",
    AgentBegan: "agent began",
    AgentWaits: "agent waits",
    AgentEnded: "agent ended",
    StepBegan: "step began",
    StepEnded: "step ended",
    BudgetNear: "budget near",
    GuardTripped: "guard",
    CleanupEnded: "clean-up",
    Warned: "warning",
}
_NOT_IN_DETAIL = frozenset({"at", "label"})


class Telling:
    """One run's voice."""

    def __init__(self, engine: Engine, run_id: str, listener: Listener) -> None:
        self._engine = engine
        self._run_id = run_id
        self._listener = listener
        self._lines: asyncio.Queue[tuple[float, str, str, dict[str, object]]] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None
        self._waiting: dict[str, str] = {}
        """Agents of which the log says that they wait, and why."""

    def tell(self, event: FlowEvent) -> None:
        """The event is told now, and logged soon."""
        self._listener(event)
        line = self._waits(event) if isinstance(event, AgentWaits) else _line(event)
        if line is not None:
            self.log(event.at, *line)

    def log(self, at: float, what: str, label: str, detail: dict[str, object]) -> None:
        """Add a line to the log only."""
        self._lines.put_nowait((at, what, label, detail))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write(), name=f"log of {self._run_id}")

    async def settle(self) -> None:
        """Returns when every line so far is written."""
        while self._writer is not None and not self._writer.done():
            await asyncio.wait({self._writer})

    def _waits(self, event: AgentWaits) -> tuple[str, str, dict[str, object]] | None:
        if event.why == self._waiting.get(event.task_id, AT_WALL):
            return None
        if event.why:
            self._waiting[event.task_id] = event.why
            return _line(event)
        if self._waiting.pop(event.task_id, None) is None:
            return None
        return "agent goes on", event.label, {"task_id": event.task_id}

    async def _write(self) -> None:
        while not self._lines.empty():
            at, what, label, detail = self._lines.get_nowait()
            try:
                await self._engine.note(self._run_id, at, what, label, detail)
            except JacklineError:
                # The store is in trouble; calls and records meet it too, and decide what follows.
                continue


def _line(event: FlowEvent) -> tuple[str, str, dict[str, object]] | None:
    if isinstance(event, AgentReplayed | AgentAnswered):
        return None
    if isinstance(event, StepEnded) and event.replayed:
        return None
    if isinstance(event, RunEnded):
        tally = event.outcome.tally
        counts: dict[str, object] = {"agents": tally.agents, "ok": tally.ok}
        counts |= {"failed": tally.failed, "replayed": tally.replayed, "why": event.why}
        counts["tokens"] = event.outcome.usage.total
        return event.state.value, "", counts | {"cost": event.outcome.cost}
    detail = {
        name: _time_in_words(name, value)
        for name, value in asdict(event).items()
        if name not in _NOT_IN_DETAIL and value not in (None, "")
    }
    return _LOGGED[type(event)], getattr(event, "label", ""), detail


def _time_in_words(name: str, value: object) -> object:
    if name in ("until", "wake_at") and isinstance(value, float):
        return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")
    return value
