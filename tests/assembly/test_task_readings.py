"""A process that runs flows learns from the gateway what it has counted for each agent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

from jackline.agents.task_meter import TaskReading, TaskReadings
from jackline.assembly import Service
from jackline.assembly.gateway_process import task_readings
from jackline.clock import VirtualClock
from jackline.dialects import TokenUsage
from jackline.state_dir import StateDir
from tests.assembly.world import config_for, run

DOOR = "the-door"
START = datetime(2026, 11, 15, tzinfo=UTC)


def test_the_gateway_is_asked_once_a_second_at_most_unless_it_must_be_now(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock(START)
        config = config_for(tmp_path, "http://127.0.0.1:9", token=DOOR)
        async with Service(config) as service:
            readings = TaskReadings(
                partial(task_readings, StateDir(config.state_dir), service.url), clock
            )
            meters = service.desk.task_meters
            meters.count_call("t1", "m", TokenUsage(1, 2, 3, 4, 2), answered=True)
            first, second = await asyncio.gather(readings.of("t1"), readings.of("t2"))
            epoch = meters.by_task["t1"].epoch
            assert first == TaskReading(0.0, 1, {"m": TokenUsage(1, 2, 3, 4, 2)}, epoch)
            assert second == TaskReading()
            meters.count_call("t1", "m", TokenUsage(1), answered=True)
            assert await readings.of("t1") == first, "it has just been asked"
            fresh = await readings.of("t1", fresh=True)
            assert fresh is not None
            assert fresh.answers == 2
            meters.count_call("t1", "m", TokenUsage(1), answered=True)
            await clock.advance(1.0)
            later = await readings.of("t1")
            assert later is not None
            assert later.answers == 3
        await clock.advance(1.0)
        assert await readings.of("t1") is None, "nobody says"

    run(main())


def test_a_fresh_reading_was_asked_for_after_it_was_wanted_and_is_shared() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        asked: asyncio.Queue[threading.Event] = asyncio.Queue()
        numbers = count()

        def request() -> Mapping[str, TaskReading]:
            number, may_answer = next(numbers), threading.Event()
            loop.call_soon_threadsafe(asked.put_nowait, may_answer)
            assert may_answer.wait(60)
            return {"t": TaskReading(answers=number)}

        readings = TaskReadings(request, VirtualClock(START))
        first = asyncio.ensure_future(readings.of("t"))
        may_answer = await asked.get()
        fresh = [asyncio.ensure_future(readings.of("t", fresh=True)) for _ in range(3)]
        await asyncio.sleep(0)
        may_answer.set()
        assert await first == TaskReading(answers=0)
        (await asked.get()).set()
        assert await asyncio.gather(*fresh) == [TaskReading(answers=1)] * 3
        assert next(numbers) == 2

    asyncio.run(main())
