"""The drills in which another upstream is available.

Rules: (1) as in catalogue.py; (2) both sides know the first provider, only Jackline knows the
backup providers; (3) crews get many prompts, because conversations return to the first provider
between turns.
Not here: running (drill_run.py), figures (evaluation.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jackline.drills.builtin_client import AgentPlan
from jackline.drills.drill import (
    ALL_BOUND,
    ALL_FINISH,
    HAIKU,
    MINUTE,
    NO_ERROR_SEEN,
    OPUS,
    SONNET,
    STEADY,
    BackupProvider,
    CrewPart,
    Drill,
    Requirement,
    crew,
    script_of_rounds,
)
from jackline.providers.settings import UpstreamKind
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.limits import BucketSettings, ConcurrencySettings, Counts
from jackline.simulator.reply_script import ReplyScript

CREW, CREW_OF_REAL_CLIENT = 12, 6
SECOND = BackupProvider("second")
GPT = BackupProvider("gpt", UpstreamKind.OPENAI_CHAT, models={"claude-*": "gpt-5.5"})

ALL_MOVE = Requirement("every agent is answered elsewhere meanwhile", "not_moved", most=0)
SOON = Requirement(
    "from a failure it takes 10 s at most until an agent is on its way elsewhere",
    "slowest_move",
    most=10.0,
    machine_slack=0.3,
)
ALL_RETURN = Requirement("every agent is back afterwards", "not_returned", most=0)
NO_HERD = Requirement("at first only a few come back: one to try, then more", "herd", most=4)


def all_drills(*, real_client: bool = False) -> tuple[Drill, ...]:
    """Every drill with another upstream."""
    return (
        outage_failover(real_client=real_client),
        outage_family(real_client=real_client),
        model_degraded(real_client=real_client),
        edge_down(real_client=real_client),
        bridge_limits(real_client=real_client),
    )


def outage_failover(*, real_client: bool = False) -> Drill:
    """The first provider fails in three ways; the second serves the same models."""
    faults = (
        Fault(Effect.SERVER_ERROR, until=30.0, kills_in_flight=0.5),
        Fault(Effect.HANG, 30.0, 60.0, freezes_in_flight=True),
        Fault(Effect.REFUSED, 60.0, 90.0),
    )
    outage = _there_and_back(faults, (SECOND,), SOON, real_client=real_client)
    about = "90 s of errors, hangs and refused connections, and the same model elsewhere"
    return Drill("outage-failover", about, (outage,))


def outage_family(*, real_client: bool = False) -> Drill:
    """Nobody serves Claude: another family has to do."""
    down = (Fault(Effect.SERVER_ERROR, until=MINUTE), Fault(Effect.REFUSED, MINUTE, 1.5 * MINUTE))
    stand_ins = (BackupProvider("second", faults=down), GPT)
    # It has to see that two do not work, one after the other.
    soon = replace(SOON, says=SOON.says.replace("10 s", "20 s"), most=20.0)
    outage = _there_and_back(down, stand_ins, soon, real_client=real_client)
    about = "90 s without any Claude: the same conversations go on with another family, and return"
    return Drill("outage-family", about, (outage,))


def _at_work(
    count: int, models: Sequence[str], *, rounds: int, real_client: bool
) -> tuple[tuple[AgentPlan, ...], ReplyScript]:
    """A crew with work for some minutes; sub-agents of the real client are asked only once."""
    agents = crew(count, models, rounds=1 if real_client else rounds)
    return agents, script_of_rounds(agents, turns=8 if real_client else 2, tokens=120)


def _there_and_back(
    faults: tuple[Fault, ...],
    stand_ins: tuple[BackupProvider, ...],
    soon: Requirement,
    *,
    real_client: bool,
) -> CrewPart:
    """A crew that is asked again and again, before, during and after an outage.

    Sub-agents of the real client are asked once, so there each wave is a crew of its own: the first
    has to move, and the last, begun when all is well again, is where it belongs, or its first are.
    """
    waves = 3 if real_client else 1
    share = CREW_OF_REAL_CLIENT if real_client else CREW
    agents = crew(share * waves, rounds=1 if real_client else 16)
    all_return = ALL_RETURN
    if real_client:
        all_return = replace(ALL_RETURN, says="agents are back afterwards", most=len(agents) - 1)
    return CrewPart(
        name="outage",
        crew=agents,
        mind=script_of_rounds(agents, turns=2, tokens=120, waves=waves),
        service=STEADY,
        faults=faults,
        strike_after=share + 2,
        demands=(
            *ALL_FINISH,
            NO_ERROR_SEEN,
            ALL_BOUND,
            replace(ALL_MOVE, most=len(agents) - share),
            soon,
            all_return,
            NO_HERD,
        ),
        stand_ins=stand_ins,
        waves=waves,
        rest=45.0,
    )


def model_degraded(*, real_client: bool = False) -> Drill:
    """One model fails, its sibling does not."""
    agents, mind = _at_work(8, (OPUS, HAIKU), rounds=12, real_client=real_client)
    degraded = CrewPart(
        name="degraded",
        crew=agents,
        mind=mind,
        service=STEADY,
        faults=(Fault(Effect.OVERLOADED, until=2 * MINUTE, model="opus", kills_in_flight=0.5),),
        strike_after=10,
        bystander_model="haiku",
        demands=(
            *ALL_FINISH,
            NO_ERROR_SEEN,
            ALL_MOVE,
            SOON,
            Requirement("no call for the sibling goes elsewhere", "bystanders_moved", most=0),
        ),
        stand_ins=(SECOND,),
    )
    about = "two minutes of 529 for one model: only its calls move"
    return Drill("model-degraded", about, (degraded,))


def edge_down(*, real_client: bool = False) -> Drill:
    """Nothing can be reached: first refused, then reset, so that the ledgers see it, too."""
    agents, mind = _at_work(8, (SONNET,), rounds=4, real_client=real_client)
    down = (Fault(Effect.REFUSED, until=MINUTE), Fault(Effect.RESET, MINUTE, 2 * MINUTE))
    outage = CrewPart(
        name="no_network",
        crew=agents,
        mind=mind,
        service=STEADY,
        faults=down,
        strike_after=10,
        demands=(
            *ALL_FINISH,
            Requirement("the status names the user's own network", "unsaid", most=0),
            NO_ERROR_SEEN,
            Requirement("few meet it, even at first", "failed_attempts", most=110),
            Requirement("after that it is only tried gently", "failed_later", most=50),
            Requirement(
                "work goes on soon after the network does",
                "back_after",
                most=15.0,
                machine_slack=0.3,
            ),
        ),
        stand_ins=(BackupProvider("second", faults=down),),
        status_says=("Your own network",),
    )
    about = "two minutes in which nothing can be reached"
    return Drill("edge-down", about, (outage,))


def bridge_limits(*, real_client: bool = False) -> Drill:
    """The first provider is down, and the only other one takes little."""
    agents, mind = _at_work(10, (SONNET,), rounds=8, real_client=real_client)
    bridge = BackupProvider(
        "bridge",
        buckets=(BucketSettings(Counts.REQUESTS, per_minute=40, burst_seconds=10),),
        concurrency=ConcurrencySettings(3),
    )
    outage = CrewPart(
        name="narrow_bridge",
        crew=agents,
        mind=mind,
        service=STEADY,
        faults=(Fault(Effect.SERVER_ERROR, until=3 * MINUTE, kills_in_flight=0.5),),
        strike_after=12,
        demands=(
            *ALL_FINISH,
            NO_ERROR_SEEN,
            Requirement("nobody goes to and fro", "most_moves", most=10),
            Requirement("little is wasted on the bridge", "wasted_elsewhere", most=30),
            Requirement("little is wasted in all", "wasted", most=80),
        ),
        stand_ins=(bridge,),
    )
    about = "three minutes of errors, and the only other upstream takes 40 requests a minute"
    return Drill("bridge-limits", about, (outage,))
