"""A budget holds whatever an upstream says of its usage: what it leaves out, we count ourselves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline import Budget, agent, flow
from jackline.agents.messages import MessagesRunner
from jackline.agents.messages.conversation import weight
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import JsonObject, ModelCaller, WholeAnswer
from jackline.dialects import TokenUsage
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_run
from jackline.flows.run_events import FlowEvent, Warned
from jackline.flows.settings import RunSettings
from tests.flows.world import World, played, world

MODEL = "claude-sonnet-4-5"
MOST_OUTPUT = 2_000
# So many calls would be made for ever.
ENDLESS = 60
WORDS = "word " * 1_200


def depth(place: str) -> float:
    """The depth of the water at a place."""
    return 1.5 + len(place)


@dataclass
class Upstream:
    """A model that wants a tool in each answer, and says of its usage what it likes."""

    says: list[TokenUsage]
    """By turn; the last one holds for all that follow."""
    text: str = WORDS
    honest: bool = False
    sent: list[int] = field(default_factory=list)
    """Characters of each request."""

    async def ask(self, body: JsonObject, caller: ModelCaller) -> WholeAnswer:
        assert caller.session_id
        turn = len(self.sent)
        assert turn < ENDLESS, "the budget ends nothing"
        self.sent.append(weight([body["messages"], body["system"]]))
        call: JsonObject = {
            "type": "tool_use",
            "id": f"t{turn}",
            "name": "depth",
            "input": {"place": "x"},
        }
        content: list[JsonObject] = [{"type": "text", "text": self.text}, call]
        usage = self.says[min(turn, len(self.says) - 1)]
        if self.honest:
            # All but the newest tokens come from the cache.
            tokens = self.sent[-1] // 4
            usage = TokenUsage(20, len(self.text) // 4, tokens - 20)
        return WholeAnswer(content, "tool_use", usage, MODEL, lane="vllm/gpt-5.5")

    def sent_in_all(self) -> float:
        """Tokens of all calls, counted so that no real model counts less."""
        return sum(chars / 12 for chars in self.sent) + len(self.sent) * len(self.text) / 12


@dataclass
class Run:
    outcome: Outcome[object]
    upstream: Upstream
    world: World
    received: list[FlowEvent]

    @property
    def warnings(self) -> list[str]:
        return [event.says for event in self.received if isinstance(event, Warned)]


async def _run(upstream: Upstream, budget: Budget | None) -> Run:
    @flow
    async def soak() -> object:
        turns = Budget(turns=ENDLESS - 1)
        outcome = await agent(
            "measure", tools=[depth], model=MODEL, max_tokens=MOST_OUTPUT, budget=turns, label="a"
        ).outcome()
        return outcome.terminated_by.value

    w = world()
    received: list[FlowEvent] = []
    runner = MessagesRunner(upstream, clock=w.clock)
    host = FlowHost(
        w.engine,
        lambda _run_id: {"messages": runner},
        clock=w.clock,
        draw=lambda: 0.5,
        settings=RunSettings(poll=5.0, budgets=() if budget is None else (budget,), guard=0),
        listener=received.append,
    )
    outcome = await w.through((await begin_run(host, soak, b"{}", run_id="r1")).run())
    return Run(outcome, upstream, w, received)


def soaked(upstream: Upstream, budget: Budget | None) -> Run:
    return played(lambda: _run(upstream, budget))


NOTHING = TokenUsage()
BUDGETS = [
    Budget(tokens=20_000),
    Budget(dollars=0.05),
    Budget(tokens=60_000, strict=True),
    Budget(dollars=0.5, strict=True),
]


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize(
    "says",
    [NOTHING, TokenUsage(0, 1), TokenUsage(1, 0), TokenUsage(-50_000, -50_000), TokenUsage(5, 1)],
    ids=str,
)
def test_a_budget_ends_a_run_whose_upstream_says_nothing_of_its_usage(
    budget: Budget, says: TokenUsage
) -> None:
    run = soaked(Upstream([says]), budget)
    assert run.outcome.value == Ending.BUDGET.value
    assert run.outcome.usage.total >= run.upstream.sent_in_all()
    if budget.tokens is not None:
        last = (run.upstream.sent[-1] + len(WORDS)) / 2
        overshoot = 0 if budget.strict else last
        assert run.outcome.usage.total <= budget.tokens + overshoot
        assert run.upstream.sent_in_all() <= budget.tokens + overshoot


def test_the_run_says_once_that_usage_was_counted_by_us() -> None:
    run = soaked(Upstream([NOTHING]), Budget(tokens=20_000))
    [says] = [each for each in run.warnings if "usage" in each]
    assert "vllm/gpt-5.5" in says
    assert "estimate" in says


def test_what_an_honest_upstream_says_is_charged_exactly_and_nobody_is_warned() -> None:
    run = soaked(Upstream([NOTHING], honest=True), None)
    sent = sum(chars // 4 for chars in run.upstream.sent)
    assert run.outcome.usage.total == sent + len(run.upstream.sent) * (len(WORDS) // 4)
    assert run.outcome.usage.input_tokens == 20 * len(run.upstream.sent)
    assert not run.warnings


counts = st.integers(-1_000_000, 50_000)
reported = st.builds(TokenUsage, counts, counts, counts, counts)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.one_of(st.just(NOTHING), reported), min_size=1, max_size=8),
    st.sampled_from(BUDGETS),
    st.sampled_from([WORDS, "x", "ab" * 2_000, "Grüße, 你好 " * 300]),
)
def test_whatever_an_upstream_says_a_run_sends_no_more_than_its_budget_and_one_call(
    says: list[TokenUsage], budget: Budget, text: str
) -> None:
    run = soaked(Upstream(says, text), budget)
    last = (run.upstream.sent[-1] if run.upstream.sent else 0) + MOST_OUTPUT * 4
    if budget.tokens is not None:
        assert run.upstream.sent_in_all() <= budget.tokens + (0 if budget.strict else last)
    elif budget.dollars is not None:
        # Sonnet's input costs 3 dollars for a million tokens, at the least 0.3 from the cache.
        sent = run.upstream.sent_in_all() * 0.3 / 1_000_000
        assert sent <= budget.dollars + (0 if budget.strict else last * 15 / 1_000_000)
