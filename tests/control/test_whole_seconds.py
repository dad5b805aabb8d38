"""A time to wait for is shown in whole seconds, and never before it has come."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.control.text import moment_text, until_text, whole_second

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@given(st.floats(0, 4e9))
def test_it_is_never_shown_too_early_and_less_than_a_second_late(moment: float) -> None:
    assert -0.0011 < whole_second(moment) - moment < 1.0


@pytest.mark.parametrize(
    ("after", "result"),
    [(0.0, "12:00"), (0.0000005, "12:00"), (0.2, "12:00:01"), (0.8, "12:00:01"), (1.0, "12:00:01")],
)
def test_a_part_of_a_second_is_reported_as_the_next_one(after: float, result: str) -> None:
    assert until_text(NOW.timestamp() + after, NOW) == f" until {result} UTC"


def test_a_moment_is_shown_in_one_zone() -> None:
    now = NOW.astimezone(ZoneInfo("Asia/Kathmandu"))
    assert moment_text(NOW.timestamp() + 60, now) == "17:46 Asia/Kathmandu"
    assert moment_text(NOW.timestamp() + 86_400, now) == "17:45 on 16 November Asia/Kathmandu"
