"""Describe the limits and the weather of fleets that live on prompt caches.

Rules: (1) load is what the fleet would use when all is warm, over the limit: 1 is 3,600 input
tokens per minute for each agent; (2) a name says it all: C4x is four times the limit, C1xOut the
same with ten minutes of outage in the middle, C1xWall with a wall of half an hour, C2xReads with a
vendor who counts what is read from a cache; (3) any load can be asked for.
Not here: the work (cached_fleet.py), lanes without caches (scenarios.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lanes_bench.cached_fleet import TOOLS, all_warm_seconds, draw_cached_fleet, steps_of
from lanes_bench.scenarios import Lane, Outage, Scenario, Wall
from lanes_bench.workload import Fleet

MODEL = "claude-sonnet-4-6"
COUNTS_READS = "claude-3-5-haiku"
PER_AGENT = 3_600.0
BURST = 60.0
OUTPUT_SHARE = 0.2
# Of the time that the work takes when all is warm.
MIDDLE = 0.5
OUTAGE = 600.0
WALL = 1800.0
RAMP = 60.0
LOADS = (0.5, 1.0, 2.0, 3.0, 4.0, 8.0)
WEATHER = ("C1xOut", "C4xOut", "C1xWall", "C1xReads", "C4xReads")
CACHED = (*(f"C{load:g}x" for load in LOADS), *WEATHER)
_NAME = re.compile(r"C(\d+(?:\.\d+)?)x(Out|Wall|Reads)?")


@dataclass(frozen=True, slots=True)
class TokenRates:
    """Token buckets per second; a request that no bucket holds goes when the bucket is full.

    Such a bucket then owes what it lacked: a vendor who never let it in could not be compared.
    """

    input: float
    output: float
    requests: float
    told: bool = True
    rejects_consume: bool = False
    debts: bool = True

    def buckets(self) -> tuple[tuple[float, float], ...]:
        """Rate and burst of requests, input and output."""
        return ((self.requests, BURST), (self.input, BURST), (self.output, BURST))


def is_cached(name: str) -> bool:
    """Whether the name is one of a scenario with prompt caches."""
    return _NAME.fullmatch(name) is not None


def build_cached(name: str, parallel: int, seed: int) -> Scenario:
    """The scenario of that name for a fleet of that size."""
    load, weather = _parsed(name)
    fleet = draw_cached_fleet(parallel, seed)
    output = OUTPUT_SHARE * _rate(parallel, load)
    rates = TokenRates(_input_rate(name, fleet), output, requests=2.0 * parallel)
    middle = MIDDLE * _undisturbed(name, fleet)
    outage = wall = None
    if weather == "Out":
        outage = Outage(middle, middle + OUTAGE, ramp=RAMP)
    elif weather == "Wall":
        start = 60.0 * round(middle / 60.0)
        wall = Wall(start, start + WALL, told=True)
    lane = Lane(
        rates=rates,
        outage=outage,
        wall=wall,
        model=COUNTS_READS if weather == "Reads" else MODEL,
        recovers_to=float(parallel),
    )
    return Scenario(name, f"caches, {load:g} times the limit", (lane,))


def bound(name: str, fleet: Fleet) -> float:
    """The least time that the work takes when all is warm.

    An outage or a wall adds its length, less what can go on meanwhile: a tool, or a bucket that
    fills. (The design page's 1.25 for half an hour of wall at 1x is below what any policy can reach
    beside a bound without it.)
    """
    closed = {"Out": OUTAGE, "Wall": WALL}.get(_parsed(name)[1], 0.0)
    return _undisturbed(name, fleet) + max(0.0, closed - max(TOOLS[1], BURST))


def _undisturbed(name: str, fleet: Fleet) -> float:
    # Where reads count, limit and demand grow alike.
    rate = _rate(fleet.parallel, _parsed(name)[0])
    return all_warm_seconds(fleet, rate, OUTPUT_SHARE * rate, BURST)


def _input_rate(name: str, fleet: Fleet) -> float:
    """The limit; where every prompt counts whole it is as much higher, so that loads compare."""
    load, weather = _parsed(name)
    rate = _rate(fleet.parallel, load)
    if weather != "Reads":
        return rate
    steps = steps_of(fleet)
    return rate * sum(step.input_tokens for step in steps) / sum(step.fresh for step in steps)


def _parsed(name: str) -> tuple[float, str]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name} is no scenario with caches, such as C4x or C1xOut")
    return float(match[1]), match[2] or ""


def _rate(parallel: int, load: float) -> float:
    return PER_AGENT * parallel / load / 60.0
