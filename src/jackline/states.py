"""The states of lanes, agents, runs, calls and resources: the only place that names them.

Rules: (1) code, JSON, metrics, command line, page and docs use these values; (2) a state has one
glyph, one tone and one meaning, and every interface renders it from here (docs/glossary.md is
compared with it by a test); (3) the values of runs, calls and resources are stored: renaming one
needs a migration; (4) standard library only.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """A state with its glyph, its tone (the name of a colour), and its meaning for people."""

    glyph: str
    tone: str
    meaning: str

    def __new__(cls, value: str, glyph: str = "", tone: str = "", meaning: str = "") -> State:
        """Make one member; the defaults let a member be looked up by its value alone."""
        state = str.__new__(cls, value)
        state._value_ = value
        state.glyph, state.tone, state.meaning = glyph, tone, meaning
        return state


class LaneState(State):
    """The state of a lane."""

    OPEN = "open", "●", "go", "takes calls, within its window"
    THROTTLED = "throttled", "◐", "slow", "takes fewer calls: the provider asked to slow down"
    PARKED = "parked", "■", "park", "its quota is used up: nothing is sent before the reset"
    DOWN = (
        "down",
        "✕",
        "down",
        "the upstream answers with errors, cannot be reached, or is silent: one probe at a time",
    )
    RECOVERING = "recovering", "◌", "try", "a probe was accepted: calls come back little by little"


class AgentState(State):
    """What an agent does, or waits for."""

    ANSWERING = "answering", "●", "go", "a model answers it"
    BETWEEN = (
        "between calls",
        "◍",
        "tool",
        "no call for up to two minutes: tools run, it waits for its user, or it is gone",
    )
    QUIET = "quiet", "◦", "calm", "the same for longer: a long tool, or its end"
    QUEUED = "queued", "○", "calm", "it waits for a slot; nothing is wrong"
    THROTTLED = "throttled", "◐", "slow", "it waits because the provider asked to slow down"
    PARKED = "parked", "■", "park", "it waits for the reset of a quota"
    DOWN = "upstream down", "✕", "down", "it waits for an upstream that is down"
    FAILED = "failed", "▲", "bad", "its last call failed"
    FINISHED = (
        "finished",
        "✓",
        "done",
        "its run, parent or client reported its end, its client exited, or no call for 15 minutes",
    )


class RunState(State):
    """The state of a run, as it is stored."""

    RUNNING = "running", "●", "go", "a process runs it, as long as its lease holds"
    PARKED = "parked", "■", "park", "it waits for a reset, or for a person"
    STOPPED = "stopped", "‖", "calm", "interrupted with everything saved; resume it"
    FINISHED = "finished", "✓", "done", "it reached its end; some of its agents may have failed"
    FAILED = "failed", "▲", "bad", "it ended with an error; finished calls are saved"
    CANCELLED = "cancelled", "–", "calm", "ended for good by a person"


class CallState(State):
    """The state of one agent, step or child flow of a run, as it is stored."""

    RUNNING = "running", "●", "go", "under way"
    DONE = "done", "✓", "done", "it has a result"
    FAILED = "failed", "▲", "bad", "it ended without a result"


class ResourceState(State):
    """The state of a rented resource, as it is stored."""

    HELD = "held", "●", "calm", "in use"
    RELEASING = "releasing", "◌", "try", "its release is running"
    RELEASED = "released", "✓", "done", "released"
    FAILED = (
        "failed",
        "▲",
        "bad",
        "its release failed: it may still cost money; `jackline resources --retry`",
    )


class DerivedState(State):
    """States that are shown in place of another one, and never stored."""

    PAUSED = "paused", "‖", "calm", "of a lane: an operator paused it, and no call is in flight"
    DRAINING = "draining", "◌", "calm", "of a lane: paused, its calls in flight finish"
    CUT_OFF = (
        "cut off",
        "▲",
        "bad",
        "of a run that is `running`: its process is gone; `jackline resume ID`",
    )


STATES: tuple[type[State], ...] = (
    LaneState,
    AgentState,
    RunState,
    CallState,
    ResourceState,
    DerivedState,
)


def looks() -> dict[str, tuple[str, str]]:
    """Glyph and tone by name; states of one name look alike in every table."""
    return {state.value: (state.glyph, state.tone) for table in STATES for state in table}
