"""Limits admit what they promise, refuse the rest, and announce true numbers."""

from __future__ import annotations

import copy
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from jackline.simulator.exchange import Accepted, Completed, Rejected, SimRequest
from jackline.simulator.limits import (
    BucketSettings,
    ConcurrencyCap,
    Counts,
    HiddenCapacity,
    HiddenCapacitySettings,
    RateBucket,
)
from jackline.simulator.provider import ProviderModel, ProviderSettings
from jackline.simulator.time_model import AT_ONCE, Calendar, seeded_random
from tests.simulator.http_client import play

CALENDAR = Calendar()
STEPS = st.lists(
    st.tuples(st.floats(0, 120), st.integers(1, 5000), st.integers(0, 4000)), max_size=40
)


def settings_of(*buckets: BucketSettings, **more: ConcurrencyCap) -> ProviderSettings:
    return ProviderSettings(buckets=buckets, service=AT_ONCE, **more)  # type: ignore[arg-type]


@given(STEPS, st.sampled_from(Counts), st.booleans(), st.floats(1, 90))
def test_a_bucket_never_holds_more_than_its_cap_and_input_never_less_than_nothing(
    steps: list[tuple[float, int, int]], counts: Counts, rejects_consume: bool, burst: float
) -> None:
    settings = BucketSettings(counts, 6000, burst, rejects_consume=rejects_consume)
    bucket = RateBucket(settings, CALENDAR, 0.0)
    now = 0.0
    for gap, tokens, output in steps:
        now += gap
        request = SimRequest(input_tokens=tokens)
        if bucket.check(now, request, 0) is None:
            bucket.take(now, request)
            bucket.finished(now, request, output)
        else:
            bucket.refused(now, request)
        assert bucket.level(now) <= bucket.cap
        if counts is not Counts.OUTPUT_TOKENS:
            assert bucket.level(now) >= -1e-6


@given(STEPS)
def test_in_any_minute_a_bucket_lets_in_no_more_than_its_cap_and_one_minute_of_its_rate(
    steps: list[tuple[float, int, int]],
) -> None:
    bucket = RateBucket(BucketSettings(Counts.INPUT_TOKENS, 6000, 30), CALENDAR, 0.0)
    let_in: list[tuple[float, int]] = []
    now = 0.0
    for gap, tokens, _ in steps:
        now += gap / 10
        request = SimRequest(input_tokens=tokens)
        if bucket.check(now, request, 0) is None:
            bucket.take(now, request)
            let_in.append((now, tokens))
        recent = sum(size for at, size in let_in if at > now - 60)
        assert recent <= bucket.cap + 6000 + 1e-6


@given(STEPS, st.sampled_from([Counts.REQUESTS, Counts.INPUT_TOKENS]))
def test_what_headers_say_remains_is_what_a_client_may_still_send(
    steps: list[tuple[float, int, int]], counts: Counts
) -> None:
    bucket = RateBucket(BucketSettings(counts, 6000), CALENDAR, 0.0)
    now = 0.0
    for gap, tokens, _ in steps:
        now += gap
        request = SimRequest(input_tokens=tokens)
        if bucket.check(now, request, 0) is None:
            bucket.take(now, request)
        headers: dict[str, str] = {}
        bucket.announce(now, request, headers)
        remaining = int(headers[f"anthropic-ratelimit-{counts.value}-remaining"])
        if counts is Counts.INPUT_TOKENS:
            assert bucket.check(now, SimRequest(input_tokens=remaining), 0) is None
            assert bucket.check(now, SimRequest(input_tokens=remaining + 2), 0) is not None
        assert headers[f"anthropic-ratelimit-{counts.value}-limit"] == "6000"
        full_at = datetime.fromisoformat(headers[f"anthropic-ratelimit-{counts.value}-reset"])
        later = copy.copy(bucket)
        assert later.level(full_at.timestamp() - CALENDAR.epoch) >= bucket.cap - 1e-3


@given(st.integers(1, 6000), st.integers(1, 6000))
def test_after_the_announced_wait_the_refused_request_fits(first: int, second: int) -> None:
    bucket = RateBucket(BucketSettings(Counts.INPUT_TOKENS, 6000), CALENDAR, 0.0)
    bucket.take(0.0, SimRequest(input_tokens=first))
    refusal = bucket.check(0.0, SimRequest(input_tokens=second), 0)
    if refusal is None:
        assert first + second <= 6000
        return
    wait = float(refusal.headers["retry-after"])
    assert bucket.check(wait, SimRequest(input_tokens=second), 0) is None
    assert refusal.status == 429
    assert "6,000 input tokens per minute" in refusal.body


def test_a_blind_bucket_announces_nothing_and_rejects_that_consume_keep_it_empty() -> None:
    blind = BucketSettings(
        Counts.REQUESTS, 60, 1, headers=False, retry_after=False, labelled=False,
        rejects_consume=True,
    )  # fmt: skip
    provider = ProviderModel(settings_of(blind), seeded_random(1))
    events = play(provider, [(0.0, SimRequest()), *((1.0 + i / 2, SimRequest()) for i in range(9))])
    refused = [event for event in events if isinstance(event, Rejected)]
    assert len(refused) == 8, "asking twice a second, one a second never becomes free again"
    assert all(dict(event.headers) == {} for event in refused)
    assert "Rate limited" in refused[0].body


def test_output_is_debited_when_it_is_known_and_refuses_whoever_comes_next() -> None:
    bucket = BucketSettings(Counts.OUTPUT_TOKENS, 600, 60)
    provider = ProviderModel(settings_of(bucket), seeded_random(1))
    request = SimRequest(output_tokens=2000, stream=False)
    events = play(provider, [(0.0, request), (1.0, request), (200.0, request)])
    assert [type(event) for event in events if not isinstance(event, Accepted)] == [
        Completed, Rejected, Completed,
    ]  # fmt: skip
    accepted = next(event for event in events if isinstance(event, Accepted))
    assert accepted.headers["anthropic-ratelimit-output-tokens-remaining"] == "600"


def test_a_request_larger_than_the_bucket_is_never_admitted() -> None:
    provider = ProviderModel(
        settings_of(BucketSettings(Counts.INPUT_TOKENS, 1000)), seeded_random(1)
    )
    events = play(provider, [(t, SimRequest(input_tokens=1001)) for t in (0.0, 100.0, 1000.0)])
    assert [type(event) for event in events] == [Rejected] * 3


def test_one_stream_too_many_is_refused_until_one_finishes() -> None:
    settings = ProviderSettings(concurrency=ConcurrencyCap(2))
    provider = ProviderModel(settings, seeded_random(1))
    arrivals = [(0.0, SimRequest(service=10.0)), (0.0, SimRequest(service=20.0))]
    arrivals += [(5.0, SimRequest(service=1.0)), (11.0, SimRequest(service=1.0))]
    play(provider, arrivals)
    assert [entry.why for entry in provider.ledger] == [
        "completed",
        "completed",
        "429",
        "completed",
    ]
    assert provider.in_flight == 0


@given(st.integers(0, 2**32), st.lists(st.floats(0, 5000), max_size=30))
def test_hidden_capacity_moves_by_its_own_lots_whoever_looks(seed: int, times: list[float]) -> None:
    settings = HiddenCapacitySettings(40, low=0.35, high=1.0, every=120)
    seldom = HiddenCapacity(settings, seeded_random(seed), 0.0)
    often = HiddenCapacity(settings, seeded_random(seed), 0.0)
    for time in sorted(times):
        often.check(time, SimRequest(), 100)
        assert 14 <= often.capacity(time) <= 40
    assert seldom.capacity(5000) == often.capacity(5000)


def test_hidden_capacity_follows_a_schedule_and_refuses_without_a_hint() -> None:
    settings = HiddenCapacitySettings(10, schedule=(1.0, 0.2), every=60)
    hidden = HiddenCapacity(settings, seeded_random(1), 0.0)
    assert [hidden.capacity(t) for t in (0, 59, 60, 10_000)] == [10, 10, 2, 2]
    refusals = [hidden.check(70, SimRequest(), 2) for _ in range(50)]
    assert {one.status for one in refusals if one} == {429, 529}
    assert all(one is not None and not one.headers for one in refusals)


def test_a_bucket_for_one_model_neither_counts_nor_announces_the_others() -> None:
    bucket = BucketSettings(Counts.REQUESTS, 1, model="opus")
    provider = ProviderModel(settings_of(bucket), seeded_random(1))
    models = ["opus", "haiku", "opus", "haiku"]
    events = play(provider, [(0.0, SimRequest(model=model, stream=False)) for model in models])
    fates = [entry.why for entry in provider.ledger]
    assert fates == ["completed", "completed", "429", "completed"]
    result = {event.id: bool(event.headers) for event in events if isinstance(event, Accepted)}
    assert result == {0: True, 1: False, 3: False}
