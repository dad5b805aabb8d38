"""The gateway knows for how long it has held the calls of a task instead of sending them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.gateway.client_call import MOST_TASKS, HeldTime
from jackline.testing import Step
from tests.gateway.desk_world import World, play, wall

TASK = "x-jackline-task"


def test_a_call_that_waits_at_a_wall_is_held_until_it_is_sent() -> None:
    async def scene(world: World) -> None:
        client = world.ask(headers={TASK: "t1"})
        other = world.ask(headers={})
        await world.pass_time(200)
        assert world.desk.held_time.by_task["t1"] == pytest.approx(200, abs=3)
        await world.until_over(client, other)
        held = world.desk.held_time.by_task["t1"]
        assert held == pytest.approx(400, abs=5)
        await world.pass_time(100)
        assert world.desk.held_time.by_task == {"t1": held}, "an answered call is not held"

    play([wall(400), Step(), Step()], scene)


def test_the_time_of_a_slow_answer_is_not_held() -> None:
    async def scene(world: World) -> None:
        await world.until_over(world.ask(headers={TASK: "t1"}), longest=200)
        assert world.desk.held_time.by_task == {}

    play([Step(after=20)], scene)


@given(st.lists(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.booleans()))))
def test_a_task_is_held_while_all_its_calls_wait(
    looks: list[list[tuple[str | None, bool]]],
) -> None:
    held = HeldTime()
    held.look([], 0.0)
    expected = {"a": 0.0, "b": 0.0}
    for number, calls in enumerate(looks, start=1):
        held.look([(task, waits) for task, waits in calls if task is not None], float(number))
        for task in expected:
            own = [waiting for whose, waiting in calls if whose == task]
            expected[task] += bool(own) and all(own)
    assert held.by_task == {task: seconds for task, seconds in expected.items() if seconds}


def test_no_more_tasks_are_remembered_than_the_limit() -> None:
    held = HeldTime()
    held.look([], 0.0)
    for number in range(MOST_TASKS + 5):
        held.look([(f"t{number}", True)], float(number + 1))
    assert len(held.by_task) == MOST_TASKS
    assert "t0" not in held.by_task
