"""Compare lane-control policies in many kinds of weather, and hold ours to its targets.

Rules: (1) everything runs on a virtual clock, so the figures do not depend on the machine; (2) the
same arguments give the same table; (3) the exit status is 1 when a target was measured and missed.
Not here: CPU cost of the controller (lanes_cost.py), how anything is measured (lanes_bench/).
"""

from __future__ import annotations

import argparse
import sys

from lanes_bench.cached_world import CACHED, is_cached
from lanes_bench.policies import POLICIES, QUICK, QUICK_CACHED
from lanes_bench.runs import Job, run_all
from lanes_bench.scenarios import SCENARIOS
from lanes_bench.table import as_json, markdown
from lanes_bench.targets import judge

SIZES = (8, 64, 1024)
CACHED_SIZES = (8, 32, 64, 256)
CACHED_SEEDS = (1, 2, 3, 4)
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
    parser.add_argument(
        "--caches", action="store_true", help="only fleets that live on prompt caches"
    )
    parser.add_argument("--json", action="store_true", help="every run as JSON instead of a table")
    parser.add_argument(
        "--n",
        type=int,
        nargs="+",
        help="agents at once (default: 8 64 1024; with caches 8 32 64 256)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        help="seeds (default: 1 to 6; 1 at N = 1024; with caches 1 to 4)",
    )
    parser.add_argument(
        "--scenario",
        nargs="+",
        type=_scenario,
        help="only these; C4x is a fleet with caches at 4 times the limit, C1.5xOut one at 1.5"
        " times with an outage (also Wall, Reads)",
    )
    parser.add_argument("--policy", nargs="+", choices=POLICIES, help="only these policies")
    return parser


def _scenario(name: str) -> str:
    if name in SCENARIOS or is_cached(name):
        return name
    known = ", ".join((*SCENARIOS, *CACHED))
    raise argparse.ArgumentTypeError(f"there is no scenario {name}; there are {known}")


def _jobs(arguments: argparse.Namespace) -> list[Job]:
    scenarios = arguments.scenario or (*(() if arguments.caches else SCENARIOS), *CACHED)
    jobs = []
    for name in scenarios:
        for size in arguments.n or _sizes(name, quick=arguments.quick):
            jobs += _jobs_of(name, size, arguments)
    return jobs


def _sizes(name: str, *, quick: bool) -> tuple[int, ...]:
    if quick:
        return SIZES[:2]
    return CACHED_SIZES if is_cached(name) else SIZES


def _jobs_of(name: str, size: int, arguments: argparse.Namespace) -> list[Job]:
    cached, quick = is_cached(name), arguments.quick
    usual = CACHED_SEEDS if cached else SEEDS
    seeds = arguments.seeds or (usual[:1] if quick or size >= HUGE else usual)
    policies = arguments.policy
    if not policies and quick:
        policies = QUICK_CACHED if cached else QUICK
    if not policies:
        # What knows caches and what does not are the same where there are none.
        policies = [each for each in POLICIES if cached or each != "jackline_uncached"]
    return [Job(name, size, seed, tuple(policies)) for seed in seeds]


if __name__ == "__main__":
    raise SystemExit(main())
