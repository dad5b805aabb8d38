"""The view of a running flow: phases, agents, waits and sums, folded from its events.

Rules: (1) pure: events in, a view out; (2) everything that waits has its reason and its time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from jackline.agents.outcome import Ending
from jackline.control.text import counted, until_text
from jackline.flows.run_events import (
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
    PhaseBegan,
    RunEnded,
    RunParked,
    RunStarted,
    RunStopping,
    RunWoke,
    StepBegan,
    StepEnded,
    Warned,
)
from jackline.states import RunState

_MAX_WARNINGS = 5


@dataclass(slots=True)
class AgentView:
    """One agent that is under way."""

    label: str
    phase: str
    since: float
    why: str = ""
    until: float | None = None
    turns: int = 0
    tokens: int = 0

    @property
    def state(self) -> str:
        """Whether it waits or works."""
        return "waiting" if self.why else "working"


@dataclass(slots=True)
class PhaseView:
    """The agents and steps of a phase, counted."""

    name: str
    running: int = 0
    done: int = 0
    failed: int = 0


@dataclass(slots=True)
class RunView:
    """The whole run."""

    run_id: str = ""
    flow: str = ""
    state: str = "starting"
    why: str = ""
    until: float | None = None
    phases: dict[str, PhaseView] = field(default_factory=dict)
    agents: dict[str, AgentView] = field(default_factory=dict)
    ok: int = 0
    failed: int = 0
    replayed: int = 0
    """Of those that are ok, how many were answered from the store."""
    tokens: int = 0
    cost: float = 0.0
    warnings: list[str] = field(default_factory=list)

    def apply(self, event: FlowEvent) -> None:  # noqa: C901, PLR0912 -- one case an event
        """Update the view with one event."""
        match event:
            case RunStarted():
                self.run_id, self.flow = event.run_id, event.flow
                self.state = RunState.RUNNING.value
            case RunParked():
                self.state, self.why, self.until = RunState.PARKED.value, event.why, event.wake_at
            case RunWoke():
                self.state, self.why, self.until = RunState.RUNNING.value, "", None
            case RunStopping():
                self.state, self.why, self.until = "stopping", event.why, None
            case RunEnded():
                self.state, self.why = event.state.value, event.why
            case AgentBegan():
                self._phase(event.phase).running += event.task_id not in self.agents
                self.agents[event.task_id] = AgentView(event.label, event.phase, event.at)
            case AgentReplayed():
                self.replayed += 1
                self.ok += 1
                self._phase(event.phase).done += 1
            case AgentWaits():
                if agent := self.agents.get(event.task_id):
                    agent.why, agent.until = event.why, event.until
            case AgentAnswered():
                self.tokens, self.cost = event.run_tokens, event.run_cost
                if agent := self.agents.get(event.task_id):
                    agent.turns += 1
                    agent.tokens += event.tokens
            case AgentEnded():
                known = self.agents.pop(event.task_id, None)
                phase = self._phase(event.phase)
                phase.running -= known is not None and phase.running > 0
                ok = event.terminated_by is Ending.COMPLETION
                self.ok, self.failed = self.ok + ok, self.failed + (not ok)
                phase.done, phase.failed = phase.done + ok, phase.failed + (not ok)
            case PhaseBegan():
                self._phase(event.phase)
            case StepBegan():
                self._phase(event.phase).running += 1
            case StepEnded():
                phase = self._phase(event.phase)
                phase.running -= phase.running > 0
                phase.failed += bool(event.trouble)
                phase.done += not event.trouble
            case BudgetNear() | GuardTripped() | Warned():
                self._warn(event.says)
            case CleanupEnded() if event.trouble:
                self._warn(f"clean-up {event.what} of {event.label} failed: {event.trouble}")

    def _phase(self, name: str) -> PhaseView:
        return self.phases.setdefault(name, PhaseView(name))

    def _warn(self, text: str) -> None:
        self.warnings = [*self.warnings, text][-_MAX_WARNINGS:]

    def sentence(self, now: datetime) -> str:
        """The run in one sentence."""
        working = sum(not agent.why for agent in self.agents.values())
        waiting = len(self.agents) - working
        parts = [f"{working} working"] if working or not waiting else []
        parts += [f"{waiting} waiting"] if waiting else []
        parts.append(f"{self.ok} ok" + (f" ({self.replayed} kept)" if self.replayed else ""))
        parts += [f"{self.failed} failed"] if self.failed else []
        if self.state == RunState.PARKED.value:
            return f"Parked{until_text(self.until, now)}: {self.why} {', '.join(parts)}."
        return f"{self.state.capitalize()}: {', '.join(parts)}."


def event_line(event: FlowEvent, now: datetime) -> str:  # noqa: C901, PLR0911, PLR0912 -- each its line
    """The event as one line of a terminal's log; empty for unimportant ones."""
    match event:
        case RunStarted():
            kept = f", {counted(event.kept, 'call')} kept" if event.kept else ""
            verb = "resumed" if event.resumed else "started"
            return f"{event.flow} {verb} as {event.run_id}{kept}"
        case RunParked():
            why = f": {event.why}" if event.why else ""
            return f"parked{until_text(event.wake_at, now)}{why}"
        case RunWoke():
            return "woke: one agent goes first, the others follow"
        case RunStopping():
            return f"stopping: {event.why}"
        case RunEnded():
            return f"{event.state.value}{': ' + event.why if event.why else ''}"
        case PhaseBegan():
            return f"phase {event.phase}"
        case AgentBegan():
            again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
            return f"{event.label} began{again}"
        case AgentWaits() if event.why and event.why != AT_WALL:
            return f"{event.label} waits{until_text(event.until, now)}: {event.why}"
        case AgentEnded():
            how = "ok" if event.terminated_by is Ending.COMPLETION else event.terminated_by.value
            says = f": {event.says}" if event.says else ""
            sums = f"{counted(event.turns, 'turn')}, {counted(event.tokens, 'token')}"
            return f"{event.label} {how}{says} ({sums})"
        case StepBegan():
            return f"step {event.label} began"
        case StepEnded() if not event.replayed:
            how = f"failed: {event.trouble}" if event.trouble else "ok"
            return f"step {event.label} {how}"
        case BudgetNear() | GuardTripped() | Warned():
            return event.says
        case CleanupEnded():
            how = f"failed: {event.trouble}" if event.trouble else "done"
            return f"clean-up {event.what} of {event.label or 'the run'} {how}"
        case _:
            return ""
