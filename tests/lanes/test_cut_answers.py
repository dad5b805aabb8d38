"""Answers that begin and are cut are asked for again, but never without bound."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.dialects import TokenUsage
from jackline.failures import Failure
from jackline.lane_id import LaneId
from jackline.lanes import Call, LaneController, LaneDecision, LaneSettings, Send
from jackline.lanes.breaker import LaneHealth
from jackline.lanes.settings import ControllerSettings
from jackline.states import LaneState
from tests.lane_ids import lane_id
from tests.lanes import failures_made as made

# What becomes of an attempt: after so many seconds it is accepted, and so many later it ends with
# this failure, or with a whole answer.
Fate = tuple[float, float, Callable[[], Failure] | None]
# Shorter than the silence after which a whole lane is doubted.
WHOLE: Fate = (0.5, 5.0, None)
CUT: Fate = (0.5, 1.0, made.broken_stream)
MINUTE, HOUR = 60.0, 3600.0


class World:
    """An upstream with a fate for each attempt, on a virtual time line."""

    def __init__(self, fate: Callable[[Send, float], Fate], lanes: tuple[str, ...] = ("a",)):
        self.fate = fate
        self.now = made.START
        self.controller = LaneController(
            [LaneSettings(lane_id(name)) for name in lanes],
            random.Random(5).random,  # noqa: S311 -- a seeded draw, so that traces repeat
            now=self.now,
        )
        self.names = tuple(map(lane_id, lanes))
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], LaneDecision | None]]] = []
        self._wake_at: float | None = None
        self.sent: list[tuple[float, Send]] = []
        self.lost: dict[int, list[float]] = defaultdict(list)
        self.lost_on: dict[int, list[LaneId]] = defaultdict(list)
        self.answered: dict[int, float] = {}
        # What was said of lanes that were left alone, each time that anything happened.
        self.broken: list[str] = []

    def submit(self, calls: int, tokens: int = 1000) -> None:
        for number in range(calls):
            call = Call(number + 1, self.names, input_tokens=tokens, max_tokens=1000)
            self._obey(self.controller.submit(self.now, call))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            at = min(
                self._events[0][0] if self._events else end,
                end if self._wake_at is None else max(self._wake_at, self.now),
            )
            if at >= end:
                self.now = end
                return
            self.now = at
            if self._events and self._events[0][0] <= at:
                decision = heapq.heappop(self._events)[2]()
            else:
                self._wake_at = None
                decision = self.controller.tick(at)
            if decision is not None:
                self._obey(decision)

    def _obey(self, decision: LaneDecision) -> None:
        assert not decision.refusals, "nobody is refused for what the upstream does"
        for send in decision.sends:
            self.sent.append((self.now, send))
            accepted_after, ends_after, failure = self.fate(send, self.now - made.START)
            self._at(accepted_after, partial(self._accept, send))
            self._at(accepted_after + ends_after, partial(self._end, send, failure))
        self._wake_at = decision.wake_at
        self.broken += [
            lane.waiting(Call(99, (lane_id("a"),)), self.now).why
            for lane in self.controller.lanes.values()
            if lane.state is LaneState.DOWN
        ]

    def _at(self, seconds: float, event: Callable[[], LaneDecision | None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def _accept(self, send: Send) -> LaneDecision:
        return self.controller.first_byte(self.now, send.permit)

    def _end(self, send: Send, failure: Callable[[], Failure] | None) -> LaneDecision:
        if failure is None:
            self.answered[send.call] = self.now - made.START
            return self.controller.finished(self.now, send.permit, TokenUsage(1000, 100))
        self.lost[send.call].append(self.now)
        self.lost_on[send.call].append(send.lane)
        return self.controller.failed(self.now, send.permit, failure(), tokens=1000)


def most_within(moments: list[float], seconds: float) -> int:
    return max((sum(at <= each < at + seconds for each in moments) for at in moments), default=0)


FATES = st.tuples(
    st.sampled_from([0.01, 0.5, 3.0]),
    st.sampled_from([0.0, 0.05, 1.0, 15.0]),
    st.sampled_from([made.broken_stream, made.server_error, made.overloaded, made.throttled]),
)


@settings(max_examples=25, deadline=None)
@given(
    fates=st.lists(FATES, min_size=1, max_size=8),
    calls=st.integers(1, 12),
    lanes=st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")]),
    tokens=st.sampled_from([10, 100_000]),
)
def test_whatever_the_upstream_does_a_call_loses_few_answers_in_a_minute_and_in_an_hour(
    fates: list[Fate], calls: int, lanes: tuple[str, ...], tokens: int
) -> None:
    each = itertools.cycle(fates)
    world = World(lambda _, __: next(each), lanes)
    world.submit(calls, tokens)
    world.run(HOUR)
    for lost in world.lost.values():
        assert most_within(lost, MINUTE) <= 8 + len(lanes)
        assert len(lost) <= 20 + len(lanes)


def test_a_lane_that_cuts_everything_is_left_alone_and_probed_with_growing_pauses() -> None:
    world = World(lambda _, __: CUT)
    world.submit(40)
    world.run(HOUR)
    assert world.broken
    assert all("a breaks its answers off" in why for why in world.broken)
    assert most_within([at for at, _ in world.sent], MINUTE) <= 60
    late = [at for at, _ in world.sent if at >= made.START + HOUR / 2]
    assert most_within(late, MINUTE) <= 3


@pytest.mark.parametrize("calls", [1, 3, 40])
def test_an_outage_of_a_minute_that_cuts_all_answers_ends_with_everybody_answered(
    calls: int,
) -> None:
    world = World(lambda _, at: CUT if at < MINUTE else WHOLE)
    world.submit(calls)
    world.run(8 * MINUTE)
    assert len(world.answered) == calls


@pytest.mark.parametrize("seed", range(5))
def test_an_upstream_that_cuts_every_third_answer_by_chance_is_not_left_alone(seed: int) -> None:
    draw = random.Random(seed).random  # noqa: S311 -- a seeded draw, so that traces repeat
    world = World(lambda _, __: CUT if draw() < 1 / 3 else WHOLE)
    world.submit(60)
    world.run(10 * MINUTE)
    assert len(world.answered) == 60
    assert not world.broken


def test_answers_that_are_cut_all_at_once_are_one_event_and_asked_for_again_at_once() -> None:
    cut_at = 6.0

    def fate(_: Send, at: float) -> Fate:
        return (0.5, cut_at - at - 0.5, made.broken_stream) if at < cut_at - 0.1 else WHOLE

    world = World(fate)
    world.submit(8)
    world.run(2 * MINUTE)
    assert len(world.answered) == 8
    assert not world.broken
    assert max(world.answered.values()) < cut_at + 12


def test_a_call_that_one_lane_loses_again_and_again_goes_to_another_before_it_waits_long() -> None:
    world = World(lambda send, _: CUT if send.lane == lane_id("a") else WHOLE, ("a", "b"))
    world.submit(1)
    world.run(MINUTE)
    assert list(world.answered) == [1]
    assert world.lost_on[1] == [lane_id("a")] * 6


def test_what_waits_after_losses_says_what_happened_and_what_it_has_cost() -> None:
    world = World(lambda _, __: CUT)
    world.submit(1)
    world.run(2 * MINUTE)
    told = world.controller.waiting(world.now, 1)
    assert told is not None
    lost = len(world.lost[1])
    assert lost >= 6
    assert told.why.startswith(f"{lost} answers to it began on a and broke off, with {lost},000")
    assert "another upstream" in told.why
    assert told.until is not None


def test_a_cut_answer_is_one_bad_result_and_its_beginning_does_not_count() -> None:
    health = LaneHealth(ControllerSettings(), 0.0)
    for number in range(12):
        at = float(number)
        health.accepted(at)
        health.take_back(at)
        health.cut(at + 0.5, at)
    assert health.cuts_everything(12.0, alone=False)
    assert health.accepts_per_second(12.0) == pytest.approx(0.0, abs=1e-9)
