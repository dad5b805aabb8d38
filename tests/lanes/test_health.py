"""How many of a lane's calls failed lately is counted call by call, however fast they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.lanes.breaker import LaneHealth
from jackline.lanes.settings import ControllerSettings

SETTINGS = ControllerSettings()
WINDOW = SETTINGS.breaker.share_window


@pytest.mark.parametrize("apart", [0.0, 0.0001, 0.2])
@pytest.mark.parametrize(("good", "bad", "down"), [(12, 28, True), (13, 28, False), (0, 11, False)])
def test_a_lane_is_down_when_most_of_its_calls_fail_whether_they_come_fast_or_slowly(
    apart: float, good: int, bad: int, down: bool
) -> None:
    health, now = LaneHealth(SETTINGS, 0.0), 0.0
    for _ in range(good):
        now += apart
        health.accepted(now)
    for _ in range(bad):
        now += apart
        health.failed(now, refused=False)
    assert health.gone_down(now, probing=False) is down


@given(st.lists(st.tuples(st.floats(0.05, 9.0), st.booleans()), max_size=60))
def test_only_calls_within_the_window_count(notes: list[tuple[float, bool]]) -> None:
    health, now = LaneHealth(SETTINGS, 0.0), 0.0
    told: list[tuple[float, bool]] = []
    for pause, good in notes:
        now += pause
        told.append((now, good))
        if good:
            health.accepted(now)
        else:
            health.failed(now, refused=False)
    lately = [good for at, good in told if at >= now - WINDOW]
    enough = len(lately) >= SETTINGS.breaker.share_of_at_least
    share = SETTINGS.breaker.share * len(lately)
    assert health.gone_down(now, probing=False) is (enough and lately.count(False) >= share)


def test_a_storm_of_good_calls_is_remembered_in_little() -> None:
    health = LaneHealth(SETTINGS, 0.0)
    for number in range(100_000):
        health.accepted(number * 0.0002)
    assert len(health._recent) <= WINDOW / 0.05 + 1
