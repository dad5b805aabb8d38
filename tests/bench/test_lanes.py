"""The bench measures what it says: same worlds for all, an honest oracle, honest counts.

Rules: (1) small fleets only, so that all of this takes seconds; (2) no figure of the controller is
pinned here, since that is what the bench itself is for.
Not here: the controller's own rules (tests/lanes/).
"""

from __future__ import annotations

import dataclasses
from statistics import mean

import pytest

from jackline.simulator.exchange import Accepted, Bytes, Completed
from lanes_bench.cached_fleet import SHARED, all_warm_seconds, draw_cached_fleet, steps_of
from lanes_bench.cached_world import OUTAGE, PER_AGENT, WALL, bound
from lanes_bench.crew import Call
from lanes_bench.jackline_policy import Jackline, names_of
from lanes_bench.measures import Outcome, fairness, percentile
from lanes_bench.oracle import WITH_BUCKETS, WITHOUT_BUCKETS, Manner, Schedule, best_makespan
from lanes_bench.policies import POLICIES
from lanes_bench.runs import Job, play
from lanes_bench.scenarios import SCENARIOS, build
from lanes_bench.table import as_json, markdown
from lanes_bench.targets import TARGETS, judge
from lanes_bench.upstreams import providers, request_for
from lanes_bench.workload import draw_fleet

SEED = 1
SMALL = 8


def outcome(scenario: str, policy: str, parallel: int = SMALL) -> Outcome:
    oracle = best_makespan(draw_fleet(parallel, SEED), build(scenario, parallel, SEED))
    return play(Job(scenario, parallel, SEED, (policy,)), policy, oracle)


def same(run: Outcome) -> Outcome:
    return dataclasses.replace(run, seconds=0.0)


def test_a_seed_fixes_the_work_and_another_seed_changes_it() -> None:
    assert draw_fleet(64, 1) == draw_fleet(64, 1)
    assert draw_fleet(64, 1) != draw_fleet(64, 2)


def test_the_work_is_that_of_the_design_page() -> None:
    fleet = draw_fleet(64, SEED)
    agents = [agent for work in fleet.workflows for phase in work.phases for agent in phase]
    services = sorted(step.service for agent in agents for step in agent.steps)
    assert len(agents) == 160
    assert 3_300 < fleet.calls < 4_000
    assert services[0] >= 5
    assert services[-1] <= 60
    assert 15 < services[len(services) // 2] < 17


@pytest.mark.parametrize("parallel", [64, 256])
def test_an_unhindered_cached_fleet_uses_what_the_design_page_calls_once_the_limit(
    parallel: int,
) -> None:
    demands = []
    for seed in range(1, 5):
        fleet = draw_cached_fleet(parallel, seed)
        fresh = SHARED + sum(step.fresh for step in steps_of(fleet))
        unlimited = all_warm_seconds(fleet, 1e12, 1e12, 0.0)
        demands.append(fresh / unlimited * 60.0 / parallel)
    assert mean(demands) == pytest.approx(PER_AGENT, rel=0.1)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_run(policy: str) -> None:
    assert same(outcome("U4hang", policy)) == same(outcome("U4hang", policy))


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("manner", [*WITHOUT_BUCKETS, *WITH_BUCKETS[1:]])
def test_the_oracle_never_sends_a_request_that_fails(scenario: str, manner: Manner) -> None:
    weather = build(scenario, SMALL, SEED)
    # Lots drawn for single requests are not for the oracle to know; it is simply never hit.
    lanes = tuple(dataclasses.replace(lane, errors=None, stalls=0.0) for lane in weather.lanes)
    schedule = Schedule(draw_fleet(SMALL, SEED), weather, manner)
    makespan = schedule.makespan()
    world = providers(dataclasses.replace(weather, lanes=lanes), SEED)
    events = []
    for now, step, lane in schedule.starts:
        events += world[lane].advance(now)
        world[lane].arrive(now, request_for(lanes[lane], step))
    for provider in world:
        events += provider.advance(makespan + 100)
    assert {type(event) for event in events} <= {Accepted, Bytes, Completed}
    completed = [event for event in events if isinstance(event, Completed)]
    assert len(completed) == draw_fleet(SMALL, SEED).calls


@pytest.mark.parametrize("scenario", ["U1hdr", "U3wall", "U5conc"])
@pytest.mark.parametrize("policy", ["fulljit60", "jackline_exact"])
def test_nobody_beats_the_oracle_by_much(scenario: str, policy: str) -> None:
    assert outcome(scenario, policy).ratio > 0.97


@pytest.mark.parametrize("policy", ["sdk", "claudecode", "litellm"])
def test_clients_that_give_up_surface_failures_and_lose_work(policy: str) -> None:
    run = outcome("U3wall", policy)
    assert run.surfaced > 0
    assert run.finished
    assert run.useful == draw_fleet(SMALL, SEED).calls
    assert run.sent > run.useful


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_controller_finishes_and_surfaces_nothing(scenario: str) -> None:
    run = outcome(scenario, "jackline")
    assert run.finished
    assert not run.stuck
    assert run.surfaced == 0
    assert run.into_wall == 0 or scenario == "U3blind"


def test_the_phases_are_seen_without_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(Jackline):
        def _remaining(self, call: Call) -> float:
            names = names_of(call)
            return self._work.asks(self._now(), *names, stage=call.agent.plan.phase)

    seen = outcome("U5conc", "jackline")
    monkeypatch.setitem(POLICIES, "jackline", Told)
    assert same(outcome("U5conc", "jackline")) == same(seen)


def test_the_table_has_a_row_for_each_policy_and_the_verdicts_count_every_run() -> None:
    runs = [outcome("U5conc", policy) for policy in ("gate", "jackline")]
    text = markdown(runs)
    assert "| gate |" in text
    assert "| jackline |" in text
    assert '"policy": "gate"' in as_json(runs)
    assert [verdict.met for verdict in judge(runs)] == [True, True, True]


def test_a_missed_target_is_told() -> None:
    run = dataclasses.replace(outcome("U5conc", "jackline"), parallel=64)
    slow = dataclasses.replace(run, makespan=2 * run.oracle)
    assert not judge([slow])[0].met
    assert {target.scenario for target in TARGETS} == set(SCENARIOS)


def test_fairness_is_one_when_all_are_equally_slow_and_percentiles_are_of_the_data() -> None:
    assert fairness([]) == 0.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([1.0] * 99 + [9.0], 0.5) == 1.0


@pytest.mark.parametrize("name", ["C1xOut", "C1xWall", "C4xOut"])
def test_the_bound_of_a_cached_fleet_holds_what_an_outage_or_a_wall_takes(name: str) -> None:
    fleet = draw_cached_fleet(SMALL, SEED)
    undisturbed = bound(name.removesuffix("Out").removesuffix("Wall"), fleet)
    closed = WALL if name.endswith("Wall") else OUTAGE
    assert undisturbed < bound(name, fleet) < undisturbed + closed
