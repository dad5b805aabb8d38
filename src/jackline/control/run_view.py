"""The view of a running flow, from its events and its gateway, and the next command after its end.

Rules: (1) pure: events and the gateway's documents in, a view out; (2) everything that waits has
its reason and its time; (3) an agent has the state that `jackline status` shows of it; where the
gateway says nothing it is "under way", never "working"; (4) a line about a wait is written when it
begins and when it is over, once each; (5) the command after the end changes something, instead of
failing alike: a limit of the run is raised by the command itself, one in the flow's file is raised
there first; an agent that a person cancelled goes on only by its name; where only the flow's own
code failed, that is mended first.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from jackline.agents.outcome import Ending, Outcome
from jackline.control.fleet import WAITS
from jackline.control.text import counted, until_text
from jackline.flows.execution.agent_cancellation import is_cancelled_by_person
from jackline.flows.records import RunRecord
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
from jackline.states import AgentState, RunState

_MAX_WARNINGS = 5
WAITING = "waiting"
"""For what the run itself knows of: a budget, a free process."""
UNDER_WAY = "under way"
"""Of an agent of which no gateway says what it does."""
_ORDER = (AgentState.ANSWERING, UNDER_WAY, *WAITS, WAITING, AgentState.BETWEEN)
# A throttle comes and goes; what comes back sooner is the same wait.
_OVER_AFTER, _THROTTLE_OVER_AFTER = 10.0, 60.0


class AgentStand(NamedTuple):
    """What an agent does or waits for, and until when if that is known."""

    state: str
    lane: str = ""
    why: str = ""
    until: float | None = None


@dataclass(frozen=True, slots=True)
class GatewayWaits:
    """What a gateway says: of each agent with a call under way, and of what needs a person."""

    agents: Mapping[str, AgentStand] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, object] | None) -> GatewayWaits | None:
        """The waits in the gateway's document; None where it is none."""
        try:
            found = msgspec.convert(data, _WaitsFields)
            agents = {
                task: AgentStand(AgentState(state), lane, why, until)
                for task, (state, lane, why, until) in found.agents.items()
            }
        except ValueError:
            return None  # it does not answer, or is of another version
        return cls(agents, tuple(found.needs))


class _WaitsFields(msgspec.Struct):
    agents: dict[str, tuple[str, str, str, float | None]]
    needs: list[str]


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
    unpriced: int = 0
    warnings: list[str] = field(default_factory=list)
    gateway: GatewayWaits | None = None
    """As it was read last; None before that."""
    is_gateway_gone: bool = False

    def observe(self, found: GatewayWaits | None) -> None:
        """Take what the gateway says now; None when it does not answer."""
        self.is_gateway_gone = found is None and (self.gateway is not None or self.is_gateway_gone)
        self.gateway = found

    def stand(self, task_id: str) -> AgentStand:
        """What this agent, which has not ended, does or waits for."""
        agent = self.agents[task_id]
        if agent.why:
            state = AgentState.PARKED.value if agent.why == AT_WALL else WAITING
            return AgentStand(state, "", agent.why, agent.until)
        if self.gateway is None:
            return AgentStand(UNDER_WAY)
        return self.gateway.agents.get(task_id, AgentStand(AgentState.BETWEEN.value))

    def held(self) -> list[tuple[AgentStand, int]]:
        """What agents wait for in the gateway, and how many; not those that wait for a slot."""
        groups: dict[tuple[str, str], tuple[AgentStand, int]] = {}
        for task in self.agents:
            stand = self.stand(task)
            if stand.lane and stand.state in WAITS and stand.state != AgentState.QUEUED:
                known, count = groups.get((stand.state, stand.lane), (stand, 0))
                groups[stand.state, stand.lane] = (known, count + 1)
        return sorted(groups.values(), key=lambda each: WAITS.index(AgentState(each[0].state)))

    def apply(self, event: FlowEvent) -> None:  # noqa: C901, PLR0912 -- one case an event
        """Update the view with one event."""
        match event:
            case RunStarted():
                self.run_id, self.flow = event.run_id, event.flow
                self.tokens, self.cost = event.tokens, event.cost
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
                self.unpriced = event.run_unpriced
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
        states = Counter(self.stand(task).state for task in self.agents)
        parts = [f"{states[state]} {state}" for state in _ORDER if states[state]]
        if self.gateway is not None and self.agents and not states[AgentState.ANSWERING]:
            parts.insert(0, f"0 {AgentState.ANSWERING}")
        parts.append(f"{self.ok} ok" + (f" ({self.replayed} kept)" if self.replayed else ""))
        parts += [f"{self.failed} failed"] if self.failed else []
        if self.state == RunState.PARKED.value:
            return f"Parked{until_text(self.until, now)}: {self.why} {', '.join(parts)}."
        return f"{self.state.capitalize()}: {', '.join(parts)}."


def wait_line(stand: AgentStand, count: int, now: datetime) -> str:
    """For example "4 agents wait, parked until 22:10 UTC: anthropic/opus is parked: …"."""
    verb = "waits" if count == 1 else "wait"
    until = until_text(stand.until, now) if (stand.until or 0.0) > now.timestamp() else ""
    why = stand.why or AgentState(stand.state).meaning
    return f"{counted(count, 'agent')} {verb}, {stand.state}{until}: {why}"


GATEWAY_GONE = "the gateway does not answer: calls wait until it is back"


class WaitLines:
    """The lines about what the agents of a run wait for in the gateway."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], float] = {}
        self._needs: tuple[str, ...] = ()
        self._gone = False

    def of(self, view: RunView, now: datetime) -> list[str]:
        """The lines that are due, after the view has observed the gateway."""
        at, lines = now.timestamp(), []
        if view.is_gateway_gone != self._gone:
            self._gone = view.is_gateway_gone
            lines.append(GATEWAY_GONE if self._gone else "the gateway answers again")
        for stand, count in view.held():
            key = (stand.state, stand.lane)
            if key not in self._open:
                lines.append(wait_line(stand, count, now))
            self._open[key] = at
        for key, seen in list(self._open.items()):
            state, lane = key
            calm = _THROTTLE_OVER_AFTER if state == AgentState.THROTTLED else _OVER_AFTER
            if at - seen > calm or not view.agents:
                del self._open[key]
                if view.agents and not self._gone:
                    lines.append(f"no agent waits for {lane} any more ({state} before)")
        needs = () if view.gateway is None else view.gateway.needs
        lines += [f"needs you: {need}" for need in needs if need not in self._needs]
        self._needs = self._needs if view.gateway is None else needs
        return lines


def event_line(event: FlowEvent, now: datetime) -> str:  # noqa: C901, PLR0911, PLR0912 -- each its line
    """The event as one line of a terminal's log; empty for unimportant ones."""
    match event:
        case RunStarted():
            kept = f", {counted(event.kept, 'agent')} kept" if event.kept else ""
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


_LIMITS = (Ending.BUDGET, Ending.TURNS, Ending.TIMEOUT, Ending.DEADLINE)
_OF_THE_FLOW = (Ending.CRASH, Ending.SCHEMA)
_KEPT = "what is finished is not run again"


class NextStep(NamedTuple):
    """A command, and what to know of it."""

    command: str
    remark: str


def step_after_end(run: RunRecord, outcome: Outcome[Any]) -> NextStep | None:
    """What goes on with an ended run; None where nothing is left to do."""
    tally = outcome.tally
    failed = not outcome.ok and run.state is not RunState.CANCELLED
    if not failed and not tally.failed:
        return None
    again = f"jackline resume {run.run_id}" if failed else f"jackline resume {run.run_id} --failed"
    file = PurePath(run.source).name or "the flow"
    by_hand = tally.by_hand
    if by_hand and (is_cancelled_by_person(outcome) or len(by_hand) == tally.failed):
        only = f"jackline resume {run.run_id} --only {shlex.quote(by_hand[0])}"
        return NextStep(only, "goes on with the agent that was cancelled")
    if tally.raise_to:
        command = f"jackline resume {run.run_id} --failed --budget {tally.raise_to}"
        if failed:
            command = f"jackline resume {run.run_id} --budget {tally.raise_to}"
        return NextStep(command, f"raises the limit; {_KEPT}")
    ends = {outcome.terminated_by} if failed else {ending for ending, _ in tally.endings}
    if ends <= set(_LIMITS):
        return NextStep(again, f"once you have raised the limit in {file}; {_KEPT}")
    if failed and not tally.failed and outcome.terminated_by in _OF_THE_FLOW:
        return NextStep(again, f"after mending {file} if the fault is there; {_KEPT}")
    return NextStep(again, _KEPT if failed else "runs the failed ones again, nothing else")
