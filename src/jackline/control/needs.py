"""What needs a person: the only place that decides it, for every interface.

Rules: (1) pure; no prompt, answer, key or token; (2) each state of `jackline.states` says here when
it needs a person, if ever (`CONDITIONS`; a test walks all of them, docs/terminal.md shows the
table); (3) a need says what is wrong and what to do, with a command where there is one; (4) the
same trouble has the same key; (5) an ended run is named until it was resumed, retried, forked or
removed, for a day at most, and not once a later run of its flow has ended well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from jackline.control.fleet import LiveCall
from jackline.control.lane_status import LaneStatus
from jackline.control.text import counted
from jackline.failures.sentences import duration_in_words
from jackline.states import (
    AgentState,
    CallState,
    DerivedState,
    LaneState,
    ResourceState,
    RunState,
    State,
)

# A refused key needs a person until a call succeeds, and is forgotten after so many seconds.
RECENT_REFUSAL = 900.0
# A client repeats its call sooner than this, if it does.
REPEATED_WITHIN = 60.0
# Outages that last longer are worth a look: another upstream, the network, the vendor's page.
LONG_OUTAGE = 300.0
ENDED_LATELY = 86_400.0
_MOST_SHOWN = 3
_THROUGH_ITS_RUN = "its run needs one, by the rule for runs"
CONDITIONS: Mapping[type[State], Mapping[State, str]] = {
    LaneState: {
        LaneState.OPEN: "",
        LaneState.THROTTLED: "",
        LaneState.PARKED: "its credit is used up or its bill unpaid",
        LaneState.DOWN: "calls get no whole answer on it for five minutes",
        LaneState.RECOVERING: "calls get no whole answer on it for five minutes",
    },
    AgentState: {
        AgentState.ANSWERING: "",
        AgentState.BETWEEN: "",
        AgentState.QUIET: "",
        AgentState.QUEUED: "",
        AgentState.THROTTLED: "",
        AgentState.PARKED: "",
        AgentState.DOWN: "its call gets no whole answer for five minutes",
        AgentState.FAILED: (
            "it is of no run, and its client has not repeated its call for a minute; for 15 minutes"
        ),
        AgentState.FINISHED: "",
    },
    RunState: {
        RunState.RUNNING: "",
        RunState.PARKED: "no time says when it goes on",
        RunState.STOPPED: "",
        RunState.FINISHED: "agents of it failed, by the rule for ended runs",
        RunState.FAILED: "by the rule for ended runs",
        RunState.CANCELLED: "",
    },
    CallState: {
        CallState.RUNNING: "",
        CallState.DONE: "",
        CallState.FAILED: _THROUGH_ITS_RUN,
    },
    ResourceState: {
        ResourceState.HELD: "",
        ResourceState.RELEASING: "",
        ResourceState.RELEASED: "",
        ResourceState.FAILED: "always: it may still cost money",
    },
    DerivedState: {
        DerivedState.PAUSED: "calls wait for it",
        DerivedState.DRAINING: "calls wait for it",
        DerivedState.CUT_OFF: "always",
    },
}
"""When a state needs a person; empty for never."""


class About(StrEnum):
    """What a need is about."""

    RUN = "run"
    ENDED_RUN = "ended-run"
    RESOURCE = "resource"
    LANE = "lane"
    ACCOUNT = "account"
    KEY = "key"
    CALLS = "calls"
    AGENTS = "agents"

    @property
    def is_of_gateway(self) -> bool:
        """Whether it may concern any agent whose calls go through this gateway."""
        return self in (About.LANE, About.ACCOUNT, About.KEY, About.CALLS)


@dataclass(frozen=True, slots=True)
class Need:
    """Something that waits for a person, in a few words."""

    about: About
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class NeedFacts:
    """Everything that is asked."""

    now: float
    lanes: Sequence[LaneStatus] = ()
    runs: Mapping[str, object] = field(default_factory=dict)
    """Documents of the store of runs."""
    resources: Mapping[str, object] = field(default_factory=dict)
    live: Iterable[LiveCall] = ()
    refused: Mapping[str, float] = field(default_factory=dict)
    """When each upstream last refused a key, and has answered no call since."""
    lost_agents: int = 0
    """Agents of no run that failed, and were not heard of since."""


def find_needs(facts: NeedFacts) -> tuple[Need, ...]:
    """What waits for a person."""
    found = [
        *_runs([run for run in facts.runs.values() if isinstance(run, Mapping)], facts.now),
        *_resources(facts.resources),
        *_lanes(facts.lanes),
        *_calls(facts.live, facts.now),
    ]
    found += [
        Need(About.KEY, f"key {upstream}", f"{upstream} refuses the key or login: sign in again")
        for upstream, at in facts.refused.items()
        if facts.now - at < RECENT_REFUSAL
    ]
    if facts.lost_agents:
        text = f"the last call of {counted(facts.lost_agents, 'agent')} failed: jackline why"
        found.append(Need(About.AGENTS, "agents", text))
    return tuple({need.key: need for need in reversed(found)}.values())[::-1]


def needs_sentence(needs: Sequence[Need]) -> str:
    """All of them in one sentence; that there are none is said, too."""
    if not needs:
        return "Nothing needs you."
    more = len(needs) - _MOST_SHOWN
    rest = f"; and {more} more" if more > 0 else ""
    return f"{need_you(needs)}: {'; '.join(each.text for each in needs[:_MOST_SHOWN])}{rest}."


def need_you(needs: Sequence[Need]) -> str:
    """How many there are."""
    return f"{len(needs)} {'needs' if len(needs) == 1 else 'need'} you"


def _runs(runs: Sequence[Mapping[str, Any]], now: float) -> Iterator[Need]:
    forked = {run.get("forked_from") for run in runs}
    ended_well: dict[object, float] = {}
    for run in runs:
        if run["state"] == RunState.FINISHED and not run.get("failed"):
            began = max(run.get("created_at", 0.0), ended_well.get(run["flow"], 0.0))
            ended_well[run["flow"]] = began
    for run in runs:
        key, state, why = str(run["run"]), run["state"], str(run.get("why") or "")
        name, resume = f"{run['flow']} ({key})", f"jackline resume {key}"
        if run.get("trusted") is False:
            if state not in _ENDED:
                accept = f"not written by this installation: jackline show {key} --trust"
                yield Need(About.RUN, f"run {key}", f"{name} is not run, {accept}")
        elif state == DerivedState.CUT_OFF:
            yield Need(About.RUN, f"run {key}", f"{name} was cut off: {resume}")
        elif state == RunState.PARKED and run.get("wake_at") is None:
            reason = f": {why}" if resume in why else f" until you say so: {resume}"
            yield Need(About.RUN, f"run {key}", f"{name} is parked{reason}")
        elif state == RunState.FAILED or (state == RunState.FINISHED and run.get("failed")):
            is_over = (
                now - (run.get("ended_at") or 0.0) > ENDED_LATELY
                or key in forked
                or ended_well.get(run["flow"], 0.0) > run.get("created_at", 0.0)
            )
            if not is_over:
                how = "failed"
                if state == RunState.FINISHED:
                    how = f"has finished with {counted(run['failed'], 'failed agent')}"
                text = f"{name} {how}: jackline show {key}"
                yield Need(About.ENDED_RUN, f"run {key}", text)


_ENDED = (RunState.FINISHED, RunState.FAILED, RunState.CANCELLED)


def _resources(resources: Mapping[str, object]) -> Iterator[Need]:
    for key, each in resources.items():
        if isinstance(each, Mapping) and each["state"] == ResourceState.FAILED:
            text = (
                f"the release of {each['name']} (run {each['run']}) failed, it may still cost"
                " money: jackline resources --retry"
            )
            yield Need(About.RESOURCE, f"resource {key}", text)


def _lanes(lanes: Iterable[LaneStatus]) -> Iterator[Need]:
    for lane in lanes:
        if lane.paused and lane.waiting:
            held = counted(lane.waiting, "call")
            text = f"{lane.name} is paused by hand, {held} held: jackline upstream resume "
            yield Need(About.LANE, f"lane {lane.name}", text + lane.name)
        if lane.state == LaneState.PARKED and lane.cause is not None and lane.cause[0] == "billing":
            text = f"{lane.upstream} takes no more calls: its credit is used up or its bill unpaid"
            yield Need(About.ACCOUNT, f"bill {lane.upstream}", text)


def _calls(live: Iterable[LiveCall], now: float) -> Iterator[Need]:
    failing: dict[str, list[float]] = {}
    for call in live:
        if call.failing_since is not None and now - call.failing_since >= LONG_OUTAGE:
            failing.setdefault(call.lane.label, []).append(call.failing_since)
    for lane, since in failing.items():
        minutes = timedelta(minutes=int((now - min(since)) // 60))
        text = (
            f"{counted(len(since), 'call')} got no whole answer from {lane} for"
            f" {duration_in_words(minutes)}: jackline doctor"
        )
        yield Need(About.CALLS, f"calls {lane}", text)
