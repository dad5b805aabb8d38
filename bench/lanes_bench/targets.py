"""Hold the controller to the numbers it must reach at N = 64, and with caches at 256 too.

Rules: (1) the numbers are those of the issue, bounds included; (2) what was not run is not judged;
(3) a cell is the mean over the seeds, judged without rounding or slack, so few seeds can miss by
luck (one seed deviates by up to 0.036); (4) surfaced failures are never averaged.
Not here: showing everything else (table.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lanes_bench.measures import Outcome
from lanes_bench.policies import OURS
from lanes_bench.table import mean

JUDGED_SIZE = 64
MOVED_WITHIN = 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """The most that a policy may need in a scenario; None is not bounded."""

    policy: str
    scenario: str
    ratio: float
    waste: float | None = None


SLOW = (
    *("Slow12", "Slow25", "Slow60", "Slow12x2", "Slow25x2", "Slow60x2"),
    *("Cold", "Think", "Brown"),
)
VISIBLE = ("U1hdr", "U3wall", "U3blind", "U4out", "U4hang", "U4model", "U5conc")
TARGETS = (
    # Accepted as they are, here and in U3wall: what is missing is knowledge of the future.
    Target("jackline", "U1hdr", 1.053, 0.01),
    Target("jackline", "U1free", 1.25, 0.15),
    Target("jackline", "U1blind", 1.25, 0.15),
    Target("jackline", "U2hidden", 1.35, 0.06),
    Target("jackline", "U3wall", 1.022, 0.01),
    Target("jackline", "U3blind", 1.05, 0.03),
    Target("jackline", "U4out", 1.16, 0.03),
    Target("jackline", "U4hang", 1.22, 0.03),
    Target("jackline", "U4part", 1.27, None),
    Target("jackline", "U4model", 1.22, 0.03),
    Target("jackline", "U5conc", 1.11, 0.02),
    Target("jackline", "Stall", 1.22, 0.04),
    *(Target("jackline_exact", scenario, 1.03) for scenario in VISIBLE),
    *(Target(policy, scenario, 1.10, 0.02) for scenario in SLOW for policy in OURS),
)


@dataclass(frozen=True, slots=True)
class CachedTarget:
    """The most that the controller may need in a scenario with prompt caches.

    `hits` is the least share; `over_uncached` the most time beside a controller without caches.
    """

    scenario: str
    ratio: float | None = None
    bill: float | None = None
    hits: float | None = None
    longest_wait: float | None = None
    over_uncached: float | None = None


CACHED_SIZES = (64, 256)
# With 256 agents at twice the limit 1.05 is missed by who cannot know how long a conversation will
# go on: with the remaining path known, the same order reaches it (jackline_exact; docs/lanes.md).
CACHED_TARGETS = (
    CachedTarget("C0.5x", over_uncached=1.02),
    CachedTarget("C1x", over_uncached=1.02),
    CachedTarget("C2x", 1.05, 1.02, 0.94),
    CachedTarget("C3x", 1.05, 1.02, 0.94),
    CachedTarget("C4x", 1.05, 1.02, 0.94, longest_wait=1200.0),
    CachedTarget("C1xOut", 1.40),
    CachedTarget("C4xOut", 1.25),
    CachedTarget("C1xReads", over_uncached=1.02),
    CachedTarget("C4xReads", over_uncached=1.02),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target, and whether it was met."""

    met: bool
    text: str


def judge(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """A verdict for every target that was measured."""
    verdicts = [
        _verdict(target, runs)
        for target in TARGETS
        if (
            runs := [
                each
                for each in outcomes
                if (each.policy, each.scenario, each.parallel)
                == (target.policy, target.scenario, JUDGED_SIZE)
            ]
        )
    ]
    for size in CACHED_SIZES:
        for cached in CACHED_TARGETS:
            of_size = [
                each
                for each in outcomes
                if (each.scenario, each.parallel) == (cached.scenario, size)
            ]
            verdicts += _cached_verdicts(cached, of_size)
    ours = [each for each in outcomes if each.policy in OURS]
    if ours:
        verdicts.append(_never(ours, "retryable failures surfaced", sum(o.surfaced for o in ours)))
        unfinished = sum(not each.finished for each in ours)
        verdicts.append(_never(ours, "runs that did not finish", unfinished))
        twice = sum(each.bought_twice for each in ours)
        verdicts.append(_never(ours, "answers that were bought twice", twice))
        known = [each for each in ours if each.scenario == "U3wall"]
        if known:
            into = sum(each.into_wall for each in known)
            verdicts.append(_never(known, "requests sent into a wall that was told", into))
        judged = [each for each in ours if each.parallel == JUDGED_SIZE]
        moved = [each.moved_after for each in judged if each.moved_after is not None]
        if moved:
            text = f"hanging calls moved after {max(moved):.1f} s (at most {MOVED_WITHIN:.0f})"
            verdicts.append(Verdict(max(moved) <= MOVED_WITHIN, text))
    return verdicts


def _verdict(target: Target, runs: Sequence[Outcome]) -> Verdict:
    ratio = mean([each.ratio for each in runs])
    waste = mean([each.waste for each in runs])
    met = ratio <= target.ratio and (target.waste is None or waste <= target.waste)
    bound = "" if target.waste is None else f" and {target.waste:.2f}"
    return Verdict(
        met and all(each.finished for each in runs),
        f"{target.policy:<15} {target.scenario:<9} {ratio:.3f} / {waste:.3f}"
        f"  (at most {target.ratio:.3f}{bound}, mean of {len(runs)})",
    )


def _cached_verdicts(target: CachedTarget, outcomes: Sequence[Outcome]) -> list[Verdict]:
    runs = [each for each in outcomes if each.policy == "jackline"]
    if not runs:
        return []
    name = f"{target.scenario:<9} N={runs[0].parallel}"
    ratio = mean([each.ratio for each in runs])
    verdicts = []
    for what, seen, most in (
        ("makespan", ratio, target.ratio),
        ("bill", mean([each.bill for each in runs]), target.bill),
        ("longest wait", max(each.longest_wait for each in runs), target.longest_wait),
    ):
        if most is not None:
            text = f"{name} {what} {seen:,.3f} (at most {most:,.2f}, {len(runs)} runs)"
            verdicts.append(Verdict(seen <= most, text))
    if target.hits is not None:
        hits = mean([each.hits for each in runs])
        verdicts.append(
            Verdict(hits >= target.hits, f"{name} hits {hits:.1%} (at least {target.hits:.0%})")
        )
    before = [each.ratio for each in outcomes if each.policy == "jackline_uncached"]
    if target.over_uncached is not None and before:
        over = ratio / mean(before)
        text = f"{name} makespan {over:.3f} of what it is without knowing caches"
        verdicts.append(
            Verdict(over <= target.over_uncached, f"{text} (at most {target.over_uncached:.2f})")
        )
    return verdicts


def _never(runs: Sequence[Outcome], what: str, count: int) -> Verdict:
    return Verdict(count == 0, f"{what}: {count} in {len(runs)} runs (must be 0)")
