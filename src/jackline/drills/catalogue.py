"""List the drills that come with Jackline.

Rules: (1) the requirements are what the README promises; (2) both sides know the first provider,
only Jackline knows the backup providers; (3) where a crew can move to a backup it gets many
prompts, because conversations return to the first provider between turns; sub-agents of the real
client get one prompt, so there each wave is a crew of its own.
"""

from __future__ import annotations

from dataclasses import replace

from jackline.drills.cache_spiral import cache_spiral
from jackline.drills.cascade import CASCADE
from jackline.drills.claude_client import InstalledClaude
from jackline.drills.drill import (
    ALL_FINISH,
    HAIKU,
    MINUTE,
    NO_ERROR_SEEN,
    NOBODY_MISLED,
    OPUS,
    SONNET,
    BackupProvider,
    CrewPart,
    Drill,
    Requirement,
    crew,
    crew_script,
)
from jackline.drills.lost_subagent import LOST_SUBAGENT
from jackline.drills.power_cut import POWER_CUT
from jackline.drills.session_limit_flow import as_a_flow
from jackline.drills.subagent_wall import SUBAGENT_WALL, subagent_wall
from jackline.errors import BadArgumentError, NothingFoundError
from jackline.providers.settings import UpstreamKind
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.limits import BucketSettings, ConcurrencyCap, Counts


def all_drills(
    *, real_client: bool = False, claude: InstalledClaude | None = None
) -> tuple[Drill, ...]:
    """Every drill, in the order in which `all` runs them, with crews that the client can start.

    What only the real client can play is left out where there is no `claude`.
    """
    return (
        THROTTLE_STORM,
        # Newer versions of Claude Code run no more than twenty sub-agents at once.
        session_limit(16 if real_client else 97),
        OUTAGE_ONE_LANE,
        *failover_drills(real_client=real_client),
        cache_spiral(),
        CASCADE,
        LOST_SUBAGENT,
        POWER_CUT,
        *((subagent_wall(claude),) if claude is not None else ()),
    )


def drill_named(
    name: str, *, real_client: bool = False, claude: InstalledClaude | None = None
) -> Drill:
    """The drill of this name."""
    if name == SUBAGENT_WALL and claude is None:
        raise NothingFoundError(
            f"{name} needs the real Claude Code, and there is none",
            hint="give its program with --claude PATH, and leave out --client builtin",
        )
    drills = all_drills(real_client=real_client, claude=claude)
    found = next((drill for drill in drills if drill.name == name), None)
    if found is None:
        names = ", ".join(drill.name for drill in drills)
        raise BadArgumentError(f"there is no drill {name!r}", hint=f"use one of {names}, or all")
    return found


# --- without a backup provider -------------------------------------------------------------

_EIGHT, _TWELVE = crew(8, (SONNET, SONNET, HAIKU, SONNET)), crew(12)

THROTTLE_STORM = Drill(
    "throttle-storm",
    "90 s of 429 that is not the account's limit, for 6 of 8 parallel sub-agents",
    (
        CrewPart(
            name="storm",
            crew=_EIGHT,
            script=crew_script(_EIGHT, turns=4, tokens=300),
            faults=(Fault(Effect.THROTTLED, until=90.0, model="sonnet"),),
            faults_after=12,
            bystander_model="haiku",
            requirements=(
                *ALL_FINISH,
                NO_ERROR_SEEN,
                Requirement(
                    "siblings that are not throttled lose no time",
                    "bystanders_took",
                    most=5.0,
                    beyond_bare=True,
                    machine_slack=1.0,
                ),
            ),
        ),
    ),
)

# All that an outage brings, one after the other.
OUTAGE_ONE_LANE = Drill(
    "outage-one-lane",
    "5½ minutes of 529, 503, hangs and broken streams, and no other lane to use",
    (
        CrewPart(
            name="outage",
            crew=_TWELVE,
            script=crew_script(_TWELVE, turns=6, tokens=500),
            faults=(
                Fault(Effect.OVERLOADED, until=MINUTE, kills_in_flight=0.7),
                Fault(Effect.ENVOY, MINUTE, 3 * MINUTE),
                Fault(Effect.HANG, 3 * MINUTE, 4 * MINUTE, freezes_in_flight=True),
                Fault(Effect.CUT, 4 * MINUTE, 5 * MINUTE, share=0.6),
                Fault(Effect.ERROR_EVENT, 4 * MINUTE, 5 * MINUTE, share=0.5),
                Fault(Effect.CLEAN_END, 5 * MINUTE, 5.5 * MINUTE, share=0.7),
            ),
            faults_after=16,
            requirements=ALL_FINISH,
            time_limit=20 * MINUTE,
        ),
    ),
)


def session_limit(count: int) -> Drill:
    """A quota wall in the middle of a run: near enough to wait for, and too far."""
    agents = crew(count)
    no_more = Requirement(
        "after the first refusal nothing is sent but what was in flight, and one probe",
        "sent_into_the_wall",
        most=1,
    )
    near = CrewPart(
        name="reset_in_two_minutes",
        crew=agents,
        script=crew_script(agents, turns=3, tokens=900),
        faults=(Fault(Effect.QUOTA_WALL, until=2 * MINUTE),),
        faults_after=count + count // 8,
        requirements=(*ALL_FINISH, no_more),
    )
    far = replace(
        near,
        name="reset_in_five_hours",
        faults=(Fault(Effect.QUOTA_WALL, until=300 * MINUTE),),
        requirements=(
            Requirement("nobody is left waiting", "unfinished", most=0),
            NOBODY_MISLED,
            Requirement(
                "whoever is stopped got the vendor's own error with its reset, once",
                "stopped_otherwise",
                most=0,
            ),
            Requirement("and got it at once", "slowest_error", most=5.0, machine_slack=1.5),
            no_more,
        ),
    )
    about = f"{count} agents meet the session limit, reset in two minutes, in five hours, in a flow"
    return Drill("session-limit", about, (near, far, as_a_flow()))


# --- with a backup provider ----------------------------------------------------------------

_ALL_MOVE = Requirement("every agent is answered elsewhere meanwhile", "not_moved", most=0)
_MOVE_SOON = Requirement(
    "from a failure it takes 10 s at most until an agent is on its way elsewhere",
    "slowest_move",
    most=10.0,
    machine_slack=0.3,
)


def failover_drills(*, real_client: bool = False) -> tuple[Drill, ...]:
    """The drills in which another upstream is available."""
    down = (Fault(Effect.SERVER_ERROR, until=MINUTE), Fault(Effect.REFUSED, MINUTE, 1.5 * MINUTE))
    second = BackupProvider("second")
    failover = _outage_and_return(
        (
            Fault(Effect.SERVER_ERROR, until=30.0, kills_in_flight=0.5),
            Fault(Effect.HANG, 30.0, 60.0, freezes_in_flight=True),
            Fault(Effect.REFUSED, 60.0, 90.0),
        ),
        (second,),
        _MOVE_SOON,
        real_client=real_client,
    )
    family = _outage_and_return(
        down,
        (
            replace(second, faults=down),
            BackupProvider("gpt", UpstreamKind.OPENAI_CHAT, models={"claude-*": "gpt-5.5"}),
        ),
        # It has to find out that two do not work, one after the other.
        replace(_MOVE_SOON, text=_MOVE_SOON.text.replace("10 s", "20 s"), most=20.0),
        real_client=real_client,
    )
    degraded = replace(
        _long_work("degraded", 8, (OPUS, HAIKU), rounds=12, real_client=real_client),
        faults=(Fault(Effect.OVERLOADED, until=2 * MINUTE, model="opus", kills_in_flight=0.5),),
        bystander_model="haiku",
        requirements=(
            *ALL_FINISH,
            NO_ERROR_SEEN,
            _ALL_MOVE,
            _MOVE_SOON,
            Requirement("no call for the sibling goes elsewhere", "bystanders_moved", most=0),
        ),
        backups=(second,),
    )
    # First refused, then reset, so that the ledgers have it, too.
    no_network = (Fault(Effect.REFUSED, until=MINUTE), Fault(Effect.RESET, MINUTE, 2 * MINUTE))
    edge = replace(
        _long_work("no_network", 8, (SONNET,), rounds=4, real_client=real_client),
        faults=no_network,
        requirements=(
            *ALL_FINISH,
            Requirement("the status names the user's own network", "missing_status_texts", most=0),
            NO_ERROR_SEEN,
            Requirement("few meet it, even at first", "failed_attempts", most=110),
            Requirement("after that it is only probed gently", "failed_later", most=50),
            Requirement(
                "work goes on soon after the network does",
                "back_after",
                most=15.0,
                machine_slack=0.3,
            ),
        ),
        backups=(replace(second, faults=no_network),),
        status_texts=("Your own network",),
    )
    bridge = BackupProvider(
        "bridge",
        buckets=(BucketSettings(Counts.REQUESTS, per_minute=40, burst_seconds=10),),
        concurrency=ConcurrencyCap(3),
    )
    narrow = replace(
        _long_work("narrow_bridge", 10, (SONNET,), rounds=8, real_client=real_client),
        faults=(Fault(Effect.SERVER_ERROR, until=3 * MINUTE, kills_in_flight=0.5),),
        requirements=(
            *ALL_FINISH,
            NO_ERROR_SEEN,
            Requirement("nobody moves back and forth", "most_moves", most=10),
            Requirement("little is wasted on the bridge", "wasted_elsewhere", most=30),
            Requirement("little is wasted in all", "wasted", most=80),
        ),
        backups=(bridge,),
    )
    return (
        Drill(
            "outage-failover",
            "90 s of errors, hangs and refused connections, and the same model elsewhere",
            (failover,),
        ),
        Drill(
            "outage-family",
            "90 s without any Claude: the same conversations go on with another family, and return",
            (family,),
        ),
        Drill(
            "model-degraded", "two minutes of 529 for one model: only its calls move", (degraded,)
        ),
        Drill("edge-down", "two minutes in which nothing can be reached", (edge,)),
        Drill(
            "bridge-limits",
            "three minutes of errors, and the only other upstream allows 40 requests a minute",
            (narrow,),
        ),
    )


def _long_work(
    name: str, count: int, models: tuple[str, ...], *, rounds: int, real_client: bool
) -> CrewPart:
    """A crew with work for some minutes; its faults and requirements are still to be set."""
    agents = crew(count, models, rounds=1 if real_client else rounds)
    return CrewPart(
        name=name,
        crew=agents,
        script=crew_script(agents, turns=8 if real_client else 2, tokens=120, tools=2),
        faults=(),
        faults_after=count + 2,
        requirements=(),
    )


def _outage_and_return(
    faults: tuple[Fault, ...],
    backups: tuple[BackupProvider, ...],
    move_soon: Requirement,
    *,
    real_client: bool,
) -> CrewPart:
    """A crew that gets prompts before, during and after an outage.

    Of the real client's crews the first has to move; the last, begun when all is well again, stays
    at the first provider, or its first agents do.
    """
    waves, share = (3, 6) if real_client else (1, 12)
    agents = crew(share * waves, rounds=1 if real_client else 16)
    all_return = Requirement("every agent is back afterwards", "not_returned", most=0)
    if real_client:
        all_return = replace(all_return, text="agents are back afterwards", most=len(agents) - 1)
    return CrewPart(
        name="outage",
        crew=agents,
        script=crew_script(agents, turns=2, tokens=120, tools=2, waves=waves),
        faults=faults,
        faults_after=share + 2,
        requirements=(
            *ALL_FINISH,
            NO_ERROR_SEEN,
            Requirement(
                "every tool's result reaches the model under its own call", "misbound", most=0
            ),
            replace(_ALL_MOVE, most=len(agents) - share),
            move_soon,
            all_return,
            Requirement("at first only a few come back: one to probe, then more", "herd", most=4),
        ),
        backups=backups,
        waves=waves,
        rest=45.0,
    )
