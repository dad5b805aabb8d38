"""The states of a lane and the only ways between them.

Laws: (1) a transition that is not in the table is a bug and raises; (2) the diagram in the docs is
drawn from the table.
Not here: when a transition is due (lane.py).
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """How a lane stands."""

    OPEN = "open"
    LIMITED = "limited"
    PARKED = "parked"
    BROKEN = "broken"
    PROBING = "probing"


class Event(StrEnum):
    """What moves a lane from one state to another."""

    THROTTLED = "throttled"
    QUOTA_SPENT = "quota spent"
    NEVER_CLEARS = "throttled, and it never clears"
    OUTAGE = "outage"
    CLEAN = "clean for a while"
    PROBE_ACCEPTED = "probe accepted"
    HEARD_AGAIN = "heard again"
    RAMPED_UP = "ramped up"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.OPEN, Event.THROTTLED): State.LIMITED,
    (State.OPEN, Event.QUOTA_SPENT): State.PARKED,
    (State.OPEN, Event.NEVER_CLEARS): State.PARKED,
    (State.OPEN, Event.OUTAGE): State.BROKEN,
    (State.LIMITED, Event.THROTTLED): State.LIMITED,
    (State.LIMITED, Event.QUOTA_SPENT): State.PARKED,
    (State.LIMITED, Event.NEVER_CLEARS): State.PARKED,
    (State.LIMITED, Event.OUTAGE): State.BROKEN,
    (State.LIMITED, Event.CLEAN): State.OPEN,
    (State.PROBING, Event.THROTTLED): State.LIMITED,
    (State.PROBING, Event.QUOTA_SPENT): State.PARKED,
    (State.PROBING, Event.NEVER_CLEARS): State.PARKED,
    (State.PROBING, Event.OUTAGE): State.BROKEN,
    (State.PROBING, Event.RAMPED_UP): State.OPEN,
    (State.PARKED, Event.QUOTA_SPENT): State.PARKED,
    (State.PARKED, Event.NEVER_CLEARS): State.PARKED,
    (State.PARKED, Event.PROBE_ACCEPTED): State.PROBING,
    (State.BROKEN, Event.OUTAGE): State.BROKEN,
    (State.BROKEN, Event.QUOTA_SPENT): State.PARKED,
    (State.BROKEN, Event.PROBE_ACCEPTED): State.PROBING,
    (State.BROKEN, Event.HEARD_AGAIN): State.OPEN,
}

# In these states a lane takes traffic; in the others only a single probe.
FLOWING = frozenset({State.OPEN, State.LIMITED, State.PROBING})


def after(state: State, event: Event) -> State:
    """The state that follows."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ValueError(f"a lane that is {state} cannot be {event}") from None


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> open"]
    lines += [f"    {old} --> {new}: {event}" for (old, event), new in TRANSITIONS.items()]
    return "\n".join(lines) + "\n"
