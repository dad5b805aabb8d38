"""In scaled time everyone lives by the same clock, the provider's dates included."""

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

# A loop counts in milliseconds, and may wake who sleeps by one too early.
TICK = 0.002
BODY = b'{"model": "claude-sonnet-4-6", "messages": []}'


@given(speed=st.floats(1, 1000), seconds=st.floats(0.001, 1e6))
def test_real_seconds_are_fewer_by_the_speed(speed: float, seconds: float) -> None:
    assert math.isclose(DrillClock(speed).real(seconds) * speed, seconds)


def test_all_faces_of_the_clock_tell_the_same_time() -> None:
    pace = DrillClock(1000.0)
    start = pace.wall()
    event_loop.run(pace.sleep(20))
    slept = 20 - pace.speed * TICK
    assert pace.monotonic() >= slept
    told = [pace.wall() - start, pace.now().timestamp() - start, pace.wall() - start]
    assert told == sorted(told)
    assert told[0] >= slept
    assert pace.now().tzinfo is not None


def test_eased_time_goes_on_from_where_it_is_as_fast_as_the_machines() -> None:
    pace = DrillClock(1000.0)
    event_loop.run(pace.sleep(20))
    before, wall = pace.monotonic(), pace.wall()
    pace.ease()
    after = pace.monotonic()
    assert before <= after
    assert pace.real(7.0) == 7.0
    event_loop.run(pace.sleep(0.02))
    assert 0.02 - TICK <= pace.monotonic() - after < 20.0, "no thousand times as fast"
    assert pace.wall() >= wall


JOINS = """
import sys
from jackline.drills.drill_clock import Pace
pace = Pace.joined(sys.argv[1])
print(pace.speed, pace.monotonic(), pace.wall())
"""


@pytest.mark.parametrize("eased", [False, True])
def test_another_process_lives_by_the_same_clock(eased: bool) -> None:
    pace = DrillClock(1000.0)
    if eased:
        pace.ease()
    before = pace.monotonic(), pace.wall()
    told = subprocess.check_output([sys.executable, "-c", JOINS, pace.told()], text=True)
    after = pace.monotonic(), pace.wall()
    speed, *there = map(float, told.split())
    assert speed == pace.speed
    for early, met, late in zip(before, there, after, strict=True):
        assert early <= met <= late


def test_a_clock_that_begins_in_the_future_is_refused() -> None:
    speed, began, *rest = json.loads(DrillClock().told())
    with pytest.raises(InternalError, match="do not count the same seconds"):
        DrillClock.joined(json.dumps([speed, began + 1e6, *rest]))


@pytest.mark.parametrize(("hurry", "told"), [(True, 5000), (False, 100)])
def test_a_provider_tells_its_waits_in_the_time_of_its_clients(hurry: bool, told: int) -> None:
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
    assert told * 0.9 <= event_loop.run(retry_after()) <= told
