"""Limits that the vendor's API told: below the user's word, above none, and never over headers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.lane_id import LaneId
from jackline.lanes import Call, KnownLimits, LaneController, LaneSettings, LimitOrigin
from jackline.lanes.lane import Lane
from jackline.lanes.memory import export, restore

LANE = LaneId("up", "model", "a")
NOTHING = KnownLimits()
FIFTY = KnownLimits(requests_per_minute=50)
HEADERS = {
    "anthropic-ratelimit-requests-limit": "20",
    "anthropic-ratelimit-requests-remaining": "3",
}


def given_lane(written: KnownLimits = NOTHING, vendor: KnownLimits = NOTHING) -> LaneSettings:
    return LaneSettings(LANE, written, vendor_limits=vendor)


def controller(written: KnownLimits = NOTHING, vendor: KnownLimits = NOTHING) -> LaneController:
    return LaneController([given_lane(written, vendor)], lambda: 0.5)


def lane_of(lanes: LaneController) -> Lane:
    return lanes.lanes[LANE]


def test_a_lane_begins_with_what_the_vendor_told() -> None:
    lane = lane_of(controller(vendor=FIFTY))
    assert lane.buckets["requests"].cap == 50
    assert lane.allowance.origins == {"requests": LimitOrigin.VENDOR}


def test_what_the_user_wrote_wins_dimension_by_dimension() -> None:
    vendor = KnownLimits(requests_per_minute=50, input_tokens_per_minute=30_000)
    lane = lane_of(controller(KnownLimits(requests_per_minute=5), vendor))
    assert {name: bucket.cap for name, bucket in lane.buckets.items()} == {
        "requests": 5,
        "input": 30_000,
    }
    assert lane.allowance.origins == {
        "requests": LimitOrigin.WRITTEN,
        "input": LimitOrigin.VENDOR,
    }


def test_headers_stay_the_truth_of_the_moment() -> None:
    lanes = controller(vendor=FIFTY)
    (send,) = lanes.submit(0.0, Call(1, (LANE,))).sends
    lanes.first_byte(0.0, send.permit, HEADERS)
    lane = lane_of(lanes)
    assert (lane.buckets["requests"].cap, lane.buckets["requests"].level_at(0.0)) == (20, 3)
    assert lane.allowance.origins == {"requests": LimitOrigin.HEADERS}
    lanes.limit_lane(2.0, given_lane(vendor=KnownLimits(requests_per_minute=80)))
    assert lane.buckets["requests"].cap == 20


def test_headers_that_say_the_same_leave_the_origin_of_the_number() -> None:
    lanes = controller(vendor=KnownLimits(requests_per_minute=20))
    (send,) = lanes.submit(0.0, Call(1, (LANE,))).sends
    lanes.first_byte(0.0, send.permit, HEADERS)
    assert lane_of(lanes).allowance.origins == {"requests": LimitOrigin.VENDOR}
    assert lane_of(lanes).buckets["requests"].level_at(0.0) == 3


def test_what_was_sent_before_the_limit_was_known_is_spent() -> None:
    lanes = controller()
    for number in range(8):
        lanes.submit(0.0, Call(number, (LANE,), input_tokens=1000))
    vendor = KnownLimits(requests_per_minute=50, input_tokens_per_minute=30_000)
    lanes.limit_lane(0.5, given_lane(vendor=vendor))
    buckets = lane_of(lanes).buckets
    assert 42 <= buckets["requests"].level_at(0.5) < 43
    assert 22_000 <= buckets["input"].level_at(0.5) < 22_500


def test_a_new_reading_resizes_and_does_not_refill() -> None:
    lanes = controller(vendor=FIFTY)
    for number in range(8):
        lanes.submit(0.0, Call(number, (LANE,)))
    lanes.limit_lane(0.0, given_lane(vendor=KnownLimits(requests_per_minute=60)))
    bucket = lane_of(lanes).buckets["requests"]
    assert (bucket.cap, bucket.level_at(0.0)) == (60, 42)


def test_a_limit_that_the_vendor_does_not_tell_any_more_is_none() -> None:
    lanes = controller(vendor=FIFTY)
    lanes.limit_lane(1.0, given_lane())
    assert lane_of(lanes).buckets == {}
    assert lane_of(lanes).allowance.origins == {}


def test_the_vendors_word_holds_again_once_the_user_takes_back_his() -> None:
    lanes = controller(KnownLimits(requests_per_minute=5), FIFTY)
    lanes.limit_lane(1.0, given_lane(vendor=FIFTY))
    assert lane_of(lanes).buckets["requests"].cap == 50
    assert lane_of(lanes).allowance.origins == {"requests": LimitOrigin.VENDOR}


def test_a_reading_outweighs_what_was_remembered_over_a_restart() -> None:
    before = controller()
    (send,) = before.submit(0.0, Call(1, (LANE,))).sends
    before.first_byte(1.0, send.permit, HEADERS)
    memory = export(before, 2.0)
    after = controller()
    assert restore(after, memory, 3.0) == [LANE]
    lane = lane_of(after)
    assert lane.buckets["requests"].cap == 20
    after.limit_lane(3.0, given_lane(vendor=FIFTY))
    assert lane.buckets["requests"].cap == 50
    assert lane.buckets["requests"].level_at(3.0) < 20
    assert lane.allowance.origins == {"requests": LimitOrigin.VENDOR}


_limits = st.builds(
    KnownLimits,
    st.none() | st.integers(1, 1000),
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(1, 10**6),
)


@given(st.lists(st.tuples(_limits, _limits), min_size=1, max_size=6))
def test_whatever_is_said_in_turn_the_last_word_of_the_stronger_holds(
    said: list[tuple[KnownLimits, KnownLimits]],
) -> None:
    lanes = controller(*said[0])
    for now, (written, vendor) in enumerate(said[1:], 1):
        lanes.limit_lane(float(now), given_lane(written, vendor))
    written, vendor = said[-1]
    lane = lane_of(lanes)
    for dimension, name in (
        ("requests", "requests_per_minute"),
        ("input", "input_tokens_per_minute"),
        ("output", "output_tokens_per_minute"),
    ):
        user, api = getattr(written, name), getattr(vendor, name)
        limit = api if user is None else user
        bucket = lane.buckets.get(dimension)
        assert (None if bucket is None else bucket.cap) == limit
        origin = None
        if limit is not None:
            origin = LimitOrigin.VENDOR if user is None else LimitOrigin.WRITTEN
        assert lane.allowance.origins.get(dimension) is origin
