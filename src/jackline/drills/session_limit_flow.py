"""A quota wall in the middle of a flow of 97 agents: nothing starts into it, and it resumes.

Rules: (1) what was sent when is read in the provider's ledger, what was started also in the run's
own events; (2) an undisturbed run of the same flow shows what it should have cost; (3) the plain
program is started again once the wall is gone, as its user would have to do.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from functools import partial

from jackline.drills.conversation import Block, ClientGaveUpError
from jackline.drills.drill import (
    MINUTE,
    ProgramFigures,
    ProgramPart,
    ProgramSide,
    Requirement,
    crew,
    final_text,
)
from jackline.drills.evaluation import IN_FLIGHT_S, sent_into_the_wall
from jackline.drills.plain_program import PlainAgent, each, tool
from jackline.flows.api import run
from jackline.flows.authoring.calls import agent, parallel
from jackline.flows.authoring.flow_definition import flow
from jackline.flows.run_events import AgentBegan, FlowEvent, RunParked, RunWoke
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.ledger import RequestOutcome
from jackline.simulator.reply_script import Reply, Say, long_answer
from jackline.simulator.time_model import seeded_random

# Farther away than a gateway holds calls for, so that the run has to park.
RESETS_IN = 16 * MINUTE


@dataclass(frozen=True, slots=True)
class WallFigures(ProgramFigures):
    """One side at the wall; seconds are the drill's."""

    left_behind: int
    started_into_the_wall: int
    """Agents that began between the first refusal and the reset."""
    sent_into_the_wall: int
    """Requests that came when the refusal of an earlier one was known."""
    probes: int
    """Requests from the reset to the first answer after it."""
    woke_after: float
    """Seconds from the reset to the first request that was answered."""
    started_by_hand: int
    """How often a person had to start it again."""
    tokens: int
    undisturbed_tokens: int
    extra_percent: float
    """What it has cost beyond an undisturbed run."""


def look(part: str) -> str:
    """Look at a part."""
    return f"{part} looks well."


@flow
async def review(agents: int, at_once: int) -> list[str]:
    """Have every part reviewed."""
    calls = (agent(one.prompt, tools=[look], label=one.label) for one in crew(agents))
    reviewed = await parallel(calls, limit=at_once)
    return list(reviewed.values)


@dataclass(slots=True, eq=False, kw_only=True)
class WallSide(ProgramSide):
    """A review whose provider has a quota wall after so many requests; with 0 it has none."""

    agents: int
    at_once: int
    wall_after: int
    requests: int = 0
    resets_at: float = 0.0
    parked: bool = False
    began_parked: int = 0
    """How many agents began while the run was parked."""

    def reply(self, request: ClientRequest) -> Reply:
        """Look three times and end; enough requests are the cue for the wall."""
        self.requests += 1
        if self.requests == self.wall_after:
            self.resets_at = self.provider.add_fault(Fault(Effect.QUOTA_WALL, until=RESETS_IN))
        label = request.prompt.partition(":")[0]
        if request.turn < 3:
            return Say(long_answer(900).text, (("look", {"part": label}),))
        return Say(final_text(label))

    async def jackline(self) -> ProgramFigures:
        """The flow, after the same flow without a wall."""
        async with self.comparison() as other:
            other.wall_after = 0
            await other.run_flow()
            # Each answer once: what a busy machine makes a gateway send again does not count.
            should_cost = other.paid_tokens(once=True)
        texts = await self.run_flow()
        return self._figures(texts, should_cost=should_cost, started_by_hand=0)

    async def run_flow(self) -> list[str]:
        """Run the flow; returns the final texts of its agents."""
        async with self.flow_host(self._on_event) as host:
            outcome = await run(review, self.agents, self.at_once, host=host)
        return outcome.value or []

    async def bare(self) -> ProgramFigures:
        """The plain program, started again from the beginning after the reset."""
        await self._plain_review()
        lost = self.paid_tokens()
        self.provider.playing.clear_faults()
        texts = await self._plain_review()
        should_cost = self.paid_tokens() - lost
        return self._figures(texts, should_cost=should_cost, started_by_hand=1)

    async def _plain_review(self) -> list[str]:
        slots, draw = asyncio.Semaphore(self.at_once), seeded_random(0)

        async def use(call: Block) -> str:
            return look(call["input"]["part"])

        async def one(prompt: str) -> str:
            async with slots:
                plain = PlainAgent(self.provider.url, self.clock, draw)
                return await plain.work(prompt, [tool("look", part="string")], each(use))

        prompts = [plan.prompt for plan in crew(self.agents)]
        found = await asyncio.gather(*map(one, prompts), return_exceptions=True)
        for lost in found:
            if isinstance(lost, BaseException) and not isinstance(lost, ClientGaveUpError):
                raise lost
        return [text for text in found if isinstance(text, str)]

    def _on_event(self, event: FlowEvent) -> None:
        if isinstance(event, RunParked):
            self.parked = True
        elif isinstance(event, RunWoke):
            self.parked = False
        elif isinstance(event, AgentBegan):
            self.began_parked += self.parked

    def paid_tokens(self, *, once: bool = False) -> int:
        """What whole answers have cost; with `once`, those to the same request count once."""
        done = [e for e in self.provider.ledger if e.outcome is RequestOutcome.COMPLETED]
        if once:
            done = list({entry.body_hash: entry for entry in done}.values())
        return sum(entry.input_tokens + entry.output_tokens for entry in done)

    def _figures(self, texts: list[str], *, should_cost: int, started_by_hand: int) -> WallFigures:
        entries, reset = list(self.provider.ledger), self.resets_at
        refused = (e.ended for e in entries if e.wall and e.ended is not None)
        known = min(refused, default=math.inf) + IN_FLIGHT_S * self.speed
        first_requests: dict[str, float] = {}
        for entry in entries:
            first_requests.setdefault(self.provider.label(entry), entry.arrived)
        after = [e for e in entries if e.arrived >= reset and e.outcome is RequestOutcome.COMPLETED]
        first_answer = min((e.first_byte or e.arrived for e in after), default=reset)
        expected = {plan.final_text for plan in crew(self.agents)}
        finished = len(expected & set(texts)) if len(texts) == len(set(texts)) else 0
        cost = self.paid_tokens()
        return WallFigures(
            agents=self.agents,
            finished=finished,
            requests=len(entries),
            left_behind=self.agents - finished,
            started_into_the_wall=self.began_parked
            + sum(known < at < reset for at in first_requests.values()),
            sent_into_the_wall=sent_into_the_wall(entries, self.speed),
            probes=sum(reset <= e.arrived < first_answer for e in entries),
            woke_after=round(min((e.arrived for e in after), default=reset) - reset, 1),
            started_by_hand=started_by_hand,
            tokens=cost,
            undisturbed_tokens=should_cost,
            extra_percent=round(100 * (cost / should_cost - 1), 2),
        )


def as_a_flow(agents: int = 97, at_once: int = 24, wall_after: int = 109) -> ProgramPart:
    """The part of the drill `session-limit` that is played by a flow."""
    return ProgramPart(
        name="as_a_flow",
        side=partial(WallSide, agents=agents, at_once=at_once, wall_after=wall_after),
        requirements=(
            Requirement("every agent of the flow finishes", "left_behind", most=0),
            Requirement("after the first refusal no agent starts", "started_into_the_wall", most=0),
            Requirement("and nothing is sent but what was in flight", "sent_into_the_wall", most=0),
            Requirement("at the reset one goes first, as a probe", "probes", most=1),
            Requirement(
                "it wakes by itself within two minutes", "woke_after", most=120, machine_slack=2.0
            ),
            Requirement("nobody has to start it again", "started_by_hand", most=0),
            Requirement("it costs at most 2 % more than undisturbed", "extra_percent", most=2.0),
        ),
        rows=(
            ("agents started into the wall", "started_into_the_wall"),
            ("sent into a known wall", "sent_into_the_wall"),
            ("started again by hand", "started_by_hand"),
            ("tokens", "tokens"),
            ("% beyond an undisturbed run", "extra_percent"),
        ),
        least_speed=30.0,
    )
