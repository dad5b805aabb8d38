"""What the user says of a lane's limits can change while the lane is open."""

from __future__ import annotations

from jackline.dialects import TokenUsage
from jackline.lane_id import LaneId
from jackline.lanes import Call, KnownLimits, LaneController, LaneSettings

LANE = LaneId("up", "model", "a")


def controller(limits: KnownLimits) -> LaneController:
    return LaneController([LaneSettings(LANE, limits)], lambda: 0.5)


def test_calls_that_waited_for_a_limit_go_once_it_is_lifted() -> None:
    lanes = controller(KnownLimits(parallel=1))
    assert len(lanes.submit(0.0, Call(1, (LANE,))).sends) == 1
    assert lanes.submit(0.0, Call(2, (LANE,))).sends == []
    decision = lanes.limit_lane(1.0, LaneSettings(LANE, KnownLimits(parallel=2)))
    assert [send.call for send in decision.sends] == [2]


def test_a_new_limit_holds_for_the_next_call_and_nothing_in_flight_is_dropped() -> None:
    lanes = controller(KnownLimits())
    sent = [lanes.submit(0.0, Call(n, (LANE,))).sends[0] for n in range(3)]
    lanes.limit_lane(1.0, LaneSettings(LANE, KnownLimits(parallel=1)))
    assert lanes.calls_in_flight == 3
    assert lanes.submit(2.0, Call(9, (LANE,))).sends == []
    for number, send in enumerate(sent[:2]):
        assert lanes.finished(3.0 + number, send.permit, TokenUsage(1, 1)).sends == []
    assert [s.call for s in lanes.finished(6.0, sent[2].permit, TokenUsage(1, 1)).sends] == [9]


def test_limits_per_minute_come_go_and_stay_as_they_are_when_not_touched() -> None:
    lanes = controller(KnownLimits(requests_per_minute=60, input_tokens_per_minute=1000))
    lane = lanes.lanes[LANE]
    kept = lane.buckets["input"]
    changed = KnownLimits(output_tokens_per_minute=500, input_tokens_per_minute=1000)
    lanes.limit_lane(1.0, LaneSettings(LANE, changed))
    assert set(lane.buckets) == {"input", "output"}
    assert lane.buckets["input"] is kept
