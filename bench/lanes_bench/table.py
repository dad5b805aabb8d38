"""Show outcomes as one Markdown table for each size, and as JSON.

Rules: (1) a cell is the mean over the seeds; (2) a policy that did not finish says so; (3) what is
shown is what was measured, nothing is rounded away that decides a target.
Not here: whether it is good enough (targets.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from lanes_bench.cached_world import is_cached
from lanes_bench.measures import TIMES_ORACLE, TIMES_WARM, Outcome
from lanes_bench.scenarios import SCENARIOS

LEGEND = (
    "cell = makespan / oracle's and wasted / useful requests;"
    " the last three columns are over all scenarios shown"
)

CACHED_LEGEND = (
    "makespan over the least possible when every cache is warm, and wasted / useful requests;"
    " bill over that of a warm fleet; share of answers that found their conversation in the cache"
    " (a first call never does)"
)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """One table for each size: policies down, scenarios across, and three columns over all."""
    sizes = sorted({each.parallel for each in outcomes})
    tables = []
    for cached, table in ((False, _of_size), (True, _with_caches)):
        for size in sizes:
            shown = [
                each
                for each in outcomes
                if each.parallel == size and is_cached(each.scenario) is cached
            ]
            if shown:
                tables.append(table(shown))
    return "\n\n".join(tables)


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


def _with_caches(outcomes: Sequence[Outcome]) -> str:
    scenarios = list(dict.fromkeys(each.scenario for each in outcomes))
    policies = list(dict.fromkeys(each.policy for each in outcomes))
    seeds = sorted({each.seed for each in outcomes})
    head = ["policy", *scenarios]
    lines = [f"N = {outcomes[0].parallel}, seeds {', '.join(map(str, seeds))}; {CACHED_LEGEND}"]
    for title, cell in (
        ("makespan", _cell),
        ("bill", lambda runs: f"{mean([each.bill for each in runs]):.2f}"),
        ("hits", lambda runs: f"{mean([each.hits for each in runs]):.0%}"),
        ("longest wait", lambda runs: f"{max(each.longest_wait for each in runs):,.0f} s"),
    ):
        lines += ["", _row([title, *head[1:]]), _row(["---"] * len(head))]
        for policy in policies:
            mine = [each for each in outcomes if each.policy == policy]
            by_scenario = [[each for each in mine if each.scenario == name] for name in scenarios]
            lines.append(_row([policy, *(cell(runs) if runs else "" for runs in by_scenario)]))
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
    most = TIMES_WARM if is_cached(runs[0].scenario) else TIMES_ORACLE
    late = all(each.finished or each.ratio > most - 0.1 for each in runs)
    how = f">{most:.0f}x" if late else "cut"
    return f"{how}({mean([each.done for each in runs]):.0%})/{told}"


def _overall(runs: Sequence[Outcome]) -> list[str]:
    return [
        f"{sum(each.surfaced for each in runs):,}",
        f"{mean([each.p99 for each in runs]):,.0f}",
        f"{mean([each.fairness for each in runs]):.2f}",
    ]
