"""A parked run whose process has gone is woken by the service, and `ls --parked` shows when."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jackline.cli.run_text import WakePlan, run_line
from jackline.flows.records import CallKind, CallRecord, CallState, RunRecord, RunState
from jackline.flows.run_totals import fold
from jackline.flows.settings import RunSettings, WakeSettings, encode_settings
from tests.cli.flow_world import PATIENCE, World, flow_world, wait_for

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
RESET = (NOW + timedelta(hours=2)).timestamp()
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent as POSIX knows them")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with flow_world(tmp_path) as there:
        yield there


def test_a_parked_run_that_was_left_is_woken_by_the_service_and_comes_to_its_end(
    world: World,
) -> None:
    world.provider.quota_wall(resets_in=30)
    with world.start("run", "flow.py", "--count", "4") as process:
        wait_for(process, "parked until")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 75
    (run,) = world.json("ls", "--parked")["runs"]
    # Nobody resumes it: whoever follows the log hears it wake and finish.
    code, out, err = world.jackline("logs", run["run"], "-f")
    assert code == 0, err
    assert "finished" in out.splitlines()[-1]
    assert world.json("resume", run["run"])["value"] == "4 of 4 ok: 0 1 2 3"
    assert set(world.paid().values()) == {1}
    assert world.json("ls", "--parked")["runs"] == []


def test_a_timer_that_fires_early_or_beside_another_wakes_nothing(world: World) -> None:
    world.provider.quota_wall(resets_in=3600)
    with world.start("run", "flow.py", "--count", "2") as process:
        wait_for(process, "parked until")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    (run,) = world.json("ls", "--parked")["runs"]
    sent = len(world.provider.ledger.entries)
    code, out, err = world.jackline("resume", "--woken", run["run"])
    assert (code, out) == (0, ""), err
    assert "is not woken" in err
    assert len(world.provider.ledger.entries) == sent
    assert world.json("show", run["run"])["state"] == "parked"


def parked(wake: WakeSettings | None = None, wake_at: float | None = RESET) -> RunRecord:
    settings = RunSettings(wake=wake or WakeSettings())
    record = RunRecord("r1", "survey", "/x/survey.py", b"{}", encode_settings(settings))
    return replace(record, state=RunState.PARKED, wake_at=wake_at, cost=3.0)


def calls(*states: CallState) -> list[CallRecord]:
    return [
        CallRecord("r1", "k", number, CallKind.AGENT, f"a{number}", "", f"t{number}", state)
        for number, state in enumerate(states)
    ]


DONE, LEFT = CallState.DONE, CallState.RUNNING


@pytest.mark.parametrize(
    ("run", "known", "reported"),
    [
        (parked(), (DONE, DONE, DONE), "wakes 14:00 UTC"),
        (
            parked(),
            (DONE, DONE, DONE, LEFT, LEFT),
            "wakes 14:00 UTC; the 2 known calls left: about $2.00",
        ),
        (parked(wake_at=NOW.timestamp() - 1), (), "wakes at once, when `jackline up` runs"),
        (
            parked(WakeSettings(hours="20:00-22:00 UTC")),
            (),
            "wakes 20:00 UTC: it wakes only during 20:00-22:00 UTC",
        ),
        (
            parked(WakeSettings(spend=2.5)),
            (),
            "does not wake by itself: it has cost $3.00, and wakes by itself below $2.50",
        ),
        (
            parked(WakeSettings(confirm=True)),
            (),
            "does not wake by itself: it wakes only after a person confirms",
        ),
        (
            parked(wake_at=None),
            (),
            "does not wake by itself: it waits for a person: jackline resume r1",
        ),
    ],
)
def test_ls_parked_says_what_would_wake_when_and_at_what_cost(
    run: RunRecord, known: tuple[CallState, ...], reported: str
) -> None:
    assert WakePlan.of(run, calls(*known), NOW).line(run, NOW) == reported


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_the_line_of_a_run_and_the_line_of_its_waking_tell_the_same_second(part: float) -> None:
    run = parked(wake_at=RESET + part)
    assert "parked until 14:00:01 UTC" in run_line(run, fold(run, (), {}), NOW)
    assert WakePlan.of(run, (), NOW).line(run, NOW).startswith("wakes 14:00:01 UTC")


def test_ls_and_show_name_the_next_step_for_a_run_that_has_stopped_waking() -> None:
    """Both print this line."""
    run = replace(parked(wake_at=None), why="A wall; it woke 8 times in a row and met a wall")
    line = run_line(run, fold(run, (), {}), NOW)
    assert f"parked, waits for you (jackline resume {run.run_id}): A wall; it woke 8 times" in line
    assert "waits for you" not in run_line(parked(), fold(parked(), (), {}), NOW)
