"""Orders to single agents: cancelled and gone on with by name, and nobody else is touched."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline import agent, flow, parallel, resume
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import AgentTask
from jackline.errors import BadArgumentError, JacklineError, LeaseLostError, UsageError
from jackline.flows.api import cancel
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.execution.agent_cancellation import was_cancelled_by_person
from jackline.flows.flow_run import FlowRun
from jackline.flows.lifecycle import begin_resume, begin_retry, cancel_agents
from jackline.flows.records import AgentOrder, CallState, RunState
from jackline.flows.run_events import AgentEnded
from jackline.flows.settings import RunSettings
from jackline.testing.scripted_agents import Play
from tests.flows.world import World, played, world

HOUR = 3600.0
RECEIVED: list[str] = []


def heard_of_end(outcome: Outcome[object]) -> None:
    """A clean-up hook."""
    RECEIVED.append(f"{outcome.label}: {outcome.terminated_by.value}, {outcome.evidence.sub}")


def fleet(*labels: str) -> Flow[[], str]:
    @flow
    async def working() -> str:
        calls = (agent(f"work {i}", label=each) for i, each in enumerate(labels))
        return (await parallel(calls)).summary

    return working


def ten_turns(_task: AgentTask) -> Play:
    return Play(turns=10, seconds=60)


async def under_way(
    w: World, working: Flow[[], str], holds: Callable[[], bool]
) -> tuple[FlowRun[str], asyncio.Task[Outcome[str]]]:
    begun = await w.begin(working)
    task = asyncio.create_task(begun.run())
    await w.until(holds, task)
    return begun, task


async def cut_off(w: World, task: asyncio.Task[Outcome[str]]) -> None:
    """The process that carries it dies."""
    record = await w.engine.run("r1")
    assert record is not None
    await w.engine.claim("r1", owner="another", lease=1.0, instead_of=record.owner)
    with contextlib.suppress(LeaseLostError):
        await w.through(_of(task))
    await w.clock.advance(1000)


async def endings(w: World) -> dict[str, str]:
    return {call.label: call.terminated_by for call in await w.engine.calls("r1")}


def test_one_that_works_ends_and_its_siblings_go_on() -> None:
    async def test() -> None:
        w = world(ten_turns)
        _, task = await under_way(w, fleet("a", "b", "c"), lambda: len(w.runner.answered) == 6)
        came = await w.through(cancel_agents(w.host, "r1", "b"))
        assert (came.ended, came.carried) == (1, True)
        outcome = await w.through(_of(task))
        assert outcome.value == "2 of 3 ok, 1 failed: 1 cancelled"
        assert w.runner.begun == ["a", "b", "c"]
        (ended,) = [event for event in w.of(AgentEnded) if event.label == "b"]
        assert ended.says == "A person cancelled it: jackline cancel r1 --only b"
        assert ended.turns == w.runner.answered.count("b") < 10
        (call,) = [call for call in await w.engine.calls("r1") if call.label == "b"]
        assert was_cancelled_by_person(call)
        assert call.tokens == 100 * ended.turns

    played(test)


def test_all_of_one_label_end_and_a_task_id_means_one() -> None:
    async def test() -> None:
        w = world(ten_turns)
        _, task = await under_way(w, fleet("a", "a", "a", "b"), lambda: len(w.runner.answered) == 4)
        first = (await w.engine.calls("r1"))[0]
        assert (await w.through(cancel_agents(w.host, "r1", first.task_id))).ended == 1
        assert (await w.through(cancel_agents(w.host, "r1", "a"))).ended == 2
        assert (await w.through(_of(task))).value == "1 of 4 ok, 3 failed: 3 cancelled"

    played(test)


@pytest.mark.parametrize("waits", ["for a slot", "at a wall", "at a wall before it began"])
def test_one_that_waits_ends_at_once_and_the_run_stays_as_it_stands(waits: str) -> None:
    async def test() -> None:
        w = world(ten_turns)
        w.settings = RunSettings(poll=5.0, at_once=1 if waits == "for a slot" else 500)
        if waits == "at a wall before it began":
            w.settings = RunSettings(poll=5.0)
            w.runner.wall_until = w.clock.now() + timedelta(hours=5)
        begun, task = await under_way(w, fleet("a", "b"), lambda: "a" in w.runner.asked)
        if waits == "at a wall":
            w.runner.wall_until = w.clock.now() + timedelta(hours=5)
        if waits != "for a slot":
            await w.until(lambda: begun.is_parked, task)
        assert (await w.through(cancel_agents(w.host, "r1", "b"))).ended == 1
        assert begun.is_parked == (waits != "for a slot")
        assert (await endings(w))["b"] == "cancelled"
        assert (await w.through(_of(task))).value == "1 of 2 ok, 1 failed: 1 cancelled"
        assert w.runner.answered == ["a"] * 10 or waits == "at a wall"

    played(test)


def test_its_hooks_have_run_before_the_flow_hears_of_it() -> None:
    RECEIVED.clear()

    @flow
    async def working() -> str:
        given = [agent("work", label=each, on_end=heard_of_end) for each in ("a", "b")]
        batch = await parallel(given)
        RECEIVED.append("the flow")
        return batch.summary

    async def test() -> None:
        w = world(ten_turns)
        _, task = await under_way(w, working, lambda: len(w.runner.answered) == 4)
        await w.through(cancel_agents(w.host, "r1", "a"))
        assert RECEIVED == ["a: cancelled, by hand"]
        await w.through(_of(task))
        assert RECEIVED == ["a: cancelled, by hand", "b: completion, None", "the flow"]

    played(test)


def test_awaited_alone_it_fails_for_the_flow_like_any_other_and_cancels_nothing_else() -> None:
    """The flow's own task is where such an agent works: it must not be cancelled with it."""

    @flow
    async def alone() -> str:
        first = await agent("first", label="a").outcome()
        async with asyncio.timeout(HOUR):
            second = await agent("second", label="b").outcome()
        return f"{first.terminated_by.value}, {second.terminated_by.value}"

    async def test() -> None:
        w = world(ten_turns)
        _, task = await under_way(w, alone, lambda: len(w.runner.answered) == 2)
        await w.through(cancel_agents(w.host, "r1", "a"))
        assert (await w.through(_of(task))).value == "cancelled, completion"

    played(test)


def test_a_run_that_nobody_carries_stays_stopped_and_its_agent_is_cancelled_at_once() -> None:
    @flow
    async def working() -> str:
        given = [agent("work", label=each, on_end=heard_of_end) for each in ("a", "b")]
        return (await parallel(given)).summary

    async def test() -> None:
        w = world(ten_turns)
        begun, task = await under_way(w, working, lambda: len(w.runner.answered) == 4)
        begun.stop_now()
        await w.through(_of(task))
        came = await cancel_agents(w.host, "r1", "a")
        assert (came.ended, came.carried) == (1, False)
        hooks = [hook.state for hook in await w.engine.hooks("r1")]
        assert sorted(hooks) == ["done", "due"]
        record = await w.engine.run("r1")
        assert record is not None
        assert (record.state, record.owner) == (RunState.STOPPED, "")
        again = await w.resume(working)
        assert again.value == "1 of 2 ok, 1 failed: 1 cancelled"
        assert w.runner.begun == ["a", "b", "b"]
        hooks = [hook.state for hook in await w.engine.hooks("r1")]
        assert hooks == ["done", "done"]

    played(test)


def test_a_run_that_was_left_parked_stays_parked() -> None:
    async def test() -> None:
        w = world(ten_turns)
        begun, task = await under_way(w, fleet("a", "b"), lambda: len(w.runner.answered) == 4)
        w.runner.wall_until = w.clock.now() + timedelta(hours=5)
        await w.until(lambda: begun.is_parked, task)
        begun.stop()
        parked = await w.through(_of(task))
        assert parked.parked
        before = await w.engine.run("r1")
        assert await cancel("r1", only="b", host=w.host) is RunState.PARKED
        after = await w.engine.run("r1")
        assert before is not None
        assert after is not None
        assert (after.state, after.why, after.wake_at) == (
            *(RunState.PARKED, before.why, before.wake_at),
        )
        assert (await endings(w)) == {"a": "", "b": "cancelled"}

    played(test)


def test_an_order_outlives_the_process_that_did_not_live_to_carry_it_out() -> None:
    RECEIVED.clear()

    @flow
    async def working() -> str:
        given = [agent("work", label=each, on_end=heard_of_end) for each in ("a", "b")]
        return (await parallel(given)).summary

    async def test() -> None:
        w = world(ten_turns)
        _, task = await under_way(w, working, lambda: len(w.runner.answered) == 4)
        await w.engine.order_end(AgentOrder("r1", "a", w.clock.wall()))
        await cut_off(w, task)
        outcome = await w.resume(working)
        assert outcome.value == "1 of 2 ok, 1 failed: 1 cancelled"
        assert w.runner.begun == ["a", "b", "b"]
        assert RECEIVED == ["a: cancelled, by hand", "b: completion, None"]
        (order,) = await w.engine.ordered_ends("r1")
        assert order.ended == 1

    played(test)


def test_an_order_to_agents_that_had_not_begun_outlives_the_process_alike() -> None:
    async def test() -> None:
        w = world(ten_turns, settings=RunSettings(poll=5.0, at_once=1))
        _, task = await under_way(w, fleet("a", "b", "b"), lambda: len(w.runner.answered) == 2)
        await w.engine.order_end(AgentOrder("r1", "b", w.clock.wall()))
        await cut_off(w, task)
        assert (await w.resume(fleet("a", "b", "b"))).value == "1 of 3 ok, 2 failed: 2 cancelled"
        assert set(w.runner.begun) == {"a"}
        (order,) = await w.engine.ordered_ends("r1")
        assert order.ended == 2

    played(test)


def test_neither_resume_nor_retry_begins_it_again_unless_it_is_named() -> None:
    async def test() -> None:
        w = world(ten_turns)
        working = fleet("a", "b")
        _, task = await under_way(w, working, lambda: len(w.runner.answered) == 4)
        await w.through(cancel_agents(w.host, "r1", "a"))
        assert (await w.through(_of(task))).value == "1 of 2 ok, 1 failed: 1 cancelled"
        done = w.runner.answered.count("a")
        again = await begin_resume(w.host, "r1", flow=working)
        assert isinstance(again, Outcome)
        with pytest.raises(BadArgumentError, match="but what a person cancelled") as refused:
            await begin_retry(w.host, "r1", flow=working)
        assert "--only a`" in str(refused.value.hint)
        outcome = await w.through(resume("r1", only="a", flow=working, host=w.host))
        assert outcome.value == "2 of 2 ok"
        assert w.runner.begun == ["a", "b", "a"]
        assert w.runner.answered.count("a") == 10 > done > 0

    played(test)


@pytest.mark.parametrize("ending", [Ending.SCHEMA, Ending.REFUSED, Ending.OUTAGE])
def test_resume_by_name_goes_on_in_the_same_conversation_and_retry_begins_anew(
    ending: Ending,
) -> None:
    fails = True

    def script(task: AgentTask) -> Play:
        failed = fails and task.label != "c"
        return Play(turns=2 if failed else 3, ending=ending if failed else Ending.COMPLETION)

    async def test() -> None:
        nonlocal fails
        w = world(script, settings=RunSettings(poll=5.0, guard=0))

        @flow
        async def working() -> str:
            given = (agent("work", label=each, retries=0) for each in "abc")
            return (await parallel(given)).summary

        assert (await w.run(working)).value == f"1 of 3 ok, 2 failed: 2 {ending.value}"
        fails = False
        outcome = await w.through(resume("r1", only="a", flow=working, host=w.host))
        assert outcome.value == f"2 of 3 ok, 1 failed: 1 {ending.value}"
        assert w.runner.answered.count("a") == 3
        again = await begin_retry(w.host, "r1", only="b", flow=working)
        assert (await w.through(again.run())).value == "3 of 3 ok"
        anew = ending is not Ending.OUTAGE
        assert w.runner.answered.count("b") == (5 if anew else 3)
        assert w.runner.answered.count("c") == 3

    played(test)


def test_a_retry_by_name_of_a_stopped_run_takes_nobody_for_done() -> None:
    """Agents that were underway go on with it; once they were taken for completed, with nothing."""

    async def test() -> None:
        w = world(ten_turns)
        working = fleet("a", "b")
        begun, task = await under_way(w, working, lambda: len(w.runner.answered) == 4)
        begun.stop_now()
        await w.through(_of(task))
        again = await begin_retry(w.host, "r1", only="a", flow=working)
        assert (await w.through(again.run())).value == "2 of 2 ok"
        assert w.runner.answered.count("b") == 10

    played(test)


def test_what_has_ended_and_what_is_not_known_is_refused_and_leaves_no_order() -> None:
    async def refused(w: World, name: str) -> str:
        with pytest.raises(JacklineError) as error:
            await w.through(cancel_agents(w.host, "r1", name))
        assert await w.engine.ordered_ends("r1") == []
        return f"{error.value.message} {error.value.hint}"

    def script(task: AgentTask) -> Play:
        return Play(turns=1 if task.label == "quick" else 100, seconds=60)

    async def test() -> None:
        w = world(script)
        begun, task = await under_way(
            w, fleet("quick", "slow"), lambda: len(w.runner.answered) == 4
        )
        for carried in (True, False):
            assert await refused(w, "quick") == (
                "The agent quick of r1 has ended already: completion. "
                "`jackline show r1` shows more."
            )
            assert await refused(w, "qick") == (
                "No agent of r1 is labelled 'qick'. Its agents are: quick, slow."
            )
            with pytest.raises(BadArgumentError):
                await begin_resume(w.host, "r1", flow=fleet("quick", "slow"), only="quick")
            if carried:
                begun.stop_now()
                await w.through(_of(task))
        assert (await w.resume(fleet("quick", "slow"))).value == "2 of 2 ok"
        assert "has ended (finished)" in await refused(w, "slow")

    played(test)


def test_ahead_the_order_stands_until_the_flow_comes_to_it() -> None:
    @flow
    async def working() -> str:
        await agent("first", label="a")
        return (await parallel(agent("second", label=each) for each in ("b", "b", "c"))).summary

    async def test() -> None:
        w = world(ten_turns)
        _, task = await under_way(w, working, lambda: len(w.runner.answered) == 2)
        came = await w.through(cancel_agents(w.host, "r1", "b", ahead=True))
        assert came.ended == 0
        assert (await w.through(_of(task))).value == "1 of 3 ok, 2 failed: 2 cancelled"
        assert set(w.runner.begun) == {"a", "c"}

    played(test)


def test_an_order_is_taken_back_by_going_on_with_the_agent() -> None:
    @flow
    async def working() -> str:
        await agent("first", label="a")
        return await agent("second", label="b")

    async def test() -> None:
        w = world(ten_turns)
        begun, task = await under_way(w, working, lambda: len(w.runner.answered) == 2)
        await w.through(cancel_agents(w.host, "r1", "b", ahead=True))
        with pytest.raises(UsageError, match="is run by"):
            await begin_resume(w.host, "r1", flow=working, only="b")
        assert await w.engine.ordered_ends("r1") == []
        outcome = await w.through(_of(task))
        assert outcome.ok
        assert begun.state is RunState.FINISHED

    played(test)


def test_an_order_means_those_that_there_are_and_not_the_next_of_that_name() -> None:
    @flow
    async def working() -> str:
        ended = [(await agent(f"look {n}", label="a").outcome()).terminated_by for n in range(2)]
        return ", ".join(each.value for each in ended)

    async def test() -> None:
        w = world(ten_turns)
        _, task = await under_way(w, working, lambda: len(w.runner.answered) == 2)
        assert (await w.through(cancel_agents(w.host, "r1", "a"))).ended == 1
        assert (await w.through(_of(task))).value == "cancelled, completion"

    played(test)


def test_an_owner_that_says_nothing_in_time_leaves_the_order_standing() -> None:
    async def test() -> None:
        w = world(ten_turns)
        begun = await w.begin(fleet("a"))  # claimed, and nobody carries it
        came = await w.through(cancel_agents(w.host, "r1", "a"))
        assert (came.ended, came.carried) == (None, True)
        outcome = await w.through(begun.run())
        assert outcome.value == "0 of 1 ok, 1 failed: 1 cancelled"

    played(test)


@settings(max_examples=40, deadline=None)
@given(
    agents=st.integers(1, 5),
    at_once=st.integers(1, 4),
    steps=st.lists(
        st.tuples(st.sampled_from(["cancel", "order", "cut", "stop"]), st.integers(0, 4)),
        max_size=6,
    ),
)
def test_whatever_is_ordered_and_cut_off_the_named_end_cancelled_and_the_others_complete(
    agents: int, at_once: int, steps: list[tuple[str, int]]
) -> None:
    labels = [f"agent {i}" for i in range(agents)]
    working = fleet(*labels)

    async def test() -> None:
        w = world(lambda _task: Play(turns=4, seconds=60))
        w.settings = RunSettings(poll=5.0, at_once=at_once)
        cancelled: set[str] = set()
        begun = await w.begin(working)
        task = asyncio.create_task(begun.run())
        for what, which in steps:
            goal = len(w.runner.answered) + 1
            while len(w.runner.answered) < goal and not task.done():
                await w.to_next_hour()
            if task.done():
                break
            label = labels[which % agents]
            if what == "cancel":
                with contextlib.suppress(JacklineError):
                    await w.through(cancel_agents(w.host, "r1", label))
                    cancelled.add(label)
                continue
            if what == "order":
                if label not in await done(w):
                    await w.engine.order_end(AgentOrder("r1", label, w.clock.wall()))
                    cancelled.add(label)
            elif what == "stop":
                begun.stop_now()
                await w.through(_of(task))
            if what != "stop":
                await cut_off(w, task)
            again = await begin_resume(w.host, "r1", flow=working)
            if isinstance(again, Outcome):
                break
            begun, task = again, asyncio.create_task(again.run())
        if not task.done():
            await w.through(_of(task))
        calls = await w.engine.calls("r1")
        assert {call.label for call in calls if call.state is CallState.DONE} == (
            set(labels) - cancelled
        )
        assert {call.label for call in calls if was_cancelled_by_person(call)} == cancelled
        assert all(w.runner.answered.count(each) == 4 for each in set(labels) - cancelled)

    played(test)


async def done(w: World) -> set[str]:
    """Whose end is kept."""
    calls = await w.engine.calls("r1")
    return {call.label for call in calls if call.state is not CallState.RUNNING}


async def _of(task: asyncio.Task[Outcome[str]]) -> Outcome[str]:
    return await task
