"""What wakes a parked run: a person's order at any time, and nothing that a brake forbids."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Say
from jackline.testing import Rule
from tests.cli.flow_world import PATIENCE, World, flow_world, wait_for

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX knows them")

TWO = """
from jackline import agent, flow

@flow
async def two() -> str:
    first = await agent("part 0", label="first")
    return first + await agent("part 1", label="second")
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "two.py").write_text(TWO)
    with flow_world(tmp_path) as there:
        yield there


def wall_after_the_first(world: World, resets_in: float) -> None:
    asked_first = threading.Event()

    def answer(request: ClientRequest) -> Say:
        asked_first.set()
        return Say(request.prompt.split()[-1], delay=3)

    def strike() -> None:
        # The provider cannot be ordered anything while it makes up its mind.
        asked_first.wait(PATIENCE)
        world.provider.quota_wall(resets_in=resets_in)

    world.provider.says(
        Rule(answer, prompt="part 0"), Rule(lambda request: Say(request.prompt.split()[-1]))
    )
    threading.Thread(target=strike, daemon=True).start()


def elsewhen() -> str:
    """Hours that this test does not fall into."""
    now = datetime.now(UTC)
    begins, ends = now + timedelta(hours=2), now + timedelta(hours=3)
    return f"{begins:%H:%M}-{ends:%H:%M} UTC"


@pytest.mark.parametrize(
    ("variable", "value", "reported"),
    [
        ("JACKLINE_RESUME_HOURS", elsewhen(), "it wakes only during"),
        ("JACKLINE_RESUME_SPEND", "0.000001", "wakes by itself below $0.00"),
        ("JACKLINE_RESUME_CONFIRM", "true", "only after a person confirms"),
    ],
    ids=["hours", "spend", "confirm"],  # not by value: workers collect in different minutes
)
def test_a_brake_holds_a_run_after_its_reset_says_so_and_gives_way_to_a_person(
    world: World, variable: str, value: str, reported: str
) -> None:
    world.more = {variable: value}
    wall_after_the_first(world, resets_in=20)
    with world.start("run", "two.py") as process:
        wait_for(process, "parked until")
        (parked,) = world.json("ls", "--parked")["runs"]
        reset = datetime.fromisoformat(parked["wake_at"]).timestamp()
        # Past the reset, and past the time that its process takes to look again.
        time.sleep(max(0.0, reset + 5 - time.time()))
        (still,) = world.json("ls", "--parked")["runs"]
        assert reported in still["held_by"]
        assert (still["wakes_now"], still["calls_left"]) == (False, 1)
        assert reported in world.jackline("ls", "--parked")[1]
        # Nor does anything else wake it.
        code, _, err = world.jackline("resume", "--woken", parked["run"])
        assert code == 0
        assert "is not woken" in err
        assert reported in err
        assert [call["state"] for call in world.json("show", parked["run"])["calls"]] == [
            "done",
            "running",
        ]
        if variable.endswith("HOURS"):
            code, _, err = world.jackline("resume", parked["run"])
            assert (code, reported in err, "take it over and call at once: " in err) == (
                2,
                True,
                True,
            )
            code, out, err = world.jackline("resume", parked["run"], "--now")
            assert (code, out.strip()) == (0, "01"), err
        else:
            code, _, err = world.jackline("resume", parked["run"])
            assert code == 0, err
            assert "may go on now, and does so in process" in err
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out.strip()) in [(0, "01"), (75, "")], err
    assert world.json("show", parked["run"])["state"] == "finished"


def test_resume_now_asks_before_the_announced_reset_and_takes_over_from_who_waits(
    world: World,
) -> None:
    wall_after_the_first(world, resets_in=3600)
    with world.start("run", "two.py") as process:
        wait_for(process, "parked until")
        (run,) = world.json("ls", "--parked")["runs"]
        world.provider.heal()
        before = len(world.provider.ledger)
        code, out, err = world.jackline("resume", run["run"], "--now")
        assert (code, out.strip()) == (0, "01"), err
        assert "hands the run over" in err
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    assert len(world.provider.ledger) == before + 1, "what was finished is not requested again"


def test_resume_now_that_meets_the_wall_again_parks_again(world: World) -> None:
    wall_after_the_first(world, resets_in=3600)
    with world.start("run", "two.py") as process:
        wait_for(process, "parked until")
        process.kill()
    (run,) = world.json("ls", "--parked")["runs"]
    before = len(world.provider.ledger)
    with world.start("resume", run["run"], "--now") as process:
        wait_for(process, "parked until")
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    assert len(world.provider.ledger) == before + 1
