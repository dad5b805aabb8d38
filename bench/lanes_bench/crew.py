"""Follow every agent through its chain and every workflow through its barriers.

Rules: (1) an agent has at most one call open; (2) a phase starts when every agent of the one before
is done; (3) an agent that died starts again from its first call, and what it had done is lost.
Not here: when a call may be sent (policies), how long it takes (weather.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lanes_bench.workload import AgentPlan, Fleet, Step


@dataclass(slots=True, eq=False)
class Agent:
    """One agent at work: where it stands in its chain, and when it started and ended."""

    index: int
    plan: AgentPlan
    behind: float
    step: int = 0
    started: float = 0.0
    ended: float | None = None
    deaths: int = 0


@dataclass(slots=True, eq=False)
class Call:
    """One logical call: it stays the same through all its attempts."""

    id: int
    agent: Agent
    plan: Step
    ready_at: float
    attempts: int = 0
    memory: dict[str, float] = field(default_factory=dict)

    @property
    def path_left(self) -> float:
        """The true remaining critical path of the workflow through this call."""
        return self.agent.plan.left[self.agent.step] + self.agent.behind


class Crew:
    """The whole fleet's progress."""

    def __init__(self, fleet: Fleet) -> None:
        self.agents: list[Agent] = []
        self.unfinished = 0
        self._fleet = fleet
        self._next_call = 0
        self._open = [[len(phase) for phase in workflow.phases] for workflow in fleet.workflows]

    def start(self) -> list[Call]:
        """The first calls of all first phases."""
        self.unfinished = len(self._fleet.workflows)
        first = [self._start_phase(i, 0, 0.0) for i in range(len(self._fleet.workflows))]
        return [call for calls in first for call in calls]

    def next_call(self, agent: Agent, ready_at: float) -> Call:
        """The call the agent makes next, ready at that time."""
        self._next_call += 1
        return Call(self._next_call, agent, agent.plan.steps[agent.step], ready_at)

    def advance(self, now: float, agent: Agent) -> list[Call]:
        """The call is answered: the calls this makes ready, some only after tool time."""
        tool = agent.plan.steps[agent.step].tool
        agent.step += 1
        if agent.step < len(agent.plan.steps):
            return [self.next_call(agent, now + tool)]
        agent.ended = now + tool
        workflow, phase = agent.plan.workflow, agent.plan.phase
        self._open[workflow][phase] -= 1
        if self._open[workflow][phase]:
            return []
        if phase + 1 == len(self._open[workflow]):
            self.unfinished -= 1
            return []
        return self._start_phase(workflow, phase + 1, self._phase_end(workflow, phase))

    def restart(self, agent: Agent, at: float) -> Call:
        """The agent died; someone starts it again from scratch at that time."""
        agent.deaths += 1
        agent.step = 0
        return self.next_call(agent, at)

    def resume(self, agent: Agent, at: float) -> Call:
        """The agent died; someone lets it go on from its last call at that time."""
        agent.deaths += 1
        return self.next_call(agent, at)

    @property
    def makespan(self) -> float:
        """When the last agent ended."""
        return max((a.ended for a in self.agents if a.ended is not None), default=0.0)

    def done_share(self) -> float:
        """The share of all agents, those not yet born included, that are done."""
        total = sum(len(phase) for w in self._fleet.workflows for phase in w.phases)
        return sum(agent.ended is not None for agent in self.agents) / total

    def _start_phase(self, workflow: int, phase: int, at: float) -> list[Call]:
        plan = self._fleet.workflows[workflow]
        born = [
            Agent(len(self.agents) + i, agent, plan.after[phase], started=at)
            for i, agent in enumerate(plan.phases[phase])
        ]
        self.agents.extend(born)
        return [self.next_call(agent, at) for agent in born]

    def _phase_end(self, workflow: int, phase: int) -> float:
        return max(
            a.ended or 0.0
            for a in self.agents
            if a.plan.workflow == workflow and a.plan.phase == phase
        )
