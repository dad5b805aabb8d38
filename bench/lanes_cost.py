"""Measure what one submit-send-finish cycle of the controller costs in CPU time.

Rules: (1) the queue stays full while it is measured: every answered call is followed by a new one;
(2) only the controller's own time counts; (3) the best of several rounds stands, since anything
slower was someone else's doing.
Not here: how well the controller decides (lanes.py).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import random
import time
from dataclasses import asdict, dataclass
from enum import StrEnum

from jackline.dialects import TokenUsage
from jackline.lane_id import LaneId
from jackline.lanes import Call, KnownLimits, LaneController, LaneDecision, LaneSettings

LANES = 20
PARALLEL_PER_LANE = 8
WAITING = (100, 1_000, 10_000)
MOST_MICROSECONDS = 100.0
# A cycle may cost this much more than the logarithm allows before the growth is called worse.
TOLERANCE = 1.25
STEP = 0.01


class Routes(StrEnum):
    """Where calls may go: all wherever there is room, each by its own preference, or one lane."""

    SAME = "all lanes, same order"
    ROTATED = "all lanes, own order"
    SINGLE = "one lane each"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one cycle costs with so many calls waiting."""

    routes: Routes
    waiting: int
    lanes: int
    microseconds: float
    allowed_growth: float
    growth: float


class Fleet:
    """A controller with a full queue, and the calls in flight on it."""

    def __init__(self, waiting: int, routes: Routes) -> None:
        self._routes = routes
        self._draw = random.Random(7)  # noqa: S311 - a benchmark, not a secret
        self._names = tuple(
            LaneId(f"lane-{number}", account=f"lane-{number}") for number in range(LANES)
        )
        # Learned windows would grow while this runs, and the queue would empty.
        known = KnownLimits(parallel=PARALLEL_PER_LANE)
        lanes = [LaneSettings(name, limits=known) for name in self._names]
        self._controller = LaneController(lanes, self._draw.random)
        self._now = 0.0
        self._calls = 0
        self._flying: list[int] = []
        while self._controller.calls_waiting < waiting:
            self._obey(self._submit())

    def cycle(self) -> None:
        """Submit one call, hear and finish another, and send what that makes room for."""
        self._now += STEP
        self._obey(self._submit())
        permit = self._flying.pop(self._draw.randrange(len(self._flying)))
        self._obey(self._controller.first_byte(self._now, permit, {}))
        self._controller.received(self._now, permit)
        self._obey(self._controller.finished(self._now, permit, TokenUsage(3_000, 900)))

    def _submit(self) -> LaneDecision:
        self._calls += 1
        call = Call(
            self._calls,
            self._lanes(),
            remaining=self._draw.uniform(0.0, 3_600.0),
            input_tokens=3_000,
            max_tokens=8_192,
        )
        return self._controller.submit(self._now, call)

    def _lanes(self) -> tuple[LaneId, ...]:
        if self._routes is Routes.SAME:
            return self._names
        first = self._calls % LANES
        if self._routes is Routes.SINGLE:
            return self._names[first : first + 1]
        return self._names[first:] + self._names[:first]

    def _obey(self, decision: LaneDecision) -> None:
        self._flying += [send.permit for send in decision.sends]
        if decision.wake_at is not None and decision.wake_at <= self._now:
            later = self._controller.tick(self._now)
            self._flying += [send.permit for send in later.sends]


def microseconds(waiting: int, routes: Routes, cycles: int, rounds: int) -> float:
    """The CPU time of one cycle."""
    fleet = Fleet(waiting, routes)
    best = math.inf
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            began = time.process_time()
            for _ in range(cycles):
                fleet.cycle()
            best = min(best, time.process_time() - began)
    finally:
        gc.enable()
    return best / cycles * 1e6


def measure(routes: Routes, *, quick: bool) -> list[Cost]:
    """The cost for every queue length."""
    cycles, rounds = (1_000, 3) if quick else (5_000, 5)
    times = [microseconds(waiting, routes, cycles, rounds) for waiting in WAITING]
    return [
        Cost(
            routes,
            waiting,
            LANES,
            microseconds=spent,
            allowed_growth=math.log2(waiting) / math.log2(WAITING[0]),
            growth=spent / times[0],
        )
        for waiting, spent in zip(WAITING, times, strict=True)
    ]


def main() -> int:
    """Print the costs, and whether they are low enough."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer cycles")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    costs = [each for routes in Routes for each in measure(routes, quick=arguments.quick)]
    longest = [each for each in costs if each.waiting == WAITING[-1]]
    cheap = all(each.microseconds <= MOST_MICROSECONDS for each in longest)
    slow_growth = all(each.growth <= TOLERANCE * each.allowed_growth for each in costs)
    if arguments.json:
        print(json.dumps([asdict(each) for each in costs]))
    else:
        print(f"{'':24}{'waiting':>8}{'lanes':>7}{'µs/cycle':>10}{'growth':>8}{'log N':>7}")
        for each in costs:
            print(
                f"{each.routes:<24}{each.waiting:>8,}{each.lanes:>7}{each.microseconds:>10.1f}"
                f"{each.growth:>8.2f}{each.allowed_growth:>7.2f}"
            )
        print(f"{'PASS' if cheap else 'FAIL'}  at most {MOST_MICROSECONDS:.0f} µs with 10,000")
        print(f"{'PASS' if slow_growth else 'FAIL'}  grows no faster than log N")
    return 0 if cheap and slow_growth else 1


if __name__ == "__main__":
    raise SystemExit(main())
