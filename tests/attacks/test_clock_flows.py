"""The clock as adversary of runs: leases, wake-ups, rolling budgets and rented things."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jackline import Budget, agent, ctx, flow
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import AgentLog, AgentTask, CallGate
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.lifecycle import claim_run
from jackline.flows.records import RunRecord, RunState
from jackline.flows.run_events import RunWoke
from jackline.flows.run_owner import new_owner
from jackline.flows.run_processes import Waker
from jackline.flows.settings import RunSettings, encode_settings
from jackline.flows.store import open_run_store, run_store_url
from jackline.flows.store.run_store import lease_holds
from jackline.testing.scripted_agents import Play
from tests.flows.world import EPOCH, World, played, world

HOUR, DAY = 3600.0, 86_400.0
BACK_OR_FORTH = [-HOUR, DAY]
LEASE = 30.0
RELEASED: list[str] = []


async def give_back(name: str) -> None:
    """A release at the top level of a flow's file, as the ledger wants it."""
    RELEASED.append(name)


@flow
async def one_agent() -> Any:
    return await agent("work", label="a")


@asynccontextmanager
async def carried(w: World, what: Flow[..., Any]) -> AsyncIterator[asyncio.Task[Outcome[Any]]]:
    """A run that is under way; whatever happens, nothing of it is left behind."""
    begun = await w.begin(what)
    task = asyncio.create_task(begun.run())
    try:
        yield task
    finally:
        if not task.done():
            begun.cancel()
            await w.through(_ended(task))


async def _ended(task: asyncio.Task[Outcome[Any]]) -> None:
    await asyncio.wait({task})


def a_neighbour() -> str:
    """An owner that lives on this machine and is not this process."""
    return new_owner().replace(f":{os.getpid()}:", f":{os.getppid()}:")


# --- leases -----------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-DAY, -HOUR, HOUR, DAY])
@pytest.mark.skipif(os.name == "nt", reason="Windows cannot be asked whether a process lives")
def test_a_living_owner_keeps_its_run_though_the_clock_was_set(jump: float) -> None:
    async def test() -> None:
        w = world()
        record = RunRecord("r1", "f", "", b"{}")
        held = await w.engine.create(record, owner=a_neighbour(), lease=LEASE)
        w.clock.jump_wall(jump)
        stale = await w.engine.run("r1")
        assert stale is not None

        async def renews() -> None:
            await w.clock.sleep(LEASE / 3)
            await w.engine.renew(held, lease=LEASE)

        renewing = asyncio.create_task(renews())
        assert await w.through(claim_run(w.host, stale, LEASE)) is None
        await w.through(_all_of(renewing))
        now = await w.engine.run("r1")
        assert now is not None
        assert now.epoch == stale.epoch, "nobody has taken it over"

    played(test)


async def _all_of(task: asyncio.Task[None]) -> None:
    await task


@pytest.mark.parametrize("jump", [-DAY, HOUR])
@pytest.mark.skipif(os.name == "nt", reason="Windows cannot be asked whether a process lives")
def test_an_owner_that_does_nothing_any_more_holds_its_run_for_a_lease(jump: float) -> None:
    async def test() -> None:
        w = world()
        await w.engine.create(RunRecord("r1", "f", "", b"{}"), owner=a_neighbour(), lease=LEASE)
        w.clock.jump_wall(jump)
        stale = await w.engine.run("r1")
        assert stale is not None
        assert await w.through(claim_run(w.host, stale, LEASE)) is not None
        assert w.clock.monotonic() <= LEASE + 1

    played(test)


@pytest.mark.parametrize(
    ("jump", "asleep"), [(-DAY, 0), (-HOUR, 0), (HOUR, 0), (DAY, 0), (0, HOUR), (-HOUR, DAY)]
)
def test_a_carried_run_renews_its_lease_as_soon_as_the_clock_moves(
    jump: float, asleep: float
) -> None:
    async def test() -> None:
        w = world(
            lambda _task: Play(turns=3, seconds=100), settings=RunSettings(poll=2.0, lease=LEASE)
        )
        async with carried(w, one_agent) as task:
            await w.clock.advance(5)
            w.clock.suspend(asleep)
            w.clock.jump_wall(jump)
            await w.clock.advance(2.5)
            kept = await w.engine.run("r1")
            assert kept is not None
            assert lease_holds(kept.lease_until, LEASE, w.clock.wall())
            assert (await w.through(_outcome(task))).ok

    played(test)


async def _outcome(task: asyncio.Task[Outcome[Any]]) -> Outcome[Any]:
    return await task


# --- walls ------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", BACK_OR_FORTH)
def test_a_parked_run_wakes_by_the_date_as_the_clock_is_set_now(jump: float) -> None:
    async def test() -> None:
        w = world(lambda _task: Play(), settings=RunSettings(poll=2.0))
        w.runner.wall_until = EPOCH + timedelta(hours=2)
        async with carried(w, one_agent) as task:
            await w.clock.advance(10)
            w.clock.jump_wall(jump)
            outcome = await w.through(_outcome(task))
            assert outcome.ok
            waited = max(0.0, 2 * HOUR - jump)
            assert waited - 20 <= w.clock.monotonic() <= waited + 120
            assert len(w.of(RunWoke)) == 1

    played(test)


@pytest.mark.parametrize("jump", BACK_OR_FORTH)
def test_a_run_that_waits_without_a_date_wakes_after_its_pause(jump: float) -> None:
    """Nobody said when: it asks again after a quarter of an hour, whatever the clock shows."""

    class Silent:
        name = "messages"
        asked: list[float] = []  # noqa: RUF012 -- of this test alone

        async def run(
            self, _task: AgentTask, _notebook: AgentLog, leave: CallGate
        ) -> Outcome[object]:
            await leave.before_call()
            self.asked.append(w.clock.monotonic())
            if len(self.asked) == 1:
                return Outcome(Ending.QUOTA, evidence=Evidence(says="no more"))
            return Outcome(Ending.COMPLETION, "v")

    w = world(settings=RunSettings(poll=2.0))
    w.runner = Silent()  # type: ignore[assignment]

    async def test() -> None:
        async with carried(w, one_agent) as task:
            await w.clock.advance(60)
            w.clock.jump_wall(jump)
            assert (await w.through(_outcome(task))).ok
            first, second = Silent.asked
            assert 890 <= second - first <= 920

    Silent.asked.clear()
    played(test)


def test_a_run_that_waits_without_a_date_has_waited_in_its_sleep() -> None:
    class Silent:
        name = "messages"
        asked: list[float] = []  # noqa: RUF012 -- of this test alone

        async def run(
            self, _task: AgentTask, _notebook: AgentLog, leave: CallGate
        ) -> Outcome[object]:
            await leave.before_call()
            self.asked.append(w.clock.monotonic())
            if len(self.asked) == 1:
                return Outcome(Ending.QUOTA, evidence=Evidence(says="no more"))
            return Outcome(Ending.COMPLETION, "v")

    w = world(settings=RunSettings(poll=2.0))
    w.runner = Silent()  # type: ignore[assignment]

    async def test() -> None:
        async with carried(w, one_agent) as task:
            await w.clock.advance(60)
            w.clock.suspend(HOUR)
            assert (await w.through(_outcome(task))).ok
            first, second = Silent.asked
            assert second - first <= 70

    played(test)


@pytest.mark.parametrize("jump", [-HOUR, DAY])
def test_a_run_that_cannot_be_woken_is_not_tried_in_a_circle(tmp_path: Path, jump: float) -> None:
    async def test() -> None:
        w = world()
        path = tmp_path / "flows.db"
        engine = open_run_store(run_store_url(path.parent), wall=w.clock.wall)
        record = RunRecord(
            "r1", "f", "/x/f.py", b"{}", encode_settings(RunSettings()), wake_at=EPOCH.timestamp()
        )
        claim = await engine.create(record, owner="me", lease=LEASE)
        await engine.let_go(claim, replace(record, state=RunState.PARKED))
        await engine.close()
        woken: list[str] = []
        waker = Waker(
            path.parent, run_store_url(path.parent), w.clock, lambda each: woken.append(each.run_id)
        )
        await waker.look()
        w.clock.jump_wall(jump)
        for _ in range(4):
            await w.clock.advance(15)
            await waker.look()
        assert woken == ["r1"], "its pause of five minutes has not passed"
        await w.clock.advance(300)
        w.clock.jump_wall(-jump)
        await waker.look()
        assert woken == ["r1", "r1"]

    played(test)


# --- budgets ----------------------------------------------------------------------------------


def test_a_clock_set_ahead_does_not_refill_a_rolling_budget() -> None:
    async def test() -> None:
        budget = Budget(tokens=1000, window="24h")
        w = world(
            lambda _task: Play(turns=1, tokens=1000),
            settings=RunSettings(poll=60.0, budgets=(budget,)),
        )

        @flow
        async def two() -> None:
            await agent("first", label="a")
            w.clock.jump_wall(2 * DAY)
            await ctx_sleep(w, 10)
            await agent("second", label="b")

        assert (await w.run(two)).ok
        assert w.clock.monotonic() > 0.8 * DAY, "the second had to wait for the window"

    played(test)


async def ctx_sleep(w: World, seconds: float) -> None:
    """Let real time pass in a flow."""
    await w.clock.sleep(seconds)


@pytest.mark.parametrize("jump", [-10 * 365 * DAY, -HOUR])
def test_a_clock_set_back_does_not_spend_a_rolling_budget(jump: float) -> None:
    """What was spent long before the window must not count because the clock went back."""

    async def test() -> None:
        budget = Budget(tokens=1500, window="1h")
        w = world(
            lambda _task: Play(turns=1, tokens=1000),
            settings=RunSettings(poll=60.0, budgets=(budget,)),
        )

        @flow
        async def two() -> None:
            await agent("first", label="a")
            await ctx_sleep(w, 2 * HOUR)
            w.clock.jump_wall(jump)
            await agent("second", label="b")
            await agent("third", label="c")

        assert (await w.run(two)).ok
        assert w.clock.monotonic() < 2 * HOUR + 200, "nobody had to wait for the window"

    played(test)


@pytest.mark.parametrize("jump", BACK_OR_FORTH)
def test_an_agents_time_is_what_it_worked(jump: float) -> None:
    async def test() -> None:
        w = world(lambda _task: Play(turns=3, seconds=10), settings=RunSettings(poll=2.0))

        @flow
        async def timed() -> Any:
            return await agent("work", label="a", budget=Budget(seconds=60))

        async with carried(w, timed) as task:
            await w.clock.advance(5)
            w.clock.jump_wall(jump)
            outcome = await w.through(_outcome(task))
            assert outcome.ok
            assert 0 <= outcome.duration <= 40

    played(test)


# --- rented things ----------------------------------------------------------------------------


@flow
async def renting() -> Any:
    await ctx.resource("gpu", release=give_back, lease="1h")
    return await agent("work", label="a")


@pytest.mark.parametrize("jump", [DAY, 10 * 365 * DAY, -HOUR])
def test_what_was_rented_for_an_hour_is_given_back_after_an_hour(jump: float) -> None:
    async def test() -> None:
        RELEASED.clear()
        w = world(lambda _task: Play(seconds=2 * HOUR), settings=RunSettings(poll=5.0))
        async with carried(w, renting) as task:
            await w.clock.advance(120)
            w.clock.jump_wall(jump)
            await w.clock.advance(0.9 * HOUR)
            assert RELEASED == [], "it is in use"
            await w.clock.advance(0.2 * HOUR)
            assert RELEASED == ["gpu"]
            assert (await w.through(_outcome(task))).ok

    played(test)


def test_what_was_rented_is_given_back_after_a_long_sleep() -> None:
    """Its vendor has counted the sleep, too."""

    async def test() -> None:
        RELEASED.clear()
        w = world(lambda _task: Play(seconds=2 * HOUR), settings=RunSettings(poll=5.0))
        async with carried(w, renting) as task:
            await w.clock.advance(120)
            w.clock.suspend(2 * HOUR)
            await w.clock.advance(60)
            assert RELEASED == ["gpu"]
            assert (await w.through(_outcome(task))).ok

    played(test)
