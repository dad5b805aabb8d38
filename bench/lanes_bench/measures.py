"""Judge a finished run: makespan, waste, surfaced failures, tail latency, fairness.

Rules: (1) useful is what the work needed, wasted is every other request; (2) a run that was cut off
says how much of the work it had done; (3) values only.
Not here: running (runs.py), showing (table.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jackline.simulator.provider import ProviderModel
from lanes_bench.crew import Agent
from lanes_bench.scenarios import Scenario
from lanes_bench.stage import Stage

# A run is cut off at so many times the best makespan. A fleet that has lost its caches takes ten
# times as long, and that is to be seen.
TIMES_ORACLE = 4.0
TIMES_WARM = 15.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one policy in one scenario with one seed.

    `into_wall` are the requests sent after a wall had been announced; `stuck` is a policy that
    waits for nothing; `moved_after` is how long frozen calls hung before the first was moved;
    `bought_twice` are the answers that the provider completed for a call that had one already, or
    for somebody who had hung up.
    """

    scenario: str
    policy: str
    parallel: int
    seed: int
    makespan: float
    oracle: float
    done: float
    stuck: bool
    useful: int
    sent: int
    into_wall: int
    moved_after: float | None
    surfaced: int
    bought_twice: int
    p99: float
    fairness: float
    # Of fleets that live on prompt caches: what was paid over what a warm fleet pays, the share of
    # answers that found their conversation in the cache, and the longest wait to be sent.
    bill: float
    hits: float
    longest_wait: float
    seconds: float

    @property
    def ratio(self) -> float:
        """Makespan over the oracle's."""
        return self.makespan / self.oracle

    @property
    def waste(self) -> float:
        """Requests sent for nothing, per useful one."""
        return (self.sent - self.useful) / self.useful if self.useful else float("inf")

    @property
    def finished(self) -> bool:
        """Whether all work was done before the run was cut off."""
        return self.done >= 1.0


def percentile(values: list[float], share: float) -> float:
    """The value below which that share lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")


def fairness(agents: list[Agent]) -> float:
    """Jain's index over the speed of every agent: its unhindered time over the time it took."""
    speeds = [
        agent.plan.left[0] / (agent.ended - agent.started)
        for agent in agents
        if agent.ended is not None
    ]
    squares = sum(speed * speed for speed in speeds)
    return sum(speeds) ** 2 / (len(speeds) * squares) if squares else 0.0


def moved_after(scenario: Scenario, stage: Stage) -> float | None:
    """Seconds from the start of a hang until the first frozen call was asked for elsewhere."""
    outage = scenario.lanes[0].outage
    if outage is None or not outage.hangs:
        return None
    waits = (
        again - outage.start for before, again in stage.sent_again if before < outage.start < again
    )
    return min(waits, default=None)


def bought_twice(stage: Stage, world: Sequence[ProviderModel]) -> int:
    """Completed answers beyond the one that each call needed."""
    return sum(provider.ledger.useful for provider in world) - stage.answered


def progress(stage: Stage) -> int:
    """The answers that count: the calls of the chains as far as each agent got."""
    return sum(agent.step for agent in stage.crew.agents)


def paid(world: Sequence[ProviderModel]) -> float:
    """The dollars that all providers charge."""
    return sum(provider.ledger.bill().dollars for provider in world)
