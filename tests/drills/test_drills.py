"""Each drill passes with the built-in client, reports both sides, and can fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from jackline import event_loop
from jackline.drills.catalogue import drill_named
from jackline.drills.drill_clock import DrillClock
from jackline.drills.drill_run import (
    BuiltinFleet,
    CrewRun,
    DrillOptions,
    DrillResult,
    DrillRun,
    Side,
    all_as_json,
)
from jackline.drills.environment import WatchedEndpoint, open_gateway
from jackline.drills.evaluation import check_requirements
from jackline.drills.live_view import LiveView
from jackline.providers.settings import UpstreamSettings
from tests import warm_processes
from tests.cli.commands import Answer, jackline
from tests.hiccups import tried_again_after_a_hiccup

# One after the other: in scaled time a machine that is too busy counts as a slow provider.

BUILTIN = ("--client", "builtin")
# In scaled time a busy machine's pause of a quarter of a second looks like eight of silence, and a
# healthy attempt or two may be cancelled for it.
HURRIED = 3
# A standstill of so long is half a minute or more of hurried time.
HICCUP = 0.3


def document_of(answer: Answer) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(answer.out)
    return document


def output(answer: Answer) -> str:
    return answer.out + answer.err


@tried_again_after_a_hiccup(HICCUP)
def test_throttle_storm_is_not_noticed_by_anyone() -> None:
    answer = hurried_drill("throttle-storm")
    assert answer.code == 0, output(answer)
    document = document_of(answer)
    assert (document["schema"], document["drill"]) == ("jackline.drill/2", "throttle-storm")
    assert document["passed"] is True
    bare, ours = document["bare"], document["jackline"]
    assert (bare["finished"], bare["died"]) == (2, 6), "bare, the throttled ones die"
    assert (ours["finished"], ours["errors_seen"]) == (8, 0)
    assert "the faults begin" in answer.err


@tried_again_after_a_hiccup(HICCUP)
def test_session_limit_stops_the_fleet_at_once_and_lets_it_finish_after_the_reset() -> None:
    answer = hurried_drill("session-limit")
    assert answer.code == 0, output(answer)
    document = document_of(answer)
    bare, ours = document["bare"], document["jackline"]
    assert (bare["finished"], ours["finished"], ours["errors_seen"]) == (0, 97, 0)
    assert bare["wasted"] == 97
    far = ours["reset_in_five_hours"]
    assert (far["died"], far["errors_seen"], far["stopped_otherwise"]) == (97, 97, 0)
    assert far["wasted"] < 97, "most errors come from Jackline, not from another refused request"
    flow, plain = ours["as_a_flow"], bare["as_a_flow"]
    assert (flow["finished"], flow["started_into_the_wall"], flow["started_by_hand"]) == (97, 0, 0)
    assert flow["extra_percent"] <= 2 < plain["extra_percent"]


@tried_again_after_a_hiccup(HICCUP)
def test_outage_is_outlived_by_all() -> None:
    options = DrillOptions("the built-in client", BuiltinFleet, open_gateway, speed=60.0)
    result = event_loop.run(DrillRun(drill_named("outage-one-lane"), options).run())
    lines = list(result.to_text())
    assert result.passed, "\n".join(lines)
    bare = result.parts[0].bare
    assert bare is not None
    assert bare.finished < 12, "bare, the outage costs agents"
    assert lines[-1] == "outage-one-lane: passed."
    assert any("12 of 12" in line for line in lines)


def hurried_drill(name: str) -> Answer:
    """A drill in scaled time that has passed.

    There a busy machine may miss a limit that the gateway keeps: what fails twice is its fault.
    """
    answer = jackline("drill", name, "--fast", "--json", *BUILTIN)
    return answer if answer.code == 0 else jackline("drill", name, "--fast", "--json", *BUILTIN)


def drilled(name: str, *, both_sides: bool = False) -> dict[str, Any]:
    """The figures of Jackline's side of a drill that has passed."""
    if both_sides:
        answer = hurried_drill(name)
        assert answer.code == 0, output(answer)
        ours: dict[str, Any] = document_of(answer)["jackline"]
    else:
        (part,) = drill_named(name).crews
        missed: list[object] = []
        figures = None
        for _ in range(2):  # as in hurried_drill
            options = DrillOptions("-", BuiltinFleet, open_gateway, speed=30.0)
            figures = event_loop.run(CrewRun(part, Side.JACKLINE, options).run())
            missed = [
                one for one in check_requirements(part, figures, figures, 30.0) if not one.met
            ]
            if not missed:
                break
        assert missed == []
        assert figures is not None
        ours = asdict(figures)
    assert (ours["left_behind"], ours["errors_seen"], ours["misbound"]) == (0, 0, 0)
    return ours


@tried_again_after_a_hiccup(HICCUP)
def test_an_outage_moves_everyone_to_the_same_model_elsewhere_and_back_again() -> None:
    ours = drilled("outage-failover")
    second = ours["providers"]["second"]
    assert (ours["not_moved"], ours["not_returned"]) == (0, 0)
    assert second["wasted"] <= HURRIED, "the backup is healthy"
    assert ours["reasons"]["500"] > 0, "the errors were met"
    assert ours["reasons"]["cancelled"] > 0, "and so was the hang"
    assert 0 < ours["herd"] <= 4


@tried_again_after_a_hiccup(HICCUP)
def test_without_any_claude_the_same_conversations_go_on_with_another_family() -> None:
    ours = drilled("outage-family")
    gpt = ours["providers"]["gpt"]
    assert ours["not_returned"] == 0
    assert gpt["wasted"] <= HURRIED, "the backup is healthy"
    assert gpt["useful"] > 12, "whole turns, with their tools"


@tried_again_after_a_hiccup(HICCUP)
def test_only_calls_for_the_failing_model_move() -> None:
    ours = drilled("model-degraded", both_sides=True)
    assert (ours["bystanders_moved"], ours["not_moved"]) == (0, 0)
    # The sibling's three calls for each of its twelve turns.
    assert ours["providers"]["anthropic"]["useful"] >= 4 * 36


@tried_again_after_a_hiccup(HICCUP)
def test_a_dead_network_is_named_and_tried_gently() -> None:
    ours = drilled("edge-down", both_sides=True)
    assert ours["missing_status_texts"] == 0
    assert ours["reasons"]["reset"] <= ours["failed_attempts"] <= 110
    assert ours["failed_later"] <= 50


@tried_again_after_a_hiccup(HICCUP)
def test_a_narrow_bridge_is_not_stormed() -> None:
    ours = drilled("bridge-limits")
    assert ours["reasons"]["429"] > 0, "its limit was met"
    assert ours["providers"]["bridge"]["useful"] > 60


@tried_again_after_a_hiccup(HICCUP)
def test_a_gateway_that_knows_no_other_upstream_does_not_pass() -> None:
    result = without_gateway("model-degraded")
    missed = {one.requirement.figure for one in result.parts[0].results if not one.met}
    assert {"errors_seen", "not_moved", "slowest_move"} <= missed
    assert "missing_status_texts" in {
        one.requirement.figure
        for one in without_gateway("edge-down").parts[0].results
        if not one.met
    }


@asynccontextmanager
async def no_gateway(
    upstreams: Sequence[UpstreamSettings], _clock: DrillClock, _live_view: LiveView
) -> AsyncIterator[WatchedEndpoint]:
    yield WatchedEndpoint(upstreams[0].url)


def without_gateway(name: str = "throttle-storm") -> DrillResult:
    options = DrillOptions("the built-in client", BuiltinFleet, no_gateway, speed=100.0)
    return event_loop.run(DrillRun(drill_named(name), options).run())


@tried_again_after_a_hiccup(HICCUP)
def test_a_gateway_that_does_nothing_does_not_pass() -> None:
    result = without_gateway()
    assert result.complete
    assert not result.passed
    missed = [one.requirement.figure for one in result.parts[0].results if not one.met]
    assert missed == ["left_behind", "errors_seen"]
    lines = "\n".join(result.to_text())
    assert "MISS  every agent finishes (6, at most 0)" in lines
    assert "bare: 6 died of: API Error: 429 Rate limited" in lines
    whole = all_as_json([result, result], passed=False)
    assert (whole["drill"], whole["passed"]) == ("all", False)
    assert json.loads(json.dumps(whole))["drills"][1]["requirements"][0]["met"] is False


def test_a_drill_that_never_began_has_not_passed() -> None:
    options = DrillOptions("the built-in client", BuiltinFleet, no_gateway, speed=100.0)
    result = DrillRun(drill_named("throttle-storm"), options).so_far()
    assert not result.passed
    assert (result.parts[0].bare, result.to_json()["jackline"]) == (None, {})


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_ctrl_c_ends_everything_and_reports_what_had_happened() -> None:
    command = [sys.executable, "-m", "jackline", "drill", "outage-one-lane", *BUILTIN]
    with warm_processes.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = ""
        while "the faults begin" not in line:
            line = process.stderr.readline()
            assert line, "it ended before the faults began"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "was interrupted: this is what had happened by then" in out
    assert "0 of 12" in out
    assert "MISS" not in out


def test_mistakes_are_reported_with_a_next_step(tmp_path: Path) -> None:
    unknown = jackline("drill", "flood")
    assert (unknown.code, "throttle-storm" in unknown.err) == (2, True)
    absent = jackline("drill", "all", "--client", "claude", env={"PATH": str(tmp_path)})
    assert (absent.code, "--client builtin" in absent.err) == (1, True)
    wrong = jackline("drill", "all", "--claude", tmp_path / "none")
    assert (wrong.code, "--claude PATH" in wrong.err) == (2, True)


@pytest.mark.soak
@pytest.mark.parametrize(
    "name",
    [
        "throttle-storm",
        "session-limit",
        "outage-one-lane",
        "outage-failover",
        "outage-family",
        "model-degraded",
        "edge-down",
        "bridge-limits",
    ],
)
def test_in_real_time_with_a_gateway_of_its_own(name: str) -> None:
    answer = jackline("drill", name, *BUILTIN)
    assert answer.code == 0, output(answer)
