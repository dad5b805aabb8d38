"""What earlier processes have used counts: of an agent, a child flow, a run, a rolling window."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline import Budget, agent, flow
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import AgentTask
from jackline.errors import LeaseLostError
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.flow_run import FlowRun
from jackline.flows.lifecycle import begin_resume, begin_retry, begin_run
from jackline.flows.records import RunState
from jackline.flows.run_events import AgentEnded, RunParked
from jackline.flows.settings import RunSettings
from jackline.testing.scripted_agents import Play
from tests.flows.world import World, played, world


def long_one(budget: Budget | None) -> Flow[[], str]:
    @flow
    async def working() -> str:
        outcome = await agent("work", label="a", budget=budget).outcome()
        return f"{outcome.terminated_by.value}: {outcome.evidence.says}"

    return working


def ten_turns(_task: AgentTask) -> Play:
    return Play(turns=10, tokens=100, dollars=0.5, seconds=60)


async def cut_off_after(w: World, working: Flow[[], str], answers: int) -> None:
    await die_after(w, await w.begin(working), answers)


async def die_after(w: World, begun: FlowRun[str], answers: int) -> None:
    """A process dies: another has taken the run over, and nothing it does is kept any more."""
    task = asyncio.create_task(begun.run())
    while len(w.runner.answered) < answers and not task.done():
        await w.to_next_hour()
    await w.clock.advance(25)
    record = await w.engine.run("r1")
    assert record is not None
    await w.engine.claim("r1", owner="another", lease=1.0, instead_of=record.owner)
    with contextlib.suppress(LeaseLostError):
        await w.through(_of(task))
    await w.clock.advance(100_000)


@pytest.mark.parametrize(
    ("budget", "ending", "answers"),
    [
        (Budget(seconds=330), "timeout", 5),
        (Budget(turns=4), "turns", 4),
        (Budget(tokens=450), "budget", 5),
        (Budget(dollars=2.2), "budget", 5),
    ],
)
def test_an_agents_budget_goes_on_after_a_crash(budget: Budget, ending: str, answers: int) -> None:
    async def test() -> None:
        w = world(ten_turns)
        await cut_off_after(w, long_one(budget), 2)
        outcome = await w.resume(long_one(budget))
        assert outcome.value is not None
        assert outcome.value.startswith(ending)
        assert len(w.runner.answered) == answers

    played(test)


@pytest.mark.parametrize(
    ("budget", "ending", "answers"),
    [
        (Budget(turns=4), "turns", 4),
        (Budget(tokens=450), "budget", 5),
        (Budget(dollars=2.2), "budget", 5),
        (Budget(seconds=300), "timeout", 5),
    ],
)
def test_a_runs_budget_counts_what_agents_used_that_were_cut_off(
    budget: Budget, ending: str, answers: int
) -> None:
    async def test() -> None:
        w = world(ten_turns, settings=RunSettings(poll=5.0, budgets=(budget,)))
        await cut_off_after(w, long_one(None), 2)
        outcome = await w.resume(long_one(None))
        assert outcome.value is not None
        assert outcome.value.startswith(f"{ending}: The run may use")
        assert len(w.runner.answered) == answers

    played(test)


LIMITS = {
    "turns": lambda n: Budget(turns=n),
    "tokens": lambda n: Budget(tokens=100 * n),
    "dollars": lambda n: Budget(dollars=0.5 * n),
    "seconds": lambda n: Budget(seconds=60 * n),
}


@settings(max_examples=40)
@given(
    kind=st.sampled_from(sorted(LIMITS)),
    limit=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 4), max_size=4),
    whose=st.sampled_from(["agent", "run"]),
)
def test_however_often_it_is_cut_off_no_budget_gives_more_than_in_one_process(
    kind: str, limit: int, cuts: list[int], whose: str
) -> None:
    budget = LIMITS[kind](limit)
    working = long_one(budget if whose == "agent" else None)

    async def test() -> None:
        w = world(ten_turns)
        if whose == "run":
            w.settings = RunSettings(poll=5.0, budgets=(budget,))
        begun = await w.begin(working)
        for more in cuts:
            await die_after(w, begun, len(w.runner.answered) + more)
            again = await begin_resume(w.host, "r1", flow=working)
            if isinstance(again, Outcome):
                break  # it was done before it could be cut off
            begun = again
        else:
            await w.through(begun.run())
        answered = len(w.runner.answered)
        # A turn that is cut off costs time, and nothing else.
        assert answered == limit or (kind == "seconds" and answered < limit)

    played(test)


@pytest.mark.parametrize("budget", [Budget(seconds=300), Budget(turns=4), Budget(tokens=350)])
def test_a_child_flows_budget_counts_what_agents_used_that_were_cut_off(budget: Budget) -> None:
    child = long_one(None)
    child.budget = budget

    @flow
    async def parent() -> str:
        return await child()

    async def test() -> None:
        w = world(ten_turns)
        await cut_off_after(w, parent, 2)
        outcome = await w.resume(parent)
        assert outcome.value is not None
        assert "The flow working may use" in outcome.value
        assert len(w.runner.answered) in (4, 5)

    played(test)


def test_a_child_flows_time_ends_with_it() -> None:
    child = long_one(None)
    child.budget = Budget(seconds=700)

    @flow
    async def parent() -> list[str]:
        first = await child()
        await agent("what comes after it is not its time", label="b")
        return [first, await agent("and the next", label="c")]

    async def test() -> None:
        w = world(ten_turns)
        assert (await w.run(parent)).value == ["completion: ", "done"]

    played(test)


def test_time_at_a_wall_is_no_time_of_an_agent_in_any_process() -> None:
    async def test() -> None:
        w = world(lambda _task: Play(turns=4, seconds=60))
        begun = await w.begin(long_one(Budget(seconds=310)))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) == 2, task)
        w.runner.wall_until = w.clock.now() + timedelta(hours=5)
        await w.until(lambda: begun.is_parked, task)
        begun.stop()
        assert (await w.through(_of(task))).parked
        await w.clock.advance(3600)
        outcome = await w.resume(long_one(Budget(seconds=310)))
        assert outcome.value == "completion: "

    played(test)


def test_attempts_of_one_process_share_the_agents_time() -> None:
    async def test() -> None:
        turns = iter((2, 9))
        w = world(lambda _task: Play(turns=next(turns), seconds=60, ending=Ending.OUTAGE))
        outcome = await w.run(long_one(Budget(seconds=330)))
        assert str(outcome.value).startswith("timeout")
        assert len(w.runner.begun) == 2
        assert len(w.runner.answered) == 5, "two turns of the first attempt, three of the second"

    played(test)


def test_a_window_knows_what_agents_of_another_process_have_used_so_far() -> None:
    """The other run's agent has not ended, and its process is dead."""

    async def test() -> None:
        w = world(ten_turns)
        await cut_off_after(w, long_one(None), 4)
        settings = RunSettings(poll=5.0, budgets=(Budget(tokens=400, window="48h"),))
        other = await begin_run(w.host, long_one(None), b"{}", settings=settings, run_id="r2")
        waiting = asyncio.create_task(other.run())
        await w.until(lambda: other.state is RunState.PARKED, waiting)
        assert len(w.runner.answered) == 4
        record = await w.engine.run("r2")
        assert record is not None
        assert record.why == "400 of 400 tokens in 48 h are used"
        other.stop_now()
        outcome = await w.through(_of(waiting))
        assert (outcome.terminated_by, outcome.exit_code) == (Ending.BUDGET, 75)

    played(test)


@pytest.mark.parametrize("whose", ["agent", "child"])
def test_the_window_of_an_agents_or_a_child_flows_budget_is_waited_for_alike(whose: str) -> None:
    window = Budget(tokens=300, window="2h")
    child = long_one(window if whose == "agent" else None)
    child.budget = window if whose == "child" else None

    @flow
    async def parent() -> str:
        return await child()

    async def test() -> None:
        w = world(ten_turns)
        assert (await w.run(parent)).value == "completion: "
        assert w.of(RunParked)[0].why == "300 of 300 tokens in 2 h are used"
        assert len(w.runner.answered) == 10

    played(test)


def test_what_a_failed_agent_cost_is_in_the_ledger_once_when_it_goes_on() -> None:
    async def test() -> None:
        w = world(ten_turns)
        await w.run(long_one(Budget(turns=3)))
        assert await w.engine.spent_since(0.0) == (300, 1.5)
        again = await begin_retry(w.host, "r1", flow=long_one(Budget(turns=5)))
        await w.through(again.run())
        assert await w.engine.spent_since(0.0) == (500, 2.5)

    played(test)


def test_what_a_stopped_agent_has_used_is_in_the_ledger_at_once() -> None:
    async def test() -> None:
        w = world(ten_turns)
        begun = await w.begin(long_one(None))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) == 2, task)
        begun.stop_now()
        await w.through(_of(task))
        assert await w.engine.spent_since(0.0) == (200, 1.0)
        (call,) = await w.engine.calls("r1")
        assert (call.tokens, call.cost) == (200, 1.0)

    played(test)


def test_an_agents_duration_is_its_time_at_work_in_all_processes() -> None:
    @flow
    async def timed() -> float:
        return (await agent("work", label="a").outcome()).duration

    async def test() -> None:
        w = world(lambda _task: Play(turns=4, seconds=60))
        begun = await w.begin(timed)
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) == 2, task)
        begun.stop_now()
        await w.through(_ended(task))
        await w.clock.advance(1000)
        assert (await w.resume(timed)).value == pytest.approx(240, abs=1)

    played(test)


def test_limits_of_one_are_told_in_the_singular() -> None:
    async def test() -> None:
        w = world(ten_turns)
        outcome = await w.run(long_one(Budget(turns=1)))
        assert outcome.value == "turns: The agent a may use 1 turn, and has used 1 turn."
        assert w.of(AgentEnded)[0].turns == 1

    played(test)


async def _of(task: asyncio.Task[Outcome[str]]) -> Outcome[str]:
    return await task


async def _ended(task: asyncio.Task[Outcome[float]]) -> Outcome[float]:
    return await task
