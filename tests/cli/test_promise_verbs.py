"""What the verbs for runs promise beyond a run's own course: JSON everywhere, ends, budgets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackline.simulator.reply_script import Say
from jackline.testing import Rule
from tests.cli.flow_world import World, flow_world

pytestmark = pytest.mark.skipif(os.name == "nt", reason="processes are ended as POSIX does it")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with flow_world(tmp_path) as there:
        yield there


def test_every_verb_prints_json_and_show_shows_each_agents_end(world: World) -> None:
    world.provider.says(
        Rule(Say("I can't help with that.", stop="refusal"), prompt="part 1"),
        Rule(lambda request: Say(request.prompt.split()[-1])),
    )
    first = world.json("run", "flow.py", "--count", "2")
    run = first["run"]
    assert (first["state"], first["exit_code"]) == ("finished", 3)
    assert (first["tally"]["agents"], first["tally"]["failed"]) == (2, 1)

    code, out, _ = world.jackline("show", run)
    assert code == 0
    ends = {line.split()[2]: line for line in out.splitlines() if line.lstrip()[:1] in "✓▲"}
    assert "✓" in ends["0"]
    assert "refused: " in ends["1"], out

    assert [each["run"] for each in world.json("ls")["runs"]] == [run]
    shown = world.json("show", run)
    assert [call["terminated_by"] for call in shown["calls"]] == ["completion", "refused"]
    assert shown["calls"][1]["outcome"]["evidence"]["failure"] == "content_policy"
    _, out, _ = world.jackline("logs", run, "--json")
    whats = [json.loads(line)["what"] for line in out.splitlines()]
    assert "started" in whats
    assert whats[-1] == "finished"
    assert world.json("resume", run)["run"] == run
    assert world.json("resume", run, "--failed")["exit_code"] == 3
    assert world.json("fork", run, "--from", "part 1")["run"] != run
    reported = world.json("cancel", run)
    assert (reported["run"], reported["state"]) == (run, "finished")
    assert world.json("resources")["resources"] == []


def test_a_strict_budget_of_the_command_line_is_less_than_one_call(world: World) -> None:
    words = ("--count", "1", "--budget", "tokens=900,strict")
    code, out, err = world.jackline("run", "flow.py", *words)
    assert code == 3, err
    assert out.startswith("0 of 1 ok, 1 failed: 1 budget")
    assert sum(world.paid().values()) == 0


def test_a_budget_of_the_command_line_holds_for_the_run(world: World) -> None:
    code, out, err = world.jackline("run", "flow.py", "--count", "3", "--budget", "agents=1")
    assert code == 3, err
    assert out.startswith("1 of 3 ok, 2 failed: 2 budget")
    assert sum(world.paid().values()) == 1
