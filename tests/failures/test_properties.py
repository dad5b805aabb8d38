"""Properties that are true for every input."""

from __future__ import annotations

import json
import time
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.errors import BadArgumentError
from jackline.failures import Failure, Kind, Observation, Where, classify
from jackline.failures.evidence import FailureSignals
from jackline.failures.resets import LONGEST, header_wait, read_epoch, read_moment, read_wait
from jackline.failures.wording import fold
from tests.failures.examples import NOW, load

CORPUS = load("corpus.jsonl")
SCRAPS = [
    "You've hit your session limit · resets 10:10pm (Europe/Kiev)",
    "resets in",
    "try again in 99999999999999 hours",
    '{"error":{"type":"rate_limit_error","message":"x"}}',
    "event: error\ndata: {}\n\n",
    "HTTP 429",
    "<html>",
    "\x00",
    "\x1b[31m",
    "2026-13-45",
    "１２:３４",
    "retry-after",
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(SCRAPS),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["error", "type", "message", "code", "status", "resets_at", "content", "x"]
            ),
            children,
            max_size=5,
        )
    ),
    max_leaves=20,
)
texts = st.one_of(
    st.text(max_size=200), st.lists(st.sampled_from(SCRAPS), max_size=6).map(" ".join)
)
zones = st.sampled_from(["", "Z", "+14:00", "-14:00", "+23:59", "-23:59", "+00:00:00.000001"])
years = st.integers(0, 10_001) | st.sampled_from([0, 1, 2, 9998, 9999])
dates = st.one_of(
    st.builds(
        "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:59{}".format,
        years,
        st.integers(0, 13),
        st.integers(0, 32),
        st.integers(0, 24),
        st.integers(0, 60),
        zones,
    ),
    st.builds(
        "Mon, {:02d} {} {:04d} 23:59:59 {}".format,
        st.sampled_from([1, 31]),
        st.sampled_from(["Jan", "Dec"]),
        years,
        st.sampled_from(["GMT", "+1400", "-2359", "+2359", "-9999", "PST"]),
    ),
    st.datetimes(timezones=st.timezones()).map(datetime.isoformat),
    st.from_regex(r"\A\d{1,14}(\.\d{1,3})?\Z"),
)
headers = st.dictionaries(
    st.sampled_from(
        [
            "Retry-After",
            "retry-after-ms",
            "anthropic-ratelimit-unified-reset",
            "anthropic-ratelimit-unified-representative-claim",
            "x-codex-primary-used-percent",
            "x-should-retry",
            "content-type",
            "Date",
            "anthropic-ratelimit-unified-5h-utilization",
            "x-codex-primary-reset-at",
        ]
    ),
    dates | st.text(max_size=20) | st.integers().map(str) | st.floats().map(str),
    max_size=4,
)
observations = st.builds(
    Observation,
    where=st.sampled_from(Where),
    provider=st.none() | st.sampled_from(["anthropic", "openai", "vertex", "x"]),
    status=st.none() | st.integers(-1, 999),
    headers=headers,
    body=st.one_of(st.none(), st.binary(max_size=300), texts, json_values),
    text=st.none() | texts,
    exception=st.none() | texts.map(ValueError),
)


@settings(max_examples=600)
@given(observations)
def test_any_observation_gets_a_result_and_the_same_one_twice(observation: Observation) -> None:
    failure = classify(observation, now=NOW)
    assert isinstance(failure, Failure)
    assert classify(observation, now=NOW) == failure
    assert failure.evidence
    json.dumps(failure.to_json())
    if failure.resets_at is not None:
        assert failure.resets_at.tzinfo is not None
    if failure.retry_after is not None:
        assert failure.retry_after >= timedelta(0)


@settings(max_examples=600)
@given(observations)
def test_no_reset_is_later_than_any_window_lasts(observation: Observation) -> None:
    failure = classify(observation, now=NOW)
    assert failure.wait_from(NOW) <= LONGEST


@settings(max_examples=600)
@given(dates | st.text(max_size=60), dates | st.text(max_size=60))
def test_every_text_is_a_wait_or_none(value: str, date: str) -> None:
    wait = read_wait(value, read_moment(date) or NOW)
    assert wait is None or timedelta(0) <= wait <= LONGEST
    read_epoch(value, NOW)
    header_wait({"retry-after": value, "date": date}, NOW)


@settings(max_examples=600)
@given(observations)
def test_quota_and_billing_are_never_retried(observation: Observation) -> None:
    failure = classify(observation, now=NOW)
    if failure.kind in (Kind.ACCOUNT_QUOTA, Kind.BILLING):
        assert not failure.retry_same


@given(
    row=st.sampled_from([row for row in CORPUS if row.observation.text]),
    space=st.sampled_from([" ", "  ", "\n", "\n     ", "\t", "\u00a0"]),
    quote=st.sampled_from(["'", "’", "‘"]),
    dot=st.sampled_from(["·", "∙", "•"]),
)
def test_the_form_of_a_text_does_not_change_the_result(
    row: object, space: str, quote: str, dot: str
) -> None:
    original = row.observation  # type: ignore[attr-defined]
    text = fold(original.text).replace("'", quote).replace("·", dot).replace(" ", space)
    changed = Observation(
        original.where, original.provider, original.status, original.headers, original.body, text
    )
    before, after = classify(original, now=NOW), classify(changed, now=NOW)
    assert (after.kind, after.sub, after.resets_at) == (before.kind, before.sub, before.resets_at)


@given(
    short=st.floats(0, 1_000_000),
    more=st.floats(0, 1_000_000),
    status=st.sampled_from([429, 500, 503, 529, 403]),
    text=st.sampled_from([None, "try again in 20s", "rate limit exceeded", "overloaded"]),
)
def test_a_longer_retry_after_never_shortens_the_wait(
    short: float, more: float, status: int, text: str | None
) -> None:
    def wait(seconds: float) -> timedelta:
        headers = {"Retry-After": f"{seconds:.3f}"}
        return classify(
            Observation(Where.HTTP, None, status, headers, None, text), now=NOW
        ).wait_from(NOW)

    assert wait(short + more) >= wait(short)


MEGABYTE = 1_000_000
GROWING = {
    "letters": lambda n: b"a" * n,
    "spaces": lambda n: b" " * n,
    "braces": lambda n: b"{" * n,
    "pairs": lambda n: b'"type":"' * (n // 8),
    "numbers": lambda n: b"[" + b"1," * (n // 2) + b"1]",
    "html": lambda n: b"<html>" + b"<style " * (n // 7),
    "events": lambda n: b'data: {"type":"ping"}\n\n' * (n // 23),
    "leads": lambda n: b"resets in try again at " * (n // 23),
    "hours": lambda n: b"try again in " + b"1 h " * (n // 4),
    "not text": lambda n: bytes(range(256)) * (n // 256),
}


@pytest.mark.parametrize("shape", GROWING)
def test_time_grows_no_faster_than_the_body(shape: str) -> None:
    def cost(size: int) -> float:
        observation = Observation(Where.HTTP, None, 429, {}, GROWING[shape](size))
        started = time.process_time()
        classify(observation, now=NOW)
        return time.process_time() - started

    cost(MEGABYTE)  # warm caches, so that the first measurement is not of compiling
    small = max(min(cost(MEGABYTE) for _ in range(3)), 0.01)
    # Ten times the body may cost ten times the time; quadratic growth would cost a hundred times.
    # A neighbour or a collection of garbage may fall into one measurement, not into each.
    assert any(cost(10 * MEGABYTE) <= 30 * small for _ in range(4))


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"error":', b"}")])
def test_deep_nesting_is_no_error(depth: int, opening: bytes, closing: bytes) -> None:
    body = opening * depth + b"1" + closing * depth
    assert classify(Observation(Where.HTTP, None, 429, {}, body), now=NOW).retry_same


@pytest.mark.parametrize("place", ["beginning", "end"])
def test_of_a_long_error_the_beginning_and_the_end_count(place: str) -> None:
    """Each of many patterns is searched for in it; what matters stands at either end."""
    wall, rest = "Your credit balance is too low.", "word " * 50_000
    text = f"{wall} {rest}" if place == "beginning" else f"{rest} {wall}"
    body = json.dumps({"type": "error", "error": {"type": "x", "message": text}})
    observation = Observation(Where.HTTP, "anthropic", 400, {}, body.encode(), None)
    assert classify(observation, now=NOW).kind is Kind.BILLING
    reading = FailureSignals.of(observation)
    assert len(reading.text) == len(reading.prose) <= 2 * 8192 + 1


def test_now_has_to_be_aware() -> None:
    with pytest.raises(ValueError, match="aware"):
        classify(Observation.of_text("x"), now=datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_zone_in_the_text_beats_the_hosts() -> None:
    observation = Observation.of_text("You've hit your session limit · resets 3pm (Asia/Tokyo)")
    failure = classify(observation, now=datetime(2026, 11, 15, 1, 0, tzinfo=UTC))
    assert failure.resets_at == datetime(2026, 11, 15, 6, 0, tzinfo=UTC)


def test_an_exact_reset_has_the_zone_of_the_text() -> None:
    observation = Observation(
        Where.TRANSCRIPT,
        status=429,
        headers={
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
            "anthropic-ratelimit-unified-reset": "1794775805",
        },
        text="You've hit your 5-hour limit · resets 3:50pm (America/New_York)",
    )
    resets_at = classify(observation, now=NOW).resets_at
    assert resets_at is not None
    assert resets_at.timestamp() == 1794775805
    assert str(resets_at.tzinfo) == "America/New_York"


@pytest.mark.parametrize("digits", ["0" * 5000 + "429", "9" * 5000])
def test_a_status_of_thousands_of_digits_is_refused_with_a_reason(digits: str) -> None:
    with pytest.raises(BadArgumentError, match="whole number"):
        Observation.from_json({"where": "http", "status": digits, "text": "no"})


MANY = 1_000_002
OVERFULL = {
    "values": b"[%b]" % b",".join([b"1"] * MANY),
    "objects": b'{"data":[%b]}' % b",".join([b'{"a":1}'] * MANY),
    "lists in lists": b"[%b]" % b",".join([b"[%b]" % b",".join([b"1"] * 10_000)] * 120),
    "in strings": json.dumps({"message": [f"[{'1,' * 900_000}1]"] * 8}).encode(),
}


@pytest.mark.parametrize("body", OVERFULL.values(), ids=OVERFULL)
def test_a_body_of_millions_of_values_is_not_built(body: bytes) -> None:
    """An upstream may answer anything; what tells an error is short."""
    tracemalloc.start()
    try:
        failure = classify(Observation.of_response(200, {}, body), now=NOW)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert failure.kind is Kind.NOT_A_FAILURE
    assert most < 4 * len(body)


@pytest.mark.parametrize(
    "name",
    [
        "retry-after-ms",
        "x-amz-retry-after",
        "x-codex-primary-used-percent",
        "anthropic-ratelimit-unified-7d-utilization",
        "retry-after",
        "date",
    ],
)
def test_no_header_longer_than_a_limit_is_searched(name: str) -> None:
    """A run of digits costs the pattern of durations some hundred tries for each digit."""
    seen = Observation.of_response(429, {name: "1" * 257, "x-short": "1" * 256}, b"")
    assert list(FailureSignals.of(seen).headers) == ["x-short"]
