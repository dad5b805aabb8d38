"""Flows on the command line, with real processes: what is finished is never run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Say
from jackline.states import RunState
from jackline.testing import Rule
from tests.cli.flow_world import PATIENCE, World, flow_world, wait_for
from tests.saved_runs import notes_of, saved_run, wait_until_due

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX knows them")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with flow_world(tmp_path) as there:
        yield there


def test_a_run_prints_its_value_and_can_be_looked_at(world: World) -> None:
    code, out, err = world.jackline("run", "flow.py", "--count", "3")
    assert (code, out.strip()) == (0, "3 of 3 ok: 0 1 2"), err
    assert "3 of 3 agents ok" in err
    (run,) = world.json("ls")["runs"]
    assert run["state"] == "finished"
    shown = world.json("show", run["run"][:4])
    assert [call["label"] for call in shown["calls"]] == ["part 0", "part 1", "part 2"]
    code, out, _ = world.jackline("logs", run["run"], "--json")
    notes = [json.loads(line) for line in out.splitlines()]
    assert {note["run"] for note in notes} == {run["run"]}
    again = world.json("resume", run["run"])
    assert (again["state"], again["value"]) == ("finished", "3 of 3 ok: 0 1 2")
    assert set(world.paid().values()) == {1}


def test_some_failed_is_exit_3_and_resume_failed_runs_only_those(world: World) -> None:
    world.provider.says(
        Rule(Say("I can't help with that.", stop="refusal"), prompt="part 1"),
        Rule(lambda request: Say(request.prompt.split()[-1])),
    )
    code, out, err = world.jackline("run", "flow.py", '{"count": 3}')
    assert code == 3
    assert "2 of 3 ok, 1 failed: 1 refused" in out
    assert "--failed" in err
    world.provider.says(Rule(lambda request: Say(request.prompt.split()[-1])))
    (run,) = world.json("ls")["runs"]
    code, out, err = world.jackline("resume", run["run"], "--failed", "--only", "part 1")
    assert (code, out.strip()) == (0, "3 of 3 ok: 0 1 2"), err
    assert sorted(world.paid().values()) == [1, 1, 2]


def test_a_killed_run_goes_on_and_pays_for_nothing_twice(world: World) -> None:
    slow = Rule(lambda request: Say(request.prompt.split()[-1], delay=60), prompt="part 2")
    world.provider.says(slow, Rule(lambda request: Say(request.prompt.split()[-1])))
    with world.start("run", "flow.py", "--count", "3") as process:
        wait_for(process, " ok (")
        wait_for(process, " ok (")
        process.kill()
    world.provider.says(Rule(lambda request: Say(request.prompt.split()[-1])))
    (run,) = world.json("ls")["runs"]
    reported = world.jackline("show", run["run"])[1]
    assert "cut off" in reported
    assert "ended by" not in reported
    code, out, err = world.jackline("resume", run["run"])
    assert (code, out.strip()) == (0, "3 of 3 ok: 0 1 2"), err
    assert max(world.paid().values()) == 1


def test_a_wall_parks_the_run_and_resume_finishes_it(world: World) -> None:
    world.provider.quota_wall(resets_in=60)
    with world.start("run", "flow.py", "--count", "5") as process:
        wait_for(process, "parked until")
        sent = len(world.provider.ledger.entries)
        _, out, _ = world.jackline("ls", "--parked")
        assert "wakes" in out
        (run,) = world.json("ls", "--parked")["runs"]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    assert "jackline resume" in err
    assert len(world.provider.ledger.entries) == sent
    # Before the reset it parks again, and goes on at the reset.
    code, out, err = world.jackline("resume", run["run"])
    assert (code, out.strip()) == (0, "5 of 5 ok: 0 1 2 3 4"), err


def test_resume_without_a_service_is_not_robbed_of_its_run_by_the_one_it_starts(
    world: World,
) -> None:
    world.provider.quota_wall(resets_in=45)
    with world.start("run", "flow.py", "--count", "2") as process:
        wait_for(process, "parked until")
        process.kill()
    (run,) = world.json("ls", "--parked")["runs"]
    world.jackline("down")
    wait_until_due(world.folder / "state", run["run"])
    assert "wakes at once" in world.jackline("ls", "--parked")[1]
    code, out, err = world.jackline("resume", run["run"])
    assert (code, out.strip()) == (0, "2 of 2 ok: 0 1"), err
    log = world.folder / "state" / "woken-runs.log"
    while log.exists() and not log.read_text():
        # Somebody was started to wake it, and has not come to say what he found.
        assert saved_run(world.folder / "state", run["run"]).state is RunState.FINISHED
    assert not log.exists() or "not woken" in log.read_text()


def test_ctrl_c_saves_and_resume_goes_on(world: World) -> None:
    slow = Rule(lambda request: Say(request.prompt.split()[-1], delay=1), prompt="part")
    world.provider.says(slow)
    with world.start("run", "flow.py", "--count", "2") as process:
        wait_for(process, "part 1 began")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 130), err
    (run,) = world.json("ls")["runs"]
    code, out, err = world.jackline("resume", run["run"])
    assert (code, out.strip()) == (0, "2 of 2 ok: 0 1"), err
    assert set(world.paid().values()) == {1}


@pytest.mark.parametrize(
    ("words", "code", "reported"),
    [
        (("run", "nowhere.py"), 2, "There is no file"),
        (("run", "flow.py"), 2, "count"),
        (("run", "flow.py", "--count", "many"), 2, "count"),
        (("run", "flow.py", "--count"), 2, "needs a value"),
        (("run", "flow.py", "--count", "1", "--budget", "beer=1"), 2, "no budget"),
        (("run", "flow.py", "--count", "1", "--budget", "strict"), 2, "strict budget needs"),
        (("show", "zzzz"), 2, "there are no runs"),
        (("resume", "zzzz"), 2, "There is no run"),
    ],
)
def test_invalid_arguments_are_reported_with_a_next_step(
    words: tuple[str, ...], code: int, reported: str, world: World
) -> None:
    got, out, err = world.jackline(*words)
    assert (got, out) == (code, ""), err
    assert reported in err
    assert "hint:" in err


@pytest.mark.parametrize(
    ("words", "reported", "document"),
    [
        (("ls",), "No runs yet: `jackline run FLOW.py` begins one.", "runs"),
        (("ls", "--parked"), "No runs yet: `jackline run FLOW.py` begins one.", "runs"),
        (("resources",), "nothing is held", "resources"),
    ],
)
def test_a_list_without_entries_is_no_error(
    words: tuple[str, ...], reported: str, document: str, world: World
) -> None:
    assert world.jackline(*words) == (0, "", f"{reported}\n")
    listed = {"schema": f"jackline.{document}/1", document: []}
    assert world.json(*words) == listed


def test_a_gateway_that_is_killed_is_started_again_and_the_run_finishes(world: World) -> None:
    gate = threading.Event()

    def answer(request: ClientRequest) -> Say:
        gate.wait(60)
        return Say(request.prompt.split()[-1])

    world.provider.says(Rule(answer))
    with world.start("run", "flow.py", "--count", "2") as process:
        wait_for(process, "part 1 began")
        word = json.loads((world.folder / "state" / "gateway.json").read_text())
        os.kill(word["pid"], signal.SIGKILL)
        wait_for(process, "the gateway does not answer")
        gate.set()
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out.strip()) == (0, "2 of 2 ok: 0 1"), err


def test_a_shared_gateway_that_is_killed_is_started_again_for_a_run_from_python_too(
    world: World,
) -> None:
    called, gate = threading.Event(), threading.Event()

    def answer(_asked: ClientRequest) -> Say:
        called.set()
        gate.wait(60)
        return Say("0")

    world.provider.says(Rule(answer))
    assert world.jackline("up", "-d")[0] == 0
    code = "import asyncio, flow, jackline; print(asyncio.run(jackline.run(flow.many, 1)).value)"
    program = [sys.executable, "-c", code]
    with subprocess.Popen(
        program, env=world.environ, cwd=world.folder, stdout=subprocess.PIPE, text=True
    ) as process:
        assert called.wait(60)
        word = json.loads((world.folder / "state" / "gateway.json").read_text())
        os.kill(word["pid"], signal.SIGKILL)
        gate.set()
        out, _ = process.communicate(timeout=120)
    assert out.strip() == "1 of 1 ok: 0"
    again = json.loads((world.folder / "state" / "gateway.json").read_text())
    assert (again["url"], again["pid"] != word["pid"]) == (word["url"], True)


def test_a_run_from_python_has_a_gateway_of_its_own_which_ends_with_it(world: World) -> None:
    code = "import asyncio, flow, jackline\nprint(asyncio.run(jackline.run(flow.many, 1)).value)"
    reported = subprocess.run(
        [sys.executable, "-c", code],
        env=world.environ,
        cwd=world.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert reported.stdout.startswith("1 of 1 ok: ")
    assert len(world.provider.ledger) == 1
    assert not (world.folder / "state" / "gateway.json").exists()
    assert world.jackline("status")[0] == 5


def test_a_step_that_never_returns_keeps_no_second_ctrl_c_waiting(world: World) -> None:
    (world.folder / "stuck.py").write_text(
        "import time\n"
        "from jackline import agent, ctx, flow, step\n"
        "def long():\n    ctx.note('begun')\n    time.sleep(3600)\n"
        "@flow\nasync def stuck():\n    await agent('part 1')\n    await step(long)\n"
    )
    with world.start("run", "stuck.py") as process:
        wait_for(process, "agent 1 ok")
        (run,) = world.json("ls")["runs"]
        while "begun" not in notes_of(world.folder / "state", run["run"]):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        wait_for(process, "stopping")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130


def test_a_run_that_is_to_abort_at_a_quota_ends_keeps_what_is_finished_and_goes_on_later(
    world: World,
) -> None:
    world.provider.quota_wall(resets_in=3600)
    code, _, err = world.jackline("run", "flow.py", "--count", "3", "--on-quota", "abort")
    assert (code, "ended by quota" in err) == (1, True), err
    (run,) = world.json("ls")["runs"]
    assert run["state"] == "failed"
    shown = world.json("show", run["run"])
    assert {call["terminated_by"] for call in shown["calls"]} == {"quota"}


def test_a_fork_pays_only_for_what_comes_from_its_label_on(world: World) -> None:
    world.jackline("run", "flow.py", "--count", "3")
    (run,) = world.json("ls")["runs"]
    before = sum(world.paid().values())
    forked = world.json("fork", run["run"], "--from", "part 2")
    assert (forked["value"], forked["tally"]["replayed"]) == ("3 of 3 ok: 0 1 2", 2)
    assert sum(world.paid().values()) == before + 1
    assert world.json("show", forked["run"])["forked_from"] == run["run"]


def test_cancel_reaches_the_process_that_carries_the_run_and_who_follows_it_hears_the_end(
    world: World,
) -> None:
    world.provider.says(Rule(Say("late", delay=600)))
    with world.start("run", "flow.py", "--count", "1") as process:
        wait_for(process, "part 0 began")
        (run,) = world.json("ls")["runs"]
        with world.start("logs", run["run"], "-f") as following:
            assert world.jackline("cancel", run["run"])[0] == 0
            _, err = process.communicate(timeout=PATIENCE)
            out, _ = following.communicate(timeout=PATIENCE)
    assert (process.returncode, following.returncode) == (1, 0), err
    assert "cancelled" in out.splitlines()[-1]
    assert world.json("show", run["run"])["state"] == "cancelled"


def test_resources_shows_what_is_still_held_and_tries_again(world: World) -> None:
    (world.folder / "rents.py").write_text(
        "from jackline import ctx, flow\n\n@flow\nasync def rents() -> str:\n"
        "    await ctx.resource('box/1', release='test -e allowed')\n    return 'done'\n"
    )
    code, out, err = world.jackline("run", "rents.py")
    assert (code, out.strip()) == (0, "done"), err
    code, out, _ = world.jackline("resources")
    assert code == 1
    assert "box/1" in out
    assert "its release failed" in out
    (world.folder / "allowed").touch()
    code, _, err = world.jackline("resources", "--retry")
    assert (code, world.json("resources")["resources"]) == (0, []), err


def test_a_run_whose_output_was_closed_ends_as_any_other(world: World) -> None:
    words = f"{sys.executable} -m jackline run flow.py --count 2 >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", words],
        env=world.environ,
        cwd=world.folder,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (run,) = world.json("ls")["runs"]
    assert run["state"] == "finished"


def test_a_reader_who_leaves_early_changes_no_exit_code(world: World) -> None:
    world.provider.says(
        Rule(Say("I can't help with that.", stop="refusal"), prompt="part 1"),
        Rule(lambda request: Say(request.prompt.split()[-1])),
    )
    with world.start("run", "flow.py", "--count", "2", "--json") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        output = process.stderr.read()
    assert process.returncode == 3, output
    assert "Broken" not in output
    (run,) = world.json("ls")["runs"]
    with world.start("logs", run["run"]) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        output = process.stderr.read()
    assert (process.returncode, output) == (0, "")
