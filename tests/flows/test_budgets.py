"""Budgets refuse the next call, the guard stops wasted work, and only what may help is retried."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline import Budget, agent, ctx, flow, parallel
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import AgentTask
from jackline.errors import UsageError
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.execution.execution import FailureGuard
from jackline.flows.lifecycle import begin_retry
from jackline.flows.records import RunState
from jackline.flows.run_events import AgentEnded, AgentWaits, BudgetNear, GuardTripped
from jackline.flows.settings import RunSettings
from jackline.testing.scripted_agents import Play
from tests.flows.world import World, played, world


def one_by_one(size: int, budget: Budget | None = None) -> Flow[[], list[str]]:
    @flow
    async def working() -> list[str]:
        ends = []
        for n in range(size):
            outcome = await agent(f"task {n}", label=f"a{n}", budget=budget).outcome()
            ends.append(outcome.terminated_by.value)
        return ends

    return working


def spending(_task: AgentTask) -> Play:
    return Play(turns=2, tokens=100, dollars=0.5, seconds=60)


def limited(budget: Budget) -> World:
    return world(spending, settings=RunSettings(poll=5.0, budgets=(budget,), guard=0))


@pytest.mark.parametrize(
    ("budget", "ending", "asked", "says"),
    [
        (Budget(tokens=250), "budget", 3, "The run may use 250 tokens, and has used 300 tokens."),
        (Budget(dollars=1.2), "budget", 3, "The run may use $1.20, and has used $1.50."),
        (Budget(turns=3), "turns", 3, "The run may use 3 turns, and has used 3 turns."),
        (Budget(seconds=150), "timeout", 3, "The run may use 150 seconds"),
        (Budget(agents=2), "budget", 4, "The run may start 2 agents, and has."),
        (Budget(tokens=0), "budget", 0, "The run may use 0 tokens, and has used 0 tokens."),
    ],
)
def test_a_runs_budget_refuses_the_next_call_and_not_the_last(
    budget: Budget, ending: str, asked: int, says: str
) -> None:
    async def test() -> None:
        w = limited(budget)
        outcome = await w.run(one_by_one(4))
        assert len(w.runner.asked) == asked
        assert outcome.value is not None
        done = asked // 2
        assert outcome.value == ["completion"] * done + [ending] * (4 - done)
        assert outcome.tally.failed == 4 - done
        refused = [event.says for event in w.of(AgentEnded) if event.label == f"a{done}"]
        assert refused[0].startswith(says)

    played(test)


def test_an_agents_own_budget_leaves_the_others_alone() -> None:
    async def test() -> None:
        w = world(spending, settings=RunSettings(poll=5.0, guard=0))
        outcome = await w.run(one_by_one(3, Budget(tokens=50, seconds=90, dollars=3)))
        assert outcome.value == ["budget"] * 3
        assert len(w.runner.asked) == 3
        assert w.runner.tasks[0].max_dollars == 3

    played(test)


def test_what_was_spent_before_a_stop_still_counts_after_the_resume() -> None:
    async def test() -> None:
        w = limited(Budget(tokens=500))
        begun = await w.begin(one_by_one(4))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) == 3, task)
        begun.stop_now()
        await w.through(_of(task))
        record = await w.engine.run("r1")
        assert record is not None
        assert record.tokens == 300
        outcome = await w.resume(one_by_one(4))
        assert outcome.value == ["completion", "completion", "budget", "budget"]
        assert len(w.runner.answered) == 5

    played(test)


@pytest.mark.parametrize(
    ("budget", "ends"),
    [
        (Budget(agents=3), ["completion", "completion", "completion", "budget"]),
        (Budget(turns=5), ["completion", "completion", "turns", "turns"]),
    ],
)
def test_agents_and_turns_of_earlier_processes_count(budget: Budget, ends: list[str]) -> None:
    """Two agents of two turns each had ended, and the third had begun."""

    async def test() -> None:
        w = limited(budget)
        begun = await w.begin(one_by_one(4))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) == 4, task)
        begun.stop_now()
        await w.through(_of(task))
        assert (await w.resume(one_by_one(4))).value == ends

    played(test)


def test_a_child_flows_budget_holds_across_processes() -> None:
    child = one_by_one(4)
    child.budget = Budget(tokens=500)

    @flow
    async def parent() -> list[str]:
        return await child()

    async def test() -> None:
        w = world(spending, settings=RunSettings(poll=5.0, guard=0))
        begun = await w.begin(parent)
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) == 4, task)
        begun.stop_now()
        await w.through(_of(task))
        outcome = await w.resume(parent)
        assert outcome.value == ["completion", "completion", "budget", "budget"]
        assert len(w.runner.answered) == 5

    played(test)


def test_an_agent_that_was_refused_is_kept_as_failed_so_that_a_retry_finds_it() -> None:
    async def test() -> None:
        w = limited(Budget(agents=2))
        working = one_by_one(3)
        outcome = await w.run(working)
        assert (outcome.exit_code, outcome.tally.failed) == (3, 1)
        again = await begin_retry(w.host, "r1", flow=working, settings=RunSettings(poll=5.0))
        outcome = await w.through(again.run())
        assert outcome.value == ["completion"] * 3
        assert w.runner.tasks[-1].what_happened == "", "it had not begun"

    played(test)


def test_time_at_work_counts_across_processes_and_waiting_does_not() -> None:
    async def test() -> None:
        w = limited(Budget(seconds=300))
        begun = await w.begin(one_by_one(4))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) == 3, task)
        begun.stop_now()
        await w.through(_of(task))
        await w.clock.advance(100_000)
        outcome = await w.resume(one_by_one(4))
        assert outcome.value == ["completion", "completion", "timeout", "timeout"]

    played(test)


def test_a_budget_tells_once_when_it_is_nearly_used() -> None:
    async def test() -> None:
        w = limited(Budget(tokens=1000))
        await w.run(one_by_one(5))
        assert [event.says for event in w.of(BudgetNear)] == [
            "The run has used 800 tokens of 1,000 tokens."
        ]

    played(test)


def test_a_flow_can_ask_what_is_left() -> None:
    @flow(budget=Budget(tokens=1000, agents=5))
    async def asking() -> list[int | None]:
        await agent("x")
        left = ctx.budget
        return [left.tokens, left.agents, left.turns]

    async def test() -> None:
        assert (await world(spending).run(asking)).value == [800, 4, None]

    played(test)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": -1},
        {"dollars": float("nan")},
        {"seconds": float("inf")},
        {"tokens": 1, "window": "soon"},
        {"window": "5h"},
        {"tokens": 1, "window": 0},
    ],
)
def test_a_budget_that_cannot_be_meant_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Budget(**wrong)  # type: ignore[arg-type]


# --- the guard ---------------------------------------------------------------------------------


def failing(ending: Ending, sub: str = "s") -> Outcome[object]:
    return Outcome(ending, evidence=Evidence(status=400, failure="invalid_request", sub=sub))


LIMITS = ["quota", "cancelled", "budget", "turns", "timeout", "deadline"]


@given(st.lists(st.sampled_from(["ok", "a", "b", *LIMITS]), max_size=20))
def test_the_guard_trips_at_the_third_equal_failure_without_a_success_between(
    ends: list[str],
) -> None:
    guard = FailureGuard(3)
    row: list[str] = []
    for end in ends:
        if end == "ok":
            tripped = guard.ended(Outcome(Ending.COMPLETION, "v"))
            row = []
        elif end in LIMITS:
            tripped = guard.ended(Outcome(Ending(end)))
        else:
            tripped = guard.ended(failing(Ending.REFUSED, end))
            row = [*row, end] if not row or row[-1] == end else [end]
        assert bool(tripped) == (end in ("a", "b") and len(row) >= 3)


def test_three_equal_failures_stop_the_run_with_their_cause() -> None:
    evidence = Evidence(status=401, failure="auth", says="The key is not valid.")

    async def test() -> None:
        w = world(lambda _task: Play(ending=Ending.REFUSED, evidence=evidence, seconds=1))
        begun = await w.begin(one_by_one(50))
        outcome = await w.through(begun.run())
        assert len(w.runner.begun) == 3
        assert begun.state is RunState.FAILED
        assert outcome.exit_code == 1
        assert outcome.terminated_by is Ending.REFUSED
        assert outcome.evidence.says == (
            "3 agents in a row failed the same way (refused): The key is not valid."
        )
        assert len(w.of(GuardTripped)) == 1

    played(test)


@pytest.mark.parametrize("ending", [Ending.TURNS, Ending.TIMEOUT, Ending.DEADLINE])
def test_a_limit_that_was_set_stops_no_run_however_many_agents_meet_it(ending: Ending) -> None:
    """The flow gets every outcome and sums up; the exit code is that of a partial result."""
    evidence = Evidence(says="It has used all that it may.")

    @flow
    async def summing_up() -> str:
        found = await parallel(agent("x", label=f"a{n}") for n in range(8))
        return f"{len(found.values)} of 8, {found.summary}"

    async def test() -> None:
        w = world(
            lambda task: Play() if task.label == "a7" else Play(ending=ending, evidence=evidence)
        )
        outcome = await w.run(summing_up)
        assert outcome.value == f"1 of 8, 1 of 8 ok, 7 failed: 7 {ending}"
        assert outcome.exit_code == 3
        assert w.of(GuardTripped) == []

    played(test)


@pytest.mark.parametrize("budget", [Budget(turns=1), Budget(seconds=0)])
def test_a_runs_own_limits_stop_no_run_either(budget: Budget) -> None:
    async def test() -> None:
        w = world(spending, settings=RunSettings(poll=5.0, budgets=(budget,)))
        outcome = await w.run(one_by_one(8))
        assert outcome.value == ["turns" if budget.turns else "timeout"] * 8
        assert outcome.exit_code == 3

    played(test)


def test_agents_underway_when_the_guard_trips_end_at_their_next_turn() -> None:
    def script(task: AgentTask) -> Play:
        if task.label.startswith("bad"):
            return Play(ending=Ending.SCHEMA, seconds=1)
        return Play(turns=5, seconds=2)

    @flow
    async def mixed() -> int:
        calls = [agent("x", label=f"bad{n}") for n in range(3)]
        calls += [agent("x", label=f"good{n}") for n in range(3)]
        return len((await parallel(calls)).values)

    async def test() -> None:
        w = world(script)
        outcome = await w.run(mixed)
        assert outcome.tally.endings == ((Ending.SCHEMA, 3), (Ending.CANCELLED, 3))
        assert len(w.runner.answered) == 3 + 3

    played(test)


# --- retries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "begun"),
    [
        (Ending.CRASH, 3),
        (Ending.OUTAGE, 3),
        (Ending.TOOL_ERROR, 3),
        (Ending.RATE_LIMIT, 3),
        (Ending.SCHEMA, 1),
        (Ending.REFUSED, 1),
        (Ending.TURNS, 1),
        (Ending.BUDGET, 1),
    ],
)
def test_only_what_may_end_otherwise_is_tried_again(ending: Ending, begun: int) -> None:
    @flow
    async def one() -> str:
        outcome = await agent("x", label="a", retries=2).outcome()
        return f"{outcome.terminated_by} after {outcome.evidence.attempts}"

    async def test() -> None:
        w = world(lambda _task: Play(ending=ending, turns=3))
        assert (await w.run(one)).value == f"{ending} after {begun}"
        assert len(w.runner.begun) == begun
        assert len(w.runner.answered) == 3, "it goes on in the same notebook"
        waits = [event for event in w.of(AgentWaits) if event.why]
        assert len(waits) == begun - 1

    played(test)


def test_a_runner_that_breaks_its_contract_is_a_crash_with_its_type_only() -> None:
    def script(_task: AgentTask) -> Play:
        raise RuntimeError("secret prompt")

    @flow
    async def one() -> str:
        return (await agent("x", retries=0).outcome()).evidence.says

    async def test() -> None:
        assert (await world(script).run(one)).value == "The runner messages raised RuntimeError."

    played(test)


async def _of(task: asyncio.Task[Outcome[list[str]]]) -> Outcome[list[str]]:
    return await task
