"""What calls use is counted by minute, lane and run, and an unknown price is not zero."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.control.observatory import Burn
from jackline.dialects import TokenUsage
from jackline.events import CallEnded
from jackline.lane_id import LaneId

LANE = LaneId("a", "opus")


def ended(
    at: float, tokens: int, *, model: str = "opus", lane: LaneId = LANE, tag: str = "r"
) -> CallEnded:
    return CallEnded(
        at, "c", "answered", lane, model, "s", None, None, tag, True, 200, 1, 0.0, 1.0, None,
        tokens, 0, 0, 0,
    )  # fmt: skip


def price(model: str, usage: TokenUsage) -> float | None:
    return usage.total / 1000 if model == "opus" else None


def test_tokens_and_dollars_by_minute_lane_and_run() -> None:
    burn = Burn(price)
    burn.calls_ended([ended(60, 1000)])
    burn.calls_ended([ended(119, 500, lane=LaneId("b", "opus"), tag="q")])
    burn.calls_ended([ended(130, 2000)])
    series = burn.series(150, 3)
    assert [sum(s.tokens for s in minute.lanes.values()) for minute in series] == [0, 1500, 2000]
    assert burn.by_lane[LaneId("a", "opus")].tokens == 3000
    assert burn.by_tag["q"].dollars == 0.5
    assert burn.since(120).dollars == 2.0
    assert burn.dollars_per_hour(150) == 3.5 * 4


def test_an_unknown_price_is_reported_as_unknown() -> None:
    burn = Burn(price)
    burn.calls_ended([ended(60, 700, model="mystery")])
    assert (burn.total.dollars, burn.total.unpriced) == (0.0, 700)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10_000)), max_size=60))
def test_the_sums_agree(calls: list[tuple[float, int]]) -> None:
    burn = Burn(price)
    for at, tokens in sorted(calls):
        burn.calls_ended([ended(at, tokens)])
    assert burn.total.tokens == sum(tokens for _, tokens in calls)
    assert burn.total.tokens == sum(s.tokens for s in burn.by_lane.values())


@given(
    st.lists(
        st.tuples(
            st.integers(0, 300),
            st.integers(0, 9),
            st.sampled_from(["opus", "mystery"]),
            st.sampled_from([LANE, LaneId("b", "opus")]),
            st.sampled_from(["r", "q", ""]),
        ),
        max_size=40,
    ),
    st.integers(1, 40),
)
def test_calls_that_are_counted_together_count_as_those_that_come_one_by_one(
    calls: list[tuple[int, int, str, LaneId, str]], together: int
) -> None:
    events = [
        ended(at, tokens, model=model, lane=lane, tag=tag) for at, tokens, model, lane, tag in calls
    ]
    one_by_one, in_bulk = Burn(lambda _m, usage: float(usage.total)), Burn(lambda _m, u: u.total)
    for event in events:
        one_by_one.calls_ended([event])
    for first in range(0, len(events), together):
        in_bulk.calls_ended(events[first : first + together])
    assert in_bulk.total == one_by_one.total
    assert in_bulk.by_lane == one_by_one.by_lane
    assert dict(in_bulk.by_tag) == dict(one_by_one.by_tag)
    assert in_bulk.series(300, 6) == one_by_one.series(300, 6)
