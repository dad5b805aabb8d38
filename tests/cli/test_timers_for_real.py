"""A timer of the system brings a parked run to its end when nothing of Jackline lives any more."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from jackline.cli.wake_timer import WakeBy
from jackline.flows.settings import NOT_WOKEN
from jackline.states import RunState
from tests.cli.flow_world import World, flow_world, wait_for
from tests.cli.real_timers import at_daemon, needs_root, user_systemd
from tests.debian_packages import installed_program
from tests.saved_runs import notes_of, saved_run, wait_until_due

# Minutes are all that `at` knows, and it looks once in each of them.
PATIENCE = 400.0
# `at` has one queue and one daemon for the whole machine.


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    needs_root()
    with flow_world(tmp_path) as there:
        yield there


def parked_and_killed(world: World, wake: WakeBy, *, resets_in: float) -> str:
    """A run that was parked with a timer, and killed with all that could wake it; its id."""
    world.provider.demand_credential()
    world.provider.quota_wall(resets_in=resets_in)
    with world.start("run", "flow.py", "--count", "3", "--wake", wake) as process:
        wait_for(process, "the timer is set")
        (run,) = world.json("ls", "--parked")["runs"]
        process.kill()
        process.communicate()
    word = json.loads((world.folder / "state" / "gateway.json").read_text())
    os.kill(word["pid"], signal.SIGKILL)
    return str(run["run"])


def ended(world: World, run: str) -> str:
    """How the run ended, once it has; reading starts nothing."""
    deadline = time.monotonic() + PATIENCE
    while True:
        state = saved_run(world.folder / "state", run).state
        if state is RunState.FINISHED:
            return str(world.json("show", run)["outcome"]["value"])
        log = world.folder / "state" / "woken-runs.log"
        output = log.read_text() if log.exists() else "nothing was woken"
        assert time.monotonic() < deadline, (state, output)
        time.sleep(1)


def test_at_wakes_a_run_whose_process_and_service_were_killed(world: World) -> None:
    with at_daemon():
        run = parked_and_killed(world, "at", resets_in=45)
        assert ended(world, run) == "3 of 3 ok: 0 1 2"
    log = world.folder / "state" / "woken-runs.log"
    assert "finished" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0, "what a woken run says is for this user alone"


def test_systemd_wakes_a_run_also_when_the_machine_was_off_at_its_time(
    world: World, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    # Where the docs say that a key is to be put, for every process of the user.
    variables = home / ".config" / "environment.d"
    variables.mkdir(parents=True)
    (variables / "key.conf").write_text("ANTHROPIC_API_KEY=sk-ant-simulated\n")
    with user_systemd(home) as environ:
        world.more = dict(environ)
        run = parked_and_killed(world, "systemd", resets_in=60)
        units = home / ".config" / "systemd" / "user"
        written = [units / f"jackline-wake-{run}.{kind}" for kind in ("service", "timer")]
        verify = ["systemd-analyze", "--user", "verify", *map(str, written)]
        checked = subprocess.run(verify, env=world.environ, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, b"")
        assert "sk-ant" not in "".join(unit.read_text() for unit in written)
    wake_at = datetime.fromisoformat(world.json("show", run)["wake_at"]).timestamp()
    time.sleep(max(0.0, wake_at + 2 - time.time()))
    assert world.json("show", run)["state"] == "parked"
    with user_systemd(home) as environ:
        world.more = dict(environ)
        assert ended(world, run) == "3 of 3 ok: 0 1 2"
        # The gateway that it started serves others, and has outlived it.
        assert world.jackline("status")[0] == 0
        left = [path.name for path in home.rglob("*wake*") if path.is_file() or path.is_symlink()]
        assert left == [], "a timer that has done its work is removed"


def test_a_run_is_not_woken_where_what_it_pays_with_is_not_set(
    world: World, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with user_systemd(home) as environ:
        world.more = dict(environ)
        run = parked_and_killed(world, "systemd", resets_in=45)
        deadline = time.monotonic() + PATIENCE
        while NOT_WOKEN not in notes_of(world.folder / "state", run):
            assert time.monotonic() < deadline
            time.sleep(1)
    _, out, _ = world.jackline("ls", "--parked")
    assert "does not wake by itself: ANTHROPIC_API_KEY was set where it was started" in out
    code, out, err = world.jackline("resume", run)
    assert (code, out.strip()) == (0, "3 of 3 ok: 0 1 2"), err


def at_jobs() -> set[str]:
    """The numbers of the jobs; the rest of a line changes when its job begins."""
    lines = subprocess.check_output(["atq"], text=True).splitlines()
    return {line.split()[0] for line in lines}


def test_a_timer_whose_run_could_not_go_on_is_set_anew(world: World) -> None:
    at = installed_program("at", "at")
    world.provider.quota_wall(resets_in=40)
    with world.start("run", "flow.py", "--count", "1") as process:
        wait_for(process, "parked until")
        (run,) = world.json("ls", "--parked")["runs"]
        process.kill()
    world.jackline("down")
    wait_until_due(world.folder / "state", run["run"])
    assert "wakes at once" in world.jackline("ls", "--parked")[1]
    before = at_jobs()
    with socket.socket() as in_use:
        # Where the gateway is to listen there is somebody else, so that it cannot start.
        in_use.bind(("127.0.0.1", 0))
        in_use.listen()
        world.more = {"JACKLINE_PORT": str(in_use.getsockname()[1])}
        code, _, err = world.jackline("resume", "--woken", "--wake", "at", run["run"])
    assert code == 5, err
    assert "the timer is set: at wakes run" in err
    new = at_jobs() - before
    assert len(new) == 1, at
    subprocess.run(["atrm", new.pop()], check=True)
    assert world.json("show", run["run"])["state"] == "parked"
