"""Orders to single agents, and what forgotten calls leave: every engine keeps them alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jackline.errors import InternalError, JournalError, LeaseLostError, UnreadableError
from jackline.flows.records import AgentOrder, RunState
from jackline.flows.store.run_store import Claim, RunStore
from tests.flows.store import made
from tests.flows.store.made import LEASE, NOON, World

FIRST = AgentOrder("run-1", "search 7", NOON)
SECOND = AgentOrder("run-1", "another", NOON + 1)


async def _begun(engine: RunStore, run_id: str = "run-1") -> Claim:
    return await engine.create(made.run(run_id), owner="me", lease=LEASE)


def test_an_order_stays_until_it_is_taken_back_whoever_owns_the_run(world: World) -> None:
    async def given(engine: RunStore) -> None:
        claim = await _begun(engine)
        await _begun(engine, "run-2")
        for order in (SECOND, FIRST, replace(FIRST, run_id="run-2")):
            await engine.order_end(order)
        assert await engine.ordered_ends("run-1") == [FIRST, SECOND]
        await engine.let_go(claim, made.run(state=RunState.STOPPED))
        await engine.claim("run-1", owner="other", lease=LEASE)

    async def later(engine: RunStore) -> None:
        assert await engine.ordered_ends("run-1") == [FIRST, SECOND]
        assert await engine.withdraw_order("run-1", FIRST.name)
        assert not await engine.withdraw_order("run-1", FIRST.name)
        assert not await engine.withdraw_order("none", FIRST.name)
        assert await engine.ordered_ends("run-1") == [SECOND]
        assert len(await engine.ordered_ends("run-2")) == 1
        assert await engine.ordered_ends("none") == []
        with pytest.raises(UnreadableError):
            await engine.order_end(replace(FIRST, run_id="none"))

    world.run(given)
    world.run(later)


def test_an_answer_is_kept_for_the_order_it_answers_and_for_no_other(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        await engine.order_end(FIRST)
        await engine.answer_order(claim, replace(FIRST, ended=0))
        assert await engine.ordered_ends("run-1") == [replace(FIRST, ended=0)]
        anew = replace(FIRST, at=NOON + 5)
        await engine.order_end(anew)
        await engine.answer_order(claim, replace(FIRST, ended=3))
        assert await engine.ordered_ends("run-1") == [anew]
        await engine.withdraw_order("run-1", FIRST.name)
        await engine.answer_order(claim, replace(anew, ended=3))
        assert await engine.ordered_ends("run-1") == []
        with pytest.raises(InternalError):
            await engine.answer_order(claim, replace(FIRST, run_id="run-2"))

    world.run(story)


def test_who_was_taken_over_answers_no_order(world: World) -> None:
    async def story(engine: RunStore) -> None:
        old = await _begun(engine)
        await engine.order_end(FIRST)
        world.now += LEASE
        await engine.claim("run-1", owner="other", lease=LEASE)
        with pytest.raises(LeaseLostError):
            await engine.answer_order(old, replace(FIRST, ended=1))
        assert await engine.ordered_ends("run-1") == [FIRST]

    world.run(story)


def test_a_deleted_run_leaves_no_order_and_a_fork_takes_none_over(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        await engine.order_end(FIRST)
        await engine.fork("run-1", made.run("run-2"), owner="me", lease=LEASE, without=[])
        assert await engine.ordered_ends("run-2") == []
        await engine.let_go(claim, made.run(state=RunState.FINISHED))
        await engine.delete_run("run-1")
        assert await engine.ordered_ends("run-1") == []
        await _begun(engine)
        assert await engine.ordered_ends("run-1") == []

    world.run(story)


def test_calls_are_forgotten_and_their_lines_left_in_one_write(world: World) -> None:
    left = [made.entry(1, "the run's own"), made.entry(2, "the run's own")]

    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        for key in ("a", "b"):
            await engine.end_call(claim, made.done(key, b"{}"))
        with pytest.raises(JournalError, match="1 would be the next"):
            await engine.forget_calls(claim, [("a", 0)], leaving=left[1:])
        assert len(await engine.calls("run-1")) == 2
        await engine.forget_calls(claim, [("a", 0), ("b", 0)], leaving=left)
        assert await engine.calls("run-1") == []
        assert await engine.entries("the run's own") == left

    world.run(story)
