"""List the drills that come with Jackline.

Rules: (1) the requirements are what the README promises; (2) answers take the same time in every
run, so that two runs differ only by the faults.
Not here: drills with another upstream (failover_drills.py), running (drill_run.py), figures
(evaluation.py).
"""

from __future__ import annotations

from jackline.drills import failover_drills
from jackline.drills.cache_spiral import cache_spiral
from jackline.drills.cascade import cascade
from jackline.drills.claude_client import InstalledClaude
from jackline.drills.drill import (
    ALL_FINISH,
    HAIKU,
    MINUTE,
    NO_ERROR_SEEN,
    NOBODY_MISLED,
    SONNET,
    STEADY,
    CrewPart,
    Drill,
    Requirement,
    crew,
    script_for,
)
from jackline.drills.lost_subagent import lost_subagent
from jackline.drills.power_cut import power_cut
from jackline.drills.session_limit_flow import as_a_flow
from jackline.drills.subagent_wall import SUBAGENT_WALL, subagent_wall
from jackline.errors import BadArgumentError, NothingFoundError
from jackline.simulator.faults import Effect, Fault

HOUR = 3600.0

# Newer versions of Claude Code run no more than twenty sub-agents at once.
MOST_SUB_AGENTS = 16


def all_drills(
    *, real_client: bool = False, claude: InstalledClaude | None = None
) -> tuple[Drill, ...]:
    """Every drill, in the order in which `all` runs them, with crews that the client can start.

    What only the real client can play is left out where there is no `claude`.
    """
    many = MOST_SUB_AGENTS if real_client else 97
    return (
        throttle_storm(),
        session_limit(many),
        outage_one_lane(),
        *failover_drills.all_drills(real_client=real_client),
        cache_spiral(),
        cascade(),
        lost_subagent(),
        power_cut(),
        *((subagent_wall(claude),) if claude is not None else ()),
    )


def drill_named(
    name: str, *, real_client: bool = False, claude: InstalledClaude | None = None
) -> Drill:
    """The drill of this name."""
    if name == SUBAGENT_WALL and claude is None:
        raise NothingFoundError(
            f"{name} is played by the real Claude Code, and there is none",
            next="give its program with --claude PATH, and leave out --client builtin",
        )
    drills = all_drills(real_client=real_client, claude=claude)
    found = next((drill for drill in drills if drill.name == name), None)
    if found is None:
        names = ", ".join(drill.name for drill in drills)
        raise BadArgumentError(f"there is no drill {name!r}", next=f"take one of {names}, or all")
    return found


# --- the drills ----------------------------------------------------------------------------


def throttle_storm() -> Drill:
    """429 "not your usage limit" for one of two models."""
    agents = crew(8, (SONNET, SONNET, HAIKU, SONNET))
    storm = CrewPart(
        name="storm",
        crew=agents,
        mind=script_for(agents, turns=4, tokens=300),
        service=STEADY,
        faults=(Fault(Effect.THROTTLED, until=90.0, model="sonnet"),),
        strike_after=12,
        bystander_model="haiku",
        demands=(
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
    )
    about = "90 s of 429 that is not the account's limit, for 6 of 8 parallel sub-agents"
    return Drill("throttle-storm", about, (storm,))


def session_limit(count: int) -> Drill:
    """A quota wall in the middle of a run: near enough to wait for, and too far."""
    agents = crew(count)
    mind = script_for(agents, turns=3, tokens=900)
    no_more = Requirement(
        "after the first refusal nothing is sent but what was in flight, and one probe",
        "sent_into_the_wall",
        most=1,
    )
    near = CrewPart(
        name="reset_in_two_minutes",
        crew=agents,
        mind=mind,
        service=STEADY,
        faults=(Fault(Effect.QUOTA_WALL, until=2 * MINUTE),),
        strike_after=count + count // 8,
        demands=(*ALL_FINISH, no_more),
    )
    far = CrewPart(
        name="reset_in_five_hours",
        crew=agents,
        mind=mind,
        service=STEADY,
        faults=(Fault(Effect.QUOTA_WALL, until=5 * HOUR),),
        strike_after=count + count // 8,
        demands=(
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


def outage_one_lane() -> Drill:
    """Everything that an outage brings, one after the other, with nowhere else to go."""
    agents = crew(12)
    bad_minutes = (
        Fault(Effect.OVERLOADED, until=MINUTE, kills_in_flight=0.7),
        Fault(Effect.ENVOY, MINUTE, 3 * MINUTE),
        Fault(Effect.HANG, 3 * MINUTE, 4 * MINUTE, freezes_in_flight=True),
        Fault(Effect.CUT, 4 * MINUTE, 5 * MINUTE, share=0.6),
        Fault(Effect.ERROR_EVENT, 4 * MINUTE, 5 * MINUTE, share=0.5),
        Fault(Effect.CLEAN_END, 5 * MINUTE, 5.5 * MINUTE, share=0.7),
    )
    outage = CrewPart(
        name="outage",
        crew=agents,
        mind=script_for(agents, turns=6, tokens=500),
        service=STEADY,
        faults=bad_minutes,
        strike_after=16,
        demands=ALL_FINISH,
        patience=20 * MINUTE,
    )
    about = "5½ minutes of 529, 503, hangs and broken streams, and no other lane to take"
    return Drill("outage-one-lane", about, (outage,))
