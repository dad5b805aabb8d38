"""A resource that is named again is the same one: taken once, by whom it was, given back once."""

from __future__ import annotations

import asyncio

from jackline import agent, ctx, flow
from jackline.agents.outcome import Outcome
from jackline.testing.scripted_agents import Play
from tests.flows.world import EPOCH, played, world

GIVEN_BACK: list[str] = []


async def give_back(name: str) -> None:
    GIVEN_BACK.append(name)


@flow
async def renting() -> str:
    await ctx.resource("vast.ai/123", release=give_back, lease="2h")
    return await agent("work", label="work")


def test_a_resumed_run_holds_what_it_held_since_it_was_taken_with_a_new_lease() -> None:
    async def test() -> None:
        GIVEN_BACK.clear()
        w = world(lambda _task: Play(turns=2, seconds=600))
        begun = await w.begin(renting)
        task = asyncio.create_task(begun.run())
        await w.until(lambda: w.runner.answered == ["work"], task)
        begun.stop_now()
        await w.through(_of(task))
        assert (GIVEN_BACK, begun.state.value) == ([], "stopped")
        resumed_at = w.clock.wall()
        assert resumed_at > EPOCH.timestamp()
        again = asyncio.create_task(w.resume(renting))
        await w.until(lambda: len(w.runner.begun) == 2, again)
        (held,) = await w.engine.resources()
        assert held.taken_at == EPOCH.timestamp()
        assert held.lease_until == resumed_at + 2 * 3600
        await again
        assert GIVEN_BACK == ["vast.ai/123"]
        assert await w.engine.resources() == []

    played(test)


async def _of(task: asyncio.Task[Outcome[str]]) -> Outcome[str]:
    return await task
