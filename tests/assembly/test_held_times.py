"""A process that carries flows learns from the gateway for how long calls were held."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from jackline.assembly import Service
from jackline.assembly.gateway_process import held_times
from jackline.clock import VirtualClock
from jackline.flows.execution.work_time import HeldTimes
from jackline.gateway.client_call import HeldTime
from tests.assembly.world import config_for, run

DOOR = "the-door"


class Held(HeldTime):
    """A task was held for so long, and nothing moves."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds["t1"] = seconds

    def look(self, calls: object, now: float) -> None:
        """Nobody looks."""


def test_held_times_are_asked_of_the_gateway_once_a_second_at_most(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock(datetime(2026, 11, 15, tzinfo=UTC))
        config = config_for(tmp_path, "http://127.0.0.1:9", token=DOOR)
        async with Service(config) as service:
            times = HeldTimes(partial(held_times, service.url, DOOR), clock)
            service.desk.held_time = Held(5.0)
            first, second = await asyncio.gather(times.of("t1"), times.of("t2"))
            assert (first, second) == (5.0, 0.0)
            service.desk.held_time = Held(9.0)
            assert await times.of("t1") == 5.0, "it has just been asked"
            await clock.advance(1.0)
            assert await times.of("t1") == 9.0
        await clock.advance(1.0)
        assert await times.of("t1") is None, "nobody says"

    run(main())
