"""Who waits is told where it stands and why, and in the order in which calls really go."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jackline.dialects import TokenUsage
from jackline.lane_id import LaneId
from jackline.lanes import Call, KnownLimits, LaneController, LaneSettings
from jackline.lanes.prompt_caches import CacheState
from jackline.lanes.queue import AGED_AFTER, CallQueues, QueueEntry, Rank
from jackline.lanes.queue_positions import QueuePosition, in_order
from tests.lane_ids import lane_id

NOW = 10_000.0
SENT = {"old": 0.0, "closing": 740.0, "warm": 950.0}
A = (lane_id("a"),)
B = (lane_id("b"),)
_ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(CacheState),
        st.floats(0, 1000),
        st.sampled_from([0.0, 300.0, AGED_AFTER, 900.0]),
        st.sampled_from([-30.0, 0.0, 40.0, 119.0, 121.0, 280.0]),
        st.sampled_from([A, (*A, *B), (*B, *A)]),
    ),
    max_size=20,
)


def entry(
    number: int, cache_state: CacheState, urgency: float, waited: float, left: float
) -> QueueEntry:
    until = NOW + left if cache_state is CacheState.WARM else 0.0
    call = Call(number, (lane_id("a"),))
    since = NOW - waited
    return QueueEntry(
        call, (lane_id("a"),), urgency, since=since, cache_state=cache_state, cached_until=until
    )


@given(_ENTRIES, st.booleans())
@example(
    [(CacheState.WARM, 9, 0, 40, A), (CacheState.NEW, 1, 0, 0, A), (CacheState.PLAIN, 2, 0, 0, A)],
    True,
)
@example([(CacheState.WARM, 9, 900, 40, A), (CacheState.NEW, 1, 900, 0, A)] * 2, True)
def test_the_order_that_is_told_is_the_order_in_which_calls_go(
    drawn: list[tuple[CacheState, float, float, float, tuple[LaneId, ...]]], may_age: bool
) -> None:
    room = CallQueues()
    room.open_lane(lane_id("a"))
    room.open_lane(lane_id("b"))
    for number, (cache_state, urgency, waited, left, lanes) in enumerate(drawn):
        room.push(entry(number, cache_state, urgency, waited, left), lanes)
    next_aged = NOW - 1 if may_age else NOW + 1
    told = in_order(room.everyone_for(lane_id("a")), NOW, next_aged, len(drawn))
    ranks = {each.call.id: rank for rank, each in told}
    gone: list[int] = []
    while True:
        head, queue = room.first(lane_id("a"), NOW, next_aged)
        if head is None or queue is None:
            break
        queue.remove(head.entry)
        gone.append(head.id)
        if len(gone) == 1:
            assert ranks[head.id] is head.rank
        if head.rank is Rank.AGED and head.entry.cache_state is not CacheState.WARM:
            next_aged = math.inf
    assert [each.call.id for _, each in told] == gone


def full_lane() -> LaneController:
    """One lane with a limit of 60,000 input tokens a minute, all used up at 1,000."""
    limits = KnownLimits(input_tokens_per_minute=60_000)
    made = LaneController([LaneSettings(lane_id("a"), limits=limits)], lambda: 0.5, now=0.0)
    for number, (name, sent_at) in enumerate(SENT.items(), 1):
        call = Call(number, (lane_id("a"),), input_tokens=20_000, conversation=name)
        (send,) = made.submit(sent_at, call).sends
        made.finished(sent_at + 1, send.permit, TokenUsage(100, 10, 0, 20_000))
    made.lanes[lane_id("a")].buckets["input"].correct(-60_000, 1000.0)
    return made


def waits(made: LaneController, number: int, conversation: str, now: float = 1000.0) -> None:
    call = Call(number, (lane_id("a"),), input_tokens=21_000, conversation=conversation)
    assert not made.submit(now, call).sends


def by_call(turns: list[QueuePosition]) -> dict[int, QueuePosition]:
    return {turn.call: turn for turn in turns}


def test_each_who_waits_is_told_its_rank_its_cache_and_what_it_would_cost() -> None:
    made = full_lane()
    for number, name in ((10, "old"), (11, "warm"), (12, "closing"), (13, "unheard-of")):
        waits(made, number, name)
    turns = made.turns(1000.0, 50)
    assert [turn.call for turn in turns] == [12, 11, 10, 13]
    assert [turn.place for turn in turns] == [1, 2, 3, 4]
    found = by_call(turns)
    assert [found[n].rank for n in (10, 11, 12, 13)] == [
        Rank.LAPSED,
        Rank.NORMAL,
        Rank.CLOSING,
        Rank.NEW,
    ]
    # 20,100 tokens were counted where 20,000 were expected.
    assert found[11].cost == pytest.approx(21_000 * 20_100 / 20_000 - 20_000)
    assert found[10].cost == pytest.approx(21_000 * 20_100 / 20_000)
    assert found[13].cost == 21_000
    assert [found[n].cached for n in (10, 11, 12, 13)] == [20_000, 20_000, 20_000, 0]
    assert [found[n].cached_until for n in (10, 11, 12, 13)] == [299.0, 1249.0, 1039.0, None]
    assert found[10].out_of_turn_at == 1000.0 + AGED_AFTER


def test_who_has_waited_for_very_long_goes_first_and_others_are_told_when_they_may() -> None:
    made = full_lane()
    waits(made, 10, "old", 1000.0)
    waits(made, 11, "unheard-of", 1001.0)
    now = 1000.0 + AGED_AFTER + 5
    made.lanes[lane_id("a")].buckets["input"].correct(-60_000, now)
    first, second = made.turns(now, 50)
    assert (first.call, first.rank) == (10, Rank.AGED)
    assert (second.call, second.rank) == (11, Rank.NORMAL), "nobody else lost a cache"
    made.lanes[lane_id("a")].caches.next_aged = now + 300
    first, second = made.turns(now, 50)
    assert (first.call, first.rank) == (10, Rank.LAPSED)
    assert first.out_of_turn_at == now + 300


def test_where_nothing_is_known_of_caches_everyone_is_normal_and_ages_by_urgency_alone() -> None:
    made = LaneController(
        [LaneSettings(lane_id("a")), LaneSettings(lane_id("b"))], lambda: 0.5, now=0.0
    )
    made.pause(0.0, lane_id("a"), paused=True)
    made.pause(0.0, lane_id("b"), paused=True)
    made.submit(1.0, Call(1, (lane_id("a"), lane_id("b"))))
    made.submit(1.0, Call(2, (lane_id("a"),), remaining=50.0))
    made.submit(1.0, Call(3, (lane_id("b"), lane_id("a")), remaining=99.0))
    turns = made.turns(2.0, 50)
    assert [(turn.call, turn.lane, turn.place) for turn in turns] == [
        (3, lane_id("b"), 1),
        (2, lane_id("a"), 2),
        (1, lane_id("a"), 3),
    ]
    assert {turn.rank for turn in turns} == {Rank.NORMAL}
    assert {turn.out_of_turn_at for turn in turns} == {None}
    assert [turn.call for turn in made.turns(2.0, 2)] == [3, 2]


def test_looking_changes_nothing() -> None:
    made = full_lane()
    waits(made, 10, "closing")
    (before,) = made.turns(1038.0, 50)
    (after,) = made.turns(1041.0, 50)
    (again,) = made.turns(1038.0, 50)
    assert (before.rank, after.rank) == (Rank.CLOSING, Rank.LAPSED)
    assert again == before


@given(st.lists(st.tuples(st.floats(0, 1000), st.sampled_from([math.inf, 5.0, 50.0]))))
def test_whose_client_leaves_is_told_every_second_place(drawn: list[tuple[float, float]]) -> None:
    made = full_lane()
    for number, (remaining, leaves) in enumerate(drawn, 10):
        hurries = 1000.0 if leaves < math.inf else math.inf
        at = 1000.0 + leaves
        call = Call(number, (lane_id("a"),), remaining, 90_000, leaves_at=at, hurries_at=hurries)
        assert not made.submit(1000.0, call).sends
    told = made.turns(1000.0, 1000)
    room, gone = made._queues, []
    while True:
        head, queue = room.first(lane_id("a"), 1000.0, math.inf)
        if head is None or queue is None:
            break
        room.admit(head, queue, lane_id("a"))
        gone.append((head.id, head.rank))
    assert [(each.call, each.rank) for each in told] == gone
