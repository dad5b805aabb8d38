"""The cost of lapsed prompt caches is reported in figures, where it matters and nowhere else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jackline.agents.prices import Price
from jackline.control.forecast import CacheAdvice, CacheRewriteCost
from jackline.dialects import TokenUsage
from jackline.lane_id import LaneId
from jackline.lanes import Call, ControllerSettings, KnownLimits, LaneSettings
from jackline.lanes.lane import Lane
from jackline.lanes.prompt_caches import LONG_LIFE, SHORT_LIFE
from jackline.states import LaneState
from tests.lanes import failures_made as made

NOW = datetime(2026, 11, 15, 20, 0, tzinfo=UTC)
AT = NOW.timestamp()
OPUS = Price(5.0, 25.0, 0.5, 6.25, 10.0)


def lane(
    conversations: int = 64,
    tokens: int = 64_000,
    *,
    sent: float = -60.0,
    long: bool = False,
    per_minute: float | None = 2_000_000,
) -> Lane:
    """A lane on which so many conversations were answered so long ago."""
    limits = KnownLimits(input_tokens_per_minute=per_minute)
    one = Lane(
        LaneSettings(LaneId("anthropic", "opus", "12ab"), limits=limits),
        ControllerSettings(),
        lambda: 0.5,
        AT,
    )
    for number in range(conversations):
        usage = TokenUsage(3, 10, 0, tokens, tokens if long else 0)
        one.caches.answered(Call(number, (), conversation=f"s/{number}"), AT + sent, 0.0, usage)
    return one


def parked(one: Lane, seconds: float | None) -> Lane:
    one.park(made.wall(AT, seconds), None if seconds is None else AT + seconds, AT)
    return one


def waiting(count: int) -> set[str]:
    return {f"s/{number}" for number in range(count)}


def shown(one: Lane, names: set[str], price: Price | None = OPUS) -> CacheAdvice | None:
    return CacheAdvice.of(one, names, price, AT, wall_ahead=0.0)


def test_the_example_of_the_design_64_conversations_of_64k_tokens_at_a_wall() -> None:
    advice = shown(parked(lane(), 1800.0), set())
    assert advice is not None
    assert (advice.lost, advice.losing) == (0, 64)
    assert advice.again.tokens == 4_096_000
    assert advice.again.dollars == pytest.approx(64 * 64_000 * 6.25 / 1e6)  # $25.60
    assert advice.again.dollars_warm == pytest.approx(64 * 64_000 * 0.5 / 1e6)  # $2.05
    assert advice.again.minutes == pytest.approx(4_096_000 / 2_000_000)
    # 2 x 5.00 instead of 6.25 for each million that was written
    assert advice.dollars_1h == pytest.approx(4.096 * 3.75)  # $15.36
    assert (advice.first_lapse_at, advice.last_lapse_at) == (AT + 239, AT + 239)
    assert advice.back_at == AT + 1800
    assert advice.sentence(NOW) == (
        "anthropic/opus: 64 conversations lose their prompt caches in 4 min, before it is back at"
        " 20:30 UTC: 4,096,000 tokens to write again, $25.60 instead of $2.05, 2 min of its input"
        ' limit. A life of 1 h (cache.ttl = "1h") would have kept them for $15.36 more.'
    )


def test_who_has_lost_its_cache_is_distinguished_from_who_will() -> None:
    one = lane(7, sent=-400.0)
    for number in range(7, 11):
        sent_at = AT - 60 + 60 * (number % 2)
        call = Call(number, (), conversation=f"s/{number}")
        one.caches.answered(call, sent_at, 0.0, TokenUsage(3, 10, 0, 64_000))
    advice = shown(parked(one, 1800.0), waiting(11))
    assert advice is not None
    assert (advice.lost, advice.losing) == (7, 4)
    assert advice.sentence(NOW).startswith(
        "anthropic/opus: 7 conversations have lost their prompt caches, 4 more lose theirs in 4 to"
        " 5 min, before it is back at 20:30 UTC: 704,000 tokens"
    )


def test_all_that_was_lost_at_a_wall_is_reported_with_the_hour_at_which_it_is_paid_for() -> None:
    advice = shown(parked(lane(2, sent=-400.0), 1800.0), waiting(2))
    assert advice is not None
    assert advice.sentence(NOW).startswith(
        "anthropic/opus: 2 conversations have lost their prompt caches and go on at 20:30 UTC:"
        " 128,000 tokens to write again, $0.80 instead of $0.064. A life of"
    )


@pytest.mark.parametrize(
    ("seconds", "losing"),
    [(120.0, 0), (238.0, 0), (240.0, 64), (1800.0, 64), (None, 64)],
)
def test_caches_that_outlast_the_wall_are_not_spoken_of(seconds: float | None, losing: int) -> None:
    advice = shown(parked(lane(), seconds), waiting(64))
    assert (advice.losing if advice else 0) == losing


def test_caches_of_an_hour_outlast_a_short_wall_and_need_no_advice_at_a_long_one() -> None:
    assert shown(parked(lane(long=True), 1800.0), waiting(64)) is None
    advice = shown(parked(lane(long=True), LONG_LIFE + 600.0), waiting(64))
    assert advice is not None
    assert advice.again.dollars == pytest.approx(4.096 * 10.0), "they were written for an hour"
    assert advice.dollars_1h is None
    assert "cache.ttl" not in advice.sentence(NOW)


def test_a_life_of_an_hour_is_not_advised_where_the_wall_lasts_longer() -> None:
    advice = shown(parked(lane(), 2 * LONG_LIFE), waiting(64))
    assert advice is not None
    assert advice.losing == 64
    assert "cache.ttl" not in advice.sentence(NOW)


def test_an_outage_has_no_hour_and_only_what_lapses_soon_is_counted() -> None:
    one = lane()
    one.break_down(made.server_error(), AT)
    advice = shown(one, set())
    assert advice is not None
    assert advice.back_at is None
    assert "in 4 min unless it is back by then: 4,096,000 tokens" in advice.sentence(NOW)
    hour = lane(long=True)
    hour.break_down(made.server_error(), AT)
    assert shown(hour, waiting(64)) is None


def test_on_a_lane_that_flows_only_waiting_calls_count_that_have_lost_theirs() -> None:
    one = lane(11, sent=-SHORT_LIFE, per_minute=176_000)
    assert one.state is LaneState.OPEN
    assert shown(one, set()) is None, "nobody waits"
    advice = shown(one, waiting(11))
    assert advice is not None
    assert (advice.lost, advice.losing) == (11, 0)
    assert advice.sentence(NOW) == (
        "anthropic/opus: 11 conversations have lost their prompt caches: 704,000 tokens to write"
        " again, $4.40 instead of $0.35, 4 min of its input limit. A life of 1 h"
        ' (cache.ttl = "1h") would have kept them for $2.64 more.'
    )
    assert shown(lane(11), waiting(11)) is None, "they are warm: the order takes care of them"


def test_of_a_shut_lane_who_asked_nothing_for_minutes_before_is_taken_to_have_ended() -> None:
    assert shown(parked(lane(sent=-121.0), 1800.0), set()) is None
    assert shown(parked(lane(sent=-121.0), 1800.0), waiting(1)) is None, "$0.37 and 2 s"
    advice = shown(parked(lane(sent=-119.0), 1800.0), set())
    assert advice is not None
    assert advice.losing == 64


def test_a_lane_that_is_paused_by_hand_loses_what_waits_for_it() -> None:
    one = lane()
    one.paused = True
    assert shown(one, set()) is None
    advice = shown(one, waiting(64))
    assert advice is not None
    assert (advice.losing, advice.back_at) == (64, None)


@pytest.mark.parametrize(
    ("tokens", "price", "per_minute", "matters"),
    [
        (86_000, OPUS, 2_000_000, False),  # $0.4945 more than warm
        (87_000, OPUS, 2_000_000, True),  # $0.50025
        (20_000, OPUS, 20_000, True),  # a minute
        (19_000, None, 20_000, False),
        (99_000, None, None, False),
        (100_000, None, None, True),
    ],
)
def test_it_is_reported_from_half_a_dollar_or_a_minute_of_the_limit_on(
    tokens: int, price: Price | None, per_minute: float | None, matters: bool
) -> None:
    one = parked(lane(1, tokens, per_minute=per_minute), 1800.0)
    assert (shown(one, waiting(1), price) is not None) is matters


def test_a_model_without_a_known_price_is_reported_in_tokens_alone() -> None:
    advice = shown(parked(lane(1, 150_000, per_minute=None), 1800.0), waiting(1), None)
    assert advice is not None
    assert (advice.again.dollars, advice.dollars_1h) == (None, None)
    assert advice.sentence(NOW) == (
        "anthropic/opus: 1 conversation loses its prompt cache in 4 min, before it is back at"
        ' 20:30 UTC: 150,000 tokens to write again. A life of 1 h (cache.ttl = "1h") would have'
        " kept it."
    )


def test_where_cached_tokens_count_like_any_others_there_is_nothing_to_say() -> None:
    given = LaneSettings(LaneId("openai", "gpt", "1"), cached_counts=True)
    one = Lane(given, ControllerSettings(), lambda: 0.5, AT)
    one.caches.answered(
        Call(1, (), conversation="s/0"), AT - 60, 0.0, TokenUsage(3, 10, 0, 900_000)
    )
    assert shown(parked(one, 1800.0), waiting(1)) is None


def test_conversations_that_are_not_cached_after_all_cost_nothing_more() -> None:
    one = lane(1, 900_000)
    one.caches.conversations["s/0"].misses = 2
    assert shown(parked(one, 1800.0), waiting(1)) is None


def test_what_a_wall_that_is_forecast_will_cost() -> None:
    sonnet = lane(2, 100_000)
    cost = CacheRewriteCost.of_wall(
        [(lane(), OPUS), (sonnet, None)], AT, begins=AT + 600, ends=AT + 4000
    )
    assert cost is not None
    assert cost.conversations == 66
    assert cost.tokens == 64 * 64_000 + 200_000
    assert cost.dollars == pytest.approx(25.6), "what has a price"
    brief = CacheRewriteCost.of_wall([(lane(), OPUS)], AT, begins=AT + 600, ends=AT + 800)
    assert brief is None, "their caches outlast it"
    assert (
        CacheRewriteCost.of_wall([(lane(sent=-300), OPUS)], AT, begins=AT + 600, ends=AT + 4000)
        is None
    )
