"""A lane whose places are all taken by silent attempts goes on working.

Rules: (1) virtual time, with the provider of test_slow.py; (2) the first test is what an hour's
soak met: sixteen answers without a stream never came, and held all places of their lane for 15 min.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.lane_id import LaneId
from jackline.lanes import Call, LaneController, LaneDecision, LaneSettings
from jackline.lanes.settings import ConcurrencyWindowSettings, ControllerSettings, KnownLimits
from jackline.states import LaneState
from tests.lane_ids import lane_id
from tests.lanes import failures_made as made
from tests.lanes.test_slow import NOW, Delay, World

NEVER = 1e9
# What the gateway gives a client without a stream that does not say how long it waits.
LEAVES_AFTER = 252.0


def _world(delay: Delay, parallel: int, *, local: bool = False) -> World:
    world = World(("opus",), delay)
    limits = KnownLimits(parallel=parallel)
    world.controller = LaneController(
        [LaneSettings(lane_id("opus"), limits, local=local)],
        random.Random(3).random,  # noqa: S311 -- a seeded draw, so that traces repeat
        now=NOW,
        settings=ControllerSettings(window=ConcurrencyWindowSettings(start=float(parallel))),
    )
    world.speaks_for = 0.1
    return world


def _warm_up(world: World, answers: int = 20) -> None:
    """Let the lane give some answers without a stream, so that it is known how long they take."""
    for number in range(10_000, 10_000 + answers):
        world.submit(number, stream=False)
        world.run(3)


def _sent_at(world: World, number: int) -> float:
    return next(at for at, call, _, _ in world.sent if call == number)


def test_whoever_waits_behind_answers_that_never_come_is_sent_before_its_client_leaves() -> None:
    world = _world(lambda call, _lane, at: NEVER if call < 16 and at < 100 else 1.5, parallel=16)
    _warm_up(world)
    began = world.now - NOW
    for number in range(30):
        world.submit(number, stream=False)
    world.run(1_000)
    waited = [_sent_at(world, number) - began for number in range(16, 30)]
    assert max(waited) < LEAVES_AFTER
    assert set(range(30)) <= world.answered
    assert len(world.sent) == 20 + 30 + 16, "each that hung is asked once more"


def test_an_answer_that_never_comes_is_asked_for_beside_though_the_lane_is_full() -> None:
    """Nothing is known yet of how long answers take there."""
    world = _world(lambda _call, _lane, at: NEVER if at < 1 else 1.5, parallel=4)
    for number in range(12):
        world.submit(number, stream=False)
    world.run(400)
    assert world.answered == set(range(12))


def test_streams_that_never_begin_are_asked_for_beside_on_a_lane_of_two_places() -> None:
    """Two are too few to show that the whole lane is silent."""
    world = _world(lambda _call, _lane, at: NEVER if at < 1 else 1.5, parallel=2)
    for number in range(6):
        world.submit(number)
    world.run(90)
    assert world.answered == set(range(6))


def test_a_slow_answer_whose_place_was_lent_is_not_paid_for_twice() -> None:
    world = _world(lambda call, *_: 280.0 if call < 4 else 1.5, parallel=4)
    _warm_up(world)
    for number in range(8):
        world.submit(number, stream=False)
    world.run(1_000)
    assert set(range(8)) <= world.answered
    assert len(world.sent) == 20 + 8
    assert world.aborts == 0


def test_a_server_of_ones_own_lends_no_places() -> None:
    world = _world(lambda call, *_: 280.0 if call < 2 else 1.5, parallel=2, local=True)
    _warm_up(world)
    began = world.now - NOW
    for number in range(4):
        world.submit(number, stream=False)
    world.run(1_000)
    assert _sent_at(world, 2) - began >= 280.0


@settings(max_examples=60, deadline=None)
@given(
    parallel=st.integers(1, 6),
    hangs=st.lists(st.booleans(), min_size=1, max_size=40),
)
def test_a_lane_never_has_more_than_twice_its_places_open(parallel: int, hangs: list[bool]) -> None:
    most = 0

    def delay(call: int, _lane: LaneId, _at: float) -> float:
        nonlocal most
        most = max(most, world.controller.calls_in_flight)
        return NEVER if call < len(hangs) and hangs[call] else 1.5

    world = _world(delay, parallel)
    _warm_up(world, 5)
    for number in range(len(hangs)):
        world.submit(number, stream=False)
        world.run(7)
    world.run(3_000)
    assert most <= 2 * parallel


def test_an_answer_that_never_comes_does_not_keep_a_throttled_lane_closed() -> None:
    """What a soak met: the one call that was to find out whether a throttle has ended hung."""
    controller = LaneController([LaneSettings(lane_id("opus"))], lambda: 0.5, now=NOW)
    (send,) = controller.submit(NOW, Call(0, (lane_id("opus"),), stream=False)).sends
    decision = controller.failed(NOW + 0.3, send.permit, made.throttled(2))
    for number in range(1, 8):
        controller.submit(NOW + 1, Call(number, (lane_id("opus"),), stream=False))
    now = NOW + 1
    sent_at: list[float] = []
    while now < NOW + 60 and len(sent_at) < 8:
        assert decision.wake_at is not None
        now = max(now + 0.01, decision.wake_at)
        decision = controller.tick(now)
        sent_at += [now] * len(decision.sends)
    assert len(sent_at) == 8, "nobody answers, and nobody refuses: so all are sent"
    # One after the other, so that one refusal at a time is met if it has not ended.
    assert min(later - earlier for earlier, later in pairwise(sent_at)) >= 4.9


@pytest.mark.parametrize("slow", [0.0, 140.0])
def test_places_are_lent_in_time_where_answers_were_slow_or_none_was_seen(slow: float) -> None:
    """What a soak met: 18 answers hung on a lane whose answers had once taken minutes."""
    world = _world(lambda call, _lane, _at: slow if call == 10_000 else NEVER, parallel=16)
    if slow:
        world.submit(10_000, stream=False)
        world.run(int(slow) + 5)
    began = world.now - NOW
    for number in range(16):
        world.submit(number, stream=False)
    world.submit(99, stream=False)
    world.run(200)
    assert _sent_at(world, 99) - began < 200


def _sends_until(
    controller: LaneController, decision: LaneDecision, now: float, end: float
) -> list[float]:
    """When calls are sent from now on, though nothing is ever heard."""
    sent_at: list[float] = []
    while decision.wake_at is not None and decision.wake_at < end:
        now = max(now + 0.01, decision.wake_at)
        decision = controller.tick(now)
        sent_at += [now] * len(decision.sends)
    return sent_at


def test_silent_answers_do_not_fill_a_window_that_has_shrunk_below_their_number() -> None:
    """What an hour's soak met: fourteen hung, a throttle left six places, 43 were refused."""
    controller = LaneController(
        [LaneSettings(lane_id("opus"))],
        lambda: 0.5,
        now=NOW,
        settings=ControllerSettings(window=ConcurrencyWindowSettings(start=15.0)),
    )
    for number in range(14):
        controller.submit(NOW, Call(number, (lane_id("opus"),), stream=False))
    controller.lanes[lane_id("opus")].window.restart(6.0, 6.0, NOW + 1)
    decision = controller.submit(NOW + 1, Call(14, (lane_id("opus"),), stream=False))
    assert not decision.sends
    sent_at = _sends_until(controller, decision, NOW + 1, NOW + LEAVES_AFTER)
    assert len(sent_at) == 1
    # Whoever hangs on the smaller window adds no more places than that has.
    for number in range(15, 60):
        decision = controller.submit(
            NOW + LEAVES_AFTER, Call(number, (lane_id("opus"),), stream=False)
        )
    _sends_until(controller, decision, NOW + LEAVES_AFTER, NOW + 850)
    assert len(controller.lanes[lane_id("opus")].attempts) <= 14 + 6


def test_a_probe_without_a_stream_that_never_answers_makes_way_for_another() -> None:
    """What the same soak met: one probe hung, and its lane was left alone for six minutes."""
    controller = LaneController([LaneSettings(lane_id("opus"))], lambda: 0.5, now=NOW)
    now = NOW
    permits: list[int] = []
    for number in range(4):
        decision = controller.submit(now, Call(number, (lane_id("opus"),), stream=False))
        permits += [send.permit for send in decision.sends]
    # All fail until the lane is left alone, and the rest of them then.
    while permits:
        now += 0.5
        decision = controller.failed(now, permits.pop(), made.server_error())
        permits += [send.permit for send in (*decision.sends, *controller.tick(now).sends)]
    assert controller.lanes[lane_id("opus")].state is LaneState.DOWN
    first, second, *_ = _sends_until(controller, controller.tick(now), now, now + 600)
    assert second - first < LEAVES_AFTER
