"""Run every scenario with every policy, on two processes, and gather the outcomes.

Rules: (1) one job is one scenario, size and seed: the oracle is asked once for all policies; (2) a
run is cut off at four times the oracle's makespan or at a number of requests; (3) progress goes to
stderr.
Not here: judging (measures.py, targets.py), showing (table.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing import Pool

from lanes_bench.cached_fleet import all_warm_dollars, draw_cached_fleet
from lanes_bench.cached_world import bound, build_cached, is_cached
from lanes_bench.measures import (
    TIMES_ORACLE,
    TIMES_WARM,
    Outcome,
    bought_twice,
    fairness,
    moved_after,
    paid,
    percentile,
    progress,
)
from lanes_bench.oracle import best_makespan
from lanes_bench.policies import POLICIES
from lanes_bench.scenarios import Scenario, build
from lanes_bench.stage import Limits, Stage
from lanes_bench.upstreams import providers
from lanes_bench.workload import Fleet, draw_fleet

PROCESSES = 2
MOST_SENDS = 1_000_000
MOST_SENDS_PER_CALL = 150


@dataclass(frozen=True, slots=True)
class Job:
    """One world, and the policies to let loose in it."""

    scenario: str
    parallel: int
    seed: int
    policies: tuple[str, ...]


def run_all(jobs: Iterable[Job]) -> list[Outcome]:
    """All outcomes, in the order of the jobs."""
    todo = list(jobs)
    outcomes: list[Outcome] = []
    began = time.monotonic()
    with Pool(min(PROCESSES, len(todo))) as pool:
        for number, (job, found) in enumerate(zip(todo, pool.imap(run, todo), strict=True), 1):
            outcomes += found
            passed = time.monotonic() - began
            print(
                f"[{number}/{len(todo)}] {passed:5.0f} s  {job.scenario} N={job.parallel}"
                f" seed {job.seed}",
                file=sys.stderr,
                flush=True,
            )
    return outcomes


def run(job: Job) -> list[Outcome]:
    """The outcomes of one job."""
    fleet, scenario = world_of(job)
    if is_cached(job.scenario):
        oracle = bound(job.scenario, fleet)
    else:
        oracle = best_makespan(fleet, scenario)
    return [play(job, policy, oracle) for policy in job.policies]


def world_of(job: Job) -> tuple[Fleet, Scenario]:
    """The work and the weather of one job."""
    if is_cached(job.scenario):
        fleet = draw_cached_fleet(job.parallel, job.seed)
        return fleet, build_cached(job.scenario, job.parallel, job.seed)
    return draw_fleet(job.parallel, job.seed), build(job.scenario, job.parallel, job.seed)


def play(job: Job, policy: str, oracle: float) -> Outcome:
    """The outcome of one policy."""
    began = time.process_time()
    fleet, scenario = world_of(job)
    world = providers(scenario, job.seed)
    sends = min(MOST_SENDS, MOST_SENDS_PER_CALL * fleet.calls)
    cached = is_cached(job.scenario)
    times = TIMES_WARM if cached else TIMES_ORACLE
    stage = Stage(fleet, scenario, world, Limits(times * oracle, sends))
    stage.play(POLICIES[policy], job.seed)
    done = stage.crew.done_share()
    return Outcome(
        scenario=job.scenario,
        policy=policy,
        parallel=job.parallel,
        seed=job.seed,
        makespan=stage.crew.makespan if done >= 1.0 else stage.now,
        oracle=oracle,
        done=done,
        stuck=stage.stuck,
        useful=progress(stage),
        sent=stage.sent,
        into_wall=sum(provider.ledger.after_wall for provider in world),
        moved_after=moved_after(scenario, stage),
        surfaced=stage.surfaced,
        bought_twice=bought_twice(stage, world),
        p99=percentile(stage.latencies, 0.99),
        fairness=fairness(stage.crew.agents),
        bill=paid(world) / all_warm_dollars(fleet, scenario.lanes[0].model) if cached else 1.0,
        hits=stage.hits / max(1, stage.answered) if cached else 0.0,
        longest_wait=stage.longest_wait,
        seconds=time.process_time() - began,
    )
