"""Each state says whether it needs a person, and what is shown follows from that alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jackline.control.fleet import Fleet, LiveCall
from jackline.control.lane_status import LaneStatus
from jackline.control.needs import (
    CONDITIONS,
    ENDED_LATELY,
    LONG_OUTAGE,
    About,
    NeedFacts,
    find_needs,
    needs_sentence,
)
from jackline.control.status import AgentCounts
from jackline.events import CallEnded
from jackline.lane_id import LaneId
from jackline.states import (
    STATES,
    AgentState,
    CallState,
    DerivedState,
    LaneState,
    ResourceState,
    RunState,
    State,
)

NOW = 1_794_744_000.0
LANE = LaneId("anthropic", "opus", "1")
BILL = ("billing", None)


def lane(
    state: str, *, cause: tuple[str, str | None] | None = None, paused: bool = False, waits: int = 0
) -> NeedFacts:
    shown = LaneStatus(
        LANE.label, state, "", None, 0, 8, waits, {}, cause, paused, upstream="anthropic"
    )
    return NeedFacts(NOW, [shown])


def run(state: str, **more: Any) -> dict[str, Any]:
    row = {"run": "9f3c", "flow": "many", "state": state, "why": "", "wake_at": None, "failed": 0}
    return row | {"created_at": NOW - 600, "ended_at": NOW - 60, "forked_from": None} | more


def runs(*rows: dict[str, Any]) -> NeedFacts:
    return NeedFacts(NOW, runs={row["run"]: row for row in rows})


def resource(state: str) -> NeedFacts:
    return NeedFacts(NOW, resources={"9f3c|box": {"run": "9f3c", "name": "box", "state": state}})


def call(state: AgentState, failing_for: float | None = None) -> NeedFacts:
    since = None if failing_for is None else NOW - failing_for
    live = LiveCall("s", "a", "", "m", LANE, NOW - 900, state, "", None, failing_since=since)
    return NeedFacts(NOW, live=[live])


def resting(outcome: str, ago: float, run_state: AgentState | None = None) -> NeedFacts:
    fleet = Fleet()
    event = CallEnded(
        NOW - ago, "c", outcome, LANE, "m", "s", "a", None, None, True, 200, 1, 0.0, 1.0, None,
        1, 1, 0, 0,
    )  # fmt: skip
    fleet.call_ended(event)
    counts = AgentCounts.of([], fleet, {} if run_state is None else {"a": run_state}, NOW)
    return NeedFacts(NOW, lost_agents=counts.lost)


# Of each state: facts in which it needs nobody, and facts in which it does, if it ever does.
FACTS: dict[State, tuple[NeedFacts, NeedFacts | None]] = {
    LaneState.OPEN: (lane("open", waits=3), None),
    LaneState.THROTTLED: (lane("throttled", waits=3), None),
    LaneState.PARKED: (lane("parked", waits=3), lane("parked", cause=BILL)),
    LaneState.DOWN: (call(AgentState.DOWN, 60), call(AgentState.DOWN, LONG_OUTAGE)),
    # Cut again and again, it goes down, takes a probe, and is cut once more.
    LaneState.RECOVERING: (lane("recovering"), call(AgentState.ANSWERING, LONG_OUTAGE)),
}
OF_AGENTS: dict[State, tuple[NeedFacts, NeedFacts | None]] = {
    state: (call(state), None)
    for state in AgentState
    if state not in (AgentState.FAILED, AgentState.FINISHED, AgentState.QUIET)
}
OF_AGENTS |= {
    AgentState.DOWN: (call(AgentState.DOWN, 60), call(AgentState.DOWN, LONG_OUTAGE)),
    AgentState.BETWEEN: (resting("answered", 60), None),
    AgentState.QUIET: (resting("answered", 600), None),
    AgentState.FINISHED: (resting("answered", 6000), None),
    AgentState.FAILED: (resting("refused", 10), resting("refused", 120)),
}
OF_RUNS: dict[State, tuple[NeedFacts, NeedFacts | None]] = {
    RunState.RUNNING: (runs(run("running", failed=2)), None),
    RunState.PARKED: (runs(run("parked", wake_at=NOW + 60)), runs(run("parked"))),
    RunState.STOPPED: (runs(run("stopped", failed=1)), None),
    RunState.FINISHED: (runs(run("finished")), runs(run("finished", failed=4))),
    RunState.FAILED: (runs(run("failed", ended_at=NOW - 2 * ENDED_LATELY)), runs(run("failed"))),
    RunState.CANCELLED: (runs(run("cancelled", failed=3)), None),
}
OF_CALLS: dict[State, tuple[NeedFacts, NeedFacts | None]] = {
    CallState.RUNNING: (runs(run("running", running=3)), None),
    CallState.DONE: (runs(run("finished", done=3)), None),
    CallState.FAILED: (runs(run("running", failed=3)), runs(run("finished", failed=3))),
}
OF_RESOURCES: dict[State, tuple[NeedFacts, NeedFacts | None]] = {
    state: (resource(state), None) for state in ResourceState
} | {ResourceState.FAILED: (NeedFacts(NOW), resource("failed"))}
DERIVED: dict[State, tuple[NeedFacts, NeedFacts | None]] = {
    DerivedState.PAUSED: (lane("open", paused=True), lane("open", paused=True, waits=2)),
    DerivedState.DRAINING: (lane("open", paused=True), lane("open", paused=True, waits=2)),
    DerivedState.CUT_OFF: (runs(run("running")), runs(run("cut off"))),
}
ALL = dict(zip(STATES, (FACTS, OF_AGENTS, OF_RUNS, OF_CALLS, OF_RESOURCES, DERIVED), strict=True))


@pytest.mark.parametrize("table", STATES, ids=lambda table: table.__name__)
def test_every_state_has_decided_and_has_its_example(table: type[State]) -> None:
    assert list(CONDITIONS[table]) == list(table)
    assert set(ALL[table]) == set(table)


@pytest.mark.parametrize(
    ("table", "state"), [(table, state) for table in STATES for state in table]
)
def test_a_state_needs_a_person_exactly_when_its_condition_says_so(
    table: type[State], state: State
) -> None:
    calm, needs = ALL[table][state]
    assert needs_sentence(find_needs(calm)) == "Nothing needs you."
    assert (needs is None) == (not CONDITIONS[table][state])
    if needs is not None:
        (need,) = find_needs(needs)
        assert needs_sentence([need]) == f"1 needs you: {need.text}."


def test_the_table_in_the_documentation_is_the_one_that_decides() -> None:
    page = (Path(__file__).parents[2] / "docs" / "terminal.md").read_text()
    for table in STATES:
        for state, condition in CONDITIONS[table].items():
            if condition:
                assert f"| {table.__name__.removesuffix('State').lower()} | {state} | " in page
                assert condition in page


def test_an_ended_run_is_named_until_somebody_has_gone_on_with_it() -> None:
    failed = run("failed")
    (need,) = find_needs(runs(failed))
    assert (need.about, need.text) == (
        About.ENDED_RUN,
        "many (9f3c) failed: jackline show 9f3c",
    )
    later = {"run": "a1", "created_at": NOW - 30}
    for row, still in (
        (run("finished", **later), False),
        (run("finished", **later, failed=1), True),
        (run("finished", **later) | {"flow": "other"}, True),
        (run("running", **later), True),
        (run("finished", run="a0", created_at=NOW - 6000), True),
        (run("running", **later, forked_from="9f3c"), False),
    ):
        keys = [each.key for each in find_needs(runs(failed, row))]
        assert ("run 9f3c" in keys) is still, row


def test_what_waits_for_a_person_is_named_with_what_to_do() -> None:
    facts = runs(
        run("parked"),
        run("parked", run="d4", why="it costs much: jackline resume d4 --now"),
        run("finished", run="e5", failed=4),
        run("running", run="f6", trusted=False),
        run("finished", run="g7", failed=4, trusted=False),
    )
    lanes = [
        replace(lane("parked", cause=BILL).lanes[0], name=f"anthropic/{model}")
        for model in ("opus", "haiku")
    ]
    refused = {"vertex": NOW - 5, "old": NOW - 5000}
    found = find_needs(replace(facts, lanes=lanes, refused=refused, lost_agents=2))
    assert [need.text for need in found] == [
        "many (9f3c) is parked until you say so: jackline resume 9f3c",
        "many (d4) is parked: it costs much: jackline resume d4 --now",
        "many (e5) has finished with 4 failed agents: jackline show e5",
        "many (f6) is not run, not written by this installation: jackline show f6 --trust",
        "anthropic takes no more calls: its credit is used up or its bill unpaid",
        "vertex refuses the key or login: sign in again",
        "the last call of 2 agents failed: jackline why",
    ]
    assert needs_sentence(found).startswith("7 need you: many (9f3c) is parked until")
    assert needs_sentence(found).endswith("; and 4 more.")


def test_calls_that_are_cut_for_minutes_are_named_by_their_lane_once() -> None:
    cut = call(AgentState.ANSWERING, 725.0).live
    (need,) = find_needs(NeedFacts(NOW, live=[*cut, *cut]))
    assert need.text == (
        "2 calls got no whole answer from anthropic/opus for 12 min: jackline doctor"
    )
    assert need.about.is_of_gateway
