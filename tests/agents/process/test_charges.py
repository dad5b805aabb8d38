"""What an agent's process uses is charged once, whoever of three counts it, and when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.agents.prices import dollars
from jackline.agents.process.charges import GatewayCount, ProcessCharges
from jackline.agents.process.program import AnswerPart
from jackline.agents.process.resume import History
from jackline.agents.runner import AgentTask
from jackline.agents.task_meter import TaskReading
from jackline.dialects import TokenUsage
from tests.agents.process.doubles import FreeLeave

OPUS, HAIKU, OLD_HAIKU = "claude-opus-4-8", "claude-haiku-4-5", "claude-3-haiku-20240307"
FABLE = "claude-fable-5"
DATED = f"{OPUS}-20260801"
CALLS = st.builds(
    TokenUsage,
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.integers(0, 5000),
    st.integers(0, 5000),
)


@dataclass
class Gate(FreeLeave):
    """Leave that also adds up dollars."""

    dollars: float = 0.0

    def spent(self, model: str, usage: TokenUsage, cost: float | None = None) -> None:
        super().spent(model, usage, cost)
        self.dollars += cost or 0.0


@dataclass
class Truth:
    """The calls of one process, and what each counter has seen of them."""

    leave: Gate = field(default_factory=Gate)
    by_model: dict[str, TokenUsage] = field(default_factory=dict)
    answers: int = 0
    dollars: float = 0.0
    """What the calls cost at the prices of the models that were requested."""

    def __post_init__(self) -> None:
        self.leave.reading = TaskReading(epoch="meter-1")
        self.gateway = GatewayCount(self.leave)
        self.total = TokenUsage()
        asyncio.run(self.gateway.look())
        self.charges = self.begin()

    def begin(self) -> ProcessCharges:
        task = AgentTask("t", "s", "p", model=OPUS)
        return ProcessCharges("claude-code", task, self.leave, History(), self.gateway)

    def answer(self, model: str, used: TokenUsage) -> None:
        self.total += used
        self.answers += 1
        self.dollars += dollars(model, used) or 0.0
        self.by_model[model] = self.by_model.get(model, TokenUsage()) + used
        self.leave.reading = TaskReading(0.0, self.answers, dict(self.by_model), "meter-1")

    def printed(self, used: TokenUsage, name: str, model: str) -> None:
        # What the vendor says at the beginning of its answer: its output is not there yet.
        begun = TokenUsage(used.input_tokens, 1, used.cache_read_tokens, used.cache_write_tokens)
        self.charges.add_answer(AnswerPart(name, model, begun), reports_each_answer=True)

    def look(self) -> None:
        asyncio.run(self.charges.add_gateway_count(fresh=True))


@given(
    st.lists(
        st.tuples(CALLS, st.sampled_from(["printed first", "counted first", "silent"])),
        max_size=8,
    ),
    st.sampled_from([OPUS, DATED, OLD_HAIKU, "no-such-model"]),
    st.booleans(),
)
def test_each_token_is_charged_once_in_whatever_order_and_by_whatever_name_it_is_reported(
    calls: list[tuple[TokenUsage, str]], printed_name: str, with_bill: bool
) -> None:
    """No name that an upstream prints makes what was requested cheaper, or dearer."""
    truth = Truth()
    for number, (used, order) in enumerate(calls):
        if order == "silent":
            truth.answer(HAIKU, used)  # a call of the program's own that it does not print
            truth.look()
            continue
        if order == "printed first":
            truth.printed(used, f"m{number}", printed_name)
        truth.answer(OPUS, used)
        if order == "counted first":
            truth.look()
            truth.printed(used, f"m{number}", printed_name)
    truth.look()
    truth.look()
    if with_bill:
        truth.charges.add_bill(truth.by_model.items())
    truth.charges.close()
    assert truth.leave.usage == truth.total
    assert truth.leave.dollars == pytest.approx(truth.dollars)
    assert truth.charges.dollars == pytest.approx(truth.dollars)


def test_an_upstream_that_prints_a_dearer_model_is_paid_as_that() -> None:
    truth, used = Truth(), TokenUsage(10_000, 1_000)
    truth.answer(OPUS, used)
    truth.printed(used, "m1", FABLE)
    truth.look()
    truth.charges.add_bill([(FABLE, used)])
    assert truth.leave.usage == used
    assert truth.leave.dollars == pytest.approx(dollars(FABLE, used))


@given(st.lists(CALLS, min_size=1, max_size=6))
def test_a_process_that_is_stopped_is_charged_for_all_that_the_gateway_counted(
    calls: list[TokenUsage],
) -> None:
    truth = Truth()
    for used in calls:
        truth.answer(OPUS, used)
    truth.look()
    assert truth.leave.usage == truth.total
    assert truth.charges.answers == len(calls)


def test_the_next_process_of_an_agent_does_not_pay_for_the_one_before() -> None:
    truth = Truth()
    truth.answer(OPUS, TokenUsage(100, 50))
    truth.look()
    truth.charges = truth.begin()
    assert truth.charges.answers == 0
    truth.answer(OPUS, TokenUsage(10, 5))
    truth.look()
    assert truth.charges.answers == 1
    assert truth.leave.usage == TokenUsage(110, 55)


def test_a_gateway_that_was_started_again_counts_from_zero() -> None:
    truth = Truth()
    truth.answer(OPUS, TokenUsage(100, 50))
    truth.look()
    truth.leave.reading = TaskReading(0.0, 3, {OPUS: TokenUsage(700, 300)}, "meter-2")
    truth.look()
    assert truth.leave.usage == TokenUsage(800, 350), "also where it has counted more since"
    assert truth.charges.answers == 4
    truth.leave.reading = TaskReading()
    truth.look()
    truth.leave.reading = TaskReading(0.0, 1, {OPUS: TokenUsage(1, 1)}, "meter-3")
    truth.look()
    assert truth.leave.usage == TokenUsage(801, 351)


def test_an_older_reading_that_comes_late_is_no_new_meter() -> None:
    truth = Truth()
    late = replace(truth.leave.reading or TaskReading())
    truth.answer(OPUS, TokenUsage(100, 50))
    newest = truth.leave.reading
    truth.look()
    truth.leave.reading = late
    truth.look()
    truth.leave.reading = newest
    truth.look()
    assert truth.leave.usage == TokenUsage(100, 50)
    assert truth.charges.answers == 1


def test_what_an_agent_used_before_this_process_of_ours_is_not_charged_again() -> None:
    leave = FreeLeave(reading=TaskReading(0.0, 9, {OPUS: TokenUsage(900, 90)}))
    gateway = GatewayCount(leave)
    asyncio.run(gateway.look())
    charges = ProcessCharges("codex", AgentTask("t", "s", "p"), leave, History(), gateway)
    asyncio.run(charges.add_gateway_count())
    assert leave.usage == TokenUsage()


def test_a_gateway_that_says_nothing_leaves_the_counting_to_the_program() -> None:
    leave = FreeLeave(reading=None)
    gateway = GatewayCount(leave)
    charges = ProcessCharges("codex", AgentTask("t", "s", "p"), leave, History(), gateway)
    asyncio.run(charges.add_gateway_count())
    assert charges.answers is None
    charges.add_bill([(OPUS, TokenUsage(3, 4))])
    assert leave.usage == TokenUsage(3, 4)


@pytest.mark.parametrize(
    "reading",
    [None, TaskReading(), TaskReading(epoch="meter-1")],
    ids=["says nothing", "has no meter of it", "has counted no answer"],
)
def test_where_the_gateway_counts_nothing_no_printed_name_makes_the_agent_cheaper(
    reading: TaskReading | None,
) -> None:
    """A program whose calls do not name it, or go elsewhere, is not billed by what it prints."""
    leave = Gate(reading=reading)
    gateway = GatewayCount(leave)
    asyncio.run(gateway.look())
    task = AgentTask("t", "s", "p", model=OPUS)
    charges = ProcessCharges("claude-code", task, leave, History(), gateway)
    used = TokenUsage(1_000, 100)
    charges.add_answer(AnswerPart("m", OLD_HAIKU, used), reports_each_answer=True)
    charges.add_bill([(OLD_HAIKU, TokenUsage(1_000, 900))])
    assert leave.usage == TokenUsage(1_000, 900)
    assert leave.dollars == pytest.approx(dollars(OPUS, leave.usage))


def test_a_bill_pays_what_was_not_charged_before_whatever_its_models_are_called() -> None:
    truth = Truth()
    truth.answer(OPUS, TokenUsage(1, 1))  # it counts the program's calls, and is behind
    truth.look()
    for name, model in (("a", OPUS), ("b", OPUS), ("c", f"{HAIKU}-20251001")):
        part = AnswerPart(name, model, TokenUsage(10, 1))
        truth.charges.add_answer(part, reports_each_answer=False)
    truth.charges.add_bill([(f"{OPUS}[1m]", TokenUsage(20, 50)), (HAIKU, TokenUsage(17, 9))])
    assert truth.leave.usage == TokenUsage(37, 59)
    due = [dollars(OPUS, TokenUsage(20, 50)), dollars(HAIKU, TokenUsage(17, 9))]
    assert truth.leave.dollars == pytest.approx(sum(each or 0.0 for each in due))
