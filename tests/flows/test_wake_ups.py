"""A run that wakes at the same wall again and again backs off, then waits for a person."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jackline import agent, flow
from jackline.agents.outcome import Outcome
from jackline.agents.runner import AgentTask
from jackline.clock import VirtualClock
from jackline.failures import Failure
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.execution.gate import FIRST_PAUSE, LONGEST_PAUSE, WakeUps
from jackline.flows.records import RunState
from jackline.flows.run_events import RunParked, RunWoke
from jackline.flows.settings import RunSettings, WakeSettings
from jackline.testing.scripted_agents import Play, ScriptedRunner
from tests.flows.world import EPOCH, World, played, world


class Wall(ScriptedRunner):
    """Every turn meets a wall that promises to be gone in a minute, up to a moment."""

    def _wall(self) -> Failure:
        resets_at = self._clock.now() + timedelta(minutes=1)
        return replace(super()._wall(), resets_at=resets_at)


def before_a_wall(most: int = 4, *, turns: int = 1) -> World:
    def script(_task: AgentTask) -> Play:
        return Play(turns=turns)

    w = world(settings=RunSettings(poll=5.0, wake=WakeSettings(max_wakes=most)))
    w.runner = Wall(script, clock=w.clock)
    w.runner.wall_until = EPOCH + timedelta(days=365)
    return w


@flow
async def one() -> str:
    return await agent("x", label="a")


async def until_it_stops(w: World, what: Flow[[], str], *, resumed: bool = False) -> Outcome[str]:
    """Carry the run until it waits for a person, then leave it."""
    if resumed:
        from jackline.flows.lifecycle import begin_resume  # noqa: PLC0415

        begun = await begin_resume(w.host, "r1", flow=what)
        assert not isinstance(begun, Outcome)
    else:
        begun = await w.begin(what)
    task = asyncio.create_task(begun.run())
    await w.until(lambda: bool(w.of(RunParked)) and w.of(RunParked)[-1].wake_at is None, task)
    begun.stop()
    return await w.through(_of(task))


async def _of(task: asyncio.Task[Outcome[str]]) -> Outcome[str]:
    return await task


def test_after_so_many_wake_ups_at_a_wall_the_run_waits_for_a_person() -> None:
    async def test() -> None:
        w = before_a_wall(4)
        outcome = await until_it_stops(w, one)
        assert outcome.exit_code == 75
        assert len(w.of(RunWoke)) == 4
        parked = w.of(RunParked)
        waits = [event.wake_at - event.at for event in parked[:-1] if event.wake_at is not None]
        assert waits == pytest.approx([60, 300, 600, 1200], abs=1)
        run = await w.engine.run("r1")
        assert run is not None
        assert (run.state, run.wake_at) == (RunState.PARKED, None)
        assert run.why == (
            "You've hit your session limit; it woke 4 times in a row and met a wall each time"
        )

    played(test)


def test_a_person_may_try_again_and_the_count_begins_anew() -> None:
    async def test() -> None:
        w = before_a_wall(2)
        await until_it_stops(w, one)
        await w.engine.allow_waking("r1")
        w.received.clear()
        await until_it_stops(w, one, resumed=True)
        assert len(w.of(RunWoke)) == 2, "two more by itself, after the person's own try"
        await w.engine.allow_waking("r1")
        w.runner.wall_until = None
        assert (await w.resume(one)).ok

    played(test)


def test_other_processes_count_on() -> None:
    """Every process wakes the run once, and dies."""

    async def test() -> None:
        w = before_a_wall(3)
        from jackline.flows.lifecycle import begin_resume  # noqa: PLC0415

        begun = await w.begin(one)
        waits = []
        while True:
            task = asyncio.create_task(begun.run())
            seen = len(w.of(RunParked))
            await w.until(lambda seen=seen: len(w.of(RunParked)) > seen, task)  # type: ignore[misc]
            event = w.of(RunParked)[-1]
            begun.stop()
            await w.through(_of(task))
            if event.wake_at is None:
                break
            waits.append(event.wake_at - event.at)
            assert len(waits) < 9
            await w.clock.advance(event.wake_at - w.clock.wall() + 1)
            again = await begin_resume(w.host, "r1", flow=one)
            assert not isinstance(again, Outcome)
            begun = again
        assert waits == pytest.approx([60, 300, 600], abs=1)

    played(test)


def test_an_answered_call_begins_the_count_anew() -> None:
    """A wall after every answer: the run comes forward, and never stops."""

    async def test() -> None:
        w = before_a_wall(2, turns=6)
        w.runner.wall_until = None
        answered = w.runner.answered

        class Toll(Wall):
            """One turn gets through at every second try."""

            met = 0

            async def _turn(self, *given: object) -> None:
                self.wall_until = EPOCH + timedelta(days=365)
                await super()._turn(*given)  # type: ignore[arg-type]

            def _wall(self) -> Failure:
                self.met += 1
                if self.met % 2 == 0:
                    self.wall_until = None  # the next try gets through
                return super()._wall()

        w.runner = Toll(lambda _task: Play(turns=6), clock=w.clock)
        answered = w.runner.answered
        assert (await w.run(one)).ok
        assert len(answered) == 6
        assert len(w.of(RunWoke)) == 12

    played(test)


def test_a_limit_of_nothing_never_stops_it() -> None:
    async def test() -> None:
        w = before_a_wall(0)
        w.settings = replace(w.settings, poll=60.0, lease=600.0)  # ten days have many polls
        w.runner.wall_until = EPOCH + timedelta(days=10)
        assert (await w.run(one)).ok
        assert len(w.of(RunWoke)) > 20

    played(test)


class BackOff(RuleBasedStateMachine):
    """Wake-ups, walls and answers in any order, in virtual time."""

    @initialize(most=st.integers(0, 6))
    def begin(self, most: int) -> None:
        self.most = most
        self.clock = VirtualClock(EPOCH)
        self.state = WakeUps()
        self.parked: float | None = None
        self.needs_person = False
        self.failed = 0
        self.woke_once = False
        self.last_pause = 0.0

    @precondition(lambda self: self.parked is None and not self.needs_person)
    @rule(reset=st.floats(0, 20_000))
    def meets_wall(self, reset: float) -> None:
        now = self.clock.wall()
        if self.woke_once:
            self.failed += 1
        self.woke_once = False
        self.state = self.state.met_wall()
        at = self.state.wake_at(now, now + reset, self.most)
        if self.most and self.failed >= self.most:
            assert at is None
            self.needs_person = True
            return
        assert at is not None
        assert at >= now + reset, "never before the reset"
        expected = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self.failed - 1)) if self.failed else 0.0
        assert at == pytest.approx(now + max(reset, expected))
        self.parked = at

    @precondition(lambda self: self.parked is not None)
    @rule()
    def wakes(self) -> None:
        assert self.parked is not None
        asyncio.run(self.clock.advance(max(0.0, self.parked - self.clock.wall())))
        self.parked = None
        self.state = self.state.woke()
        self.woke_once = True

    @precondition(lambda self: self.parked is None and not self.needs_person)
    @rule()
    def call_is_answered(self) -> None:
        self.state = self.state.answered()
        self.failed, self.woke_once = 0, False

    @precondition(lambda self: self.needs_person)
    @rule()
    def person_resumes(self) -> None:
        self.state = WakeUps().woke(by_person=True)
        self.needs_person, self.failed, self.woke_once = False, 0, False

    @invariant()
    def what_is_kept_is_the_state(self) -> None:
        assert self.state.failed == self.failed
        assert WakeUps.from_json(self.state.to_json()) == self.state


TestBackOff = BackOff.TestCase


@given(st.integers(0, 1000))
def test_no_pause_is_longer_than_the_longest(failed: int) -> None:
    at = WakeUps(failed).wake_at(0.0, 0.0, 0)
    assert at is not None
    assert at <= LONGEST_PAUSE
