"""A hook can leave a last message: `ctx` works in it at every end, and names whose end it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from jackline import agent, ctx, flow
from jackline.agents.outcome import Outcome
from jackline.flows.authoring.flow_definition import Flow
from jackline.testing.scripted_agents import Play
from tests.flows.world import World, played, world

_refusing: list[bool] = []


def last_word(outcome: Outcome[Any]) -> None:
    if _refusing:
        raise OSError("not now")
    ctx.note(f"{outcome.label}: {outcome.terminated_by}", whose=ctx.task_id or ctx.run_id)


async def last_word_at_once(outcome: Outcome[Any]) -> None:
    last_word(outcome)


def leaving(hook: Callable[..., object]) -> Flow[[], str]:
    @flow(name="working", on_end=hook)
    async def working() -> str:
        return await agent("a", label="a", on_end=hook)

    return working


async def left(w: World) -> list[tuple[object, object]]:
    notes = await w.engine.notes("r1")
    return [(each.detail["says"], each.detail["whose"]) for each in notes if each.what == "note"]


@pytest.mark.parametrize("hook", [last_word, last_word_at_once])
def test_agent_and_run_leave_their_last_words_in_the_log(hook: Callable[..., object]) -> None:
    async def test() -> None:
        w = world()
        assert (await w.run(leaving(hook))).ok
        (task,) = w.runner.tasks
        assert await left(w) == [("a: completion", task.task_id), ("working: completion", "r1")]

    played(test)


def test_a_cancelled_run_leaves_them_too() -> None:
    async def test() -> None:
        w = world(lambda _task: Play(seconds=1000))
        begun = await w.begin(leaving(last_word))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: w.runner.asked == ["a"], task)
        begun.cancel()
        await w.through(_of(task))
        assert [says for says, _ in await left(w)] == ["a: cancelled", "working: cancelled"]

    played(test)


def test_one_that_was_left_over_is_left_by_whoever_cleans_up_later() -> None:
    async def test() -> None:
        w = world()
        _refusing.append(True)
        try:
            await w.run(leaving(last_word))
            assert await left(w) == []
        finally:
            _refusing.clear()
        assert (await w.resume(leaving(last_word))).ok
        assert {says for says, _ in await left(w)} == {"a: completion", "working: completion"}

    played(test)


async def _of(task: asyncio.Task[object]) -> object:
    return await task
