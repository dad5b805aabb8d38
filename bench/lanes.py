"""Compare lane-control policies in many kinds of weather, and hold ours to its targets.

Laws: (1) everything runs on a virtual clock, so the figures do not depend on the machine; (2) the
same arguments give the same table; (3) the exit status is 1 when a target was measured and missed.
Not here: CPU cost of the controller (lanes_cost.py), how anything is measured (lanes_bench/).
"""

from __future__ import annotations

import argparse
import sys

from lanes_bench.policies import POLICIES, QUICK
from lanes_bench.runs import Job, run_all
from lanes_bench.scenarios import SCENARIOS
from lanes_bench.table import as_json, markdown
from lanes_bench.targets import judge

SIZES = (8, 64, 1024)
SEEDS = (1, 2, 3, 4, 5, 6)
# At this size one seed is enough: a thousand agents average out their own luck.
HUGE = 1024


def main() -> int:
    """Run what the arguments ask for; print the table and the verdicts."""
    arguments = _parser().parse_args()
    outcomes = run_all(_jobs(arguments))
    if arguments.json:
        print(as_json(outcomes))
    else:
        print(markdown(outcomes))
    verdicts = judge(outcomes)
    aside = sys.stderr if arguments.json else sys.stdout
    print(file=aside)
    for verdict in verdicts:
        print(f"{'PASS' if verdict.met else 'FAIL'}  {verdict.text}", file=aside)
    return 0 if all(verdict.met for verdict in verdicts) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="N = 8 and 64, few policies, one seed")
    parser.add_argument("--json", action="store_true", help="every run as JSON instead of a table")
    parser.add_argument("--n", type=int, nargs="+", help="agents at once (default: 8 64 1024)")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="seeds (default: 1 to 6; 1 at N = 1024)"
    )
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, help="only these scenarios")
    parser.add_argument("--policy", nargs="+", choices=POLICIES, help="only these policies")
    return parser


def _jobs(arguments: argparse.Namespace) -> list[Job]:
    quick: bool = arguments.quick
    sizes = arguments.n or (SIZES[:2] if quick else SIZES)
    scenarios = arguments.scenario or tuple(SCENARIOS)
    jobs = []
    for size in sizes:
        seeds = arguments.seeds or (SEEDS[:1] if quick or size >= HUGE else SEEDS)
        policies = tuple(arguments.policy or (QUICK if quick else POLICIES))
        jobs += [Job(name, size, seed, policies) for name in scenarios for seed in seeds]
    return jobs


if __name__ == "__main__":
    raise SystemExit(main())
