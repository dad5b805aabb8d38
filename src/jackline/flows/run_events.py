"""The events of a run: what a listener gets, and which of them go into the run's log.

Rules: (1) an event is an immutable fact in the past tense, without a prompt, an answer or a secret;
`private` may quote one, and goes into the run's log alone; (2) a listener returns at once and
raises nothing: it is called where the work is done; (3) emitting never waits: log lines are written
later, in order, and all of them before the run is released; (4) equal lines are written once: ten
thousand replays, or agents that wait for the same reset; (5) a log that cannot be written stops
nothing: the run's own record would fail first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from jackline.agents.outcome import Ending, Outcome
from jackline.errors import JacklineError
from jackline.flows.records import RunState
from jackline.flows.store.run_store import RunStore


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A process runs the flow now; `kept` agents are answered from the store.

    `tokens` and `cost` are what the run has used before.
    """

    at: float
    run_id: str
    flow: str
    resumed: bool
    kept: int
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class RunParked:
    """A wall was met: nothing starts until `wake_at`, or until a person acts when that is None."""

    at: float
    why: str
    wake_at: float | None


@dataclass(frozen=True, slots=True)
class RunWoke:
    """The run wakes: one agent goes first, the others follow when its call is answered."""

    at: float


@dataclass(frozen=True, slots=True)
class RunStopping:
    """The run was asked to stop: nothing new starts, and agents end their turns."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """This process has released the run; `state` may be parked or stopped, too."""

    at: float
    state: RunState
    why: str
    outcome: Outcome[object]


@dataclass(frozen=True, slots=True)
class PhaseBegan:
    """A phase of the flow was entered."""

    at: float
    phase: str


@dataclass(frozen=True, slots=True)
class PhaseEnded:
    """A phase of the flow was left; `ok` is False when an error left it."""

    at: float
    phase: str
    ok: bool


@dataclass(frozen=True, slots=True)
class AgentBegan:
    """An agent starts, or goes on where an earlier process left it."""

    at: float
    task_id: str
    label: str
    phase: str
    runner: str
    model: str | None
    attempt: int


@dataclass(frozen=True, slots=True)
class AgentReplayed:
    """A finished agent answered from the journal."""

    at: float
    task_id: str
    label: str
    phase: str


AT_WALL = "the run is parked"
"""Why agents wait whose whole run does: its own reason is emitted once, with `RunParked`."""


@dataclass(frozen=True, slots=True)
class AgentWaits:
    """An agent waits; an empty `why` says that it goes on."""

    at: float
    task_id: str
    label: str
    why: str
    until: float | None


@dataclass(frozen=True, slots=True)
class AgentAnswered:
    """A model answered an agent: what this answer took, and the run's sums so far."""

    at: float
    task_id: str
    label: str
    model: str
    tokens: int
    cost: float | None
    run_tokens: int
    run_cost: float
    run_unpriced: int = 0
    """Tokens that `run_cost` is without, since their price is not known."""


@dataclass(frozen=True, slots=True)
class AgentEnded:
    """An agent has ended, its clean-up included."""

    at: float
    task_id: str
    label: str
    phase: str
    terminated_by: Ending
    says: str
    tokens: int
    cost: float | None
    turns: int
    duration: float
    private: str = ""


@dataclass(frozen=True, slots=True)
class StepBegan:
    """A step starts."""

    at: float
    label: str
    phase: str


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step has ended; `trouble` is the error that it raised, if any."""

    at: float
    label: str
    phase: str
    trouble: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class BudgetNear:
    """Four fifths of a budget are used."""

    at: float
    says: str


@dataclass(frozen=True, slots=True)
class GuardTripped:
    """Agents failed alike too often in a row: the run ends here."""

    at: float
    says: str


@dataclass(frozen=True, slots=True)
class CleanupEnded:
    """A hook ran, or a resource was released; `trouble` says why not."""

    at: float
    what: str
    label: str
    trouble: str
    private: str = ""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something a person should know, and need not act on at once."""

    at: float
    says: str


FlowEvent: TypeAlias = (
    RunStarted
    | RunParked
    | RunWoke
    | RunStopping
    | RunEnded
    | PhaseBegan
    | PhaseEnded
    | AgentBegan
    | AgentReplayed
    | AgentWaits
    | AgentAnswered
    | AgentEnded
    | StepBegan
    | StepEnded
    | BudgetNear
    | GuardTripped
    | CleanupEnded
    | Warned
)

Listener: TypeAlias = Callable[[FlowEvent], None]


def ignore_event(_event: FlowEvent) -> None:
    """Listen to nothing."""


WARNING = "warning"
"""What the log of a run calls something that a person should know."""
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
    Warned: WARNING,
}
_NOT_IN_DETAIL = frozenset({"at", "label"})


class RunEventLog:
    """Emits the events of one run: to its listener at once, and to its log soon."""

    def __init__(self, engine: RunStore, run_id: str, listener: Listener) -> None:
        self._engine = engine
        self._run_id = run_id
        self._listener = listener
        self._lines: asyncio.Queue[tuple[float, str, str, dict[str, object]]] = asyncio.Queue()
        self._writer: asyncio.Task[None] | None = None
        self._waiting: dict[str, str] = {}
        """Agents of which the log says that they wait, and why."""
        self._warned: set[str] = set()

    def emit(self, event: FlowEvent) -> None:
        """Pass the event to the listener now, and log it soon."""
        self._listener(event)
        line = self._line(event)
        if line is not None:
            self.log(event.at, *line)

    def warn(self, at: float, says: str) -> None:
        """Warn of something that many agents may meet: once."""
        if says not in self._warned:
            self._warned.add(says)
            self.emit(Warned(at, says))

    def log(self, at: float, what: str, label: str, detail: dict[str, object]) -> None:
        """Add a line to the log only."""
        self._lines.put_nowait((at, what, label, detail))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write(), name=f"log of {self._run_id}")

    async def settle(self) -> None:
        """Returns when every line so far is written."""
        while self._writer is not None and not self._writer.done():
            await asyncio.wait({self._writer})

    def _line(self, event: FlowEvent) -> tuple[str, str, dict[str, object]] | None:
        if isinstance(event, AgentWaits):
            if event.why == self._waiting.get(event.task_id, AT_WALL):
                return None
            if event.why:
                self._waiting[event.task_id] = event.why
            elif self._waiting.pop(event.task_id, None) is None:
                return None
            else:
                return "agent goes on", event.label, {"task_id": event.task_id}
        if isinstance(event, AgentReplayed | AgentAnswered):
            return None
        if isinstance(event, StepEnded) and event.replayed:
            return None
        if isinstance(event, RunEnded):
            tally = event.outcome.tally
            counts: dict[str, object] = {"agents": tally.agents, "ok": tally.ok}
            counts |= {"failed": tally.failed, "replayed": tally.replayed, "why": event.why}
            counts["tokens"] = event.outcome.usage.total
            more = {"private": event.outcome.evidence.private, "unpriced": event.outcome.unpriced}
            counts |= {name: value for name, value in more.items() if value}
            return event.state.value, "", counts | {"cost": event.outcome.cost}
        detail: dict[str, object] = {}
        for name, value in asdict(event).items():
            if name in ("until", "wake_at") and isinstance(value, float):
                detail[name] = datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")
            elif name not in _NOT_IN_DETAIL and value not in (None, ""):
                detail[name] = value
        return _LOGGED[type(event)], getattr(event, "label", ""), detail

    async def _write(self) -> None:
        while not self._lines.empty():
            at, what, label, detail = self._lines.get_nowait()
            try:
                await self._engine.note(self._run_id, at, what, label, detail)
            except JacklineError:
                # The store is in trouble; calls and records meet it too, and decide what follows.
                continue
