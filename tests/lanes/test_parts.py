"""The parts of a lane: states, window, bucket, queue, and what they promise each other."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects import TokenUsage
from jackline.failures import Kind
from jackline.lane_id import LaneId
from jackline.lanes import Call, LaneController, LaneSettings
from jackline.lanes.breaker import FLOWING, TRANSITIONS, LaneEvent, after
from jackline.lanes.estimators import ConcurrencyWindow
from jackline.lanes.queue import Queue, QueueEntry
from jackline.lanes.rate_limits import LimitBucket
from jackline.lanes.reactions import _BY_KIND
from jackline.lanes.settings import ConcurrencyWindowSettings
from jackline.states import LaneState
from tests.lane_ids import lane_id
from tests.lanes import failures_made as made

NOW = made.START


def controller(*names: str) -> LaneController:
    lanes = [LaneSettings(lane_id(name)) for name in names or ("opus",)]
    draw = random.Random(1).random  # noqa: S311 -- seeded, so that tests repeat
    return LaneController(lanes, draw, now=NOW)


def test_every_state_can_be_reached_and_left() -> None:
    reached = set(TRANSITIONS.values())
    left = {old for (old, _), new in TRANSITIONS.items() if new is not old}
    assert reached == left == set(LaneState)


def test_only_what_is_heard_leads_out_of_parked_and_broken() -> None:
    for (old, event), new in TRANSITIONS.items():
        if old not in FLOWING and new in FLOWING:
            assert event in (LaneEvent.PROBE_ACCEPTED, LaneEvent.ANSWERS_AGAIN)


def test_a_transition_that_is_not_in_the_table_is_a_bug() -> None:
    with pytest.raises(ValueError, match="cannot be"):
        after(LaneState.OPEN, LaneEvent.PROBE_ACCEPTED)


def test_the_diagram_in_the_docs_is_drawn_from_the_table() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "lanes.md").read_text("utf-8")
    lines = ["stateDiagram-v2", "    [*] --> open"]
    lines += [f"    {old} --> {new}: {event}" for (old, event), new in TRANSITIONS.items()]
    assert "\n".join(lines) + "\n" in docs


def test_every_kind_of_failure_has_a_reaction() -> None:
    assert set(_BY_KIND) == set(Kind)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 5000)), max_size=30),
    st.floats(1, 100_000),
)
def test_a_bucket_never_holds_more_than_its_cap(
    steps: list[tuple[float, float]], limit: float
) -> None:
    bucket, now = LimitBucket.per_minute(limit, 0.0), 0.0
    for pause, amount in steps:
        now += pause
        bucket.take(amount, now)
        assert bucket.level_at(now) <= bucket.cap
        ready = bucket.ready_at(amount, now)
        assert ready >= now
        assert bucket.level_at(ready) >= min(amount, bucket.cap) - 1e-6 * bucket.cap - 1e-6


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60), st.floats(0, 30)), max_size=60))
def test_a_window_is_never_below_one_and_grows_only_when_used(
    steps: list[tuple[bool, int, float]],
) -> None:
    window, now = ConcurrencyWindow(ConcurrencyWindowSettings(), 0.0), 0.0
    for accepted, in_flight, pause in steps:
        now += pause
        before = window.size
        if accepted:
            window.accepted(in_flight, now)
            assert window.size >= before
            if in_flight < 0.8 * int(before):
                assert window.size == before
        else:
            window.rejected(in_flight, now)
        assert window.limit() >= 1


@given(st.lists(st.tuples(st.floats(-1000, 1000), st.booleans()), max_size=60))
def test_a_queue_gives_both_ends_in_order_whatever_leaves_in_between(
    steps: list[tuple[float, bool]],
) -> None:
    queue, waiting = Queue(), []
    for number, (urgency, leaves) in enumerate(steps):
        entry = QueueEntry(Call(number, (lane_id("opus"),)), (lane_id("opus"),), urgency)
        queue.push(entry)
        waiting.append(entry)
        if leaves:
            first = queue.head(0.0, aged=True, crowded=False)
            assert first is not None
            queue.remove(first.entry)
            waiting.remove(first.entry)
        assert queue.waiting == len(waiting)
        urgencies = [each.urgency for each in waiting]
        first, last = queue.head(0.0, aged=True, crowded=False), queue.least_urgent()
        assert (first.key if first else None) == min(urgencies, default=None)
        assert (last.urgency if last else None) == max(urgencies, default=None)


def test_three_identical_declines_end_the_call_with_their_cause() -> None:
    world, now = controller(), NOW
    (send,) = world.submit(now, Call(1, (lane_id("opus"),))).sends
    for attempt in (1, 2, 3):
        decision = world.failed(now, send.permit, made.declined())
        if attempt == 3:
            assert [refusal.failure.kind for refusal in decision.refusals] == [Kind.OVERLOADED]
            return
        assert not decision.refusals
        while not decision.sends:
            assert decision.wake_at is not None
            now = decision.wake_at
            decision = world.tick(now)
        (send,) = decision.sends


def test_a_prompt_of_150k_tokens_may_think_for_a_minute_longer() -> None:
    world = controller()
    world.submit(NOW, Call(1, (lane_id("opus"),), input_tokens=150_000))
    assert not world.tick(NOW + 119).sends
    assert [send.beside for send in world.tick(NOW + 121).sends] == [True]


def test_a_stream_that_pings_is_never_given_up() -> None:
    world = controller()
    (send,) = world.submit(NOW, Call(1, (lane_id("opus"),))).sends
    world.first_byte(NOW + 1, send.permit)
    for second in range(2, 3000, 15):
        world.received(NOW + second, send.permit)
        assert not world.tick(NOW + second).aborts


def test_more_remaining_work_goes_first_and_waiting_long_overtakes() -> None:
    world = controller()
    first = [world.submit(NOW, Call(n, (lane_id("opus"),))).sends[0] for n in range(8)]
    world.submit(NOW, Call(100, (lane_id("opus"),), remaining=10))
    world.submit(NOW, Call(101, (lane_id("opus"),), remaining=500))
    sent = world.finished(NOW + 1, first[0].permit, TokenUsage()).sends
    assert [send.call for send in sent] == [101, 100], "one place came free, and the window grew"
    world.submit(NOW + 2, Call(103, (lane_id("opus"),), remaining=10))
    late = NOW + 100_000
    world.submit(late, Call(102, (lane_id("opus"),), remaining=400))
    sent = world.finished(late, first[1].permit, TokenUsage()).sends
    assert sent[0].call == 103


OUTPUT_LIMIT = 6_000
OUTPUT_HEADERS = {
    "anthropic-ratelimit-output-tokens-limit": str(OUTPUT_LIMIT),
    "anthropic-ratelimit-output-tokens-remaining": "700",
}


def promising() -> tuple[LaneController, list[int]]:
    """A lane with 700 tokens of output left and 100 a second, and the permits in flight on it."""
    world = controller()
    sends = world.submit(NOW, Call(0, (lane_id("opus"),))).sends
    world.first_byte(NOW, sends[0].permit, OUTPUT_HEADERS)
    for number in range(1, 30):
        sends += world.submit(NOW, Call(number, (lane_id("opus"),))).sends
    return world, [send.permit for send in sends]


def test_output_that_comes_in_while_answers_are_written_may_be_promised() -> None:
    world, permits = promising()
    lane = world.lanes[lane_id("opus")]
    promised = sum(attempt.expected_output for attempt in lane.attempts.values())
    refill = lane.buckets["output"].rate * lane.allowance.average_service
    assert len(permits) > 1, "not only what the bucket holds"
    assert len(permits) < lane.window.limit(), "and not all that the window has room for"
    assert promised <= 700 + refill + lane.allowance.average_output


def test_nothing_is_sent_while_the_output_bucket_holds_less_than_an_answer() -> None:
    world, permits = promising()
    sent = world.finished(NOW + 1, permits[0], TokenUsage(0, 600)).sends
    assert not sent, "700 tokens and a second's refill, less 600"
    for second in range(2, 4):
        assert not world.tick(NOW + second).sends
    assert world.tick(NOW + 6).sends


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4_000), st.floats(0, 10)), max_size=60))
def test_what_was_promised_is_what_is_in_flight(steps: list[tuple[int, int, float]]) -> None:
    world, _ = promising()
    lane, now = world.lanes[lane_id("opus")], NOW
    for what, output, pause in steps:
        now += pause
        if permit := next(iter(lane.attempts), 0):
            if what == 0:
                world.finished(now, permit, TokenUsage(0, output))
            elif what == 1:
                world.first_byte(now, permit, OUTPUT_HEADERS)
            elif what == 2:
                world.failed(now, permit, made.throttled())
            else:
                world.aborted(now, lane.attempts[permit].call.id)
        world.tick(now)
        expected = sum(attempt.expected_output for attempt in lane.attempts.values())
        assert lane.allowance.promised == pytest.approx(expected)


def test_a_wall_of_the_account_parks_its_other_models_too() -> None:
    draw = random.Random(1).random  # noqa: S311
    world = LaneController(
        [
            LaneSettings(LaneId("up", "opus", "me")),
            LaneSettings(LaneId("up", "haiku", "me")),
            LaneSettings(LaneId("up", "other", "you")),
        ],
        draw,
        now=NOW,
    )
    (send,) = world.submit(NOW, Call(1, (LaneId("up", "opus", "me"),))).sends
    world.failed(NOW, send.permit, made.wall(NOW, 3600))
    states = {name.model: lane.state for name, lane in world.lanes.items()}
    assert states == {"opus": LaneState.PARKED, "haiku": LaneState.PARKED, "other": LaneState.OPEN}
    waiting = world.waiting(NOW, 1)
    assert waiting is not None
    assert waiting.until is not None


def sent_after_a_wall(resets_in: float | None, seconds: float) -> int:
    """How many of 40 waiting calls go within so many seconds of the probe that was accepted."""
    world = controller()
    lane = world.lanes[lane_id("opus")]
    lane.window.size = 30.0
    (first,) = world.submit(NOW, Call(0, (lane_id("opus"),))).sends
    world.failed(NOW, first.permit, made.wall(NOW, resets_in))
    for number in range(1, 40):
        world.submit(NOW, Call(number, (lane_id("opus"),)))
    now = NOW
    while not (decision := world.tick(now)).sends:
        now = max(now + 1, decision.wake_at or now)
    up, probe = now, decision.sends[0].permit
    sends = list(world.first_byte(now, probe).sends)
    while now < up + seconds:
        now += 0.1
        world.received(now, probe)
        sends += world.tick(now).sends
    return len(sends)


def test_after_a_reset_that_was_told_only_the_ramp_holds_calls_back() -> None:
    assert sent_after_a_wall(3600, 3) < 15, "not all at once"
    assert sent_after_a_wall(3600, 11) >= 28, "as many at once as before the wall"


def test_after_a_wall_that_told_no_reset_the_window_has_to_grow_again() -> None:
    assert sent_after_a_wall(None, 11) < 5, "nothing but the probe was accepted yet"


def test_same_seed_same_trace() -> None:
    def trace() -> list[tuple[float, int, LaneId]]:
        world = controller("a", "b")
        sent: list[tuple[float, int, LaneId]] = []
        decisions = [world.submit(NOW, Call(n, (lane_id("a"), lane_id("b")))) for n in range(40)]
        now = NOW
        for step in range(60):
            for decision in decisions:
                sent += [(now, send.call, send.lane) for send in decision.sends]
            live = list(world._attempts)
            decisions = [
                world.failed(now, permit, made.throttled() if step % 3 else made.server_error())
                for permit in live[:3]
            ]
            now += 2
            decisions.append(world.tick(now))
        return sent

    assert trace() == trace()


def test_a_stream_that_froze_once_froze_by_chance_and_one_that_freezes_again_is_slow() -> None:
    lanes = controller()
    now, waits = NOW, []
    decision = lanes.submit(now, Call(1, (lane_id("opus"),)))
    for _ in range(4):
        assert len(decision.sends) == 1
        sent = now
        decision = lanes.first_byte(now, decision.sends[0].permit)
        while True:
            now = max(now + 0.5, decision.wake_at or now)
            decision = lanes.tick(now)
            if decision.aborts:
                break
        waits.append(now - sent)
        while not decision.sends:
            now = max(now + 0.5, decision.wake_at or now)
            decision = lanes.tick(now)
    first, *longer = [later / earlier for earlier, later in pairwise(waits)]
    assert 0.9 < first < 1.1, waits
    assert all(1.9 < ratio < 2.2 for ratio in longer), waits
