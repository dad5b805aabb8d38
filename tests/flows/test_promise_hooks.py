"""Hooks keep to their time, and after a crash they run before the flow hears of the end."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from jackline import agent, flow
from jackline.agents.outcome import Outcome
from jackline.errors import JournalError
from jackline.flows.lifecycle import cancel_run
from jackline.flows.records import CallRecord, HookRecord
from jackline.flows.run_events import CleanupEnded
from jackline.flows.settings import RunSettings
from jackline.flows.store.run_store import Claim
from tests.flows.world import StoreWrapper, World, played, world

WORLDS: list[World] = []
SEEN: list[str] = []


async def endless(_outcome: Outcome[Any]) -> None:
    await WORLDS[-1].clock.sleep(1e6)


async def noting(outcome: Outcome[Any]) -> None:
    SEEN.append(f"hook of {outcome.label}: {outcome.terminated_by}")


def test_a_function_that_takes_too_long_is_left_and_told() -> None:
    @flow
    async def one() -> str:
        return await agent("a", label="a", on_end=endless)

    async def test() -> None:
        w = world(settings=RunSettings(poll=5.0, hook_limit=40.0))
        WORLDS.append(w)
        began = w.clock.wall()
        assert (await w.run(one)).ok
        (told,) = w.of(CleanupEnded)
        assert told.trouble == "it took longer than 40 seconds"
        assert told.at - began >= 40
        (row,) = await w.engine.hooks("r1")
        assert row.state == "failed"

    played(test)


def leaving(_outcome: Outcome[Any]) -> None:
    raise SystemExit(3)


class PanicError(BaseException):
    """What a library in Rust raises when it panics is no Exception either."""


async def panicking(_outcome: Outcome[Any]) -> None:
    raise PanicError("in a hook")


def indirectly(outcome: Outcome[Any]) -> Awaitable[None]:
    return noting(outcome)


def test_a_hook_that_would_end_the_program_fails_and_the_run_goes_on() -> None:
    @flow
    async def two() -> str:
        await agent("a", label="a", on_end=[leaving, panicking])
        return await agent("b", label="b")

    async def test() -> None:
        w = world()
        assert (await w.run(two)).ok
        told = w.of(CleanupEnded)
        assert [each.trouble.partition(" (")[0] for each in told] == ["SystemExit", "PanicError"]
        assert [each.private for each in told] == ["3", "in a hook"]

    played(test)


def test_what_a_hook_gives_to_be_awaited_is_awaited() -> None:
    @flow
    async def one() -> str:
        return await agent("a", label="a", on_end=indirectly)

    async def test() -> None:
        SEEN.clear()
        assert (await world().run(one)).ok
        assert SEEN == ["hook of a: completion"]

    played(test)


class DiesBeforeHooks(StoreWrapper):
    """A store that the process loses at the moment at which its first hook would run."""

    dead = False

    async def begin_hook(self, hook: HookRecord, *, again: bool = False) -> bool:
        if not self.dead:
            self.dead = True
            raise JournalError("The process died here.")
        return await self.store.begin_hook(hook, again=again)


def test_after_a_crash_the_hook_runs_before_the_flow_hears_of_the_end() -> None:
    @flow
    async def one() -> str:
        answer = await agent("a", label="a", on_end=noting)
        SEEN.append("flow")
        return answer

    async def test() -> None:
        SEEN.clear()
        w = world()
        w.engine = DiesBeforeHooks(w.engine)
        with pytest.raises(JournalError):
            await w.run(one)
        assert SEEN == []
        await w.clock.advance(60)  # the lease of the dead is over
        assert (await w.resume(one)).ok
        assert SEEN == ["hook of a: completion", "flow"]
        assert w.runner.begun == ["a"], "it had ended, and was not begun again"

    played(test)


class DiesBeforeAgents(StoreWrapper):
    """A store that the process loses when its first agent would begin, its hook promised."""

    dead = False

    async def begin_call(self, claim: Claim, call: CallRecord) -> None:
        if not self.dead:
            self.dead = True
            raise JournalError("The process died here.")
        await self.store.begin_call(claim, call)


def test_an_agent_that_never_began_owes_no_hook_once_its_run_has_ended() -> None:
    @flow
    async def one() -> str:
        return await agent("a", label="a", on_end=noting)

    async def test() -> None:
        SEEN.clear()
        w = world()
        w.engine = DiesBeforeAgents(w.engine)
        with pytest.raises(JournalError):
            await w.run(one)
        assert await w.engine.owing_hooks() == ["r1"]
        await w.clock.advance(60)
        await w.through(cancel_run(w.host, "r1"))
        assert SEEN == []
        # Or whoever looks after runs would be started for it for ever.
        assert await w.engine.owing_hooks() == []

    played(test)
