"""A parked run: nothing new starts, though there is room, and who works stops after its turn."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from jackline import agent, flow, parallel
from jackline.agents.outcome import Outcome
from jackline.agents.runner import AgentTask
from jackline.flows.lifecycle import begin_run
from jackline.flows.run_events import RunParked, RunWoke
from jackline.flows.settings import RunSettings
from jackline.testing.scripted_agents import Play
from tests.flows.world import EPOCH, World, played, world

T = TypeVar("T")
RESET = EPOCH + timedelta(hours=5)


def walled(play: dict[str, Play]) -> World:
    def script(task: AgentTask) -> Play:
        return play.get(task.label, Play())

    w = world(script, settings=RunSettings(poll=5.0))
    w.runner.wall_until = RESET
    return w


def times_of_asking(w: World) -> list[float]:
    """When the model was asked, from now on."""
    times: list[float] = []

    class Timed(list[str]):
        def append(self, label: str, /) -> None:
            times.append(w.clock.wall())
            super().append(label)

    w.runner.asked = Timed()
    return times


def test_a_call_that_is_made_while_the_run_is_parked_starts_at_the_reset() -> None:
    async def test() -> None:
        w = walled({})

        async def late() -> str:
            await w.clock.sleep(600)
            return await agent("late", label="late")

        @flow
        async def two() -> int:
            return len((await parallel([agent("first", label="first"), late()])).values)

        task = asyncio.create_task((await w.begin(two)).run())
        await w.until(lambda: bool(w.of(RunWoke)), task)
        assert w.clock.now() >= RESET
        # There was room for it for hours, and it was not even begun.
        assert w.runner.begun == ["first"]
        assert (await w.through(_of(task))).value == 2

    played(test)


def test_who_is_in_the_middle_of_a_turn_ends_it_and_asks_no_more_until_the_reset() -> None:
    @flow
    async def two() -> int:
        calls = [agent("long", label="long"), agent("walled", label="walled")]
        return len((await parallel(calls)).values)

    async def test() -> None:
        w = walled({"long": Play(turns=3, seconds=60), "walled": Play(seconds=10)})
        # The long one's turn was let in before the wall stood.
        w.runner.wall_until = None
        times = times_of_asking(w)
        task = asyncio.create_task((await w.begin(two)).run())
        await w.until(lambda: set(w.runner.asked) == {"long", "walled"}, task)
        w.runner.wall_until = RESET
        await w.until(lambda: bool(w.of(RunParked)), task)
        assert w.runner.answered == []
        w.runner.wall_until = None
        await w.until(lambda: w.runner.answered == ["long"], task)
        parked = w.of(RunParked)[0]
        assert (await w.through(_of(task))).value == 2
        during = [at for at in times if parked.at < at < RESET.timestamp()]
        assert during == [], "it has waited between two turns"
        # Four turns, and the one call that met the wall.
        assert len(w.runner.asked) == 5

    played(test)


def test_a_parked_run_is_kept_as_parked_with_its_reason_and_its_reset() -> None:
    @flow
    async def one() -> str:
        return await agent("first", label="first")

    async def test() -> None:
        w = walled({})
        task = asyncio.create_task((await w.begin(one)).run())
        await w.until(lambda: bool(w.of(RunParked)), task)
        kept = await w.engine.run("r1")
        assert kept is not None
        assert (kept.state.value, kept.why) == ("parked", "You've hit your session limit")
        assert kept.wake_at == RESET.timestamp()
        await w.through(_of(task))

    played(test)


def test_after_the_probes_answer_the_others_follow_over_some_time_and_not_at_once() -> None:
    @flow
    async def many() -> int:
        found = await parallel(agent(str(n), label=str(n)) for n in range(40))
        return len(found.values)

    async def test() -> None:
        w = walled({})
        times = times_of_asking(w)
        draws = itertools.cycle(each / 40 for each in range(1, 41))
        host = replace(w.host, draw=lambda: next(draws))
        begun = await begin_run(host, many, b"{}", run_id="r1")
        assert (await w.through(begun.run())).value == 40
        woke = w.of(RunWoke)[0].at
        after = [at for at in times if at >= woke]
        assert after.count(woke) == 1, "one goes first"
        assert len({round(at, 3) for at in after}) > 30, "and the others each at their own time"

    played(test)


async def _of(task: asyncio.Task[Outcome[T]]) -> Outcome[T]:
    return await task
