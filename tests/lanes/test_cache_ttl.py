"""Which calls ask for a prompt cache of an hour, and that no conversation goes back and forth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects import TokenUsage
from jackline.lane_id import LaneId
from jackline.lanes import CacheTtl, Call, LaneController, LaneSettings
from jackline.lanes.prompt_caches import LONG_LIFE, SHORT_LIFE, CachedConversation, HourCaches, pays

LANE = LaneId("up", "model", "a")
AUTO, HOUR, CLIENT = CacheTtl.AUTO, CacheTtl.HOUR, CacheTtl.CLIENT
TALK = Call(1, (LANE,), conversation="s/")


def seen(
    sent_at: float, life: float = SHORT_LIFE, cached: int = 9, misses: int = 0
) -> CachedConversation:
    return CachedConversation(cached, sent_at + life, life, 10, 10, misses)


@pytest.mark.parametrize(
    ("now", "is_worth_it"),
    [(299.0, False), (300.0, True), (3599.0, True), (3600.0, False), (9000.0, False)],
)
def test_it_pays_for_a_conversation_whose_last_pause_an_hour_would_have_outlived(
    now: float, is_worth_it: bool
) -> None:
    assert pays(seen(sent_at=0.0), now, long_waits=False) is is_worth_it


def test_it_pays_where_calls_wait_for_longer_than_five_minutes_but_not_for_what_is_warm() -> None:
    assert not pays(None, 0.0, long_waits=False)
    assert pays(None, 0.0, long_waits=True)
    assert pays(seen(0.0), 9000.0, long_waits=True)
    assert not pays(seen(0.0), 200.0, long_waits=True), "the change could cost what is cached"


def test_nothing_cached_is_nothing_lost() -> None:
    assert not pays(seen(0.0, cached=0), 400.0, long_waits=False)


def test_a_conversation_that_was_given_an_hour_keeps_it_while_it_is_warm_and_after() -> None:
    marks = HourCaches(AUTO)
    asked = [
        marks.asks_hour(TALK, known, waited=0.0, now=now)
        for now, known in [
            (0.0, None),
            (400.0, seen(0.0)),
            # Whatever the vendor made of it.
            (410.0, seen(400.0)),
            (420.0, seen(410.0, LONG_LIFE)),
            (90_000.0, seen(420.0, LONG_LIFE)),
        ]
    ]
    assert asked == [False, True, True, True, True]


def test_where_predicted_hits_miss_nothing_more_is_paid_for_them() -> None:
    marks = HourCaches(AUTO)
    assert marks.asks_hour(TALK, seen(0.0), waited=0.0, now=400.0)
    assert not marks.asks_hour(TALK, seen(400.0, misses=2), waited=0.0, now=410.0)


def test_one_call_that_waited_long_says_what_others_have_to_expect_for_an_hour() -> None:
    marks = HourCaches(AUTO)
    new = Call(2, (LANE,), conversation="new/")
    assert not marks.asks_hour(new, None, waited=SHORT_LIFE - 1, now=0.0)
    assert marks.asks_hour(new, None, waited=SHORT_LIFE, now=0.0)
    assert marks.asks_hour(TALK, None, waited=0.0, now=LONG_LIFE - 1)
    assert not marks.asks_hour(
        Call(3, (LANE,), conversation="late/"), None, waited=0.0, now=LONG_LIFE
    )


@pytest.mark.parametrize(
    ("lane", "own", "asks"),
    [
        (HOUR, None, True),
        (CLIENT, None, False),
        (CLIENT, HOUR, True),
        (HOUR, CLIENT, False),
        (AUTO, HOUR, True),
        (HOUR, AUTO, False),
        (None, HOUR, False),
    ],
)
def test_a_tag_or_class_comes_before_the_upstream_and_neither_before_the_vendor(
    lane: CacheTtl | None, own: CacheTtl | None, asks: bool
) -> None:
    call = Call(1, (LANE,), conversation="s/", cache_ttl=own)
    assert HourCaches(lane).asks_hour(call, None, waited=0.0, now=0.0) is asks


def test_a_subscriptions_login_is_touched_only_by_the_users_explicit_word() -> None:
    login = Call(1, (LANE,), conversation="s/", login=True)
    assert not HourCaches(AUTO).asks_hour(login, seen(0.0), waited=900.0, now=900.0)
    assert HourCaches(HOUR).asks_hour(login, None, waited=0.0, now=0.0)


def test_what_has_no_conversation_asks_for_nothing() -> None:
    assert not HourCaches(HOUR).asks_hour(Call(1, (LANE,)), None, waited=0.0, now=0.0)


@given(
    st.lists(st.tuples(st.floats(0.0, 8000.0), st.floats(0.0, 900.0), st.booleans()), max_size=30)
)
def test_no_cache_that_lives_is_lost_by_a_change_and_nobody_goes_back(
    steps: list[tuple[float, float, bool]],
) -> None:
    """Even where the vendor keeps entries of five minutes and of an hour apart."""
    marks = HourCaches(AUTO)
    known: CachedConversation | None = None
    now, asked_before = 0.0, False
    for pause, waited, is_kept_for_hour in steps:
        now += pause
        asks = marks.asks_hour(TALK, known, waited=waited, now=now)
        if asked_before:
            assert asks
        elif asks and known is not None:
            assert now >= known.until, "it changed while something was cached"
        asked_before = asks
        known = seen(now, LONG_LIFE if asks and is_kept_for_hour else SHORT_LIFE)


def test_the_controller_tells_with_each_attempt_whether_its_marks_ask_for_an_hour() -> None:
    lanes = LaneController([LaneSettings(LANE, cache_ttl=AUTO)], lambda: 0.5)
    asked = []
    for number, now in enumerate((0.0, 10.0, 400.0, 410.0)):
        (send,) = lanes.submit(now, Call(number, (LANE,), conversation="s/")).sends
        asked.append(send.hour_marks)
        lanes.finished(now + 1, send.permit, TokenUsage(10, 10, cache_write_tokens=5_000))
    assert asked == [False, False, True, True]
    lanes.limit_lane(420.0, LaneSettings(LANE, cache_ttl=CLIENT))
    (send,) = lanes.submit(430.0, Call(9, (LANE,), conversation="s/")).sends
    assert not send.hour_marks


def test_whether_cached_tokens_count_can_change_while_a_lane_is_open() -> None:
    lanes = LaneController([LaneSettings(LANE)], lambda: 0.5)
    assert not lanes.lanes[LANE].caches.reads_count
    lanes.limit_lane(1.0, LaneSettings(LANE, cached_counts=True))
    assert lanes.lanes[LANE].caches.reads_count
