"""`timeout` is the agent's own work, `deadline` is the wall clock, and `seconds` is own work."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline import Budget, agent, flow, parallel
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import AgentTask
from jackline.budgets.budget import Duration
from jackline.clock import VirtualClock
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.execution.work_time import WorkTime
from jackline.flows.settings import RunSettings
from jackline.testing.scripted_agents import Play, Script, ScriptedRunner
from tests.flows.world import EPOCH, World, played, world


def agents_of(
    size: int,
    *,
    timeout: Duration | None = None,
    deadline: datetime | Duration | None = None,
    budget: Budget | None = None,
) -> Flow[[], list[str]]:
    @flow
    async def many() -> list[str]:
        calls = [
            agent("x", label=f"a{n}", timeout=timeout, deadline=deadline, budget=budget)
            for n in range(size)
        ]
        return [outcome.terminated_by.value for outcome in await parallel(calls)]

    return many


def working(seconds: float = 90.0, turns: int = 1) -> Script:
    return lambda _task: Play(turns=turns, seconds=seconds)


def held_first(w: World, held: float) -> None:
    """Every agent's only call is held by the gateway for so long, then takes 90 s."""

    def script(task: AgentTask) -> Play:
        async def during() -> None:
            for _ in range(round(held)):
                await w.clock.sleep(1.0)
                w.held[task.task_id] = w.held.get(task.task_id, 0.0) + 1.0

        return Play(seconds=90, during=during)

    w.runner._script = script


# --- own work ------------------------------------------------------------------------------------


def test_what_the_gateway_holds_is_no_work() -> None:
    async def test() -> None:
        w = world()
        held_first(w, 1000)
        outcome = await w.run(agents_of(2, timeout=100))
        assert outcome.value == ["completion", "completion"]
        assert w.clock.now() >= EPOCH + timedelta(seconds=1090)

    played(test)


@pytest.mark.parametrize("limit", [{"timeout": 100}, {"budget": Budget(seconds=100)}])
def test_work_beyond_the_timeout_ends_the_agent_whatever_was_held(limit: dict[str, object]) -> None:
    async def test() -> None:
        w = world()
        held_first(w, 1000)
        script = w.runner._script

        def longer(task: AgentTask) -> Play:
            play = script(task)
            assert isinstance(play, Play)
            return Play(seconds=120, during=play.during)

        w.runner._script = longer
        outcome = await w.run(agents_of(1, **limit))  # type: ignore[arg-type]
        assert outcome.value == ["timeout"]
        assert w.clock.now() < EPOCH + timedelta(seconds=110)

    played(test)


def test_a_gateway_that_does_not_say_leaves_all_time_of_a_call_as_work() -> None:
    async def test() -> None:
        w = world()
        held_first(w, 1000)
        w.gateway_answers = False
        assert (await w.run(agents_of(1, timeout=100))).value == ["timeout"]

    played(test)


def test_queueing_for_a_slot_is_no_work() -> None:
    async def test() -> None:
        w = world(working(), settings=RunSettings(poll=5.0, at_once=1))
        assert (await w.run(agents_of(4, timeout=100))).value == ["completion"] * 4

    played(test)


def test_parking_at_a_wall_is_no_work() -> None:
    async def test() -> None:
        w = world(working())
        w.runner.wall_until = EPOCH + timedelta(hours=2)
        outcome = await w.run(agents_of(2, timeout="100s"))
        assert outcome.value == ["completion"] * 2
        assert w.clock.now() > EPOCH + timedelta(hours=2)

    played(test)


def test_waiting_for_the_agent_that_goes_first_after_a_wall_is_no_work() -> None:
    async def test() -> None:
        w = world()

        async def slowly() -> None:
            await w.clock.sleep(500)

        def script(task: AgentTask) -> Play:
            # a0 meets the wall and goes first at its reset; a1 ends a long turn meanwhile.
            first = Play(seconds=1, during=slowly)
            return first if task.label == "a0" else Play(turns=2, seconds=3650 / 2)

        w.runner = ScriptedRunner(script, clock=w.clock)
        w.runner.wall_until = EPOCH + timedelta(seconds=1800)
        outcome = await w.run(agents_of(2, timeout=3800))
        assert outcome.value == ["completion"] * 2
        assert EPOCH + timedelta(seconds=4100) < w.clock.now() < EPOCH + timedelta(seconds=4200)

    played(test)


def test_the_pause_between_two_attempts_is_no_work() -> None:
    async def test() -> None:
        w = world(lambda _task: Play(seconds=40, ending=Ending.OUTAGE))
        w.settings = RunSettings(poll=5.0, guard=0)

        @flow
        async def one() -> float:
            return (await agent("x", label="a", timeout=1000, retries=3).outcome()).duration

        assert (await w.run(one)).value == pytest.approx(40, abs=1)

    played(test)


async def interrupted(w: World, what: Flow[[], list[str]], after: float) -> None:
    """The process dies after so much time, and another one goes on a day later."""
    begun = await w.begin(what)
    task = asyncio.create_task(begun.run())
    until = w.clock.monotonic() + after
    await w.until(lambda: w.clock.monotonic() >= until, task)
    begun.stop_now()
    while not task.done():
        await w.to_next_hour()
    await w.clock.advance(86_400)


@pytest.mark.parametrize("limit", [{"timeout": 250}, {"budget": Budget(seconds=250)}])
def test_own_work_of_earlier_processes_counts_and_the_time_between_does_not(
    limit: dict[str, object],
) -> None:
    async def test() -> None:
        w = world(working(60, turns=9))
        many = agents_of(1, **limit)  # type: ignore[arg-type]
        await interrupted(w, many, 150)
        outcome = await w.resume(many)
        assert outcome.value == ["timeout"]
        # Two turns before the cut, and two whole ones after it.
        assert 2 + 1 <= len(w.runner.answered) <= 2 + 2

    played(test)


def test_what_was_held_before_a_crash_is_no_work_afterwards_either() -> None:
    async def test() -> None:
        w = world()
        held_first(w, 1000)
        many = agents_of(1, timeout=100)
        await interrupted(w, many, 600)
        # The call is asked again, and held again; 90 s of work are counted twice at most.
        assert (await w.resume(agents_of(1, timeout=200))).value == ["completion"]

    played(test)


# --- seconds of a run and of a flow --------------------------------------------------------------


def test_seconds_of_a_run_are_the_own_work_of_all_its_agents_together() -> None:
    """Like tokens and turns: what an agent uses, its flow and its run have used too."""

    async def test() -> None:
        budget = Budget(seconds=500)
        w = world(working(60, turns=3), settings=RunSettings(poll=5.0, budgets=(budget,)))
        outcome = await w.run(agents_of(5))
        # 5 agents work for 60 s each and turn: after the second turn 600 s are used.
        assert outcome.value == ["timeout"] * 5
        assert len(w.runner.answered) == 10
        assert outcome.exit_code == 3

    played(test)


def test_seconds_of_a_run_leave_out_what_was_held_queued_and_parked() -> None:
    async def test() -> None:
        budget = Budget(seconds=400)
        w = world(settings=RunSettings(poll=5.0, budgets=(budget,), at_once=1))
        held_first(w, 300)
        w.runner.wall_until = EPOCH + timedelta(hours=1)
        assert (await w.run(agents_of(4))).value == ["completion"] * 4

    played(test)


def test_seconds_of_a_run_and_a_child_flow_count_on_in_another_process() -> None:
    child = agents_of(2)
    child.budget = Budget(seconds=250)

    @flow
    async def parent() -> list[str]:
        return await child()

    async def test() -> None:
        w = world(working(60, turns=9))
        await interrupted(w, parent, 70)  # 2 x 60 s and more
        assert (await w.resume(parent)).value == ["timeout"] * 2
        assert len(w.runner.answered) <= 6

    played(test)


# --- the wall clock ------------------------------------------------------------------------------


def test_a_deadline_counts_the_time_in_the_queue() -> None:
    async def test() -> None:
        w = world(working(), settings=RunSettings(poll=5.0, at_once=1))
        outcome = await w.run(agents_of(3, deadline=100))
        assert outcome.value == ["completion", "deadline", "deadline"]
        assert len(w.runner.begun) == 2, "the third never began"
        assert outcome.exit_code == 3
        assert w.clock.now() <= EPOCH + timedelta(seconds=101)

    played(test)


def test_a_deadline_ends_an_agent_of_a_parked_run() -> None:
    async def test() -> None:
        w = world(working())
        w.runner.wall_until = EPOCH + timedelta(hours=2)
        outcome = await w.run(agents_of(1, deadline="1h"))
        assert outcome.value == ["deadline"]
        assert w.clock.now() <= EPOCH + timedelta(hours=1, minutes=1)

    played(test)


def test_a_deadline_counts_what_the_gateway_holds_and_ends_the_call() -> None:
    async def test() -> None:
        w = world()
        held_first(w, 1000)
        outcome = await w.run(agents_of(1, deadline=EPOCH + timedelta(seconds=500)))
        assert outcome.value == ["deadline"]
        assert w.clock.now() <= EPOCH + timedelta(seconds=501)

    played(test)


def test_a_deadline_ends_the_pause_between_two_attempts() -> None:
    @flow
    async def one() -> str:
        outcome = await agent("x", label="a", deadline=45, retries=3).outcome()
        return f"{outcome.terminated_by}: {outcome.evidence.says}"

    async def test() -> None:
        w = world(lambda _task: Play(seconds=40, ending=Ending.OUTAGE))
        said = (await w.run(one)).value
        assert said == "deadline: The agent's deadline has passed: 2026-11-15 12:00:45 UTC."

    played(test)


def test_a_deadline_in_seconds_counts_from_the_first_start_in_whatever_process() -> None:
    async def test() -> None:
        w = world(working(60, turns=9))
        await interrupted(w, agents_of(1, deadline=3600), 150)
        begun = len(w.runner.answered)
        assert (await w.resume(agents_of(1, deadline=3600))).value == ["deadline"]
        assert len(w.runner.answered) == begun

    played(test)


def test_a_deadline_that_was_moved_lets_a_resumed_agent_go_on() -> None:
    async def test() -> None:
        w = world(working(60, turns=9))
        await interrupted(w, agents_of(1, deadline=3600), 150)
        assert (await w.resume(agents_of(1, deadline="2d"))).value == ["completion"]

    played(test)


def test_both_limits_may_be_set_and_the_first_that_is_reached_ends_the_agent() -> None:
    async def test() -> None:
        for timeout, deadline, ending in ((30, 60, "timeout"), (60, 30, "deadline")):
            w = world(working())
            outcome = await w.run(agents_of(1, timeout=timeout, deadline=deadline))
            assert outcome.value == [ending]

    played(test)


def test_what_cannot_be_meant_is_refused_where_it_is_written() -> None:
    async def test() -> None:
        for wrong in ({"timeout": "soon"}, {"deadline": "soon"}, {"timeout": -1}):
            outcome: Outcome[list[str]] = await world().run(agents_of(1, **wrong))
            assert outcome.terminated_by is Ending.CRASH
            assert "is no duration" in outcome.evidence.says

    played(test)


# --- the measure itself --------------------------------------------------------------------------

MOVES = st.lists(
    st.tuples(st.sampled_from(["work", "wait", "gone", "held", "look"]), st.integers(1, 50)),
    max_size=30,
)


@given(MOVES)
def test_own_work_is_what_passed_less_what_was_waited_and_held(
    moves: list[tuple[str, int]],
) -> None:
    async def test() -> None:
        clock = VirtualClock(datetime(2026, 11, 15, tzinfo=UTC))
        told, charged = 0.0, 0.0

        async def held() -> float | None:
            return told

        def charge(seconds: float) -> None:
            nonlocal charged
            charged += seconds

        work = WorkTime(clock, held, charge, before=7.0)
        expected = 7.0
        await work.begin()
        for move, seconds in moves:
            if move == "wait":
                with work.waiting():
                    await clock.advance(seconds)
            elif move == "gone":  # the runner says that there is no gateway
                work.set_waiting(True)
                await clock.advance(seconds)
                work.set_waiting(False)
            elif move == "look":
                await work.deduct_held()
                work.count()
            else:
                await clock.advance(seconds)
                told += seconds if move == "held" else 0
                expected += seconds if move == "work" else 0
        await work.deduct_held()
        work.end()
        await clock.advance(1000)
        assert work.count() == pytest.approx(expected)
        assert charged == pytest.approx(expected - 7.0), "an earlier process has charged it"

    played(test)


def test_a_gateway_that_was_started_again_counts_from_nothing() -> None:
    async def test() -> None:
        clock = VirtualClock(datetime(2026, 11, 15, tzinfo=UTC))
        told: list[float | None] = [40.0, 50.0, 5.0, None]

        async def held() -> float | None:
            return told.pop(0)

        work = WorkTime(clock, held, lambda _seconds: None)
        await work.begin()  # 40 s were held before: not of this process
        for _ in range(3):
            await clock.advance(20)
            await work.deduct_held()
        assert work.count() == 60 - 10 - 5

    played(test)
