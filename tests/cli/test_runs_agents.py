"""Orders to single agents with real processes, some of which are killed before they can obey."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackline.cli.run_text import cancelled_json, cancelled_lines
from jackline.flows.lifecycle import CancelledAgents
from jackline.flows.records import CallState, RunRecord, RunState
from jackline.simulator.reply_script import Say
from jackline.testing import Rule
from tests.cli.flow_world import World, flow_world, wait_for
from tests.saved_runs import saved_calls, saved_run, saved_runs

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX knows them")

FLOW = """
from jackline import agent, flow, parallel

@flow
async def many(count: int) -> str:
    parts = await parallel(
        agent(
            f"part {i}",
            label=f"part {i}",
            on_end=f"echo part {i} $JACKLINE_TERMINATED_BY >> ended.txt",
        )
        for i in range(count)
    )
    return parts.summary
"""
ANSWERS = Rule(lambda request: Say(request.prompt.split()[-1]))
NEVER = Say("too late", delay=3600)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with flow_world(tmp_path) as there:
        (tmp_path / "flow.py").write_text(FLOW)
        yield there


def ended(world: World) -> list[str]:
    """What the clean-up hooks have written, in any order."""
    written = world.folder / "ended.txt"
    return sorted(written.read_text().splitlines()) if written.exists() else []


def calls(world: World, run: str) -> dict[str, Any]:
    return {call["label"]: call for call in world.json("show", run)["calls"]}


def under_way(world: World, *labels: str) -> str:
    """The run's id, once these agents of it have begun."""
    while True:
        (run,) = saved_runs(world.folder / "state")
        found = saved_calls(world.folder / "state", run.run_id)
        if all(label in found and found[label].state is CallState.RUNNING for label in labels):
            return run.run_id


def until_ended(world: World, run: str, label: str) -> None:
    """The process that carries it has obeyed; whoever ordered need not have waited so long."""
    state = world.folder / "state"
    while saved_calls(state, run)[label].state is CallState.RUNNING:
        assert saved_run(state, run).state in (RunState.RUNNING, RunState.PARKED)


def test_an_agent_is_cancelled_from_another_process_and_begun_again_only_by_name(
    world: World,
) -> None:
    world.provider.says(Rule(NEVER, prompt="part 1"), Rule(NEVER, prompt="part 2"), ANSWERS)
    with world.start("run", "flow.py", "--count", "3") as process:
        wait_for(process, "part 0 ok")
        run = under_way(world, "part 1", "part 2")
        code, out, err = world.jackline("cancel", run, "--only", "part 1")
        assert (code, out) == (0, ""), err
        assert f"jackline resume {run} --only 'part 1'" in err
        until_ended(world, run, "part 1")
        found = calls(world, run)
        assert found["part 1"]["terminated_by"] == "cancelled"
        assert found["part 1"]["outcome"]["evidence"]["says"] == (
            f"A person cancelled it: jackline cancel {run} --only 'part 1'"
        )
        assert found["part 2"]["state"] == "running"
        assert ended(world) == ["part 0 completion", "part 1 cancelled"]
        code, _, err = world.jackline("resume", run, "--only", "part 1")
        assert (code, "its flow has already received how part 1 ended" in err) == (2, True), err
        process.kill()
    world.provider.says(ANSWERS)
    code, out, err = world.jackline("resume", run)
    assert (code, out.strip()) == (3, "2 of 3 ok, 1 failed: 1 cancelled"), err
    code, _, err = world.jackline("resume", run, "--failed")
    assert (code, "but what a person cancelled" in err) == (2, True), err
    code, out, err = world.jackline("resume", run, "--only", "part 1")
    assert (code, out.strip()) == (0, "3 of 3 ok"), err
    assert set(world.paid().values()) == {1}
    assert ended(world) == [
        *("part 0 completion", "part 1 cancelled", "part 1 completion", "part 2 completion"),
    ]


def test_an_order_outlives_the_process_that_was_killed_before_it_could_obey(
    world: World,
) -> None:
    world.provider.says(Rule(NEVER, prompt="part 1"), Rule(NEVER, prompt="part 2"), ANSWERS)
    with world.start("run", "flow.py", "--count", "3") as process:
        wait_for(process, "part 0 ok")
        run = under_way(world, "part 1", "part 2")
        process.send_signal(signal.SIGSTOP)
        code, _, err = world.jackline("cancel", run, "--only", "part 1")
        assert code == 0, err
        process.kill()
    world.provider.says(ANSWERS)
    code, out, err = world.jackline("resume", run)
    assert (code, out.strip()) == (3, "2 of 3 ok, 1 failed: 1 cancelled"), err
    assert ended(world) == ["part 0 completion", "part 1 cancelled", "part 2 completion"]
    assert set(world.paid().values()) == {1}


def test_an_agent_of_a_parked_run_is_cancelled_at_once_and_the_run_stays_parked(
    world: World,
) -> None:
    world.provider.quota_wall(resets_in=3600)
    with world.start("run", "flow.py", "--count", "2") as process:
        wait_for(process, "parked until")
        (run,) = world.json("ls", "--parked")["runs"]
        reported = world.json("cancel", run["run"], "--only", "part 1")
        assert reported["state"] == "parked"
        until_ended(world, run["run"], "part 1")
        (parked,) = world.json("ls", "--parked")["runs"]
        assert parked["wake_at"] == run["wake_at"]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 75
    code, _, err = world.jackline("cancel", run["run"], "--only", "part 0")
    assert (code, "its run stays parked" in err) == (0, True), err
    assert f"undo: jackline resume {run['run']} --only 'part 0'" in err
    (parked,) = world.json("ls", "--parked")["runs"]
    assert parked["wake_at"] == run["wake_at"]
    ends = {label: call["terminated_by"] for label, call in calls(world, run["run"]).items()}
    assert ends == {"part 0": "cancelled", "part 1": "cancelled"}
    assert "part 0 cancelled" in ended(world)


def test_a_name_that_no_agent_has_and_an_agent_that_has_ended_are_reported(world: World) -> None:
    world.provider.says(Rule(NEVER, prompt="part 1"), ANSWERS)
    with world.start("run", "flow.py", "--count", "2") as process:
        wait_for(process, "part 0 ok")
        run = under_way(world, "part 1")
        # Its process lives, and has not come to such an agent.
        code, _, err = world.jackline("cancel", run, "--only", "part 7", "--ahead")
        assert code == 0, err
        code, _, err = world.jackline("resume", run, "--only", "part 7")
        assert (code, "was withdrawn" in err) == (0, True), err
        process.kill()
    code, _, err = world.jackline("cancel", run, "--only", "prt 1")
    assert (code, "Its agents are: part 0, part 1." in err) == (2, True), err
    code, _, err = world.jackline("cancel", run, "--only", "part 0")
    assert (code, "has ended already: completion" in err) == (2, True), err
    code, _, err = world.jackline("cancel", run, "--ahead")
    assert (code, "--only LABEL" in err) == (2, True), err
    assert calls(world, run)["part 1"]["state"] == "running"


@pytest.mark.parametrize(
    ("ended", "carried", "reported"),
    [
        (1, True, "part 1 of run r1 was cancelled; its run goes on"),
        (2, False, "2 agents labelled part 1 of run r1 were cancelled; its run stays parked"),
        (None, True, "the process of run r1 was notified: it ends part 1 in a moment"),
        (0, True, "there is no agent part 1 yet; one that comes in run r1 is not started"),
    ],
)
def test_the_result_is_reported_with_its_undo(
    ended: int | None, carried: bool, reported: str
) -> None:
    run = RunRecord("r1", "many", "flow.py", b"{}", state=RunState.PARKED)
    came = CancelledAgents(run, "part 1", ended, carried)
    first, undo = cancelled_lines(came)
    assert first == reported
    later = ", once the run has ended or was stopped" if carried and ended else ""
    assert undo == f"undo{later}: jackline resume r1 --only 'part 1'"
    assert cancelled_json(came)["undo"] == "jackline resume r1 --only 'part 1'"
