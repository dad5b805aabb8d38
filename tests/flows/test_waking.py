"""Whether a parked run may wake is decided by its reset and the user's brakes alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.errors import UsageError
from jackline.flows.records import RunRecord, RunState
from jackline.flows.settings import WakeSettings, expected_cost, may_wake, parse_hours

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def parked(hours: float | None, *, cost: float = 0.0, confirmed: bool = False) -> RunRecord:
    wake_at = None if hours is None else (NOON + timedelta(hours=hours)).timestamp()
    return RunRecord(
        "r", "f", "", b"{}", state=RunState.PARKED, wake_at=wake_at, cost=cost, confirmed=confirmed
    )


@pytest.mark.parametrize(
    ("run", "settings", "now", "at", "why"),
    [
        (parked(-1), WakeSettings(), True, None, ""),
        (parked(1), WakeSettings(), False, 13, "its limit resets then"),
        (parked(None), WakeSettings(), False, None, "waits for a person"),
        (parked(None, confirmed=True), WakeSettings(), True, None, ""),
        (parked(-1), WakeSettings(confirm=True), False, None, "after a person confirms"),
        (parked(1, confirmed=True), WakeSettings(confirm=True), False, 13, "resets then"),
        (parked(-1, cost=9.0), WakeSettings(spend=8.0), False, None, "has cost $9.00"),
        (parked(-1, cost=7.0), WakeSettings(spend=8.0), True, None, ""),
        (parked(-1, cost=9.0, confirmed=True), WakeSettings(spend=8.0), True, None, ""),
        (parked(-1), WakeSettings(hours="22:00-07:00"), False, 22, "only during 22:00-07:00"),
        (parked(-1), WakeSettings(hours="11:00-13:00"), True, None, ""),
        (parked(11), WakeSettings(hours="22:00-07:00"), False, 23, "resets then"),
        (parked(1), WakeSettings(hours="22:00-07:00 Asia/Tokyo"), False, 13, "resets then"),
    ],
)
def test_the_decision_names_its_reason_and_its_time(
    run: RunRecord, settings: WakeSettings, now: bool, at: int | None, why: str
) -> None:
    decision = may_wake(NOON, run, settings)
    assert decision.now is now
    assert why in decision.why
    assert bool(decision.why) is not now
    if not now:
        assert (decision.at and decision.at.hour) == at


def test_a_date_of_a_clock_that_was_ahead_holds_no_run_back() -> None:
    saved = (NOON + timedelta(days=730)).timestamp()
    run = replace(parked(0), wake_at=saved + 60, updated_at=saved)
    assert may_wake(NOON, run, WakeSettings()).now, "one agent finds out"
    corrected = replace(parked(1), updated_at=NOON.timestamp() + 5)
    assert not may_wake(NOON, corrected, WakeSettings()).now, "a clock is corrected by seconds"
    asks = may_wake(NOON, run, WakeSettings(confirm=True))
    assert not asks.now, "the brakes hold"


@given(
    reset=st.floats(-48, 48),
    begins=st.integers(0, 23),
    length=st.integers(1, 23),
    zone=st.sampled_from(["", " Europe/Kiev", " America/New_York", " Asia/Kolkata"]),
    day=st.integers(0, 400),
)
def test_hours_never_wake_before_the_reset_nor_outside_themselves(
    reset: float, begins: int, length: int, zone: str, day: int
) -> None:
    now = NOON + timedelta(days=day)
    wake_at = (now + timedelta(hours=reset)).timestamp()
    run = replace(parked(0), wake_at=wake_at)
    words = f"{begins:02}:00-{(begins + length) % 24:02}:00{zone}"
    decision = may_wake(now, run, WakeSettings(hours=words))
    at = now if decision.now else decision.at
    assert at is not None
    assert at.timestamp() >= wake_at or decision.now
    assert at - now <= timedelta(hours=max(reset, 0) + 25)
    local = at.astimezone(ZoneInfo(zone.strip() or "UTC"))
    assert (local.hour - begins) % 24 < length or local.replace(minute=0).hour == begins


@pytest.mark.parametrize("words", ["", "22-7", "25:00-07:00", "22:00-22:00", "22:00-07:00 Mars/X"])
def test_hours_that_cannot_be_meant_are_refused(words: str) -> None:
    with pytest.raises(UsageError, match="no hours to wake in"):
        parse_hours(words)


def test_the_rest_is_expected_to_cost_as_the_done_did() -> None:
    assert expected_cost(parked(1, cost=6.0), done=3, known=5) == 4.0
    assert expected_cost(parked(1, cost=6.0), done=0, known=5) is None
