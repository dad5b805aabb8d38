"""What is expected of the work still ahead: learned from the chains that were seen."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jackline.lanes.remaining_work import ChainLengths, RemainingWork

SESSIONS = ("docs", "tests")
AGENTS = ("a", "b", "c")
DAY = 86_400.0


def seen(lengths: list[int]) -> ChainLengths:
    chains = ChainLengths()
    for length in lengths:
        for calls in range(length):
            chains.went_on(calls)
        chains.ended(length)
    return chains


def after(chains: ChainLengths, made: int) -> float:
    expected = chains.expected_after()
    return expected[min(made, len(expected) - 1)]


def one_call(work: RemainingWork, now: float, session: str, agent: str) -> float:
    """A call that takes ten seconds; what is expected behind it."""
    expected = work.asks(now, session, agent)
    work.answered(now + 10, session, agent, 10.0)
    return expected


def side_by_side(work: RemainingWork, now: float, session: str, agents: list[str]) -> None:
    """Each makes one call, all at once."""
    for agent in agents:
        work.asks(now, session, agent)
    for agent in agents:
        work.answered(now + 10, session, agent, 10.0)


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(0, 80))
def test_expectations_are_never_negative_nor_beyond_the_longest_chain(
    lengths: list[int], made: int
) -> None:
    longest = max([40, *lengths])
    assert 0 <= after(seen(lengths), made) <= longest + 1


@pytest.mark.parametrize("length", [1, 7, 40, 90])
@pytest.mark.parametrize("made", [0, 1, 7, 60])
def test_many_chains_of_one_length_are_believed(length: int, made: int) -> None:
    chains = seen([length] * 2_000)
    if made <= length:
        assert after(chains, made) == pytest.approx(length - made, rel=0.05, abs=0.5)


@pytest.mark.parametrize("made", [0, 5, 20, 35])
def test_the_expectation_is_the_mean_of_what_chains_that_came_so_far_had_left(made: int) -> None:
    draw = random.Random(3)  # noqa: S311 -- seeded, so that tests repeat
    lengths = [draw.randint(5, 40) for _ in range(3_000)]
    left = [length - made for length in lengths if length >= made]
    assert after(seen(lengths), made) == pytest.approx(sum(left) / len(left), rel=0.05)


def test_where_long_chains_tend_to_become_longer_the_advanced_go_first() -> None:
    chains = seen([2] * 900 + [30] * 100)
    assert after(chains, 10) > after(chains, 1)


def test_the_next_stage_begins_when_a_new_agent_comes_while_nobody_asks() -> None:
    work = RemainingWork()
    first = [work.asks(0, "docs", name) for name in ("a", "b")]
    assert first[0] == first[1], "they started side by side"
    work.answered(10, "docs", "a", 10.0)
    beside = work.asks(11, "docs", "c")
    work.answered(12, "docs", "b", 10.0)
    work.answered(13, "docs", "c", 10.0)
    behind = work.asks(14, "docs", "d")
    assert behind < beside


def test_a_stage_that_is_told_is_believed() -> None:
    work = RemainingWork()
    assert work.asks(0, "docs", "a", stage=2) < work.asks(0, "tests", "b", stage=0)


def test_an_agent_silent_for_long_has_ended_and_one_that_asks_again_has_not() -> None:
    work, untouched = RemainingWork(), after(ChainLengths(), 1)
    crowd = [str(number) for number in range(200)]
    side_by_side(work, 0, "docs", crowd)
    work.asks(50, "tests", "z")
    assert after(work.chains, 1) > untouched / 2, "their tools may still be running"
    work.asks(500, "tests", "y")
    ended = after(work.chains, 1)
    assert ended < untouched / 2
    side_by_side(work, 600, "docs", crowd)
    assert after(work.chains, 1) > ended


def test_what_a_call_and_the_pause_after_it_take_is_learned() -> None:
    work = RemainingWork()
    for number in range(2_000):
        agent = str(number // 10)
        work.asks(40.0 * number, "docs", agent)
        work.answered(40.0 * number + 10, "docs", agent, 10.0)
    assert work.cycle == pytest.approx(40, rel=0.25)


def test_what_is_believed_changes_only_when_twice_as_much_is_known() -> None:
    work, beliefs = RemainingWork(), set()
    for number in range(1_000):
        for turn in range(1 + number % 5):
            one_call(work, 200.0 * number + 20 * turn, "docs", str(number))
        beliefs.add(tuple(work.calls_after))
    assert 3 <= len(beliefs) <= 7, "about as often as 40 doubles up to a thousand"


def test_sessions_are_forgotten_after_a_day() -> None:
    work = RemainingWork()
    for number in range(20):
        one_call(work, number * DAY, str(number), "a")
    assert len(work._sessions) <= 2


def test_reports_about_unknown_calls_are_ignored() -> None:
    work = RemainingWork()
    work.answered(0, "docs", "a", 5.0)
    work.withdrawn(0, "docs", "a")
    before = work.asks(1, "docs", "a")
    assert work.asks(1, "docs", "a") == before, "asking twice is asking once"


class Work(RuleBasedStateMachine):
    """Agents that ask, are answered, give up and fall silent in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.work, self.twin = RemainingWork(), RemainingWork()
        self.asking: set[tuple[str, str]] = set()
        self.made: Counter[tuple[str, str]] = Counter()

    @rule(session=st.sampled_from(SESSIONS), agent=st.sampled_from(AGENTS), told=st.booleans())
    def asks(self, session: str, agent: str, *, told: bool) -> None:
        stage = 1 if told else None
        expected = self.work.asks(self.now, session, agent, stage)
        assert expected == self.twin.asks(self.now, session, agent, stage), "same events, same"
        assert expected >= 0
        self.asking.add((session, agent))

    @precondition(lambda self: self.asking)
    @rule(data=st.data(), answered=st.booleans(), service=st.floats(0, 600))
    def ends(self, data: st.DataObject, service: float, *, answered: bool) -> None:
        who = data.draw(st.sampled_from(sorted(self.asking)))
        self.asking.discard(who)
        for work in (self.work, self.twin):
            if answered:
                work.answered(self.now, *who, service)
            else:
                work.withdrawn(self.now, *who)
        self.made[who] += answered

    @rule(seconds=st.floats(0, 1_000))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def the_books_agree(self) -> None:
        for session, group in self.work._sessions.items():
            for name, agent in group.agents.items():
                assert agent.asking == ((session, name) in self.asking)
                assert agent.calls == self.made[session, name]
                assert not (agent.asking and agent.ended)
            assert group.asking == sum(each.asking for each in group.agents.values())

    @invariant()
    def nothing_is_counted_below_zero(self) -> None:
        chains = self.work.chains
        assert min(*chains._ended, *chains._went_on) >= 0
        assert self.work.cycle >= 0


TestWork = Work.TestCase
TestWork.settings = hypothesis_settings(max_examples=40, stateful_step_count=40, deadline=None)
