"""Whoever has lost a run stops, though it has nothing to write: no call runs beside another."""

from __future__ import annotations

import asyncio

import pytest

from jackline import agent, flow
from jackline.errors import JournalError, LeaseLostError
from jackline.flows.run_events import RunStopping
from jackline.flows.settings import RunSettings
from jackline.flows.store.run_store import Claim
from jackline.testing.scripted_agents import Play
from tests.flows.world import StoreWrapper, played, world

HOURS = 10 * 3600.0


@flow
async def one_long_turn() -> None:
    await agent("a", label="a")


def test_who_lost_the_run_in_the_middle_of_a_long_turn_stops_within_a_lease() -> None:
    async def test() -> None:
        settings = RunSettings(poll=5.0, lease=30.0)
        w = world(lambda _task: Play(seconds=HOURS), settings=settings)
        task = asyncio.create_task((await w.begin(one_long_turn)).run())
        await w.until(lambda: w.runner.asked == ["a"], task)
        w.clock._elapsed += 1_000  # the machine slept, and nobody renewed
        began = w.clock.wall()
        assert await w.engine.claim("r1", owner="other", lease=1e6) is not None
        with pytest.raises(LeaseLostError):
            await w.through(_of(task))
        (stopping,) = w.of(RunStopping)
        assert stopping.at - began <= settings.lease
        assert w.runner.answered == []

    played(test)


class DeadDisk(StoreWrapper):
    """A store that can be read, and in which no lease can be held any more."""

    async def renew(self, claim: Claim, *, lease: float) -> None:
        raise JournalError(f"The lease of {claim.run_id} cannot be kept for {lease:g} s more.")


def test_who_cannot_hold_its_lease_stops_once_another_might_have_taken_the_run() -> None:
    async def test() -> None:
        settings = RunSettings(poll=5.0, lease=30.0)
        w = world(lambda _task: Play(seconds=HOURS), settings=settings)
        w.engine = DeadDisk(w.engine)
        began = w.clock.wall()
        with pytest.raises(JournalError, match="cannot be kept"):
            await w.run(one_long_turn)
        (stopping,) = w.of(RunStopping)
        assert settings.lease <= stopping.at - began <= 2 * settings.lease
        assert w.runner.answered == []

    played(test)


async def _of(task: asyncio.Task[object]) -> object:
    return await task
