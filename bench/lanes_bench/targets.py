"""Hold the controller to the numbers it must reach at N = 64.

Laws: (1) the numbers are those of the issue, bounds included; (2) what was not run is not judged;
(3) a cell is the mean over the seeds, rounded as it is shown; with few seeds it may miss by what
one seed moves it; (4) surfaced failures are never averaged.
Not here: showing everything else (table.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lanes_bench.measures import Outcome
from lanes_bench.policies import OURS
from lanes_bench.table import mean

JUDGED_SIZE = 64
ENOUGH_SEEDS = 6
MOVED_WITHIN = 10.0
# How far one seed lies from the mean over many (measured: a deviation of up to 0.036).
LUCK_OF_RATIO = 0.05
LUCK_OF_WASTE = 0.01


@dataclass(frozen=True, slots=True)
class Target:
    """The most that a policy may need in a scenario; None is not bounded."""

    policy: str
    scenario: str
    ratio: float
    waste: float | None = None


VISIBLE = ("U1hdr", "U3wall", "U3blind", "U4out", "U4hang", "U4model", "U5conc")
TARGETS = (
    Target("jackline", "U1hdr", 1.05, 0.01),
    Target("jackline", "U1free", 1.25, 0.15),
    Target("jackline", "U1blind", 1.25, 0.15),
    Target("jackline", "U2hidden", 1.35, 0.06),
    Target("jackline", "U3wall", 1.02, 0.01),
    Target("jackline", "U3blind", 1.05, 0.03),
    Target("jackline", "U4out", 1.16, 0.03),
    Target("jackline", "U4hang", 1.22, 0.03),
    Target("jackline", "U4part", 1.27, None),
    Target("jackline", "U4model", 1.22, 0.03),
    Target("jackline", "U5conc", 1.11, 0.02),
    Target("jackline", "Stall", 1.22, 0.04),
    *(Target("jackline_exact", scenario, 1.03) for scenario in VISIBLE),
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
    ours = [each for each in outcomes if each.policy in OURS]
    if ours:
        verdicts.append(_never(ours, "retryable failures surfaced", sum(o.surfaced for o in ours)))
        unfinished = sum(not each.finished for each in ours)
        verdicts.append(_never(ours, "runs that did not finish", unfinished))
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
    ratio = round(mean([each.ratio for each in runs]), 2)
    waste = round(mean([each.waste for each in runs]), 2)
    few = len(runs) < ENOUGH_SEEDS
    most = target.ratio + (LUCK_OF_RATIO / math.sqrt(len(runs)) if few else 0.0)
    met = ratio <= most + 1e-9
    if target.waste is not None:
        met = met and waste <= target.waste + (LUCK_OF_WASTE if few else 0.0) + 1e-9
    bound = "" if target.waste is None else f" and {target.waste:.2f}"
    return Verdict(
        met and all(each.finished for each in runs),
        f"{target.policy:<15} {target.scenario:<9} {ratio:.2f} / {waste:.2f}"
        f"  (at most {target.ratio:.2f}{bound}{', give or take a seed' if few else ''})",
    )


def _never(runs: Sequence[Outcome], what: str, count: int) -> Verdict:
    return Verdict(count == 0, f"{what}: {count} in {len(runs)} runs (must be 0)")
