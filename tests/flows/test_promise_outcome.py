"""An outcome tells whose it is, what it used and how long it took, whatever its runner told."""

from __future__ import annotations

import pytest

from jackline import agent, flow
from jackline.agents.outcome import Ending, Outcome
from jackline.testing.scripted_agents import Play
from tests.flows.world import played, world


def test_an_agents_outcome_has_its_ids_its_use_and_its_time() -> None:
    seen: list[Outcome[str]] = []

    @flow
    async def one() -> None:
        seen.append(await agent("a", label="a").outcome())

    async def test() -> None:
        w = world(lambda _task: Play(turns=3, tokens=100, dollars=0.5, seconds=60))
        whole = await w.run(one)
        (task,), (outcome,) = w.runner.tasks, seen
        assert (outcome.label, outcome.task_id, outcome.session_id) == (
            "a",
            task.task_id,
            task.session_id,
        )
        assert task.task_id
        assert task.session_id
        assert (outcome.usage.total, outcome.cost, outcome.turns) == (300, 1.5, 3)
        assert outcome.duration == 180
        # The run's own has the same shape, and counts its agents.
        assert (whole.task_id, whole.label) == ("r1", "one")
        assert (whole.usage.total, whole.cost, whole.turns) == (300, 1.5, 3)
        assert whole.duration == 180
        assert (whole.tally.agents, whole.tally.ok, whole.exit_code) == (1, 1, 0)

    played(test)


def test_a_runs_outcome_sums_up_all_its_agents() -> None:
    @flow
    async def three() -> None:
        for label in ("a", "b", "bad"):
            await agent(label, label=label).outcome()

    async def test() -> None:
        w = world(
            lambda task: Play(
                tokens=100,
                dollars=0.5,
                ending=Ending.REFUSED if task.label == "bad" else Ending.COMPLETION,
            )
        )
        whole = await w.run(three)
        assert (whole.usage.total, whole.turns) == (300, 3)
        assert whole.cost == pytest.approx(1.5)
        tally = whole.tally
        assert (tally.agents, tally.ok, tally.failed) == (3, 2, 1)
        assert tally.endings == ((Ending.REFUSED, 1),)
        assert whole.exit_code == 3

    played(test)


def test_a_runner_that_broke_has_used_what_was_paid_for_it() -> None:
    seen: list[Outcome[str]] = []
    turns: list[int] = []

    async def breaking() -> None:
        turns.append(1)
        if len(turns) == 3:
            raise RuntimeError("a bug")

    @flow
    async def one() -> None:
        seen.append(await agent("a", label="a", retries=0).outcome())

    async def test() -> None:
        w = world(lambda _task: Play(turns=5, tokens=100, dollars=0.5, during=breaking))
        await w.run(one)
        (outcome,) = seen
        assert outcome.terminated_by is Ending.CRASH
        assert (outcome.usage.total, outcome.cost) == (200, 1.0)

    played(test)


def test_a_finished_run_that_is_resumed_tells_its_outcome_and_runs_no_line_of_the_flow() -> None:
    executed: list[int] = []

    @flow
    async def one() -> str:
        executed.append(1)
        return await agent("a", label="a")

    async def test() -> None:
        w = world()
        first = await w.run(one)
        again = await w.resume(one)
        assert (again.value, again.usage, again.tally) == (first.value, first.usage, first.tally)
        assert executed == [1]

    played(test)
