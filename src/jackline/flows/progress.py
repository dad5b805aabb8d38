"""Tell whoever listens how a run goes, in small facts that can be shown or sent.

Laws: (1) an event is an immutable fact in the past tense; (2) none holds a prompt, an answer or a
secret; (3) a listener returns at once and raises nothing: it is called where the work is done.
Not here: keeping them (telling.py), showing them (cli/).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from jackline.agents.outcome import Ending, Outcome
from jackline.flows.records import RunState


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A process carries the run now; `kept` calls answer from the journal."""

    at: float
    run_id: str
    flow: str
    resumed: bool
    kept: int


@dataclass(frozen=True, slots=True)
class RunParked:
    """A wall was met: nothing starts until `wake_at`, or until a person acts when that is None."""

    at: float
    why: str
    wake_at: float | None


@dataclass(frozen=True, slots=True)
class RunWoke:
    """The time has come: one agent goes first, the others follow when it got through."""

    at: float


@dataclass(frozen=True, slots=True)
class RunStopping:
    """It was asked to stop: nothing new starts, and agents end their turns."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """This process carries the run no more; `state` may be parked or stopped, too."""

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
"""Why agents wait whose whole run does: its own reason is told once, with `RunParked`."""


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


@dataclass(frozen=True, slots=True)
class AgentEnded:
    """An agent is through, its clean-up included."""

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


@dataclass(frozen=True, slots=True)
class StepBegan:
    """A step starts."""

    at: float
    label: str
    phase: str


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step is through; `trouble` is what it raised, if it did."""

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
    """A hook ran, or a resource was given back; `trouble` says why not."""

    at: float
    what: str
    label: str
    trouble: str


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


def nobody(_event: FlowEvent) -> None:
    """Listen to nothing."""
