"""A wall parks the whole run; it wakes by itself, one agent first, the others spread out."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline import Budget, agent, ctx, flow, parallel, step
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import AgentLog, AgentTask, CallGate
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.flow_run import FlowRun
from jackline.flows.records import RunState, decode_outcome
from jackline.flows.run_events import AgentBegan, AgentWaits, RunEnded, RunParked, RunWoke
from jackline.flows.settings import RunSettings, WakeSettings
from jackline.testing.scripted_agents import Play, ScriptedRunner
from tests.flows.world import EPOCH, World, played, world

HOURS = 3600.0


def crew(size: int, *, limit: int | None = None) -> Flow[[], int]:
    @flow
    async def working() -> int:
        calls = (agent(f"task {n}", label=f"a{n}") for n in range(size))
        return len((await parallel(calls, limit=limit)).values)

    return working


def three_turns(_task: AgentTask) -> Play:
    return Play(turns=3, seconds=10, tokens=1000)


def walled(*, run_settings: RunSettings | None = None, hours: float = 5) -> World:
    w = world(three_turns, settings=run_settings or RunSettings(poll=60.0, at_once=40))
    w.runner.wall_until = EPOCH + timedelta(hours=hours)
    return w


def test_after_the_first_wall_nothing_starts_and_nobody_asks_until_the_reset() -> None:
    async def test() -> None:
        w = walled()
        outcome = await w.run(crew(97))
        assert outcome.value == 97
        assert outcome.exit_code == 0
        [parked] = w.of(RunParked)
        assert parked.wake_at == (EPOCH + timedelta(hours=5)).timestamp()
        assert parked.why == "You've hit your session limit"
        began = [event.at for event in w.of(AgentBegan)]
        during = [at for at in began if parked.at < at < parked.wake_at]
        assert during == []
        # Each of the forty that were underway met the wall once, and nothing was asked twice.
        assert len(w.runner.asked) == 97 * 3 + 40
        assert outcome.usage.total == 97 * 3 * 1000, "not a token more than without the wall"
        assert outcome.duration < HOURS, "waiting is no work"

    played(test)


def test_the_reason_of_a_parking_is_in_the_log_once_and_not_for_each_agent() -> None:
    async def test() -> None:
        w = walled()
        await w.run(crew(30))
        notes = await w.engine.notes("r1")
        assert [note.detail["why"] for note in notes if "limit" in str(note.detail)] == [
            "You've hit your session limit"
        ]
        assert {event.why for event in w.of(AgentWaits)} == {"the run is parked", ""}
        assert not [note for note in notes if note.what in ("agent waits", "agent goes on")]

    played(test)


def test_a_wait_of_one_agent_is_logged_with_its_reason_and_its_end() -> None:
    def script(_task: AgentTask) -> Play:
        return Play(ending=Ending.OUTAGE)

    @flow
    async def one() -> str:
        return (await agent("x", label="a").outcome()).terminated_by.value

    async def test() -> None:
        w = world(script)
        await w.run(one)
        told = [note for note in await w.engine.notes("r1") if note.label == "a"]
        assert [(note.what, note.detail.get("why")) for note in told] == [
            ("agent began", None),
            ("agent waits", "outage, tried again"),
            ("agent goes on", None),
            ("agent ended", None),
        ]

    played(test)


def test_a_parked_run_tells_what_is_finished_and_what_is_parked_and_what_that_has_cost() -> None:
    async def test() -> None:
        w = world(three_turns, settings=RunSettings(poll=60.0, at_once=4))
        begun = await w.begin(crew(10))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) == 16, task)
        w.runner.wall_until = EPOCH + timedelta(hours=5)
        await w.until(lambda: begun.is_parked, task)
        kept = await w.engine.run("r1")
        assert kept is not None
        assert kept.outcome is not None
        assert decode_outcome(kept.outcome).tally.unfinished == 6, "while it waits, too"
        begun.stop()
        outcome = await w.through(_of(task))
        assert outcome.tally.in_words("parked") == "4 of 10 agents ok, 6 parked"
        assert outcome.usage.total == kept.tokens == 16 * 1000
        assert (await w.resume(crew(10))).tally.in_words() == (
            "10 of 10 agents ok (4 kept from before)"
        )

    played(test)


def test_one_agent_goes_first_and_the_others_follow_spread_out() -> None:
    async def test() -> None:
        w = walled(run_settings=RunSettings(poll=60.0))
        begun = await w.begin(crew(20))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: bool(w.of(RunWoke)), task)
        assert begun.state is RunState.RUNNING
        assert (await w.through(_of(task))).value == 20
        first, second, *_ = sorted(event.at for event in w.of(AgentWaits) if not event.why)
        assert first == w.of(RunWoke)[0].at
        assert second > first

    played(test)


def test_a_probe_that_meets_the_wall_parks_the_run_again() -> None:
    async def test() -> None:
        w = walled(run_settings=RunSettings(poll=60.0))
        begun = await w.begin(crew(10))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: begun.is_parked, task)
        asked = len(w.runner.asked)
        w.runner.wall_until = EPOCH + timedelta(hours=9)  # the vendor meant something else
        await w.until(lambda: len(w.of(RunParked)) == 2, task)
        assert len(w.runner.asked) == asked + 1, "one probe, no more"
        assert w.of(RunParked)[1].wake_at == (EPOCH + timedelta(hours=9)).timestamp()
        assert (await w.through(_of(task))).value == 10

    played(test)


def test_a_wall_without_a_time_is_asked_again_ever_more_rarely() -> None:
    ends = EPOCH + timedelta(hours=3)

    asked: list[float] = []

    class Silent:
        name = "messages"

        async def run(
            self, _task: AgentTask, _notebook: AgentLog, leave: CallGate
        ) -> Outcome[object]:
            await leave.before_call()
            asked.append(w.clock.monotonic())
            if w.clock.now() < ends:
                # Only told at its end, and without a reset: as a process runner may.
                return Outcome(Ending.QUOTA, evidence=Evidence(says="no more"))
            return Outcome(Ending.COMPLETION, "v")

    w = world()
    w.runner = Silent()  # type: ignore[assignment]

    async def test() -> None:
        assert (await w.run(crew(1))).value == 1
        waits = [b - a for a, b in itertools.pairwise(asked)]
        assert [round(wait / 900) for wait in waits] == [1, 2, 4, 8]

    played(test)


def test_billing_waits_for_a_person() -> None:
    async def test() -> None:
        w = walled(run_settings=RunSettings(poll=60.0))
        w.runner.wall_is_billing = True
        begun = await w.begin(crew(3))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: begun.is_parked, task)
        assert w.of(RunParked)[0].wake_at is None
        await w.clock.advance(48 * HOURS)
        assert begun.is_parked
        w.runner.wall_until = None
        await w.engine.allow_waking("r1")
        assert (await w.through(_of(task))).value == 3

    played(test)


def test_brakes_delay_the_waking() -> None:
    async def test() -> None:
        wake = WakeSettings(hours="22:00-07:00", confirm=True)
        w = walled(run_settings=RunSettings(poll=60.0, wake=wake), hours=1)
        begun = await w.begin(crew(3))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: begun.is_parked, task)
        await w.clock.advance(24 * HOURS)
        assert begun.is_parked, "nobody has confirmed"
        await w.engine.allow_waking("r1")
        await w.clock.advance(5 * HOURS)  # 17:00 on the second day
        assert begun.is_parked
        await w.clock.advance(6 * HOURS)
        assert (await w.through(_of(task))).value == 3
        [woke] = w.of(RunWoke)
        assert (EPOCH + timedelta(hours=34)).timestamp() <= woke.at < woke.at + 120

    played(test)


def test_abort_ends_the_run_keeps_what_is_finished_and_starts_nothing() -> None:
    async def test() -> None:
        w = walled(run_settings=RunSettings(poll=60.0, on_quota="abort", at_once=4))
        w.runner.wall_until = None
        begun = await w.begin(crew(50))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) >= 15, task)
        w.runner.wall_until = EPOCH + timedelta(hours=5)
        outcome = await w.through(_of(task))
        assert outcome.terminated_by is Ending.QUOTA
        assert outcome.exit_code == 1
        assert outcome.evidence.resets_at == w.runner.wall_until
        assert begun.state is RunState.FAILED
        assert outcome.tally.ok >= 4
        assert len(w.runner.begun) < 12
        w.runner.wall_until = None
        again = await w.resume(crew(50))
        assert again.value == 50
        assert len(w.runner.answered) == 150, "every turn was paid once"

    played(test)


def test_stopping_while_parked_leaves_it_parked_and_a_resume_goes_on_with_one_probe() -> None:
    async def test() -> None:
        w = walled(run_settings=RunSettings(poll=60.0))
        begun = await w.begin(crew(10))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: begun.is_parked, task)
        begun.stop()
        outcome = await w.through(_of(task))
        assert outcome.parked
        assert outcome.exit_code == 75
        assert outcome.terminated_by is Ending.QUOTA
        assert outcome.evidence.resets_at == EPOCH + timedelta(hours=5)
        assert outcome.evidence.failure == "account_quota"
        record = await w.engine.run("r1")
        assert record is not None
        assert record.state is RunState.PARKED
        assert record.why == "You've hit your session limit"
        assert record.wake_at == (EPOCH + timedelta(hours=5)).timestamp()
        assert w.of(RunEnded)[0].state is RunState.PARKED
        w.runner.asked.clear()
        await w.clock.advance(60)
        w.received.clear()
        # Resumed by hand before the reset: one probe asks, meets the wall, and it is parked again.
        assert (await w.resume(crew(10))).value == 10
        [parked] = w.of(RunParked)
        assert len([at for at in w.of(AgentBegan) if at.at < parked.at]) <= 1
        assert len(w.runner.asked) == 30 + 1

    played(test)


def test_a_stop_in_the_moment_of_the_wall_leaves_it_parked() -> None:
    class Stopping(ScriptedRunner):
        async def run(
            self, task: AgentTask, notebook: AgentLog, leave: CallGate
        ) -> Outcome[object]:
            asyncio.get_running_loop().call_soon(runs[0].stop)
            return await super().run(task, notebook, leave)

    runs: list[FlowRun[int]] = []

    async def test() -> None:
        w = world()
        w.runner = Stopping(clock=w.clock)
        w.runner.wall_until = EPOCH + timedelta(hours=5)
        runs.append(await w.begin(crew(1)))
        outcome = await w.through(runs[0].run())
        assert outcome.parked
        record = await w.engine.run("r1")
        assert record is not None
        assert record.wake_at == (EPOCH + timedelta(hours=5)).timestamp()

    played(test)


def test_steps_wait_while_parked_and_do_not_wait_for_a_probe() -> None:
    ran: list[float] = []

    async def noting() -> int:
        ran.append(w.clock.monotonic())
        return 1

    @flow
    async def mixed() -> int:
        one = asyncio.ensure_future(agent("x", label="a"))
        await w.clock.sleep(60)
        await step(noting)
        await one
        return ctx.budget.tokens or 0

    w = walled(run_settings=RunSettings(poll=60.0))

    async def test() -> None:
        assert (await w.run(mixed)).ok
        assert ran[0] >= 5 * HOURS

    played(test)


def test_a_rolling_window_that_is_spent_is_waited_for() -> None:
    async def test() -> None:
        budget = Budget(tokens=10_000, window="2h")
        w = world(three_turns, settings=RunSettings(poll=60.0, budgets=(budget,), at_once=2))
        outcome = await w.run(crew(8))
        assert outcome.value == 8
        assert w.of(RunParked)[0].why.endswith("tokens in 2 h are used")
        assert w.clock.monotonic() > 2 * HOURS

    played(test)


@pytest.mark.parametrize("size", [1, 2, 30])
def test_a_run_of_any_size_gets_through_a_wall_that_comes_late(size: int) -> None:
    async def test() -> None:
        w = world(three_turns, settings=RunSettings(poll=60.0, at_once=3))
        begun = await w.begin(crew(size))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) >= 2, task)
        w.runner.wall_until = w.clock.now() + timedelta(hours=2)
        assert (await w.through(_of(task))).value == size
        assert len(w.runner.answered) == 3 * size

    played(test)


class Windows(ScriptedRunner):
    """An account whose limit is used up at certain times."""

    closed: tuple[tuple[float, float], ...] = ()

    @property
    def wall_until(self) -> datetime | None:
        now = self._clock.monotonic()
        ends = [end for begin, end in self.closed if begin <= now < end]
        return EPOCH + timedelta(seconds=max(ends)) if ends else None

    @wall_until.setter
    def wall_until(self, _value: datetime | None) -> None:
        """The windows alone decide."""


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 25),
    at_once=st.integers(1, 8),
    walls=st.lists(st.tuples(st.floats(0, 400), st.floats(1, 5000)), max_size=4),
    stop_at=st.none() | st.floats(1, 2000),
)
def test_whatever_walls_come_every_turn_is_paid_once_and_nothing_starts_while_parked(
    size: int, at_once: int, walls: list[tuple[float, float]], stop_at: float | None
) -> None:
    async def test() -> None:
        w = world(settings=RunSettings(poll=30.0, at_once=at_once))
        w.runner = Windows(three_turns, clock=w.clock)
        w.runner.closed = tuple((begin, begin + length) for begin, length in walls)
        begun = await w.begin(crew(size))
        task = asyncio.create_task(begun.run())
        while not task.done() and (stop_at is None or w.clock.monotonic() < stop_at):
            await w.to_next_hour()
        begun.stop()
        outcome = await w.through(_of(task))
        if begun.state is not RunState.FINISHED:
            assert outcome.exit_code == (75 if outcome.parked else 1)
            outcome = await w.resume(crew(size))
        assert outcome.value == size
        assert outcome.exit_code == 0
        assert Counter(w.runner.answered) == {f"a{n}": 3 for n in range(size)}
        parked = False
        for event in w.received:
            if isinstance(event, RunParked | RunWoke | RunEnded):
                parked = isinstance(event, RunParked)
            assert not (parked and isinstance(event, AgentBegan)), "nothing starts while parked"

    played(test)


async def _of(task: asyncio.Task[Outcome[int]]) -> Outcome[int]:
    return await task
