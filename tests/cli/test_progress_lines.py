"""Away from a terminal: steps have their lines, and the reason of a parking is printed once."""

from __future__ import annotations

import pytest

from jackline.agents.outcome import Ending, Outcome, Tally
from jackline.cli.run import show_progress
from jackline.flows.records import RunState
from jackline.flows.run_events import (
    AT_WALL,
    AgentWaits,
    FlowEvent,
    RunEnded,
    RunParked,
    RunWoke,
    StepBegan,
    StepEnded,
)

WHY = "The account's session limit is reached."
NOW = 1794744000.0


def lines(capsys: pytest.CaptureFixture[str], *events: FlowEvent) -> list[str]:
    with show_progress() as progress:
        for event in events:
            progress.apply(event)
    return [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]


def test_a_step_is_reported_when_it_begins_and_ends_and_not_when_it_is_replayed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lines(
        capsys,
        StepEnded(NOW, "fetch", "", "", replayed=True),
        StepBegan(NOW, "rent", ""),
        StepEnded(NOW, "rent", "", "", replayed=False),
        StepBegan(NOW, "test", ""),
        StepEnded(NOW, "test", "", "ValueError", replayed=False),
    ) == ["step rent began", "step rent ok", "step test began", "step test failed: ValueError"]


def test_the_reason_of_a_parking_is_reported_once_until_the_run_wakes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    at_wall = [AgentWaits(NOW, label, label, AT_WALL, NOW) for label in ("a", "b")]
    ended = RunEnded(NOW, RunState.PARKED, WHY, Outcome(Ending.QUOTA, parked=True))
    reported = lines(
        capsys,
        *at_wall,
        RunParked(NOW, WHY, None),
        RunParked(NOW, WHY, NOW),
        RunWoke(NOW),
        RunParked(NOW, WHY, None),
        ended,
    )
    assert [line.count(WHY) for line in reported] == [1, 0, 0, 1, 0]
    assert reported[0] == f"parked: {WHY}"
    assert reported[-1] == "parked"


@pytest.mark.parametrize(
    ("tally", "words"),
    [
        (Tally(), "no agents"),
        (Tally(1, 1), "1 of 1 agent ok"),
        (Tally(3, 3, 0, 2), "3 of 3 agents ok (2 kept from before)"),
        (Tally(unfinished=1), "0 of 1 agent ok, 1 parked"),
        (
            Tally(1003, 1000, 3, endings=((Ending.QUOTA, 2), (Ending.SCHEMA, 1)), unfinished=4),
            "1,000 of 1,007 agents ok, 3 failed: 2 quota, 1 schema, 4 parked",
        ),
    ],
)
def test_a_tally_in_words_is_true(tally: Tally, words: str) -> None:
    assert tally.in_words("parked") == words
