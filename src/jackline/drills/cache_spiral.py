"""The drill of a fleet at four times the input limit: prompt caches are lost, or stay warm.

Rules: (1) what was read from a cache, and what was paid, is read in the provider's ledger; (2)
both sides have the same client with the same retries, and a user who resumes a dead agent; (3)
cache life, limits, tools and the gateway's own clock all run by the drill clock at one speed: no
setting of the gateway differs from what its users get
(docs/decisions/068-time-of-cache-drills.md).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from jackline.drills.builtin_client import (
    API_KEY_POLICY,
    AgentEnd,
    AgentPlan,
    AgentRecord,
    BuiltinClient,
)
from jackline.drills.conversation import label_of
from jackline.drills.drill import (
    MINUTE,
    OPUS,
    Drill,
    ProgramFigures,
    ProgramPart,
    ProgramSide,
    Requirement,
    final_text,
)
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import Bill, LedgerEntry, RequestLedger
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.reply_script import Reply, Say, long_answer
from jackline.simulator.time_model import seeded_random

# Five minutes of cache pass in seven and a half seconds, and both sides in three minutes.
SPEED = 40.0
# The part of the previous prompt that must be read from the cache for a hit; shared instructions
# are less of it.
_HIT = 0.9
_BURST = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """The work and the limit; tokens and the drill's seconds."""

    agents: int = 64
    calls: tuple[int, int] = (8, 12)
    """The fewest and the most calls of a conversation."""
    shared: int = 4_000
    own: int = 2_000
    tool_output: int = 1_100
    answer: int = 200
    tools: tuple[float, float] = (10.0, 90.0)
    per_minute: int = 23_000
    """The input limit: about a quarter of what the fleet needs while its caches are warm."""
    resumed_after: float = 10 * MINUTE
    time_limit: float = 75 * MINUTE
    model: str = OPUS

    def figures(
        self, ledger: RequestLedger, records: list[AgentRecord], seconds: float
    ) -> SpiralFigures:
        """The figures of one side, compared with the same answers when every cache is warm.

        Then each token is written to the cache once, and read afterwards.
        """
        conversations: dict[str, list[LedgerEntry]] = {}
        for entry in ledger:
            if entry.first_byte is not None:
                conversations.setdefault(entry.session, []).append(entry)
        warm_bill, limited_tokens, later_calls, hits = Bill(), 0, 0, 0
        for answered in conversations.values():
            first = answered[0]
            fresh = first.input_tokens - self.shared
            limited_tokens += fresh
            warm_bill.add(
                first.model, read=self.shared, written_5m=fresh, output=first.output_tokens
            )
            for before, entry in pairwise(answered):
                fresh = entry.input_tokens - before.input_tokens
                limited_tokens += fresh
                later_calls += 1
                hits += entry.cache_read_tokens >= _HIT * before.input_tokens
                read, output = before.input_tokens, entry.output_tokens
                warm_bill.add(entry.model, read=read, written_5m=fresh, output=output)
        finished = sum(record.end is AgentEnd.FINISHED for record in records)
        hits_percent = 100.0 * hits / later_calls if later_calls else 0.0
        least = max(1.0, 60.0 * limited_tokens / self.per_minute - _BURST)
        paid = ledger.bill().dollars
        return SpiralFigures(
            agents=len(records),
            finished=finished,
            requests=len(ledger),
            left_behind=len(records) - finished,
            deaths=sum(record.deaths for record in records),
            minutes=round(seconds / MINUTE, 1),
            slower_percent=round(100.0 * (seconds / least - 1.0), 1),
            hits_percent=round(hits_percent, 1),
            misses_percent=round(100.0 - hits_percent, 1),
            dollars=round(paid, 2),
            extra_percent=round(100.0 * (paid / warm_bill.dollars - 1.0), 1) if paid else 0.0,
            refused=ledger.wasted,
        )


LOAD = Load()


@dataclass(frozen=True, slots=True)
class SpiralFigures(ProgramFigures):
    """One side: the fleet, its caches, and the money."""

    left_behind: int
    deaths: int
    """How often a client gave up and its user had to come."""
    minutes: float
    slower_percent: float
    """How much longer it took than the limit requires when every cache is warm."""
    hits_percent: float
    misses_percent: float
    """Of the calls after the first of a conversation, those that did not find it in the cache."""
    dollars: float
    extra_percent: float
    """How much more was paid than the same answers cost when every cache is warm."""
    refused: int


@dataclass(slots=True, eq=False, kw_only=True)
class SpiralSide(ProgramSide):
    """Sessions with one growing conversation each."""

    load: Load

    def reply(self, request: ClientRequest) -> Reply:
        """Look again, and end after some calls."""
        label = label_of(request)
        fewest, most = self.load.calls
        calls = fewest + int(label.rpartition("-")[2]) * 5 % (most - fewest + 1)
        if request.turn + 1 < calls:
            look = ("Bash", {"command": "echo looked", "description": "Look at the part"})
            return Say(long_answer(self.load.answer).text, (look,))
        return Say(final_text(label))

    async def bare(self) -> ProgramFigures:
        """The clients with the provider as their base URL."""
        return await self._work(self.provider.url)

    async def jackline(self) -> ProgramFigures:
        """The clients through a gateway."""
        async with self.gateway() as endpoint:
            return await self._work(endpoint.url)

    async def _work(self, url: str) -> SpiralFigures:
        load, clients = self.load, []
        quickest, slowest = load.tools
        for number in range(load.agents):
            label = f"PART-{number + 1}"
            plan = AgentPlan(
                label=label,
                prompt=f"{label}: review this part. {long_answer(load.own).text}",
                final_text=final_text(label),
                model=load.model,
                session=f"drill-session-{number}",
                tool_seconds=quickest + (slowest - quickest) * (number * 7 % 16) / 15,
                instructions=long_answer(load.shared).text,
                tool_prints=long_answer(load.tool_output).text,
                resumed_after=load.resumed_after,
            )
            draw = seeded_random(number)
            clients.append(BuiltinClient(plan, url, self.clock, draw, API_KEY_POLICY))
        try:
            async with self.clock.timeout(load.time_limit), asyncio.TaskGroup() as group:
                for client in clients:
                    group.create_task(client.run())
        except TimeoutError:
            pass  # who is not done by now is counted as left behind
        records = [client.record for client in clients]
        return load.figures(self.provider.ledger, records, self.clock.monotonic())


def cache_spiral(load: Load = LOAD) -> Drill:
    """The drill with this load."""
    limit = BucketSettings(Counts.INPUT_TOKENS, per_minute=load.per_minute, burst_seconds=_BURST)
    part = ProgramPart(
        name="four_times_the_limit",
        side=partial(SpiralSide, load=load),
        requirements=(
            Requirement("every agent finishes", "left_behind", most=0),
            Requirement("and nobody has to be resumed", "deaths", most=0),
            Requirement(
                "nine of ten calls find their conversation cached", "misses_percent", most=10
            ),
            Requirement("the bill is that of warm caches", "extra_percent", most=10),
            Requirement("it takes as long as the limit requires", "slower_percent", most=25),
        ),
        rows=(
            ("clients that gave up", "deaths"),
            ("minutes", "minutes"),
            ("calls that hit the cache, %", "hits_percent"),
            ("bill, $", "dollars"),
            ("more than with warm caches, %", "extra_percent"),
            ("refused requests", "refused"),
        ),
        buckets=(limit,),
        least_speed=SPEED,
        client="the built-in client",
    )
    about = f"{load.agents} growing conversations want four times the input limit"
    return Drill("cache-spiral", about, (part,))
