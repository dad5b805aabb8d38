"""Describe the weather of all scenarios, without saying who plays it.

Rules: (1) capacity follows the fleet's size; (2) a seed fixes what moves; (3) the oracle and the
simulated provider are built from these values alone, so they live in the same world.
Not here: the simulator's settings (upstreams.py), the best that can be done (oracle.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lanes_bench.workload import (
    FIRST_BYTE_AFTER,
    LARGEST_INPUT,
    MEAN_INPUT,
    MEAN_OUTPUT,
    MEAN_SERVICE,
    MEAN_TOOL,
    Step,
)

FOREVER = float("inf")
HOUR = 3600.0
HIDDEN_EVERY = 120.0
RAMP = 120.0
RAMP_FROM = 0.1


@dataclass(frozen=True, slots=True)
class Rates:
    """Token buckets for requests, input and output, by the requests per second they allow."""

    requests: float
    burst: float = 60.0
    told: bool = True
    rejects_consume: bool = False
    debts: bool = False

    def buckets(self) -> tuple[tuple[float, float], ...]:
        """Rate and burst of requests, input and output; each holds at least one whole request.

        A bucket smaller than a request admits it never, and then there is nothing to compare.
        """
        rates = (self.requests, MEAN_INPUT * self.requests, MEAN_OUTPUT * self.requests)
        largest = (1.5, 1.05 * LARGEST_INPUT, 1.0)
        return tuple(
            (rate, max(self.burst, whole / rate))
            for rate, whole in zip(rates, largest, strict=True)
        )


class Limits(Protocol):
    """Token buckets of a lane, and what it tells of them."""

    @property
    def told(self) -> bool:
        """Whether headers tell what is left."""
        ...

    @property
    def rejects_consume(self) -> bool:
        """Whether refused requests count."""
        ...

    @property
    def debts(self) -> bool:
        """Whether a request larger than a bucket is let in when that is full."""
        ...

    def buckets(self) -> tuple[tuple[float, float], ...]:
        """Rate and burst of requests, input and output."""
        ...


@dataclass(frozen=True, slots=True)
class Wall:
    """A used-up quota; new requests are refused, running streams go on."""

    start: float
    end: float
    told: bool


@dataclass(frozen=True, slots=True)
class Outage:
    """Nothing works; afterwards capacity climbs from 10 % and collapses again under a herd."""

    start: float
    end: float
    hangs: bool = False
    killed: float = 0.7
    ramp: float = RAMP


@dataclass(frozen=True, slots=True)
class Slowness:
    """First bytes of a healthy provider that come late, by these seconds more than usual.

    `spread` is how far single calls differ, `growing` lets the delay double every so many seconds
    from `start` on, and `loading` is how long all wait for a model that is loaded at the start.
    """

    delay: float = 0.0
    per_kilotoken: float = 0.0
    spread: float = 0.0
    start: float = 0.0
    until: float = FOREVER
    growing: float = FOREVER
    loading: float = 0.0

    def of(self, now: float, step: Step) -> float:
        """How much later a call's first byte comes that is sent at that moment."""
        if now < self.loading:
            return self.loading - now
        if not self.start <= now < self.until:
            return 0.0
        delay = self.delay + self.per_kilotoken * step.input_tokens / 1000.0
        # The same call is as slow whoever sends it, so that all policies meet the same provider.
        lot = (step.input_tokens * 2_654_435_761 + step.output_tokens * 40_503) % 65_536 / 65_536
        grown = math.pow(2.0, (now - self.start) / self.growing)
        return delay * grown * (1.0 + self.spread * (2.0 * lot - 1.0))


@dataclass(frozen=True, slots=True)
class Lane:
    """The truth about one lane; `slots` are streams at once, `shares` move them over time."""

    slots: float = FOREVER
    shares: tuple[float, ...] = ()
    told_cap: bool = False
    rates: Limits | None = None
    wall: Wall | None = None
    outage: Outage | None = None
    errors: tuple[float, float, float] | None = None
    stalls: float = 0.0
    slowness: Slowness | None = None
    model: str = "claude-sonnet-4-6"
    # Streams at once to which capacity climbs after an outage, where nothing else limits them.
    recovers_to: float | None = None

    def delay(self, now: float, step: Step) -> float:
        """How much later than usual the first byte of a call comes that is sent now."""
        return 0.0 if self.slowness is None else self.slowness.of(now, step)

    def slots_at(self, now: float) -> float:
        """How many streams fit at that moment."""
        slots = self.slots
        if self.shares:
            index = min(int(now / HIDDEN_EVERY), len(self.shares) - 1)
            slots = max(1.0, slots * self.shares[index])
        outage = self.outage
        if outage is not None and outage.end <= now < outage.end + outage.ramp:
            climbed = (now - outage.end) / outage.ramp
            slots *= RAMP_FROM + (1.0 - RAMP_FROM) * climbed
        return slots


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name and its lanes, the primary one first."""

    name: str
    title: str
    lanes: tuple[Lane, ...]


# The shares of the demand of all agents at once that a lane carries: tight where a limit is the
# subject, wider where a fault is. They were set so that the "fixed 1 s" row of the design page
# comes out; about half of peak demand, since barriers keep many agents waiting for each other.
TIGHT_RATE = 0.265
TIGHT_SLOTS = 0.295
WIDE = 0.45


def slots_for(parallel: int, share: float) -> int:
    """Streams at once that carry this share of what all agents together would use."""
    return max(2, round(share * parallel * MEAN_SERVICE / (MEAN_SERVICE + MEAN_TOOL)))


def rate_for(parallel: int, share: float) -> float:
    """Requests per second that carry this share of what all agents together would send."""
    return share * parallel / (MEAN_SERVICE + MEAN_TOOL)


def build(name: str, parallel: int, seed: int) -> Scenario:
    """The scenario of that name for a fleet of that size."""
    title, make = SCENARIOS[name]
    draw = random.Random(f"weather {name} {parallel} {seed}")  # noqa: S311 - a simulation
    return Scenario(name, title, make(parallel, draw))


Maker = Callable[[int, random.Random], tuple[Lane, ...]]


def _headers(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    del draw
    return (Lane(rates=Rates(rate_for(parallel, TIGHT_RATE))),)


def _free(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    del draw
    return (Lane(rates=Rates(rate_for(parallel, TIGHT_RATE), burst=10.0, told=False)),)


def _blind(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    del draw
    rates = Rates(rate_for(parallel, TIGHT_RATE), burst=10.0, told=False, rejects_consume=True)
    return (Lane(rates=rates),)


def _hidden(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    shares = tuple(draw.uniform(0.35, 1.0) for _ in range(500))
    return (Lane(slots=slots_for(parallel, WIDE), shares=shares),)


def _wall(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    return _walled(parallel, draw, told=True)


def _blind_wall(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    return _walled(parallel, draw, told=False)


def _walled(parallel: int, draw: random.Random, *, told: bool) -> tuple[Lane, ...]:
    start = draw.uniform(600.0, 1200.0)
    # Texts tell whole minutes, so real windows end on them.
    wall = Wall(start, 60.0 * round(start / 60.0) + 2 * HOUR, told=told)
    return (Lane(rates=Rates(rate_for(parallel, TIGHT_RATE)), wall=wall),)


def _outage(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    start = draw.uniform(500.0, 900.0)
    return (Lane(slots=slots_for(parallel, WIDE), outage=Outage(start, start + 600.0)),)


def _hang(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    start = draw.uniform(500.0, 900.0)
    slots = slots_for(parallel, WIDE)
    outage = Outage(start, start + 900.0, hangs=True)
    return (Lane(slots=slots, outage=outage), Lane(slots=max(1, slots // 2)))


def _part(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    start = draw.uniform(300.0, 600.0)
    return (Lane(slots=slots_for(parallel, WIDE), errors=(start, start + 0.5 * HOUR, 0.3)),)


def _model(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    start = draw.uniform(300.0, 600.0)
    broken = Outage(start, start + 0.5 * HOUR)
    second = Lane(rates=Rates(rate_for(parallel, TIGHT_RATE / 2)))
    return (Lane(slots=slots_for(parallel, WIDE), outage=broken), second)


def _cap(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    del draw
    return (Lane(slots=slots_for(parallel, TIGHT_SLOTS), told_cap=True),)


def _stalls(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    del draw
    return (Lane(slots=slots_for(parallel, WIDE), stalls=0.02),)


def _slow(seconds: float, lanes: int = 1) -> Maker:
    def make(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
        del parallel, draw
        return (Lane(slowness=Slowness(seconds - FIRST_BYTE_AFTER, spread=0.1)),) * lanes

    return make


def _cold(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    del parallel, draw
    return (Lane(slowness=Slowness(loading=90.0)),)


def _thinking(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    del parallel, draw
    # From 15 s for the shortest prompt to 120 s for the longest.
    return (Lane(slowness=Slowness(10.0, per_kilotoken=110.0 * 1000.0 / LARGEST_INPUT)),)


def _brown_out(parallel: int, draw: random.Random) -> tuple[Lane, ...]:
    del parallel
    start = draw.uniform(500.0, 900.0)
    return (
        Lane(slowness=Slowness(1.2, spread=0.3, start=start, until=start + 420.0, growing=60.0)),
    )


SCENARIOS: dict[str, tuple[str, Maker]] = {
    "U1hdr": ("buckets with headers", _headers),
    "U1free": ("buckets, nothing told", _free),
    "U1blind": ("as before, refusals count", _blind),
    "U2hidden": ("capacity that moves", _hidden),
    "U3wall": ("2 h wall, reset told", _wall),
    "U3blind": ("2 h wall, nothing told", _blind_wall),
    "U4out": ("10 min of 5xx", _outage),
    "U4hang": ("15 min hang, second lane", _hang),
    "U4part": ("30 min of 30 % errors", _part),
    "U4model": ("one model down 30 min", _model),
    "U5conc": ("so many streams at once", _cap),
    "Stall": ("2 % of streams freeze", _stalls),
    "Slow12": ("first byte after 12 s", _slow(12.0)),
    "Slow25": ("first byte after 25 s", _slow(25.0)),
    "Slow60": ("first byte after 60 s", _slow(60.0)),
    "Slow12x2": ("12 s, two lanes", _slow(12.0, lanes=2)),
    "Slow25x2": ("25 s, two lanes", _slow(25.0, lanes=2)),
    "Slow60x2": ("60 s, two lanes", _slow(60.0, lanes=2)),
    "Cold": ("the first answer takes 90 s", _cold),
    "Think": ("15 to 120 s by prompt", _thinking),
    "Brown": ("doubles each minute, 7 min", _brown_out),
}
