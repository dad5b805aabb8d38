"""A failure is explained: whose it is, what helps and until when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from jackline.failures import Failure, Kind, Observation, Scope, classify
from jackline.failures.sentences import duration_in_words, explain, moment_in_words, name_of
from tests.failures.examples import load

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 15, 9, 0, tzinfo=BERLIN)


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_two_or_three_sentences(kind: Kind) -> None:
    for retry_same in (True, False):
        failure = Failure(kind, None, Scope.UPSTREAM, retry_same, failover_helps=True)
        sentences = explain(failure, NOW)
        assert 2 <= len(sentences) <= 3
        assert all(sentence.endswith(".") for sentence in sentences)
        assert name_of(failure) in sentences[0]


def test_every_row_of_the_corpus_can_be_explained() -> None:
    for row in load("corpus.jsonl"):
        assert 2 <= len(explain(classify(row.observation, now=NOW), NOW)) <= 3


def test_a_moment_is_shown_in_its_own_zone_the_hosts_and_utc() -> None:
    moment = datetime(2026, 11, 15, 22, 10, tzinfo=ZoneInfo("Europe/Kiev"))
    assert moment_in_words(moment, NOW) == "22:10 Europe/Kiev (21:10 Europe/Berlin, 20:10 UTC)"
    assert moment_in_words(moment.astimezone(UTC), NOW) == "20:10 UTC (21:10 Europe/Berlin)"


def test_another_day_or_year_is_named() -> None:
    later = datetime(2027, 1, 3, 9, 0, tzinfo=UTC)
    assert (
        moment_in_words(later, datetime(2026, 11, 15, tzinfo=UTC)) == "09:00 on 3 January 2027 UTC"
    )


def test_a_reset_in_the_past_says_to_try() -> None:
    failure = classify(Observation.of_text("Claude AI usage limit reached|1755806400"), now=NOW)
    assert "has passed" in explain(failure, NOW)[-1]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.006, "6 ms"),
        (9.816, "9.8 s"),
        (30, "30 s"),
        (90, "1 min 30 s"),
        (7800, "2 h 10 min"),
        (511860, "5 d 22 h"),
    ],
)
def test_durations_have_their_two_largest_units(seconds: float, words: str) -> None:
    assert duration_in_words(timedelta(seconds=seconds)) == words
