"""What a refused call has taken of its lane's limits is given back, where nothing was counted."""

from __future__ import annotations

import pytest

from jackline.failures import Failure
from jackline.lane_id import LaneId
from jackline.lanes import Call, KnownLimits, LaneController, LaneSettings
from tests.lanes.failures_made import START, failure, throttled

LANE = LaneId("up", "model", "a")
LIMITS = KnownLimits(
    requests_per_minute=60, input_tokens_per_minute=1000, output_tokens_per_minute=1000
)
FULL = {"requests": 60.0, "input": 1000.0, "output": 1000.0}
OF_THE_CALL = {
    "401": failure(401, "invalid bearer token"),
    "403": failure(403, "permission_error: not allowed"),
    "400": failure(400, "max_tokens: must be positive"),
    "404": failure(404, "not_found_error: model: claude-x"),
}


def refused(why: Failure, *, received: bool = False) -> dict[str, float]:
    """What is left of the limits when a call was refused, perhaps after its answer had begun."""
    lanes = LaneController([LaneSettings(LANE, LIMITS)], lambda: 0.5, now=START)
    (send,) = lanes.submit(START, Call(1, (LANE,), input_tokens=900)).sends
    if received:
        lanes.first_byte(START, send.permit, {})
    lanes.failed(START, send.permit, why, {})
    return {name: each.level_at(START) for name, each in lanes.lanes[LANE].buckets.items()}


@pytest.mark.parametrize("why", OF_THE_CALL.values(), ids=OF_THE_CALL)
def test_a_refusal_that_concerns_the_call_alone_costs_the_lane_nothing(why: Failure) -> None:
    assert refused(why) == FULL


def test_a_refusal_of_an_answer_that_had_begun_leaves_its_input_spent() -> None:
    left = refused(OF_THE_CALL["400"], received=True)
    assert (left["requests"], left["input"]) == (59.0, 100.0)


def test_a_throttled_call_leaves_its_input_spent() -> None:
    left = refused(throttled())
    assert (left["requests"], left["input"], left["output"]) == (59.0, 100.0, 1000.0)
