"""Hold the drills that come with Jackline.

Laws: (1) what is demanded is what the README promises; (2) answers take the same time in every run,
so that two runs differ by what struck them and by nothing else.
Not here: how they are run (running.py) and judged (judging.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from jackline.drills.builtin_client import AgentPlan
from jackline.drills.drill import Demand, Drill, Part
from jackline.errors import BadArgumentError
from jackline.simulator.conversation import Asked
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.mind import Mind, Rule, Say, long_answer
from jackline.simulator.service import ServiceSettings

SONNET, HAIKU = "claude-sonnet-4-6", "claude-haiku-4-5-20251001"
MINUTE, HOUR = 60.0, 3600.0
LOOK = ("Bash", {"command": "echo looked", "description": "Look at the part"})

STEADY = ServiceSettings(first_byte=1.2, first_byte_spread=0.0, tokens_per_second=60.0)


# Newer versions of Claude Code run no more than twenty sub-agents at once.
MOST_SUB_AGENTS = 16


def all_drills(*, real_client: bool = False) -> tuple[Drill, ...]:
    """Every drill, in the order in which `all` runs them, with crews that the client can start."""
    many = MOST_SUB_AGENTS if real_client else 97
    return (throttle_storm(), session_limit(many), outage_one_lane())


def named(name: str, *, real_client: bool = False) -> Drill:
    """The drill of this name."""
    drills = all_drills(real_client=real_client)
    found = next((drill for drill in drills if drill.name == name), None)
    if found is None:
        names = ", ".join(drill.name for drill in drills)
        raise BadArgumentError(f"there is no drill {name!r}", next=f"take one of {names}, or all")
    return found


# --- crews and what the model says to them -------------------------------------------------


def crew(count: int, models: Sequence[str] = (SONNET,)) -> tuple[AgentPlan, ...]:
    """So many sub-agents of one session, their models dealt out in turn."""
    return tuple(
        AgentPlan(
            label=f"PART-{number}",
            prompt=f"PART-{number}: review this part of the project.",
            last_words=_last_words(f"PART-{number}"),
            model=models[(number - 1) % len(models)],
            agent=f"drill-agent-{number}",
        )
        for number in range(1, count + 1)
    )


def mind_for(agents: Sequence[AgentPlan], *, turns: int, tokens: int) -> Mind:
    """A model that starts this crew, lets each look so many times, and then ends its part."""
    calls = tuple(("Agent", _order(plan)) for plan in agents)
    looking = Say(long_answer(tokens).text, (LOOK,))
    rules = [
        Rule(Say("Splitting the work.", calls), sub_agent=False, turn=0, offers="Agent"),
        Rule(Say("All parts are back."), sub_agent=False),
        *(Rule(looking, sub_agent=True, turn=turn) for turn in range(turns)),
        Rule(_end_part, sub_agent=True),
    ]
    return Mind(tuple(rules))


def _order(plan: AgentPlan) -> dict[str, object]:
    return {
        "description": f"Review {plan.label}",
        "prompt": plan.prompt,
        "subagent_type": "general-purpose",
        "model": "haiku" if plan.model == HAIKU else "sonnet",
        "run_in_background": False,
    }


def _end_part(asked: Asked) -> Say:
    return Say(_last_words(asked.prompt.partition(":")[0]))


def _last_words(label: str) -> str:
    return f"{label} is done."


# --- the drills ----------------------------------------------------------------------------


_NOBODY_MISLED = Demand("nobody takes a broken answer for a whole one", "misled", most=0)
_ALL_FINISH = (Demand("every agent finishes", "left_behind", most=0), _NOBODY_MISLED)


def throttle_storm() -> Drill:
    """429 "not your usage limit" for one of two models."""
    agents = crew(8, (SONNET, SONNET, HAIKU, SONNET))
    storm = Part(
        name="storm",
        crew=agents,
        mind=mind_for(agents, turns=4, tokens=300),
        service=STEADY,
        faults=(Fault(Effect.THROTTLED, until=90.0, model="sonnet"),),
        strike_after=12,
        bystander_model="haiku",
        demands=(
            *_ALL_FINISH,
            Demand("no agent sees an error", "errors_seen", most=0),
            Demand(
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
    mind = mind_for(agents, turns=3, tokens=900)
    no_more = Demand(
        "after the first refusal nothing is sent but what was in flight, and one probe",
        "sent_into_the_wall",
        most=1,
    )
    near = Part(
        name="reset_in_two_minutes",
        crew=agents,
        mind=mind,
        service=STEADY,
        faults=(Fault(Effect.QUOTA_WALL, until=2 * MINUTE),),
        strike_after=count + count // 8,
        demands=(*_ALL_FINISH, no_more),
    )
    far = Part(
        name="reset_in_five_hours",
        crew=agents,
        mind=mind,
        service=STEADY,
        faults=(Fault(Effect.QUOTA_WALL, until=5 * HOUR),),
        strike_after=count + count // 8,
        demands=(
            Demand("nobody is left waiting", "unfinished", most=0),
            _NOBODY_MISLED,
            Demand(
                "whoever is stopped got the vendor's own error with its reset, once",
                "stopped_otherwise",
                most=0,
            ),
            Demand("and got it at once", "slowest_error", most=5.0, machine_slack=1.5),
            no_more,
        ),
    )
    about = f"{count} agents meet the session limit: a reset in two minutes, then one in five hours"
    return Drill("session-limit", about, (near, far))


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
    outage = Part(
        name="outage",
        crew=agents,
        mind=mind_for(agents, turns=6, tokens=500),
        service=STEADY,
        faults=bad_minutes,
        strike_after=16,
        demands=_ALL_FINISH,
        patience=20 * MINUTE,
    )
    about = "5½ minutes of 529, 503, hangs and broken streams, and no other lane to take"
    return Drill("outage-one-lane", about, (outage,))
