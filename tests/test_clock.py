"""Time has one source, and in tests it moves only when told to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.clock import SystemClock, VirtualClock, host_zone

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
