"""Time has one source, and in tests it moves only when told to."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.clock import (
    BelievedTime,
    ClockWatch,
    Moved,
    SystemClock,
    VirtualClock,
    host_zone,
)

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)


def test_the_system_clock_is_aware_and_never_goes_backwards() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is not None
    assert clock.monotonic() <= clock.monotonic()


def test_the_hosts_zone_is_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Kiev")
    assert str(host_zone()) == "Europe/Kiev"
    summer = SystemClock().in_host_zone(datetime(2026, 7, 1, 12))  # noqa: DTZ001
    assert summer.utcoffset() == timedelta(hours=3)
    monkeypatch.setenv("TZ", "Nowhere/Atall")
    assert SystemClock().now().tzinfo is not None


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=20))
def test_sleepers_wake_in_the_order_of_their_hour(naps: list[float]) -> None:
    async def scene() -> list[float]:
        clock = VirtualClock(START)
        woken: list[float] = []

        async def sleeper(seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append(clock.monotonic())

        tasks = [asyncio.create_task(sleeper(nap)) for nap in naps]
        await clock.advance(max(naps))
        await asyncio.gather(*tasks)
        return woken

    assert asyncio.run(scene()) == sorted(naps)


def test_time_stands_still_until_advanced_and_a_cancelled_sleeper_is_passed_over() -> None:
    async def scene() -> None:
        clock = VirtualClock(START)
        task = asyncio.create_task(clock.sleep(10))
        await clock.advance(9)
        assert not task.done()
        assert clock.now() == START + timedelta(seconds=9)
        task.cancel()
        await clock.advance(5)
        assert task.cancelled()
        await clock.sleep(0)
        assert clock.monotonic() == 14

    asyncio.run(scene())


def test_a_virtual_clock_starts_at_an_aware_time() -> None:
    with pytest.raises(ValueError, match="aware"):
        VirtualClock(datetime(2026, 1, 1))  # noqa: DTZ001


def test_steady_time_leaves_out_what_a_stopped_process_did_not_run() -> None:
    clock = SystemClock(longest_pause=0.02)
    clock.beat()
    steady, monotonic, slept = clock.steady(), clock.monotonic(), clock.slept()
    time.sleep(0.2)  # nothing runs: as if it had been stopped
    left_out = clock.slept() - slept
    assert left_out > 0
    passed = clock.monotonic() - monotonic
    assert clock.steady() - steady == pytest.approx(passed - left_out, abs=0.01)
    assert clock.steady() - steady < passed


def test_steady_time_of_a_clock_that_nobody_beats_is_all_that_passes() -> None:
    clock = SystemClock(longest_pause=0.01)
    steady, monotonic = clock.steady(), clock.monotonic()
    time.sleep(0.05)
    assert clock.slept() == pytest.approx(0.0, abs=0.005)
    assert clock.steady() - steady == pytest.approx(clock.monotonic() - monotonic, abs=0.01)


def test_steady_time_does_not_follow_a_wall_clock_that_is_set() -> None:
    clock = VirtualClock(START)
    watch = ClockWatch(clock)
    assert watch.look() is None
    clock.jump_wall(-3600)
    assert clock.steady() == START.timestamp()
    assert clock.now() == START - timedelta(hours=1)
    assert watch.look() == Moved(-3600, -3600, 0)
    assert watch.look() is None
    clock.suspend(7200)
    assert watch.look() == Moved(3600, 7200, 7200)
    clock.jump_wall(0.3)
    assert watch.look() is None, "a small correction"


def test_a_time_that_was_set_is_believed_after_a_day() -> None:
    elapsed, ahead = 0.0, 1000.0
    believed = BelievedTime(lambda: elapsed + ahead, lambda: elapsed)
    elapsed = 50.0
    assert believed.now() == 1050
    ahead = 1_001_000.0
    assert believed.now() == 1050
    elapsed = 86_000.0
    assert believed.now() == 87_000
    ahead = 900_000.0  # set again: the day begins anew
    assert believed.now() == 87_000
    elapsed = 172_500.0
    assert believed.now() == 172_500 + 900_000
    ahead = 900_030.0
    assert believed.now() == 172_500 + 900_030, "corrections are followed at once"
