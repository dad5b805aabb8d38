"""What agents used that failed and began anew counts on: no budget begins anew with them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline import Budget, agent, flow, parallel
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import AgentTask
from jackline.errors import BadArgumentError, LeaseLostError
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.flow_run import FlowRun
from jackline.flows.lifecycle import begin_resume, begin_retry
from jackline.flows.records import ENDED
from jackline.flows.settings import RunSettings
from jackline.testing.scripted_agents import Play
from tests.flows.world import World, played, world

TURNS = 3
ENDINGS = [Ending.SCHEMA, Ending.REFUSED, Ending.TOOL_ERROR, Ending.OUTAGE, Ending.TIMEOUT]
LIMITS = {
    "turns": lambda n: Budget(turns=n),
    "tokens": lambda n: Budget(tokens=100 * n),
    "dollars": lambda n: Budget(dollars=0.5 * n),
    "seconds": lambda n: Budget(seconds=60 * n),
    "agents": lambda n: Budget(agents=n),
}


def fleet(labels: list[str], budget: Budget | None) -> Flow[[], str]:
    """A child flow with a budget of its own, in a flow without."""

    @flow(budget=budget)
    async def child() -> str:
        return (await parallel(agent("work", label=label, retries=0) for label in labels)).summary

    @flow
    async def parent() -> str:
        return await child()

    return parent


def failing(endings: dict[str, list[Ending]]) -> World:
    """Agents that fail as said, one ending after the other, and then complete."""
    tries: Counter[str] = Counter()

    def script(task: AgentTask) -> Play:
        left = endings.get(task.label, [])[tries[task.label] :]
        tries[task.label] += 1
        ending = left[0] if left else Ending.COMPLETION
        return Play(turns=TURNS, tokens=100, dollars=0.5, seconds=60, ending=ending)

    return world(script)


async def cut_off(w: World, begun: FlowRun[str], answers: int) -> None:
    """The process dies once so many more turns are answered, or ends before that."""
    task = asyncio.create_task(begun.run())
    goal = len(w.runner.answered) + answers
    while len(w.runner.answered) < goal and not task.done():
        await w.to_next_hour()
    record = await w.engine.run("r1")
    assert record is not None
    if not task.done():
        await w.engine.claim("r1", owner="another", lease=1.0, instead_of=record.owner)
    with contextlib.suppress(LeaseLostError):
        await w.through(_of(task))
    await w.clock.advance(1000)


async def taken_up(w: World, working: Flow[[], str]) -> FlowRun[str] | None:
    """The run again: resumed where it stands, its failed calls retried where it has ended."""
    record = await w.engine.run("r1")
    assert record is not None
    if record.state not in ENDED:
        again = await begin_resume(w.host, "r1", flow=working)
        assert isinstance(again, FlowRun)
        return again
    try:
        return await begin_retry(w.host, "r1", flow=working)
    except BadArgumentError:
        return None  # nothing failed


@pytest.mark.parametrize("ending", [Ending.SCHEMA, Ending.REFUSED, Ending.TOOL_ERROR])
@pytest.mark.parametrize("whose", ["run", "child"])
@pytest.mark.parametrize("kind", ["turns", "tokens", "dollars"])
def test_what_was_used_before_an_agent_began_anew_counts(
    ending: Ending, whose: str, kind: str
) -> None:
    budget = LIMITS[kind](TURNS + 1)
    working = fleet(["a"], budget if whose == "child" else None)

    async def test() -> None:
        w = failing({"a": [ending]})
        w.settings = RunSettings(poll=5.0, budgets=(budget,) if whose == "run" else ())
        await w.run(working)
        assert len(w.runner.answered) == TURNS
        again = await begin_retry(w.host, "r1", flow=working)
        outcome = await w.through(again.run())
        assert len(w.runner.answered) == TURNS + 1
        assert outcome.value == f"0 of 1 ok, 1 failed: 1 {'turns' if kind == 'turns' else 'budget'}"

    played(test)


def test_what_was_used_counts_though_the_process_dies_before_it_begins_anew() -> None:
    working = fleet(["a"], None)

    async def test() -> None:
        w = failing({"a": [Ending.SCHEMA]})
        w.settings = RunSettings(poll=5.0, budgets=(Budget(turns=TURNS + 1),))
        await w.run(working)
        await cut_off(w, await begin_retry(w.host, "r1", flow=working), 0)
        again = await taken_up(w, working)
        assert again is not None
        await w.through(again.run())
        assert len(w.runner.answered) == TURNS + 1

    played(test)


@pytest.mark.parametrize("whose", ["run", "child"])
def test_an_agent_that_failed_is_one_of_those_that_may_start_whatever_is_retried(
    whose: str,
) -> None:
    """Else a third one could start while the failed one is kept, or waits its turn."""
    budget = Budget(agents=2)
    working = fleet(["a", "b", "c"], budget if whose == "child" else None)

    async def test() -> None:
        w = failing({"a": [Ending.OUTAGE], "b": [Ending.SCHEMA, Ending.SCHEMA]})
        w.settings = RunSettings(poll=5.0, budgets=(budget,) if whose == "run" else ())
        await w.run(working)
        for only in ("a", "c", "b"):
            again = await begin_retry(w.host, "r1", only=only, flow=working)
            await w.through(again.run())
        assert set(w.runner.begun) == {"a", "b"}

    played(test)


@pytest.mark.parametrize("whose", ["run", "child"])
def test_agents_that_go_on_are_not_counted_again(whose: str) -> None:
    budget = Budget(agents=2)
    working = fleet(["a", "b"], budget if whose == "child" else None)

    async def test() -> None:
        w = failing({"a": [Ending.OUTAGE] * 2, "b": [Ending.SCHEMA] * 2})
        w.settings = RunSettings(poll=5.0, budgets=(budget,) if whose == "run" else ())
        await cut_off(w, await w.begin(working), 2)
        await w.resume(working)
        again = await begin_retry(w.host, "r1", flow=working)
        assert (await w.through(again.run())).value == "2 of 2 ok"

    played(test)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(LIMITS)),
    limit=st.integers(1, 8),
    whose=st.sampled_from(["run", "child"]),
    at_once=st.integers(1, 3),
    endings=st.dictionaries(
        st.sampled_from("abcd"), st.lists(st.sampled_from(ENDINGS), max_size=3), min_size=1
    ),
    cuts=st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=5),
)
def test_no_cuts_failures_and_retries_give_more_than_one_undisturbed_process(
    kind: str,
    limit: int,
    whose: str,
    at_once: int,
    endings: dict[str, list[Ending]],
    cuts: list[int | None],
) -> None:
    budget = LIMITS[kind](limit)
    working = fleet(list("abcd"), budget if whose == "child" else None)

    async def test() -> None:
        w = failing(endings)
        budgets = (budget,) if whose == "run" else ()
        w.settings = RunSettings(poll=5.0, budgets=budgets, guard=0, at_once=at_once)
        begun: FlowRun[str] | None = await w.begin(working)
        for cut in cuts:
            if begun is None:
                break
            if cut is None:
                await w.through(begun.run())
            else:
                await cut_off(w, begun, cut)
            begun = await taken_up(w, working)
        if begun is not None:
            await w.through(begun.run())
        answered = len(w.runner.answered)
        if kind == "agents":
            assert len(set(w.runner.begun)) <= limit
        elif kind == "turns":
            assert answered <= limit
        elif kind == "seconds":
            # Side by side in the same time; a crash loses less than a turn of what was kept.
            assert answered <= at_once * (limit + 1)
        else:
            # Those that were sent before the last one was paid for.
            assert answered <= limit + at_once - 1

    played(test)


@settings(max_examples=20, deadline=None)
@given(
    limit=st.integers(2, 6),
    endings=st.lists(st.sampled_from(ENDINGS), max_size=3),
    cuts=st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=4),
)
def test_a_rolling_window_keeps_what_began_anew_and_what_was_cut_off(
    limit: int, endings: list[Ending], cuts: list[int | None]
) -> None:
    """All of it lies within the window: once it is spent, nobody asks any more."""
    working = fleet(["a", "b"], None)

    async def test() -> None:
        w = failing({"a": endings})
        window = Budget(tokens=100 * limit, window="900h")
        w.settings = RunSettings(poll=5.0, budgets=(window,), guard=0, at_once=1)
        begun: FlowRun[str] | None = await w.begin(working)
        for cut in [*cuts, None]:
            if begun is None:
                break
            task = asyncio.create_task(begun.run())
            goal = len(w.runner.answered) + (99 if cut is None else cut)
            while not (task.done() or begun.is_parked or len(w.runner.answered) >= goal):
                await w.to_next_hour()
            begun.stop_now()
            await w.through(_of(task))
            begun = await taken_up(w, working)
        assert len(w.runner.answered) <= limit
        if begun is not None:
            begun.cancel()
            await w.through(begun.run())

    played(test)


async def _of(task: asyncio.Task[Outcome[str]]) -> Outcome[str]:
    return await task
