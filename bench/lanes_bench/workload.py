"""Draw the work of a fleet: workflows of three barrier phases, agents with chains of calls.

Rules: (1) the same seed and size give the same work; (2) all sizes are drawn here and nowhere else;
(3) the numbers are those of the design page (medians 16 s service, 3 s tools, 3,000 tokens in).
Not here: who is ready when (crew.py), what a provider makes of a call (weather.py).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate

PHASES = (8, 8, 4)
AGENTS_PER_WORKFLOW = 8
CHAIN = (5, 40)
TOKENS_PER_SECOND = 60.0
FIRST_BYTE_AFTER = 1.2
MEAN_SERVICE = 18.7
MEAN_TOOL = 4.0
MEAN_INPUT = 3_550
LARGEST_INPUT = 12_000
MEAN_OUTPUT = TOKENS_PER_SECOND * (MEAN_SERVICE - FIRST_BYTE_AFTER)


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an agent and the tool time after it."""

    first_byte: float
    service: float
    tool: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """A chain of dependent calls; `left[i]` is the time from the start of step i to the end."""

    workflow: int
    phase: int
    steps: tuple[Step, ...]
    left: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """Phases of agents with a barrier after each; `after[p]` is the longest path behind phase p."""

    phases: tuple[tuple[AgentPlan, ...], ...]
    after: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """All workflows of one run, starting together."""

    parallel: int
    workflows: tuple[WorkflowPlan, ...]

    @property
    def calls(self) -> int:
        """How many calls the whole work needs: the useful requests of every policy."""
        return sum(len(a.steps) for w in self.workflows for phase in w.phases for a in phase)


def draw_fleet(parallel: int, seed: int) -> Fleet:
    """The work of `parallel` agents at once: one workflow for every eight."""
    draw = random.Random(f"fleet {parallel} {seed}")  # noqa: S311 - a workload, not a secret
    count = max(1, parallel // AGENTS_PER_WORKFLOW)
    return Fleet(parallel, tuple(_workflow(draw, index) for index in range(count)))


def _workflow(draw: random.Random, index: int) -> WorkflowPlan:
    phases = tuple(
        tuple(_agent(draw, index, phase) for _ in range(size)) for phase, size in enumerate(PHASES)
    )
    longest = [max(agent.left[0] for agent in phase) for phase in phases]
    after = tuple(sum(longest[phase + 1 :]) for phase in range(len(phases)))
    return WorkflowPlan(phases, after)


def _agent(draw: random.Random, workflow: int, phase: int) -> AgentPlan:
    steps = tuple(_step(draw) for _ in range(draw.randint(*CHAIN)))
    backwards = accumulate(step.service + step.tool for step in reversed(steps))
    return AgentPlan(workflow, phase, steps, tuple(reversed(tuple(backwards))))


def _step(draw: random.Random) -> Step:
    service = _lognormal(draw, 16.0, 0.6, 5.0, 60.0)
    first_byte = _lognormal(draw, FIRST_BYTE_AFTER, 0.3, 0.4, 4.0)
    return Step(
        first_byte=first_byte,
        service=service,
        tool=_lognormal(draw, 3.0, 0.8, 0.3, 30.0),
        input_tokens=int(_lognormal(draw, 3_000, 0.6, 500, LARGEST_INPUT)),
        output_tokens=int(TOKENS_PER_SECOND * (service - first_byte)),
    )


def _lognormal(draw: random.Random, median: float, sigma: float, low: float, high: float) -> float:
    return min(high, max(low, median * math.exp(draw.gauss(0.0, sigma))))
