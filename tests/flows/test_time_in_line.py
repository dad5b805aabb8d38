"""Limits of time hold for agents that wait for room in a budget, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import pytest

from jackline import Budget, agent, flow
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import AgentLog, AgentTask, CallGate, StopAgentError, within
from jackline.dialects import TokenUsage
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.flow_run import FlowRun
from jackline.flows.lifecycle import begin_run
from jackline.flows.run_events import AgentEnded
from jackline.flows.settings import RunSettings
from jackline.testing.scripted_agents import Play
from tests.flows.test_time_limits import agents_of
from tests.flows.world import EPOCH, World, played, world

T = TypeVar("T")
Carry = Callable[[AgentTask, CallGate], Awaitable[None]]


class Doing:
    """A runner that does what the test says."""

    name = "messages"

    def __init__(self, carry: Carry) -> None:
        self._carry = carry

    async def run(self, task: AgentTask, notebook: AgentLog, leave: CallGate) -> Outcome[object]:
        del notebook
        try:
            await self._carry(task, leave)
        except StopAgentError as stop:
            return Outcome(stop.ending, evidence=stop.evidence)
        return Outcome(Ending.COMPLETION, "done")


async def begin(w: World, carry: Carry, budget: Budget, what: Flow[[], str]) -> FlowRun[str]:
    runner = Doing(carry)
    settings = RunSettings(poll=5.0, budgets=(budget,), guard=0)
    host = replace(w.host, runners=lambda _run_id: {"messages": runner}, settings=settings)
    return await begin_run(host, what, b"{}", run_id="r1")


def one_at_a_time(seconds: float, turns: int = 1, budget: Budget | None = None) -> World:
    """Of calls of which nothing is known, one at a time fits."""
    w = world(lambda _task: Play(turns=turns, tokens=100, seconds=seconds))
    w.settings = RunSettings(poll=5.0, budgets=(budget or Budget(tokens=10_000),), guard=0)
    return w


def reserved(begun: FlowRun[T]) -> float:
    return sum(limit.reserved for limit in begun._x.accounting.account.limits)


def test_waiting_for_room_in_a_budget_is_no_work() -> None:
    async def test() -> None:
        w = one_at_a_time(60)
        assert (await w.run(agents_of(4, timeout=100))).value == ["completion"] * 4
        assert w.clock.now() >= EPOCH + timedelta(seconds=120), "they did wait for one another"

    played(test)


def test_a_deadline_ends_an_agent_that_waits_for_room_and_leaves_no_reservation() -> None:
    async def test() -> None:
        w = one_at_a_time(3600)

        @flow
        async def both() -> list[str]:
            calls = [agent("x", label="a"), agent("x", label="b", deadline=100)]
            ends = await asyncio.gather(*(call.outcome() for call in calls))
            return [end.terminated_by.value for end in ends]

        begun = await w.begin(both)
        outcome = await w.through(begun.run())
        assert outcome.value == ["completion", "deadline"]
        ended = {event.label: event.at for event in w.of(AgentEnded)}
        assert ended["b"] <= (EPOCH + timedelta(seconds=101)).timestamp()
        assert w.runner.asked == ["a"]
        assert reserved(begun) == 0

    played(test)


def test_seconds_that_others_use_up_end_who_waits_for_room() -> None:
    """They are counted every ten seconds, also while no call is answered."""

    async def test() -> None:
        w = one_at_a_time(3600, budget=Budget(tokens=10_000, seconds=100))
        assert (await w.run(agents_of(2))).value == ["completion", "timeout"]
        ended = {event.label: event.at for event in w.of(AgentEnded)}
        assert ended["a1"] <= (EPOCH + timedelta(seconds=120)).timestamp()

    played(test)


@pytest.mark.parametrize("moments", range(8))
def test_who_is_cancelled_as_room_is_granted_leaves_no_reservation(moments: int) -> None:
    w = world()
    waiting: list[asyncio.Future[Outcome[str]]] = []

    async def carry(task: AgentTask, leave: CallGate) -> None:
        await leave.before_call()
        if task.label == "second":
            await w.clock.sleep(60)
            return
        await w.clock.sleep(60)
        leave.spent("a-model", TokenUsage(output_tokens=100))
        for _ in range(moments):
            await asyncio.sleep(0)
        waiting[0].cancel()

    @flow
    async def both() -> str:
        first = asyncio.ensure_future(agent("x", label="first").outcome())
        await w.clock.sleep(1)
        waiting.append(asyncio.ensure_future(agent("x", label="second", deadline="1d").outcome()))
        await asyncio.gather(first, *waiting, return_exceptions=True)
        return "done"

    async def test() -> None:
        begun = await begin(w, carry, Budget(tokens=10_000), both)
        assert (await w.through(begun.run())).value == "done"
        assert reserved(begun) == 0

    played(test)


def test_a_program_that_works_on_while_its_next_call_waits_for_room_is_timed() -> None:
    w = world()

    async def program(leave: CallGate) -> None:
        await w.clock.sleep(60)
        leave.spent("a-model", TokenUsage(output_tokens=400))
        asking = asyncio.ensure_future(leave.before_call(works_meanwhile=True))
        try:
            await w.clock.sleep(500)
            assert not asking.done(), "it has to wait for this test to say anything"
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def carry(task: AgentTask, leave: CallGate) -> None:
        await leave.before_call()
        if task.label == "program":
            await within(leave.time_limit, program(leave))
        else:
            await w.clock.sleep(2000)

    @flow
    async def both() -> str:
        timed = asyncio.ensure_future(agent("x", label="program", timeout=300).outcome())
        await w.clock.sleep(1)
        slow = asyncio.ensure_future(agent("x", label="slow").outcome())
        outcome, _ = await asyncio.gather(timed, slow)
        return f"{outcome.terminated_by} after {outcome.duration:.0f} s"

    async def test() -> None:
        # 600 are left after the first call; the slow one reserves 400 of them, like the next.
        begun = await begin(w, carry, Budget(tokens=1_000), both)
        assert (await w.through(begun.run())).value == "timeout after 300 s"
        assert reserved(begun) == 0

    played(test)
