"""Draw a fleet whose conversations grow and live on prompt caches, and say what it needs if warm.

Rules: (1) the same seed and size give the same work; (2) the numbers are those of the design page
(stages of 8, 8 and 4 conversations, 10 to 40 calls, a shared prefix of 15,000 tokens, first prompts
of 20,000, 3,200 new and 512 output tokens per call, tools of 5 to 60 s, short ones more often, so
that an unhindered fleet uses the page's 3,600 input tokens per minute and agent); (3) the bound is
what no policy can beat: everything warm, nothing refused, no outage.
Not here: limits and weather (cached_world.py), what the provider has cached (jackline.simulator).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate

from jackline.simulator.prompt_cache import FIVE_MINUTES, PromptBlock
from jackline.simulator.vendor_facts import price_of
from lanes_bench.workload import (
    AGENTS_PER_WORKFLOW,
    PHASES,
    AgentPlan,
    Fleet,
    Step,
    WorkflowPlan,
)

CHAIN = (10, 40)
SHARED = 15_000
OWN = 5_000
NEW_MEDIAN = 2_550
OUTPUT_MEDIAN = 450
SMALLEST_NEW, LARGEST_NEW = 500, 12_000
SMALLEST_OUTPUT, LARGEST_OUTPUT = 100, 2_000
TOOLS = (5.0, 60.0)
TOKENS_PER_SECOND = 60.0
FIRST_BYTE = 1.5
PREFIX = "the prefix of all"
_SHARED_BLOCK = PromptBlock(PREFIX.encode(), SHARED, FIVE_MINUTES)


@dataclass(frozen=True, slots=True)
class CachedStep(Step):
    """One call of a conversation; `fresh` is what it costs when all before it is cached."""

    blocks: tuple[PromptBlock, ...]
    fresh: int
    earlier: int
    """What the calls before it in the same conversation had as their prompt; 0 for the first."""


def draw_cached_fleet(parallel: int, seed: int) -> Fleet:
    """The work of `parallel` agents at once: one workflow for every eight."""
    draw = random.Random(f"cached fleet {parallel} {seed}")  # noqa: S311 - a workload, no secret
    count = max(1, parallel // AGENTS_PER_WORKFLOW)
    return Fleet(parallel, tuple(_workflow(draw, index) for index in range(count)))


def all_warm_seconds(fleet: Fleet, input_rate: float, output_rate: float, burst: float) -> float:
    """The least time that the work takes when every cache is warm: the longest path, or a limit."""
    steps = steps_of(fleet)
    fresh = SHARED + sum(step.fresh for step in steps)
    written = sum(step.output_tokens for step in steps)
    path = max(w.after[0] + max(a.left[0] for a in w.phases[0]) for w in fleet.workflows)
    return max(path, fresh / input_rate - burst, written / output_rate - burst)


def all_warm_dollars(fleet: Fleet, model: str) -> float:
    """What the work costs when every cache is warm: each token is written once, and read since."""
    price = price_of(model)
    if price is None:
        raise ValueError(f"{model} has no listed price")
    steps = steps_of(fleet)
    return price.dollars(
        plain=0,
        read=sum(step.input_tokens - step.fresh for step in steps) - SHARED,
        written_5m=sum(step.fresh for step in steps) + SHARED,
        written_1h=0,
        output=sum(step.output_tokens for step in steps),
    )


def steps_of(fleet: Fleet) -> list[CachedStep]:
    """All calls of the work."""
    return [
        step
        for workflow in fleet.workflows
        for phase in workflow.phases
        for agent in phase
        for step in agent.steps
        if isinstance(step, CachedStep)
    ]


def _workflow(draw: random.Random, index: int) -> WorkflowPlan:
    phases = tuple(
        tuple(_agent(draw, index, phase, number) for number in range(size))
        for phase, size in enumerate(PHASES)
    )
    longest = [max(agent.left[0] for agent in phase) for phase in phases]
    after = tuple(sum(longest[phase + 1 :]) for phase in range(len(phases)))
    return WorkflowPlan(phases, after)


def _agent(draw: random.Random, workflow: int, phase: int, number: int) -> AgentPlan:
    name = f"{workflow} {phase} {number}"
    blocks = [_SHARED_BLOCK, PromptBlock(f"{name} task".encode(), OWN)]
    prompt, fresh, earlier = SHARED + OWN, OWN, 0
    steps = []
    for index in range(draw.randint(*CHAIN)):
        output = int(_lognormal(draw, OUTPUT_MEDIAN, 0.5, SMALLEST_OUTPUT, LARGEST_OUTPUT))
        first_byte = _lognormal(draw, FIRST_BYTE, 0.3, 0.5, 5.0)
        marked = (*blocks[:-1], blocks[-1]._replace(ttl=FIVE_MINUTES))
        steps.append(
            CachedStep(
                first_byte=first_byte,
                service=first_byte + output / TOKENS_PER_SECOND,
                tool=math.exp(draw.uniform(*map(math.log, TOOLS))),
                input_tokens=prompt,
                output_tokens=output,
                blocks=marked,
                fresh=fresh,
                earlier=earlier,
            )
        )
        result = int(_lognormal(draw, NEW_MEDIAN, 0.6, SMALLEST_NEW, LARGEST_NEW))
        blocks += [
            PromptBlock(f"{name} said {index}".encode(), output),
            PromptBlock(f"{name} result {index}".encode(), result),
        ]
        earlier, fresh = prompt, output + result
        prompt += fresh
    backwards = accumulate(step.service + step.tool for step in reversed(steps))
    return AgentPlan(workflow, phase, tuple(steps), tuple(reversed(tuple(backwards))))


def _lognormal(draw: random.Random, median: float, sigma: float, low: float, high: float) -> float:
    return min(high, max(low, median * math.exp(draw.gauss(0.0, sigma))))
