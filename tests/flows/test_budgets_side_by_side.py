"""Agents side by side keep to a budget: each call reserves what it will use before it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from jackline import Budget, agent, flow, parallel
from jackline.agents.messages import MessagesRunner
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import AgentLog, AgentTask, CallGate, StopAgentError
from jackline.clock import Clock
from jackline.dialects import TokenUsage
from jackline.errors import LeaseLostError
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.execution.call_gate import WAITS_FOR_BUDGET
from jackline.flows.flow_run import FlowRun
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_run
from jackline.flows.run_events import AgentEnded, AgentWaits, FlowEvent
from jackline.flows.settings import RunSettings
from jackline.simulator.reply_script import Fail, Reply, Rule, Say
from jackline.testing.scripted_agents import Play, ScriptedModel, ScriptedRunner
from tests.flows.world import World, played, world

AGENTS = 50
ANSWER = 700
DOLLARS_PER_TOKEN = 25 / 1_000_000
"""What the dearest token costs."""
PROMPT = "Read one part of the archive, and write down what is in it. " * 2


@dataclass
class Fleet:
    """Our own loop with a scripted model, in virtual time."""

    model: ScriptedModel
    world: World
    received: list[FlowEvent] = field(default_factory=list)

    def host(self, budget: Budget) -> FlowHost:
        runner = MessagesRunner(self.model, clock=self.world.clock)
        return FlowHost(
            self.world.engine,
            lambda _run_id: {"messages": runner},
            clock=self.world.clock,
            draw=lambda: 0.5,
            settings=RunSettings(poll=5.0, budgets=(budget,), guard=0),
            listener=self.received.append,
        )

    async def begin(self, working: Flow[[], int], budget: Budget) -> FlowRun[int]:
        return await begin_run(self.host(budget), working, b"{}", run_id="r1")

    async def run(self, working: Flow[[], int], budget: Budget) -> Outcome[int]:
        return await self.world.through((await self.begin(working, budget)).run())


def fleet(*script: Rule | Reply) -> Fleet:
    w = world()
    model = ScriptedModel(*(script or (said(),)), clock=w.clock)
    return Fleet(model, w)


def said(tokens: int = ANSWER, seconds: float = 20.0) -> Say:
    return Say("word" * (tokens - 5), delay=seconds)


def many(size: int = AGENTS, max_tokens: int | None = None) -> Flow[[], int]:
    @flow
    async def working() -> int:
        batch = await parallel(
            agent(PROMPT, label=f"reader {n}", max_tokens=max_tokens) for n in range(size)
        )
        return len(batch.values)

    return working


@pytest.mark.parametrize("budget", [Budget(tokens=20_000), Budget(dollars=0.10)])
def test_fifty_agents_side_by_side_pass_a_budget_by_less_than_a_call(budget: Budget) -> None:
    async def test() -> None:
        f = fleet()
        outcome = await f.run(many(), budget)
        one = max(request.answer.usage.total for request in f.model.ledger if request.answer)
        if budget.tokens is not None:
            assert budget.tokens - one <= outcome.usage.total < budget.tokens + one
        else:
            assert budget.dollars is not None
            assert outcome.cost is not None
            assert outcome.cost == pytest.approx(budget.dollars, abs=one * DOLLARS_PER_TOKEN)
        assert outcome.tally.endings == ((Ending.BUDGET, AGENTS - outcome.tally.ok),)

    played(test)


# --- waiting -----------------------------------------------------------------------------------


def test_who_does_not_fit_beside_others_waits_and_is_not_ended() -> None:
    """What is expected of a first call is far more than these use, and all of them fit."""

    async def test() -> None:
        f = fleet()
        outcome = await f.run(many(6), Budget(tokens=5_000))
        assert outcome.tally.in_words() == "6 of 6 agents ok"
        waits = [event.why for event in f.received if isinstance(event, AgentWaits)]
        assert WAITS_FOR_BUDGET in waits

    played(test)


def test_what_was_learned_lets_more_run_side_by_side() -> None:
    async def test() -> None:
        f = fleet()
        started = f.world.clock.monotonic()
        outcome = await f.run(many(), Budget(tokens=40_000))
        assert outcome.tally.ok == AGENTS
        # Twelve rounds of 20 s if each call went on reserving what the first did.
        assert f.world.clock.monotonic() - started < 5 * 20

    played(test)


def test_a_call_that_fails_gives_back_what_it_had_reserved() -> None:
    async def test() -> None:
        broken = Rule(Fail(400, "invalid_request_error", "No."), call=0)
        f = fleet(broken, said())
        outcome = await f.run(many(4), Budget(tokens=4_100))
        assert outcome.tally.in_words() == "3 of 4 agents ok, 1 failed: 1 refused"

    played(test)


def test_an_agent_that_is_cancelled_in_flight_or_in_line_leaves_room_for_the_others() -> None:
    @flow
    async def working() -> int:
        tasks = [
            asyncio.ensure_future(agent(PROMPT, label=f"reader {n}").outcome()) for n in range(5)
        ]
        await f.world.clock.sleep(5)
        tasks[0].cancel()
        tasks[2].cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        return sum(isinstance(end, Outcome) and end.ok for end in ends)

    f = fleet()

    async def test() -> None:
        outcome = await f.run(working, Budget(tokens=4_100))
        assert outcome.value == 3

    played(test)


def one_at_a_time(budget: Budget) -> World:
    """Of a runner that does not tell what it will ask for, one call at a time fits."""
    w = world(lambda _task: Play(turns=3, tokens=100, seconds=60))
    w.settings = RunSettings(poll=5.0, budgets=(budget,), guard=0)
    return w


def test_a_parked_run_holds_no_reservations() -> None:
    async def test() -> None:
        w = one_at_a_time(Budget(tokens=10_000))
        begun = await w.begin(many(4))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) == 1, task)
        w.runner.wall_until = w.clock.now() + timedelta(hours=5)
        await w.until(lambda: begun.is_parked, task)
        assert reserved(begun) == 0
        outcome = await w.through(_of(task))
        assert outcome.tally.ok == 4
        assert len(w.runner.answered) == 12

    played(test)


@pytest.mark.parametrize("order", ["stop", "cancel"])
def test_a_run_that_is_stopped_or_cancelled_does_not_wait_for_those_in_line(order: str) -> None:
    """One call takes an hour, and everybody else waits for it."""

    async def test() -> None:
        w = one_at_a_time(Budget(tokens=10_000))
        w.runner = ScriptedRunner(lambda _task: Play(tokens=100, seconds=3600), clock=w.clock)
        begun = await w.begin(many(4))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.asked) == 1, task)
        await w.clock.advance(1)
        began = w.clock.monotonic()
        if order == "stop":
            begun.stop_now()
        else:
            begun.cancel()
        outcome = await w.through(_of(task))
        assert w.clock.monotonic() - began < 120
        assert len(w.runner.asked) == 1
        assert outcome.terminated_by is Ending.CANCELLED
        if order == "stop":
            assert (await w.resume(many(4))).tally.ok == 4

    played(test)


def test_who_waits_for_room_ends_at_once_when_the_run_fails() -> None:
    """Of a child flow one call takes an hour, another waits for it; a third agent meets a wall."""
    child = many(2)
    child.budget = Budget(tokens=10_000)

    @flow
    async def parent() -> int:
        waiting = asyncio.ensure_future(child())
        await w.clock.sleep(5)
        w.runner.wall_until = w.clock.now() + timedelta(hours=5)
        await asyncio.gather(waiting, agent("x", label="at the wall").outcome())
        return 0

    w = world(lambda _task: Play(tokens=100, seconds=3600 if "reader" in _task.label else 0))
    w.settings = RunSettings(poll=5.0, on_quota="abort")

    async def test() -> None:
        await w.run(parent)
        ends = {event.label: event.terminated_by for event in w.of(AgentEnded)}
        assert ends["reader 1"] == Ending.QUOTA, "not cancelled with the one that it waited for"

    played(test)


def test_reservations_end_with_their_process_and_what_was_used_does_not() -> None:
    async def test() -> None:
        w = one_at_a_time(Budget(tokens=500))
        begun = await w.begin(many(4))
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) == 1, task)
        await w.clock.advance(1)
        record = await w.engine.run("r1")
        assert record is not None
        assert reserved(begun) > 0
        await w.engine.claim("r1", owner="another", lease=1.0, instead_of=record.owner)
        with contextlib.suppress(LeaseLostError):
            await w.through(_of(task))
        await w.clock.advance(100_000)
        outcome = await w.resume(many(4))
        assert outcome.usage.total == 500
        assert outcome.tally.endings == ((Ending.BUDGET, 4 - outcome.tally.ok),)

    played(test)


def test_the_budget_of_a_child_flow_holds_side_by_side_too() -> None:
    child = many(20)
    child.budget = Budget(tokens=5_000)

    @flow
    async def parent() -> int:
        return sum(await asyncio.gather(child(), agent_alone()))

    async def agent_alone() -> int:
        return len(await agent(PROMPT, label="alone"))

    async def test() -> None:
        f = fleet()
        outcome = await f.run(parent, Budget(tokens=1_000_000))
        assert 5_000 <= outcome.usage.total < 5_000 + 3 * ANSWER
        assert outcome.value is not None

    played(test)


def test_agents_side_by_side_pass_a_rolling_budget_by_less_than_a_call() -> None:
    async def test() -> None:
        f = fleet()
        begun = await f.begin(many(), Budget(tokens=20_000, window="5h"))
        task = asyncio.create_task(begun.run())
        await f.world.until(lambda: begun.is_parked, task)
        spent = sum(request.answer.usage.total for request in f.model.ledger if request.answer)
        assert 20_000 <= spent < 20_000 + ANSWER + 100
        outcome = await f.world.through(_of(task))
        assert outcome.tally.ok == AGENTS, "the window's refill was waited for"

    played(test)


class Program:
    """A runner as programs are: it calls by itself, and asks after an answer was printed."""

    name = "messages"
    turn = 400

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def run(self, task: AgentTask, notebook: AgentLog, leave: CallGate) -> Outcome[object]:
        del task, notebook
        await leave.before_call()
        asking: asyncio.Task[None] | None = None
        used = TokenUsage()
        try:
            for _ in range(10):
                await self._clock.sleep(60)
                leave.spent("somebodys-model", TokenUsage(output_tokens=self.turn))
                used += TokenUsage(output_tokens=self.turn)
                if asking is None or asking.done():
                    asking = asyncio.ensure_future(leave.before_call())
                await asyncio.sleep(0)
                if asking.done():
                    asking.result()
        except StopAgentError as stop:
            return Outcome(stop.ending, evidence=stop.evidence, usage=used)
        finally:
            if asking is not None:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
        return Outcome(Ending.COMPLETION, "done", usage=used)


@pytest.mark.parametrize("limit", [1_000, 3_900, 100_000])
def test_programs_pass_a_budget_by_no_more_than_a_turn_each(limit: int) -> None:
    processes = 5

    async def test() -> None:
        w = world()
        settings = RunSettings(poll=5.0, budgets=(Budget(tokens=limit),), guard=0)
        runner = Program(w.clock)
        host = replace(w.host, runners=lambda _run_id: {"messages": runner}, settings=settings)
        begun = await begin_run(host, many(processes), b"{}", run_id="r1")
        outcome = await w.through(begun.run())
        wanted = processes * 10 * Program.turn
        assert min(limit, wanted) <= outcome.usage.total <= limit + processes * Program.turn
        assert outcome.tally.ok == (processes if limit > wanted else 0)
        assert reserved(begun) == 0

    played(test)


# --- strict ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "budget", [Budget(tokens=20_000, strict=True), Budget(dollars=0.40, strict=True)]
)
def test_a_strict_budget_is_never_passed(budget: Budget) -> None:
    async def test() -> None:
        f = fleet()
        outcome = await f.run(many(max_tokens=ANSWER), budget)
        assert outcome.cost is not None
        if budget.tokens is not None:
            assert 17_000 < outcome.usage.total <= 20_000
        else:
            assert 0.35 < outcome.cost <= 0.40
        assert outcome.tally.endings == ((Ending.BUDGET, AGENTS - outcome.tally.ok),)

    played(test)


def says_of(outcome_of: Flow[[], str], budget: Budget, runner: ScriptedRunner | None = None) -> str:
    async def test() -> str:
        if runner is not None:
            w = world()
            w.runner = runner
            w.settings = RunSettings(budgets=(budget,), runner=runner.name)
            return (await w.run(outcome_of)).value or ""
        f = fleet()
        begun = await begin_run(f.host(budget), outcome_of, b"{}", run_id="r1")
        return (await f.world.through(begun.run())).value or ""

    return played(test)


def one(model: str | None = None) -> Flow[[], str]:
    @flow
    async def working() -> str:
        outcome = await agent("Go.", label="a", model=model).outcome()
        return f"{outcome.terminated_by}: {outcome.evidence.says}"

    return working


def test_a_strict_budget_that_is_less_than_one_call_says_what_to_change() -> None:
    says = says_of(one(), Budget(tokens=20_000, strict=True))
    assert re.fullmatch(
        r"budget: The run may use 20,000 tokens and never more \(strict\), which is less than one"
        r" call: one call may use up to 33,\d\d\d tokens: its input and max_tokens=32000. Raise the"
        r" budget to at least 33,\d\d\d tokens, give agent\(max_tokens=…\) less, or leave out"
        r" strict.",
        says,
    )


def test_a_strict_budget_of_dollars_needs_a_price() -> None:
    says = says_of(one("somebodys-model"), Budget(dollars=5, strict=True))
    assert "the price of somebodys-model is not known: set it under [prices]" in says


def test_a_strict_budget_refuses_a_runner_whose_calls_nobody_can_bound() -> None:
    runner = ScriptedRunner(name="claude-code")
    says = says_of(one(), Budget(tokens=1_000_000, strict=True), runner)
    assert 'take runner="messages", or leave out strict' in says
    assert runner.asked == []


def test_max_tokens_is_what_the_model_is_asked_with_and_our_own_loop_only() -> None:
    async def test() -> None:
        f = fleet()
        await f.run(many(1, max_tokens=500), Budget(tokens=9_000))
        assert [request.body["max_tokens"] for request in f.model.ledger] == [500]

    played(test)

    @flow
    async def wrong() -> str:
        return await agent("x", runner="codex", max_tokens=5)

    async def refused() -> None:
        w = world()
        outcome = await w.run(wrong)
        assert "decides it itself" in outcome.evidence.says

    played(refused)


def reserved(begun: FlowRun[int]) -> float:
    """What calls in flight have reserved of the run's budgets."""
    return sum(limit.reserved for limit in begun._x.accounting.account.limits)


async def _of(task: asyncio.Task[Outcome[int]]) -> Outcome[int]:
    return await task
