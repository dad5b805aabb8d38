"""The status line is short when all is calm, and names the worst lane when it is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from jackline.control import GatewayStatus, LaneStatus
from jackline.control.forecast import Forecast
from jackline.control.needs import About, Need
from jackline.control.status import AgentCounts
from jackline.states import AgentState

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
AT = NOON.timestamp()


def lane(name: str, state: str, until: float | None = None) -> LaneStatus:
    return LaneStatus(name, state, "", until, 0, 4, 0, {}, upstream=name.partition("/")[0])


def picture(*lanes: LaneStatus, waiting: int = 0) -> GatewayStatus:
    return GatewayStatus(
        AT, "0", "u", "up", AT, lanes, (), waiting, 0, 0, {}, 0, 0, 0, 0, True, "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "result"),
    [
        (picture(), "jackline ● open"),
        (picture(lane("a/opus", "open")), "jackline ● open"),
        (
            picture(lane("a/opus", "throttled"), waiting=3),
            "jackline ◐ a/opus throttled · 3 waiting",
        ),
        (
            picture(lane("a/x", "throttled"), lane("a/opus", "parked", AT + 7500), waiting=9),
            "jackline ■ a/opus parked until 14:05 · 9 waiting",
        ),
        (picture(lane("a/x", "parked", AT + 86400)), "jackline ■ a/x parked until Mon 12:00"),
        (picture(lane("a/x", "down", AT + 5)), "jackline ✕ a/x down"),
        (
            picture(replace(lane("a/x", "down"), paused=True)),
            "jackline ✕ a/x paused by hand",
        ),
    ],
)
def test_the_line_names_the_worst_trouble(shown: GatewayStatus, result: str) -> None:
    assert shown.status_line((), NOON) == result


def test_the_fullest_window_and_its_end_are_reported() -> None:
    near = Forecast("anthropic", "max", "5h", 0.82, AT + 9000, 0.3, AT + 2160)
    calm = Forecast("anthropic", "max", "7d", 0.4, AT + 90000, 0.01, None)
    assert picture().status_line((calm, near), NOON) == (
        "jackline ● open · 5h window 82%, ends 12:36"
    )
    assert picture().status_line((calm,), NOON) == "jackline ● open"


def test_who_needs_a_person_and_how_many_are_answered_is_reported_in_short() -> None:
    crew = AgentCounts(20, {AgentState.PARKED: 9}, failed=1, quiet=3)
    shown = picture(lane("a/opus", "parked", AT + 7500), waiting=9)
    result = shown.status_line((), NOON, crew, [Need(About.RUN, "r", "many (9f3c) is parked")])
    assert result == "jackline ■ a/opus parked until 14:05 · 1 needs you · 20 of 33 answering"
    assert picture().status_line((), NOON, AgentCounts(5)) == "jackline ● open"
