"""Nothing is seen before it is kept: not by the flow, not by the next turn, not by the parent."""

from __future__ import annotations

import asyncio

import pytest

from jackline import agent, ctx, flow, step
from jackline.flows.records import CallRecord, EntryRecord, ResourceRecord
from jackline.flows.store.run_store import Claim
from jackline.testing.scripted_agents import Play
from tests.flows.world import StoreWrapper, World, played, world


class SlowStore(StoreWrapper):
    """A store whose disk takes its time: what it is given is kept when `disk` is set."""

    def __init__(self, w: World, slow: str) -> None:
        super().__init__(w.engine)
        self.disk = asyncio.Event()
        self.waiting = 0
        self._slow = slow

    async def end_call(self, claim: Claim, call: CallRecord) -> None:
        if self._slow == "end":
            await self._on_disk()
        await self.store.end_call(claim, call)

    async def write_entry(self, claim: Claim, entry: EntryRecord) -> None:
        if self._slow == entry.kind:
            await self._on_disk()
        await self.store.write_entry(claim, entry)

    async def save_resource(self, resource: ResourceRecord) -> None:
        if self._slow == "resource":
            await self._on_disk()
        await self.store.save_resource(resource)

    async def _on_disk(self) -> None:
        self.waiting += 1
        await self.disk.wait()
        self.waiting -= 1


def count() -> int:
    return 3


@pytest.mark.parametrize("kind", ["agent", "step"])
def test_a_result_is_kept_before_the_flow_sees_it(kind: str) -> None:
    seen: list[object] = []

    @flow
    async def one() -> None:
        seen.append(await (agent("a", label="a") if kind == "agent" else step(count)))

    async def test() -> None:
        w = world(lambda _task: Play(3))
        w.engine = store = SlowStore(w, "end")
        task = asyncio.create_task((await w.begin(one)).run())
        await w.until(lambda: store.waiting == 1, task)
        for _ in range(20):
            await w.to_next_hour()
        assert not seen
        store.disk.set()
        await w.until(lambda: bool(seen), task)
        (call,) = await store.calls("r1")
        assert call.value == b"3"
        assert seen == [3]
        await w.through(_given(task))

    played(test)


def test_a_models_answer_is_kept_before_the_next_turn_begins() -> None:
    @flow
    async def one() -> None:
        await agent("a", label="a")

    async def test() -> None:
        w = world(lambda _task: Play(turns=2))
        w.engine = store = SlowStore(w, "turn")
        task = asyncio.create_task((await w.begin(one)).run())
        await w.until(lambda: store.waiting == 1, task)
        for _ in range(20):
            await w.to_next_hour()
        assert (w.runner.asked, w.runner.answered) == (["a"], [])
        store.disk.set()
        await w.through(_given(task))
        assert w.runner.answered == ["a", "a"]

    played(test)


def test_what_was_rented_is_on_the_ledger_before_its_user_goes_on() -> None:
    seen: list[str] = []

    @flow
    async def renting() -> None:
        await ctx.resource("gpu/1")
        seen.append("rented")

    async def test() -> None:
        w = world()
        w.engine = store = SlowStore(w, "resource")
        task = asyncio.create_task((await w.begin(renting)).run())
        await w.until(lambda: store.waiting == 1, task)
        for _ in range(20):
            await w.to_next_hour()
        assert not seen
        store.disk.set()
        await w.through(_given(task))
        assert seen == ["rented"]

    played(test)


async def _given(task: asyncio.Task[object]) -> object:
    return await task
