"""Turn a scenario's lanes into providers of the simulator.

Rules: (1) everything comes from the scenario and the seed; (2) each lane is a provider of its own.
Not here: what a provider does with these settings (jackline.simulator).
"""

from __future__ import annotations

import math
import random

from jackline.simulator.exchange import SimRequest
from jackline.simulator.faults import Effect, Fault, RecoverySettings, ResetAnnouncement
from jackline.simulator.limits import (
    BucketSettings,
    ConcurrencyCap,
    Counts,
    HiddenCapacitySettings,
)
from jackline.simulator.prompt_cache import Prompt
from jackline.simulator.provider import ProviderModel, ProviderSettings
from lanes_bench.cached_fleet import CachedStep
from lanes_bench.scenarios import HIDDEN_EVERY, RAMP_FROM, Lane, Limits, Outage, Scenario, Wall
from lanes_bench.workload import Step


def providers(scenario: Scenario, seed: int) -> list[ProviderModel]:
    """One provider for each lane of the scenario."""
    return [
        ProviderModel(_settings(lane), random.Random(f"lane {scenario.name} {index} {seed}"))  # noqa: S311
        for index, lane in enumerate(scenario.lanes)
    ]


def request_for(lane: Lane, step: Step, delay: float = 0.0) -> SimRequest:
    """The request that carries one step of an agent; its answer begins later by `delay`."""
    prompt = None
    if isinstance(step, CachedStep):
        prompt = Prompt(lane.model, step.blocks)
    return SimRequest(
        model=lane.model,
        prompt=prompt,
        input_tokens=step.input_tokens,
        output_tokens=step.output_tokens,
        service=step.service,
        delay=delay,
    )


def _settings(lane: Lane) -> ProviderSettings:
    cap = None
    if math.isfinite(lane.slots) and not lane.shares:
        cap = ConcurrencyCap(int(lane.slots), labelled=lane.told_cap)
    hidden = None
    if lane.shares:
        hidden = HiddenCapacitySettings(lane.slots, every=HIDDEN_EVERY, schedule=lane.shares)
    return ProviderSettings(
        buckets=() if lane.rates is None else _buckets(lane.rates),
        concurrency=cap,
        hidden=hidden,
        faults=tuple(_faults(lane)),
    )


def _buckets(rates: Limits) -> tuple[BucketSettings, ...]:
    names = (Counts.REQUESTS, Counts.INPUT_TOKENS, Counts.OUTPUT_TOKENS)
    return tuple(
        BucketSettings(
            counts,
            per_minute=60.0 * rate,
            burst_seconds=burst,
            headers=rates.told,
            retry_after=rates.told,
            labelled=rates.told,
            rejects_consume=rates.rejects_consume and counts is Counts.REQUESTS,
            debts=rates.debts,
        )
        for counts, (rate, burst) in zip(names, rates.buckets(), strict=True)
    )


def _faults(lane: Lane) -> list[Fault]:
    faults = []
    if lane.wall is not None:
        faults.append(_wall(lane.wall))
    if lane.outage is not None:
        streams = lane.slots if lane.recovers_to is None else lane.recovers_to
        faults.append(_outage(lane.outage, streams))
    if lane.errors is not None:
        start, until, share = lane.errors
        faults.append(Fault(Effect.SERVER_ERROR, start, until, share=share))
    if lane.stalls:
        faults.append(Fault(Effect.SILENCE, share=lane.stalls))
    return faults


def _wall(wall: Wall) -> Fault:
    told: ResetAnnouncement = "text" if wall.told else "no"
    return Fault(Effect.QUOTA_WALL, wall.start, wall.end, reset_announced=told)


def _outage(outage: Outage, slots: float) -> Fault:
    return Fault(
        Effect.HANG if outage.hangs else Effect.SERVER_ERROR,
        outage.start,
        outage.end,
        kills_in_flight=0.0 if outage.hangs else outage.killed,
        freezes_in_flight=outage.hangs,
        recovery=RecoverySettings(streams=slots, first=RAMP_FROM, seconds=outage.ramp),
    )
