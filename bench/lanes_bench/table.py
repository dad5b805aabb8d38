"""Show outcomes as one Markdown table for each size, and as JSON.

Laws: (1) a cell is the mean over the seeds; (2) a policy that did not finish says so; (3) what is
shown is what was measured, nothing is rounded away that decides a target.
Not here: whether it is good enough (targets.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from lanes_bench.measures import Outcome
from lanes_bench.scenarios import SCENARIOS

LEGEND = (
    "cell = makespan / oracle's and wasted / useful requests;"
    " the last three columns are over all scenarios shown"
)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """One table for each size: policies down, scenarios across, and three columns over all."""
    sizes = sorted({each.parallel for each in outcomes})
    return "\n\n".join(_of_size([o for o in outcomes if o.parallel == size]) for size in sizes)


def as_json(outcomes: Sequence[Outcome]) -> str:
    """Every run on its own."""
    rows = [
        {**asdict(each), "ratio": each.ratio, "waste": each.waste if each.useful else None}
        for each in outcomes
    ]
    return json.dumps(rows, indent=1)


def mean(values: Sequence[float]) -> float:
    """The mean; not a number when there is nothing."""
    return sum(values) / len(values) if values else math.nan


def _of_size(outcomes: Sequence[Outcome]) -> str:
    scenarios = [name for name in SCENARIOS if any(o.scenario == name for o in outcomes)]
    policies = list(dict.fromkeys(each.policy for each in outcomes))
    seeds = sorted({each.seed for each in outcomes})
    head = ["policy", *scenarios, "surfaced", "p99 s", "fairness"]
    lines = [
        f"N = {outcomes[0].parallel}, seeds {', '.join(map(str, seeds))}; {LEGEND}",
        "",
        _row(head),
        _row(["---"] * len(head)),
        _row(["oracle, s", *(_oracle(outcomes, name) for name in scenarios), "0", "", ""]),
    ]
    for policy in policies:
        mine = [each for each in outcomes if each.policy == policy]
        cells = [_cell([each for each in mine if each.scenario == name]) for name in scenarios]
        lines.append(_row([policy, *cells, *_overall(mine)]))
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _oracle(outcomes: Sequence[Outcome], scenario: str) -> str:
    return f"{mean([each.oracle for each in outcomes if each.scenario == scenario]):,.0f}"


def _cell(runs: Sequence[Outcome]) -> str:
    if any(each.stuck for each in runs):
        return "STUCK"
    waste = mean([each.waste for each in runs])
    told = f"{waste:.2f}" if waste < 10 else f"{waste:.0f}" if waste < 1e4 else "inf"
    if all(each.finished for each in runs):
        return f"{mean([each.ratio for each in runs]):.2f}/{told}"
    # Either the time was up, or more was sent than anyone would bear.
    late = all(each.finished or each.ratio > 3.9 for each in runs)
    return f"{'>4x' if late else 'cut'}({mean([each.done for each in runs]):.0%})/{told}"


def _overall(runs: Sequence[Outcome]) -> list[str]:
    return [
        f"{sum(each.surfaced for each in runs):,}",
        f"{mean([each.p99 for each in runs]):,.0f}",
        f"{mean([each.fairness for each in runs]):.2f}",
    ]
