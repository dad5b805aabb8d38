"""In scaled time all parts of a drill use one clock, the provider's dates included."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline import event_loop
from jackline.drills.conversation import posted
from jackline.drills.drill_clock import DrillClock
from jackline.errors import InternalError
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import AT_ONCE

# A loop counts in milliseconds, and may end a sleep by one too early.
TICK = 0.002
BODY = b'{"model": "claude-sonnet-4-6", "messages": []}'


@given(speed=st.floats(1, 1000), seconds=st.floats(0.001, 1e6))
def test_real_seconds_are_fewer_by_the_speed(speed: float, seconds: float) -> None:
    assert math.isclose(DrillClock(speed).real(seconds) * speed, seconds)


def test_all_readings_of_the_clock_agree() -> None:
    clock = DrillClock(1000.0)
    start = clock.wall()
    event_loop.run(clock.sleep(20))
    slept = 20 - clock.speed * TICK
    assert clock.monotonic() >= slept
    times = [clock.wall() - start, clock.now().timestamp() - start, clock.wall() - start]
    assert times == sorted(times)
    assert times[0] >= slept
    assert clock.now().tzinfo is not None


def test_use_real_time_continues_from_now_at_the_speed_of_the_machine() -> None:
    clock = DrillClock(1000.0)
    event_loop.run(clock.sleep(20))
    before, wall = clock.monotonic(), clock.wall()
    clock.use_real_time()
    after = clock.monotonic()
    assert before <= after
    assert clock.real(7.0) == 7.0
    event_loop.run(clock.sleep(0.02))
    assert 0.02 - TICK <= clock.monotonic() - after < 20.0, "no thousand times as fast"
    assert clock.wall() >= wall


JOINS = """
import sys
from jackline.drills.drill_clock import DrillClock
clock = DrillClock.from_text(sys.argv[1])
print(clock.speed, clock.monotonic(), clock.wall())
"""


@pytest.mark.parametrize("real_time", [False, True])
def test_another_process_uses_the_same_clock(real_time: bool) -> None:
    clock = DrillClock(1000.0)
    if real_time:
        clock.use_real_time()
    before = clock.monotonic(), clock.wall()
    printed = subprocess.check_output([sys.executable, "-c", JOINS, clock.as_text()], text=True)
    after = clock.monotonic(), clock.wall()
    speed, *there = map(float, printed.split())
    assert speed == clock.speed
    for early, met, late in zip(before, there, after, strict=True):
        assert early <= met <= late


def test_a_clock_that_begins_in_the_future_is_refused() -> None:
    speed, began, *rest = json.loads(DrillClock().as_text())
    with pytest.raises(InternalError, match="do not count the same seconds"):
        DrillClock.from_text(json.dumps([speed, began + 1e6, *rest]))


@pytest.mark.parametrize(("hurry", "announced"), [(True, 5000), (False, 100)])
def test_a_provider_announces_its_waits_in_the_time_of_its_clients(
    hurry: bool, announced: int
) -> None:
    async def retry_after() -> int:
        wall = Fault(Effect.QUOTA_WALL, until=5000)
        settings = ProviderSettings(service=AT_ONCE, faults=(wall,))
        async with (
            SimulatorServer(settings, speed=50.0, clients_hurry=hurry) as server,
            posted(server.url, "/v1/messages", {}, BODY) as response,
        ):
            await response.whole()
            return int(response.headers["retry-after"])

    # What passes between the start and the answer is a part of the wait.
    assert announced * 0.9 <= event_loop.run(retry_after()) <= announced
