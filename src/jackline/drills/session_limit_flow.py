"""A quota wall in the middle of a flow of 97 agents: nothing starts into it, and it resumes.

Rules: (1) what was sent when is read in the provider's ledger, what was started also in the run's
own events; (2) an undisturbed run of the same flow shows what it should have cost; (3) the plain
program is started again once the wall is gone, as its user would have to do.
Not here: the same wall for clients without flows (catalogue.py).
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace

from jackline.drills.conversation import Block
from jackline.drills.drill import MINUTE, STEADY, FlowFigures, FlowPart, Requirement, SideContext
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import DrillProvider, flow_host, paid_tokens, provider_for
from jackline.drills.evaluation import IN_FLIGHT_S
from jackline.drills.live_view import NOT_WATCHED
from jackline.drills.plain_program import GaveUpError, PlainAgent, each, tool
from jackline.flows.api import run
from jackline.flows.authoring.calls import agent, parallel
from jackline.flows.authoring.flow_definition import flow
from jackline.flows.run_events import AgentBegan, FlowEvent, RunParked, RunWoke
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.ledger import LedgerEntry, RequestOutcome
from jackline.simulator.reply_script import Reply, Say, long_answer
from jackline.simulator.time_model import seeded_random

AGENTS = 97
AT_ONCE = 24
LOOKS = 3
TOKENS = 900
STRIKE_AFTER = AGENTS + AGENTS // 8
# Farther away than a gateway holds calls for, so that the run has to deal with it itself.
RESETS_IN = 16 * MINUTE


@dataclass(frozen=True, slots=True)
class WallFigures(FlowFigures):
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


@dataclass(slots=True)
class Watch:
    """Counts requests, and lets the wall come down on cue."""

    strike_after: int = STRIKE_AFTER
    asked: int = 0
    provider: DrillProvider | None = None
    resets_at: float = 0.0
    began: list[float] = field(default_factory=list)
    """When agents began, by the drill's clock, from the first parking to the waking."""
    parked: bool = False

    def reply(self, asked: ClientRequest) -> Reply:
        """What the model says; enough requests are the cue for the wall."""
        self.asked += 1
        if self.asked == self.strike_after and self.provider is not None:
            playing = self.provider.playing
            self.resets_at = playing.now() + RESETS_IN
            playing.add_fault(Fault(Effect.QUOTA_WALL, until=RESETS_IN))
        label = asked.prompt.partition(":")[0]
        if asked.turn < LOOKS:
            return Say(long_answer(TOKENS).text, (("look", {"part": label}),))
        return Say(last_words(label))

    def hear(self, event: FlowEvent) -> None:
        """Listen to the run."""
        if isinstance(event, RunParked):
            self.parked = True
        elif isinstance(event, RunWoke):
            self.parked = False
        elif isinstance(event, AgentBegan) and self.parked:
            self.began.append(event.at)


def as_a_flow() -> FlowPart:
    """The part."""
    return FlowPart(
        name="as_a_flow",
        bare=_bare,
        jackline=_flow,
        demands=(
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


def look(part: str) -> str:
    """Look at a part."""
    return f"{part} looks well."


@flow
async def review(agents: int, at_once: int) -> list[str]:
    """Have every part reviewed."""
    calls = (agent(prompt(n), tools=[look], label=f"PART-{n}") for n in range(1, agents + 1))
    reviewed = await parallel(calls, limit=at_once)
    return list(reviewed.values)


async def _flow(scene: SideContext) -> FlowFigures:
    before = replace(scene, folder=scene.folder / "undisturbed", watched=NOT_WATCHED)
    _, undisturbed = await played(before, Watch(strike_after=0))
    watch = Watch()
    said, provider = await played(scene, watch)
    # Each answer once: what a busy machine makes a gateway ask again is no part of it.
    should_cost = paid_tokens(undisturbed.ledger, once=True)
    return _figures(watch, provider, scene.speed, said, should_cost=should_cost, by_hand=0)


async def played(
    scene: SideContext, watch: Watch, agents: int = AGENTS, at_once: int = AT_ONCE
) -> tuple[list[str], DrillProvider]:
    """Have the flow run through once: what its agents said, and who answered them."""
    pace = DrillClock(scene.speed)
    async with provider_for(watch.reply, STEADY, scene.speed) as provider:
        watch.provider = provider
        scene.folder.mkdir(exist_ok=True)
        store = scene.folder / "flows.db"
        host = flow_host(provider.url, store, pace, listener=watch.hear, watched=scene.watched)
        async with host as opened:
            outcome = await run(review, agents, at_once, host=opened)
            await scene.watched.linger("session-limit as a flow", pace)
    return outcome.value or [], provider


async def _bare(scene: SideContext) -> FlowFigures:
    watch, pace = Watch(), DrillClock(scene.speed)
    async with provider_for(watch.reply, STEADY, scene.speed) as provider:
        watch.provider = provider
        await _plain_review(provider.url, pace)
        lost = paid_tokens(provider.ledger)
        # Its user comes back after the reset and starts the program again: it knows nothing.
        provider.playing.clear_faults()
        said = await _plain_review(provider.url, pace)
    should_cost = paid_tokens(provider.ledger) - lost
    return _figures(watch, provider, scene.speed, said, should_cost=should_cost, by_hand=1)


async def _plain_review(url: str, pace: DrillClock) -> list[str]:
    slots, draw = asyncio.Semaphore(AT_ONCE), seeded_random(0)

    async def looked(call: Block) -> str:
        return look(call["input"]["part"])

    async def one(number: int) -> str:
        async with slots:
            plain = PlainAgent(url, pace, draw)
            offered = [tool("look", part="string")]
            return await plain.work(prompt(number), offered, lambda calls: each(calls, looked))

    made = await asyncio.gather(*map(one, range(1, AGENTS + 1)), return_exceptions=True)
    for lost in made:
        if isinstance(lost, BaseException) and not isinstance(lost, GaveUpError):
            raise lost
    return [said for said in made if isinstance(said, str)]


def prompt(number: int) -> str:
    """What an agent is asked."""
    return f"PART-{number}: review this part of the project."


def last_words(label: str) -> str:
    """What the model says at the end."""
    return f"{label} is done."


def _figures(
    watch: Watch,
    provider: DrillProvider,
    speed: float,
    said: list[str],
    *,
    should_cost: int,
    by_hand: int,
) -> WallFigures:
    entries = list(provider.ledger)
    told = [e.ended for e in entries if e.wall and e.ended is not None]
    known = min(told, default=math.inf) + IN_FLIGHT_S * speed
    right = {last_words(f"PART-{n}") for n in range(1, AGENTS + 1)}
    finished = len(right & set(said)) if len(said) == len(set(said)) else 0
    cost = paid_tokens(provider.ledger)
    return WallFigures(
        agents=AGENTS,
        finished=finished,
        requests=len(entries),
        left_behind=AGENTS - finished,
        started_into_the_wall=len(watch.began) + _first_seen(provider, known, watch.resets_at),
        sent_into_the_wall=sum(e.wall and e.arrived > known for e in entries),
        probes=_probes(entries, watch.resets_at),
        woke_after=round(_woke_after(entries, watch.resets_at), 1),
        started_by_hand=by_hand,
        tokens=cost,
        undisturbed_tokens=should_cost,
        extra_percent=round(100 * (cost / should_cost - 1), 2),
    )


def _first_seen(provider: DrillProvider, since: float, until: float) -> int:
    """How many agents made their first request in this time."""
    first: dict[str, float] = {}
    for entry in provider.ledger:
        first.setdefault(provider.label(entry), entry.arrived)
    return sum(since < at < until for at in first.values())


def _answered_after(entries: list[LedgerEntry], reset: float) -> list[LedgerEntry]:
    return [e for e in entries if e.arrived >= reset and e.outcome is RequestOutcome.COMPLETED]


def _probes(entries: list[LedgerEntry], reset: float) -> int:
    answered = _answered_after(entries, reset)
    first = min((e.first_byte or e.arrived for e in answered), default=reset)
    return sum(reset <= e.arrived < first for e in entries)


def _woke_after(entries: list[LedgerEntry], reset: float) -> float:
    answered = _answered_after(entries, reset)
    return min((e.arrived for e in answered), default=reset) - reset
