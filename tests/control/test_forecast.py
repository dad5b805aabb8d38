"""The end of a window is forecast from its pace, and only when it comes before the refill."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.control.forecast import CacheRewriteCost, WindowWatch, forecast_sentence
from jackline.lanes.rate_limits import SeenWindow, parse_windows

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
START = NOON.timestamp()
RESET = START + 4 * 3600
MAX = ("anthropic", "max")


def watched(*points: tuple[float, float], reset: float = RESET) -> WindowWatch:
    watch = WindowWatch()
    for minutes, used in points:
        watch.add(START + minutes * 60, MAX, [SeenWindow("5h", used, reset)])
    return watch


def test_a_steady_pace_gives_the_hour_of_the_wall() -> None:
    watch = watched((0, 0.40), (10, 0.50), (20, 0.60))
    now = NOON.replace(minute=20)
    (shown,) = watch.forecasts(now.timestamp())
    assert shown.per_hour == pytest.approx(0.6)
    assert shown.ends_at == pytest.approx(START + 60 * 60)
    assert forecast_sentence([shown], 9, now) == (
        "At this pace the 5-hour window ends at 13:00 UTC; 9 agents would be cut."
    )


def test_what_caches_cost_that_do_not_outlast_the_wall_is_reported_with_it() -> None:
    watch = watched((0, 0.40), (20, 0.60))
    now = NOON.replace(minute=20)
    shown = watch.forecasts(now.timestamp())
    costs = {MAX: CacheRewriteCost(64, 4_096_000, 25.6, 2.048, 2.05)}
    assert forecast_sentence(shown, 9, now, costs) == (
        "At this pace the 5-hour window ends at 13:00 UTC; 9 agents would be cut; their prompt"
        " caches would lapse: 4,096,000 tokens to write again, $25.60 instead of $2.05, 2 min of"
        " its input limit."
    )
    assert "caches" not in forecast_sentence(shown, 9, now, {("another", "max"): costs[MAX]})


def test_a_window_that_refills_first_is_no_danger() -> None:
    watch = watched((0, 0.40), (20, 0.41))
    (shown,) = watch.forecasts(START + 1200)
    assert shown.ends_at is None
    assert forecast_sentence([shown], 9, NOON) == ""


def test_nothing_is_forecast_from_one_moment() -> None:
    watch = watched((0, 0.40), (0.5, 0.60))
    (shown,) = watch.forecasts(START + 60)
    assert (shown.per_hour, shown.ends_at) == (0.0, None)


def test_a_refilled_window_begins_anew() -> None:
    watch = watched((0, 0.90), (20, 0.99))
    watch.add(START + 1300, MAX, [SeenWindow("5h", 0.01, RESET + 18000)])
    (shown,) = watch.forecasts(START + 1400)
    assert (shown.used, shown.per_hour) == (0.01, 0.0)


def test_a_window_whose_reset_has_passed_is_not_reported() -> None:
    assert watched((0, 0.90)).forecasts(RESET + 1) == []


def test_the_pace_follows_a_change_of_work() -> None:
    points = [(float(m), 0.1 + m * 0.001) for m in range(60)]
    points += [(60.0 + m, 0.16 + m * 0.01) for m in range(30)]
    (shown,) = watched(*points).forecasts(START + 90 * 60)
    assert shown.per_hour == pytest.approx(0.6, rel=0.1)


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.floats(0, 1.9), st.floats(1, 2e6)), min_size=1, max_size=50
    )
)
def test_whatever_headers_say_a_forecast_lies_ahead_and_before_the_refill(
    received: list[tuple[float, float, float]],
) -> None:
    watch = WindowWatch()
    latest = 0.0
    for at, used, reset in sorted(received):
        watch.add(at, MAX, [SeenWindow("5h", used, reset)])
        latest = at
    for shown in watch.forecasts(latest):
        assert shown.per_hour >= 0
        if shown.ends_at is not None and shown.used < 1.0:
            assert latest <= shown.ends_at < shown.resets_at


def test_headers_are_read_as_the_vendor_writes_them() -> None:
    prefix = "anthropic-ratelimit-unified-"
    headers = {
        f"{prefix}status": "allowed",
        f"{prefix}5h-utilization": "0.4321",
        f"{prefix}5h-reset": "1794765600",
        f"{prefix}7d-utilization": "0.1",
        f"{prefix}7d-reset": "nonsense",
        f"{prefix}7d_opus-utilization": "85",
        f"{prefix}7d_opus-reset": "1794765600",
    }
    assert parse_windows(headers) == (SeenWindow("5h", 0.4321, 1794765600.0),)
    assert parse_windows({"retry-after": "3"}) == ()


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20)), st.text(max_size=12))
def test_no_header_makes_the_reader_stumble(others: dict[str, str], value: str) -> None:
    prefix = "anthropic-ratelimit-unified-"
    named = {f"{prefix}status": "x", f"{prefix}5h-utilization": value, f"{prefix}5h-reset": value}
    for window in parse_windows({**others, **named}):
        assert 0 <= window.used <= 2
