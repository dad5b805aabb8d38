"""States of agents without a call: their run knows them, and every interface shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.agents.prices import dollars
from jackline.clock import VirtualClock
from jackline.control.board import Facts, FlowFacts, WaitReason
from jackline.control.fleet import Fleet
from jackline.control.observatory import Burn
from jackline.control.status import AgentCounts
from jackline.control.stored_runs import StoredRuns, run_document
from jackline.events import AttemptFailed, CallEnded, LaneChanged
from jackline.flows.records import CallKind, CallRecord, CallState, RunRecord, RunState, task_id_of
from jackline.flows.run_owner import new_owner
from jackline.flows.run_totals import fold
from jackline.flows.store import open_run_store, run_store_url
from jackline.lane_id import LaneId
from jackline.states import AgentState

START = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOW = START.timestamp()
TASKS = {name: task_id_of("r1", name, 0) for name in ("working", "done", "failed")}
LANE = LaneId("anthropic", "claude-opus-4-8", "11aa")


def call(at: float, agent: str, **more: float) -> CallEnded:
    who = ("s1", agent, None, None, True, 200, 1, more.get("waited", 0.0), more.get("took", 1.0))
    return CallEnded(at, "c1", "answered", LANE, "claude-opus-4-8", *who, None, 10, 5, 0, 0)


def book_of(folder: Path, state: RunState, later: float = 0.0) -> FlowFacts:
    """The facts of a run with one agent under way, one done and one failed."""

    async def main() -> FlowFacts:
        clock = VirtualClock(START)
        engine = open_run_store(run_store_url(folder), wall=clock.wall)
        claim = await engine.create(RunRecord("r1", "f", "f.py", b"{}"), owner="x", lease=60)
        for task, state_of in zip(TASKS, CallState, strict=True):
            own = TASKS[task]
            one = CallRecord("r1", task, 0, CallKind.AGENT, task, "", own, CallState.RUNNING)
            one = replace(one, started_at=NOW)
            await engine.begin_call(claim, one)
            if state_of is not CallState.RUNNING:
                await engine.end_call(claim, replace(one, state=state_of, tokens=7))
        record = await engine.run("r1")
        assert record is not None
        if state is not RunState.RUNNING:
            wakes = NOW + 900 if state is RunState.PARKED else None
            ended = replace(record, state=state, wake_at=wakes, why="the quota is gone")
            await engine.let_go(claim, ended)
        await clock.advance(later)
        book = StoredRuns(run_store_url(folder), clock)
        shown = await book.look()
        await book.close()
        await engine.close()
        return shown

    return event_loop.run(main())


@pytest.mark.parametrize(
    ("state", "later", "doing", "rest"),
    [
        (RunState.RUNNING, 0.0, AgentState.BETWEEN, None),
        (RunState.PARKED, 0.0, AgentState.PARKED, WaitReason("the quota is gone", NOW + 900)),
        (
            RunState.STOPPED,
            0.0,
            AgentState.PARKED,
            WaitReason("its run was stopped: jackline resume r1"),
        ),
        (
            RunState.RUNNING,
            61.0,
            AgentState.FAILED,
            WaitReason("its run was cut off: jackline resume r1"),
        ),
        (RunState.CANCELLED, 0.0, AgentState.FINISHED, None),
    ],
)
def test_an_agent_under_way_shares_the_fate_of_its_run(
    tmp_path: Path, state: RunState, later: float, doing: AgentState, rest: WaitReason | None
) -> None:
    shown = book_of(tmp_path, state, later)
    assert shown.agent_states == {
        TASKS["working"]: doing,
        TASKS["done"]: AgentState.FINISHED,
        TASKS["failed"]: AgentState.FAILED,
    }
    assert shown.wait_reasons.get(TASKS["working"]) == rest
    assert TASKS["done"] not in shown.wait_reasons
    run = shown.runs["r1"]
    assert isinstance(run, dict)
    assert run["tokens"] == 14, "calls tell their tokens when they end, runs now and then"


@pytest.mark.skipif(os.name == "nt", reason="a dead owner cannot be recognised on Windows")
def test_a_run_whose_process_has_died_is_cut_off_before_its_lease_ends() -> None:
    """A process that dies because it can write nothing cannot give its lease back."""
    words = "from jackline.flows.run_owner import new_owner; print(new_owner())"
    died = subprocess.run(
        [sys.executable, "-c", words], check=True, capture_output=True, text=True
    ).stdout.strip()
    record = RunRecord("r1", "f", "f.py", b"{}", state=RunState.RUNNING, lease_until=NOW + 60)
    states = {
        owner: run_document(replace(record, owner=owner), fold(record, [], {}), NOW)["state"]
        for owner in (died, "elsewhere:1:x", new_owner())
    }
    assert list(states.values()) == ["cut off", "running", "running"]


def test_the_verdict_counts_those_that_their_run_has_parked() -> None:
    fleet = Fleet()
    for agent in ("one", "other"):
        fleet.call_ended(call(NOW, agent))
    parked = {"one": AgentState.PARKED}
    crew = AgentCounts.of([], fleet, parked, NOW + 10, {"one": WaitReason("quota", NOW + 900)})
    assert (crew.between, dict(crew.waiting)) == (1, {AgentState.PARKED: 1})
    assert crew.until == {AgentState.PARKED: (NOW + 900, NOW + 900)}


@pytest.mark.parametrize(
    ("lane", "shown"),
    [("down", AgentState.DOWN), ("parked", AgentState.PARKED), ("open", AgentState.THROTTLED)],
)
def test_what_shuts_a_lane_is_what_its_calls_waited_for(lane: str, shown: AgentState) -> None:
    """While it lasts all wait for that, and the timeline shows so afterwards."""
    fleet = Fleet()
    fleet.lane_changed(LaneChanged(NOW + 5, LANE, lane, "", None))
    fleet.attempt_failed(
        AttemptFailed(NOW + 1, "c1", LANE, "overloaded", None, 529, None, 1.0, None, "busy")
    )
    fleet.call_ended(call(NOW + 100, "one", waited=90.0, took=95.0))
    member = fleet.member(("s1", "one"))
    assert member is not None
    assert [each.state for each in member.stretches] == [shown, AgentState.ANSWERING]


def test_agents_are_reported_in_the_order_in_which_people_count() -> None:
    fleet = Fleet()
    for agent in ("part-10", "part-9", "", "part-1"):
        fleet.call_ended(call(NOW, agent))
    head = {"verdict": "", "url": "", "calls_in_flight": 0, "calls_waiting": 0, "forecast": []}
    shown = Facts(NOW + 1, head, {}, [], fleet, Burn(dollars), NOW).fleet_document()
    agents = shown["agents"]
    assert isinstance(agents, list)
    assert [row["agent"] for row in agents] == ["", "part-1", "part-9", "part-10"]
