"""The drill of a fleet at four times the input limit: prompt caches are lost, or stay warm.

Rules: (1) what was read from a cache, and what was paid, is read in the provider's ledger; (2)
both sides have the same client with the same retries, and a user who resumes a dead agent; (3)
cache life, limits, tools and the gateway's own clock all run by the drill clock at one speed: no
setting of the gateway differs from what its users get
(docs/decisions/068-time-of-cache-drills.md).
Not here: the order that preserves caches (lanes/queue.py), the caches
(simulator/prompt_cache.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from jackline.drills.builtin_client import (
    API_KEY_POLICY,
    AgentEnd,
    AgentPlan,
    AgentRecord,
    BuiltinClient,
)
from jackline.drills.drill import (
    LOOK,
    MINUTE,
    OPUS,
    Drill,
    FlowFigures,
    FlowPart,
    Requirement,
    SideContext,
    label_of,
)
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import DrillProvider, gateway, provider_for
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import Bill, LedgerEntry, RequestLedger
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.reply_script import Reply, Say, long_answer
from jackline.simulator.time_model import ServiceSettings, seeded_random

CACHE_SPIRAL = "cache-spiral"
# Five minutes of cache pass in seven and a half seconds, and both sides in three minutes.
SPEED = 40.0


@dataclass(frozen=True, slots=True)
class Load:
    """The work and the limit; tokens and the drill's seconds."""

    agents: int = 64
    calls: tuple[int, int] = (8, 12)
    """The fewest and the most calls of a conversation."""
    shared: int = 4_000
    own: int = 2_000
    printed: int = 1_100
    said: int = 200
    tools: tuple[float, float] = (10.0, 90.0)
    per_minute: int = 23_000
    """The input limit: about a quarter of what the fleet asks for while its caches are warm."""
    resumed_after: float = 10 * MINUTE
    patience: float = 75 * MINUTE
    model: str = OPUS


LOAD = Load()
_SERVICE = ServiceSettings(first_byte=1.2, first_byte_spread=0.0, tokens_per_second=60.0)
_LETTERS_PER_TOKEN = 4
# The part of the prompt before that must be read from the cache for a hit; shared instructions are
# less of it.
_HIT = 0.9
_BURST = 60.0


@dataclass(frozen=True, slots=True)
class SpiralFigures(FlowFigures):
    """One side: what became of the fleet, of its caches, and of the money."""

    left_behind: int
    deaths: int
    """How often a client gave up and its user had to come."""
    minutes: float
    slower_percent: float
    """How much longer it took than the limit demands when every cache is warm."""
    hits_percent: float
    misses_percent: float
    """Of the calls after the first of a conversation, those that did not find it in the cache."""
    dollars: float
    extra_percent: float
    """How much more was paid than the same answers cost when every cache is warm."""
    refused: int


def cache_spiral(load: Load = LOAD) -> Drill:
    """The drill."""
    part = FlowPart(
        name="four_times_the_limit",
        bare=partial(_bare, load),
        jackline=partial(_through_jackline, load),
        demands=(
            Requirement("every agent finishes", "left_behind", most=0),
            Requirement("and nobody has to be brought back", "deaths", most=0),
            Requirement(
                "nine of ten calls find their conversation cached", "misses_percent", most=10
            ),
            Requirement("the bill is that of warm caches", "extra_percent", most=10),
            Requirement("it takes as long as the limit demands", "slower_percent", most=25),
        ),
        rows=(
            ("clients that gave up", "deaths"),
            ("minutes", "minutes"),
            ("calls that hit the cache, %", "hits_percent"),
            ("bill, $", "dollars"),
            ("more than with warm caches, %", "extra_percent"),
            ("refused requests", "refused"),
        ),
        least_speed=SPEED,
        client="the built-in client",
    )
    about = f"{load.agents} growing conversations want four times the input limit"
    return Drill(CACHE_SPIRAL, about, (part,))


# --- the two sides -------------------------------------------------------------------------


async def _bare(load: Load, scene: SideContext) -> FlowFigures:
    async with _provider(load, scene.speed) as provider:
        pace = DrillClock(scene.speed)
        return await _work(load, provider, provider.url, pace)


async def _through_jackline(load: Load, scene: SideContext) -> FlowFigures:
    async with _provider(load, scene.speed) as provider:
        pace = DrillClock(scene.speed)
        async with gateway(provider.url, pace, scene.watched) as url:
            figures = await _work(load, provider, url, pace)
            await scene.watched.linger(CACHE_SPIRAL, pace)
            return figures


def _provider(load: Load, speed: float) -> AbstractAsyncContextManager[DrillProvider]:
    limit = BucketSettings(Counts.INPUT_TOKENS, per_minute=load.per_minute, burst_seconds=_BURST)
    return provider_for(partial(_reply, load), _SERVICE, speed, buckets=(limit,))


async def _work(load: Load, provider: DrillProvider, url: str, pace: DrillClock) -> SpiralFigures:
    clients = [
        BuiltinClient(plan, url, pace, seeded_random(number), API_KEY_POLICY)
        for number, plan in enumerate(_fleet(load))
    ]
    try:
        async with pace.timeout(load.patience), asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run())
    except TimeoutError:
        pass  # who is not done by now is left behind, and counted so
    seconds = pace.monotonic()
    return figures_of(load, provider.ledger, [client.record for client in clients], seconds)


# --- the work ------------------------------------------------------------------------------


def _fleet(load: Load) -> Iterable[AgentPlan]:
    """Sessions with one conversation each; their tools take shorter or longer, in turn."""
    quickest, slowest = load.tools
    for number in range(load.agents):
        label = f"PART-{number + 1}"
        yield AgentPlan(
            label=label,
            prompt=f"{label}: review this part. {_filler(load.own)}",
            last_words=_last_words(label),
            model=load.model,
            session=f"drill-session-{number}",
            tool_seconds=quickest + (slowest - quickest) * (number * 7 % 16) / 15,
            instructions=_filler(load.shared),
            tool_prints=_filler(load.printed),
            resumed_after=load.resumed_after,
        )


def _reply(load: Load, asked: ClientRequest) -> Reply:
    label = label_of(asked)
    fewest, most = load.calls
    calls = fewest + int(label.rpartition("-")[2]) * 5 % (most - fewest + 1)
    if asked.turn + 1 < calls:
        return Say(long_answer(load.said).text, (LOOK,))
    return Say(_last_words(label))


def _last_words(label: str) -> str:
    return f"{label} is done."


def _filler(tokens: int) -> str:
    return long_answer(tokens).text


# --- what came of it -----------------------------------------------------------------------


@dataclass(slots=True)
class _Warm:
    """What the answers of a side take when every cache is warm."""

    bill: Bill = field(default_factory=Bill)
    tokens: int = 0
    """Toward the input limit."""
    later: int = 0
    """Calls after the first of their conversation."""
    hits: int = 0


def figures_of(
    load: Load, ledger: RequestLedger, records: list[AgentRecord], seconds: float
) -> SpiralFigures:
    """What a side came to."""
    warm = _Warm()
    conversations: dict[str, list[LedgerEntry]] = {}
    for entry in ledger:
        if entry.first_byte is not None:
            conversations.setdefault(entry.session, []).append(entry)
    for answered in conversations.values():
        _add(warm, load, answered)
    finished = sum(record.end is AgentEnd.FINISHED for record in records)
    hits = 100.0 * warm.hits / warm.later if warm.later else 0.0
    least = max(1.0, 60.0 * warm.tokens / load.per_minute - _BURST)
    paid = ledger.bill().dollars
    return SpiralFigures(
        agents=len(records),
        finished=finished,
        requests=len(ledger),
        left_behind=len(records) - finished,
        deaths=sum(record.deaths for record in records),
        minutes=round(seconds / MINUTE, 1),
        slower_percent=round(100.0 * (seconds / least - 1.0), 1),
        hits_percent=round(hits, 1),
        misses_percent=round(100.0 - hits, 1),
        dollars=round(paid, 2),
        extra_percent=round(100.0 * (paid / warm.bill.dollars - 1.0), 1) if paid else 0.0,
        refused=ledger.wasted,
    )


def _add(warm: _Warm, load: Load, answered: list[LedgerEntry]) -> None:
    """Count one conversation as it would have been: each token is written once, then read."""
    first = answered[0]
    fresh = first.input_tokens - load.shared
    warm.tokens += fresh
    warm.bill.add(first.model, read=load.shared, written_5m=fresh, output=first.output_tokens)
    for before, entry in pairwise(answered):
        fresh = entry.input_tokens - before.input_tokens
        warm.tokens += fresh
        warm.later += 1
        warm.hits += entry.cache_read_tokens >= _HIT * before.input_tokens
        warm.bill.add(
            entry.model,
            read=before.input_tokens,
            written_5m=fresh,
            output=entry.output_tokens,
        )
