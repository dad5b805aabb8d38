"""Counting calls: exact, and bounded whatever clients send."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jackline.control.observatory import MOST_LANES, NO_LANE, OTHERS, CallCounters
from jackline.events import AttemptFailed, CallEnded
from jackline.lane_id import LaneId

OUTCOMES = ("answered", "shortened", "refused", "broken", "retry_later", "client_left")


LANE = LaneId("a", "m", "1")
MORE_LANES = (LANE, LaneId("a", "m", "2"), LaneId("b", "n", "1"), None)


def ended(lane: LaneId | None = LANE, outcome: str = "answered", number: int = 0) -> CallEnded:
    return CallEnded(
        at=100.0,
        call=f"call-{number}",
        outcome=outcome,
        lane=lane,
        model="m",
        session=f"session-{number}",
        agent=f"agent-{number}",
        parent=None,
        tag=f"tag-{number}",
        stream=True,
        status=200,
        attempts=1,
        waited=0.25,
        took=2.0,
        request_id=None,
        input_tokens=10,
        output_tokens=5,
        cache_read_tokens=3,
        cache_write_tokens=2,
        wasted_input_tokens=7,
        wasted_output_tokens=1,
    )


def failed(status: int | None, lane: LaneId = LANE) -> AttemptFailed:
    return AttemptFailed(1.0, "c", lane, "overloaded", None, status, None, 1.0, None, "why")


@given(st.lists(st.tuples(st.sampled_from(MORE_LANES), st.sampled_from(OUTCOMES))))
def test_every_call_is_counted_once_under_the_name_that_people_know(
    calls: list[tuple[LaneId | None, str]],
) -> None:
    tally = CallCounters()
    for lane, outcome in calls:
        tally.call_ended(ended(lane, outcome))
    names = Counter((str(lane or NO_LANE), outcome) for lane, outcome in calls)
    shown = {(n, how): x for n, lane in tally.lanes.items() for how, x in lane.outcomes.items()}
    assert shown == dict(names)
    assert sum(lane.held.count for lane in tally.lanes.values()) == len(calls)


def test_tokens_are_added_by_kind() -> None:
    tally = CallCounters()
    tally.call_ended(ended())
    tally.call_ended(ended())
    assert tally.lanes["a/m"].tokens == [20, 10, 6, 4, 14, 2]


def test_ever_new_lanes_share_one_place() -> None:
    tally = CallCounters()
    for number in range(5000):
        tally.call_ended(ended(LaneId("a", f"model-{number}", str(number))))
    assert len(tally.lanes) == MOST_LANES + 1
    assert sum(tally.lanes[OTHERS].outcomes.values()) == 5000 - MOST_LANES
    assert len(tally._found) <= 2 * MOST_LANES


def test_only_answers_that_had_begun_count_as_cut() -> None:
    tally = CallCounters()
    for status in (None, 529, 200):
        tally.attempt_failed(failed(status))
    assert tally.lanes["a/m"].cuts == 1
    assert tally.lanes["a/m"].failures == {"overloaded": 3}
