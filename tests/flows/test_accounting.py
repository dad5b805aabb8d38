"""One ledger per run: nothing that agents use, in any process, is lost or counted twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline import Budget
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import NextCall
from jackline.budgets.budget import Account, Unit
from jackline.budgets.ledger import Reservation, ReservationState
from jackline.clock import VirtualClock
from jackline.dialects import TokenUsage
from jackline.flows.execution.accounting import AgentAccounting, RunAccounting
from jackline.flows.records import (
    CallKind,
    CallRecord,
    CallState,
    RunRecord,
    decode_outcome,
    encode_outcome,
    task_id_of,
)
from jackline.flows.store import open_run_store
from jackline.flows.store.agent_log import StoredAgentLog
from jackline.flows.store.run_store import Claim, RunStore
from tests.flows.world import EPOCH, played

LIMIT = 8_000
MODEL = "claude-sonnet-4-5"
RUN = RunRecord("r1", "flow", "", b"{}")
AGENTS = 4


@dataclass
class Used:
    """What the test itself counts of one agent."""

    tokens: int = 0
    dollars: float = 0.0
    turns: int = 0


@dataclass
class Books:
    """One run whose agents, processes and store are moved by hand."""

    engine: RunStore
    claim: Claim
    clock: VirtualClock
    forgotten: int = 0
    """Tokens of agents that began anew: they count for the budget, not for the outcome."""
    used: dict[str, Used] = field(default_factory=dict)
    anew: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    async def new_process(self) -> None:
        """Another process reads what is saved; reservations of the old one are gone."""
        self.agents: dict[int, AgentAccounting] = {}
        self.granted: dict[int, Reservation] = {}
        self.waiting: dict[int, tuple[Reservation, asyncio.Task[None]]] = {}
        calls = await self.engine.calls("r1")
        self.calls = {(call.key, call.occurrence): call for call in calls}
        self.run = RunAccounting(
            self.engine,
            self.claim,
            self.clock,
            self.calls,
            budgets=(Budget(tokens=LIMIT),),
            warn=self.warnings.append,
        )
        await self.run.load(RUN)
        for call in calls:
            if call.outcome is not None:
                self.run.count_ended(decode_outcome(call.outcome), replayed=True)

    async def start(self, who: int) -> None:
        name = (f"key {who}", 0)
        known = self.calls.get(name)
        if who in self.agents or (known is not None and known.state is not CallState.RUNNING):
            return
        task_id = task_id_of("r1", *name)
        call = known or CallRecord(
            "r1", *name, CallKind.AGENT, f"agent {who}", "", task_id, CallState.RUNNING
        )
        self.calls[name] = call = replace(call, started_at=1.0)
        assert self.run.begin_agent(self.run.account, task_id) is None
        self.used.setdefault(task_id, Used())
        await self.engine.begin_call(self.claim, call)
        log = StoredAgentLog(self.engine, self.claim, task_id, self.clock)
        account: Account = self.run.open_account("The agent", None, self.run.account)
        agent = self.run.start_agent(call, account, log, None, MODEL)
        await log.open()
        agent.count_earlier()
        self.agents[who] = agent

    async def request(self, who: int, size: int) -> None:
        if who not in self.agents or who in self.granted or who in self.waiting:
            return
        call = NextCall(MODEL, size, lambda: size, lambda: 2 * size)
        found = self.agents[who].request(call, {Unit.TURNS: 1})
        if found.state is ReservationState.GRANTED:
            self._hold(who, found)
        elif found.state is ReservationState.WAITING:
            self.waiting[who] = (found, asyncio.create_task(self.run.decided(found)))
        else:
            assert self.run.account.tokens >= LIMIT, "only a used-up budget refuses"

    def _hold(self, who: int, reservation: Reservation) -> None:
        self.agents[who].hold(reservation)
        self.granted[who] = reservation

    async def pay(self, who: int, size: int) -> None:
        if self.granted.pop(who, None) is None:
            return
        usage = TokenUsage(size, size // 10)
        self.agents[who].pay(MODEL, usage, size / 1e6)
        await self.agents[who].log.settle()
        used = self.used[task_id_of("r1", f"key {who}", 0)]
        used.tokens += usage.total
        used.dollars += size / 1e6
        used.turns += 1

    async def fail(self, who: int) -> None:
        self.granted.pop(who, None)
        if who in self.agents:
            self.agents[who].release()

    async def give_up(self, who: int) -> None:
        """The agent is cancelled while its call waits."""
        if who in self.waiting:
            reservation, task = self.waiting.pop(who)
            task.cancel()
            await asyncio.wait({task})
            self.run.withdraw(reservation)

    async def end(self, who: int, ending: Ending) -> None:
        await self.give_up(who)
        await self.fail(who)
        if (agent := self.agents.pop(who, None)) is None:
            return
        call = self.calls[f"key {who}", 0]
        assert self.run.end_agent(call) is agent
        outcome = agent.with_all_used(Outcome(ending), self.run.account)
        ended = replace(
            call,
            state=CallState.DONE if outcome.ok else CallState.FAILED,
            value=b'""' if outcome.ok else None,
            outcome=encode_outcome(outcome),
            tokens=outcome.usage.total,
            cost=outcome.cost or 0.0,
            terminated_by=ending.value,
        )
        await self.engine.end_call(self.claim, ended)
        self.calls[call.key, call.occurrence] = ended
        self.run.count_ended(outcome, replayed=False)

    async def begin_anew(self, who: int) -> None:
        call = self.calls.get((f"key {who}", 0))
        if call is not None and call.state is CallState.FAILED:
            await self.run.begin_anew([call])
            self.forgotten += call.tokens
            self.anew[call.task_id] = self.anew.get(call.task_id, 0) + call.tokens
            # What it had used counts from the next process on as that of an earlier attempt.
            await self.crash()

    async def crash(self) -> None:
        for _, task in self.waiting.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self.waiting.values()), return_exceptions=True)
        await self.new_process()

    async def check(self) -> None:
        await asyncio.sleep(0)
        for who, (reservation, task) in list(self.waiting.items()):
            assert task.done() == (reservation.state is not ReservationState.WAITING)
            if reservation.state is ReservationState.GRANTED:
                self._hold(who, reservation)
            if task.done():
                del self.waiting[who]
        account, (limit,) = self.run.account, self.run.account.limits
        assert account.tokens == sum(each.tokens for each in self.used.values())
        assert account.dollars == pytest.approx(sum(each.dollars for each in self.used.values()))
        at_work = {f"key {who}" for who in self.agents}
        cut_off = [c for c in self.calls.values() if not c.outcome and c.key not in at_work]
        # Those of a dead process count in the outcome once they are at work again.
        unseen = self.forgotten + sum(self.used[call.task_id].tokens for call in cut_off)
        unseen -= sum(self.anew.get(call.task_id, 0) for call in cut_off)
        assert (
            self.run.used_so_far(Ending.CANCELLED, Evidence()).usage.total
            == account.tokens - unseen
        )
        assert account.used[Unit.AGENTS] == len(self.used)
        assert account.left().tokens == max(0, LIMIT - account.tokens)
        assert limit.reservations == len(self.granted)
        assert limit.reserved >= 0
        assert self.granted or not limit.reserved
        assert self.granted or not self.waiting, "a call waits only for calls in flight"
        assert limit.is_used_up or account.tokens + limit.reserved <= LIMIT


KINDS = ("start", "request", "pay", "fail", "give-up", "end", "cut", "anew", "crash", "save")
STEPS = st.tuples(st.sampled_from(KINDS), st.integers(0, AGENTS - 1), st.integers(1, 6_000))


async def play(steps: list[tuple[str, int, int]]) -> None:
    clock = VirtualClock(EPOCH)
    engine = open_run_store("sqlite:///:memory:", wall=clock.wall)
    claim = await engine.create(RUN, owner="me", lease=1e9)
    books = Books(engine, claim, clock)
    await books.new_process()
    for what, who, size in steps:
        match what:
            case "start":
                await books.start(who)
            case "request":
                await books.request(who, size)
            case "pay":
                await books.pay(who, size)
            case "fail":
                await books.fail(who)
            case "give-up":
                await books.give_up(who)
            case "end":
                await books.end(who, Ending.COMPLETION)
            case "cut":
                await books.end(who, Ending.CRASH)
            case "anew":
                await books.begin_anew(who)
            case "crash":
                await books.crash()
            case _:
                await books.run.save()
        await books.check()
    await books.crash()
    await books.check()
    assert len(books.warnings) <= sum(step[0] in ("crash", "anew") for step in steps) + 1
    await engine.close()


@given(st.lists(STEPS, max_size=40))
def test_used_left_and_reserved_always_add_up(steps: list[tuple[str, int, int]]) -> None:
    played(lambda: play(steps))


def test_all_kinds_of_steps_in_one_life() -> None:
    life = """start 0, start 1, request 0, pay 0, request 0, request 1, save 0, pay 0, crash 0,
        start 1, request 1, fail 1, cut 1, anew 1, start 1, request 1, pay 1, end 1, crash 0"""
    steps = [(what, int(who), 6_000) for what, who in map(str.split, life.split(","))]
    played(lambda: play(steps))
