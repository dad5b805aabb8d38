"""Slow is not dead: a healthy provider is waited for, and asked beside rather than cut.

Rules: (1) virtual time: a heap of what the provider will say; (2) the provider answers everything
that is not hung up on, each attempt after a delay of its own; (3) an answer counts as bought once
it was completed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.dialects import TokenUsage
from jackline.lane_id import LaneId
from jackline.lanes import Call, LaneController, LaneDecision, LaneSettings
from jackline.lanes.settings import ControllerSettings, PatienceSettings
from jackline.states import LaneState
from tests.lane_ids import lane_id
from tests.lanes import failures_made as made

NOW = made.START
Delay = Callable[[int, LaneId, float], float]


class World:
    """A provider that is slow and healthy, and the controller before it."""

    def __init__(
        self,
        lanes: tuple[str, ...],
        first_byte: Delay,
        given: ControllerSettings | None = None,
        *,
        local: bool = False,
    ) -> None:
        self.now = NOW
        self.lanes = tuple(map(lane_id, lanes))
        self.controller = LaneController(
            [LaneSettings(lane_id(name), local=local) for name in lanes],
            random.Random(3).random,  # noqa: S311 -- a seeded draw, so that traces repeat
            now=NOW,
            settings=given,
        )
        self.first_byte = first_byte
        self.gap = 0.0
        self.speaks_for = 2.0
        self.streams = True
        # The provider says at once that it has taken the call, and then thinks.
        self.thinks = False
        self.sent: list[tuple[float, int, LaneId, bool]] = []
        self.completed: list[tuple[int, float]] = []
        self.aborts = 0
        self._flying: dict[int, tuple[int, LaneId]] = {}
        self._events: list[tuple[float, int, int, str]] = []
        self._count = 0
        self._wake: float | None = None

    def submit(self, number: int, *, stream: bool = True) -> None:
        self.streams = stream
        call = Call(number, self.lanes, max_tokens=1000, stream=stream)
        self.follow(self.controller.submit(self.now, call))

    def follow(self, decision: LaneDecision) -> None:
        ended = [each.permit for each in decision.aborts]
        for permit in (*ended, *decision.hang_ups):
            self._flying.pop(permit, None)
        self.aborts += len(decision.aborts)
        assert not decision.refusals
        for send in decision.sends:
            self.sent.append((self.now - NOW, send.call, send.lane, send.beside))
            self._flying[send.permit] = (send.call, send.lane)
            delay = self.first_byte(send.call, send.lane, self.now - NOW)
            if self.thinks and self.streams:
                self._later(0.1 * delay, send.permit, "taken")
            self._later(delay, send.permit, "begins")
        self._wake = decision.wake_at

    def _later(self, delay: float, permit: int, what: str) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, permit, what))

    def run(self, seconds: float) -> None:
        """Let time pass, until nothing happens any more or so many seconds have passed."""
        end = self.now + seconds
        for _ in range(20_000):
            event = self._events[0][0] if self._events else end
            wake = end if self._wake is None else self._wake
            at = min(event, wake)
            if at >= end or not (self._flying or self.controller.calls_waiting):
                self.now = end
                return
            self.now = max(self.now, at)
            if event <= wake:
                _, _, permit, what = heapq.heappop(self._events)
                self._happens(permit, what)
            else:
                self._wake = None
                self.follow(self.controller.tick(self.now))
        raise AssertionError("the controller asks to be woken again and again")

    def _happens(self, permit: int, what: str) -> None:
        if permit not in self._flying:
            return
        if what == "taken":
            self.follow(self.controller.first_byte(self.now, permit, begun=False))
        elif what == "begins":
            if self.thinks:
                self._received(permit)
            elif self.streams:
                self.follow(self.controller.first_byte(self.now, permit))
            self._later(self.gap or self.speaks_for, permit, "speaks" if self.gap else "ends")
        elif what == "speaks":
            self._received(permit)
            self._later(self.speaks_for, permit, "ends")
        else:
            call, _ = self._flying.pop(permit)
            self.completed.append((call, self.now - NOW))
            self.follow(self.controller.finished(self.now, permit, TokenUsage(10, 10)))

    def _received(self, permit: int) -> None:
        decision = self.controller.received(self.now, permit)
        if decision is not None:
            self.follow(decision)

    @property
    def answered(self) -> set[int]:
        return {call for call, _ in self.completed}


@pytest.mark.parametrize(("seconds", "agents"), [(9, 10), (12, 10), (15, 4), (25, 1), (55, 10)])
def test_a_provider_that_needs_long_for_its_first_byte_is_waited_for(
    seconds: float, agents: int
) -> None:
    world = World(("opus",), lambda *_: seconds)
    for number in range(agents):
        world.submit(number)
    world.run(3 * seconds + 10)
    assert world.answered == set(range(agents))
    assert len(world.sent) == agents, "nobody is asked for twice"
    assert len(world.completed) == agents


def test_a_cold_model_is_waited_for_and_costs_at_most_two_more() -> None:
    world = World(("local",), lambda _, __, at: max(2.0, 90.0 - at))
    for number in range(20):
        world.submit(number)
    world.run(300)
    assert world.answered == set(range(20))
    assert len(world.completed) == 20, "no answer was bought twice"
    assert len(world.sent) <= 22


def test_no_call_is_asked_twice_of_a_server_of_ones_own() -> None:
    world = World(("local",), lambda _, __, at: max(2.0, 280.0 - at), local=True)
    for number in range(4):
        world.submit(number)
        world.run(1)
    world.run(400)
    assert world.answered == set(range(4))
    assert len(world.sent) == 4


def test_silence_of_one_call_on_the_only_lane_is_asked_beside_and_the_first_answer_wins() -> None:
    """Ten calls were quick; the eleventh is lost on its way, and is not waited for for long."""
    world = World(("opus",), lambda call, _, at: 1e9 if call == 10 and at < 60 else 1.0)
    for number in range(10):
        world.submit(number)
        world.run(5)
    world.submit(10)
    world.run(70)
    assert 10 in world.answered
    assert [beside for _, call, _, beside in world.sent if call == 10] == [False, True]
    assert not world.controller.calls_in_flight, "the lost attempt was hung up on"
    assert world.controller.lanes[lane_id("opus")].state is LaneState.OPEN


def test_a_call_that_another_lane_can_take_is_asked_there_beside_its_own() -> None:
    world = World(
        ("opus", "elsewhere"), lambda _, lane, __: 100.0 if lane.upstream == "opus" else 3.0
    )
    world.submit(1)
    world.run(70)
    assert [(lane.upstream, beside) for _, _, lane, beside in world.sent] == [
        ("opus", False),
        ("elsewhere", True),
    ]
    ((call, at),) = world.completed
    assert (call, round(at)) == (1, 65)
    assert world.aborts == 0


def test_the_silent_attempt_wins_if_it_speaks_first() -> None:
    world = World(
        ("opus", "elsewhere"), lambda _, lane, __: 61.0 if lane.upstream == "opus" else 30.0
    )
    world.submit(1)
    world.run(200)
    ((call, at),) = world.completed
    assert (call, round(at)) == (1, 63)
    assert world.controller.calls_in_flight == 0


def test_patience_is_learned_from_first_bytes_that_came_late() -> None:
    world = World(("opus",), lambda *_: 70.0)
    world.submit(0)
    world.run(80)
    asked = len(world.sent)
    for number in range(1, 6):
        world.submit(number)
        world.run(80)
    assert world.answered == set(range(6))
    assert len(world.sent) - asked == 5, "after one late answer nobody is asked for beside"


def test_patience_is_learned_from_models_that_think_after_they_were_taken_on() -> None:
    world = World(("gpt",), lambda *_: 70.0)
    world.thinks = True
    for number in range(12):
        world.submit(number)
        world.run(80)
    assert world.answered == set(range(12))
    assert len(world.sent) <= 13, "only the first may have been asked for beside"


def test_hedges_that_are_not_needed_stay_few_whatever_the_provider_does() -> None:
    """Each first byte takes longer than the one before, so whatever is learned is too short."""
    slow = {"next": 1.0}

    def doubling(*_: object) -> float:
        slow["next"] = min(500.0, slow["next"] * 1.5)
        return slow["next"]

    world = World(("opus",), doubling)
    for number in range(200):
        world.submit(number)
        world.run(700 if number % 2 else 1)
    world.run(20_000)
    assert world.answered == set(range(200))
    assert len(world.sent) <= 200 + 2 + 0.01 * 200


def test_a_lane_that_is_heard_is_alive_however_many_are_silent() -> None:
    world = World(("opus",), lambda call, *_: 200.0 if call < 7 else 1.0)
    for number in range(7 + 30):
        world.submit(number)
        world.run(5 if number >= 7 else 0)
    assert world.controller.lanes[lane_id("opus")].state is not LaneState.DOWN


def test_a_lane_on_which_everything_stops_in_mid_answer_is_left_alone_and_nobody_is_cut() -> None:
    """The provider stands still for 15 s in the middle of its answers, and then goes on."""
    world = World(("opus",), lambda *_: 1.0)
    world.gap = 15.0
    for number in range(8):
        world.submit(number)
    world.run(12)
    assert world.controller.lanes[lane_id("opus")].is_silent
    world.run(30)
    assert world.controller.lanes[lane_id("opus")].state is LaneState.OPEN, (
        "it was slow, and not dead"
    )
    assert len(world.completed) == 8
    assert world.aborts == 0


def test_calls_of_a_silent_lane_are_asked_for_elsewhere_at_once() -> None:
    world = World(("opus", "elsewhere"), lambda *_: 1.0)
    world.gap = 1e9
    for number in range(4):
        world.submit(number)
    world.run(9)
    world.gap = 0.0
    world.run(4)
    assert world.answered == set(range(4))
    assert world.aborts == 0


def test_a_probe_is_as_patient_as_any_call_and_another_may_ask_meanwhile() -> None:
    world = World(("opus",), lambda *_: 40.0)
    lane = world.controller.lanes[lane_id("opus")]
    lane.break_down(None, NOW)
    for number in range(3):
        world.submit(number)
    world.run(200)
    assert world.answered == {0, 1, 2}
    assert world.aborts == 0
    assert len(world.completed) == 3


def test_time_in_which_this_process_stood_still_is_no_silence() -> None:
    world = World(("opus",), lambda *_: 1.0)
    world.gap = 1e9
    for number in range(8):
        world.submit(number)
    world.run(2)
    world.now += 30
    world.controller.stood_still(world.now, 30)
    world.follow(world.controller.tick(world.now))
    assert not world.controller.lanes[lane_id("opus")].is_silent
    assert world.aborts == 0


def test_instant_errors_are_not_met_ten_times_in_a_moment() -> None:
    world = World(("opus",), lambda *_: 1e9)
    world.submit(1)
    now, failures = NOW, 0
    while failures < 10:
        for permit in list(world._flying):
            del world._flying[permit]
            failures += 1
            world.follow(world.controller.failed(now, permit, made.server_error()))
        if not world._flying:
            assert world._wake is not None
            now = world.now = max(now, world._wake)
            world.follow(world.controller.tick(now))
    assert now - NOW > 3


PATIENCE = st.builds(
    PatienceSettings,
    first_byte=st.floats(0.0, 600.0),
    first_byte_per_token=st.floats(0.0, 0.01),
    probe=st.floats(0.0, 60.0),
    between_bytes=st.floats(0.01, 60.0),
    whole_answer=st.floats(0.0, 600.0),
    whole_answer_per_token=st.floats(0.0, 0.1),
    lane_silence=st.floats(0.0, 60.0),
    lane_silence_calls=st.integers(1, 4),
)


@settings(max_examples=200, deadline=None)
@given(
    patience=PATIENCE,
    lanes=st.sampled_from([("opus",), ("opus", "elsewhere")]),
    delays=st.lists(st.floats(0.0, 590.0), min_size=1, max_size=12),
    gap=st.sampled_from([0.0, 5.0, 15.0]),
    streams=st.booleans(),
    thinks=st.booleans(),
    agents=st.integers(1, 12),
)
def test_whoever_waits_ten_minutes_for_a_provider_that_answers_within_ten_is_answered(
    *,
    patience: PatienceSettings,
    lanes: tuple[str, ...],
    delays: list[float],
    gap: float,
    streams: bool,
    thinks: bool,
    agents: int,
) -> None:
    """Whatever the settings; each attempt has a delay of its own."""
    turns = {"next": 0}

    def delay(*_: object) -> float:
        turns["next"] += 1
        return delays[turns["next"] % len(delays)]

    world = World(lanes, delay, ControllerSettings(patience=patience))
    world.gap, world.thinks = gap, thinks
    for number in range(agents):
        world.submit(number, stream=streams)
    # Not all are sent at once: after each ten minutes some must have been answered.
    world.run(agents * 2 * 660.0)
    assert world.answered == set(range(agents))
    assert len(world.completed) == agents, "no answer was bought twice"
