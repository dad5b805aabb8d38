"""The reason why one call goes before another is one sentence."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jackline.control.status import TurnStatus
from jackline.lanes.queue import Rank
from jackline.lanes.queue_positions import QueuePosition
from tests.lane_ids import lane_id

NOW = datetime(2026, 11, 15, 10, 0, tzinfo=UTC)
AT = NOW.timestamp()
AHEAD = 3600.0
"""The lanes' own time is an hour behind the wall clock."""


def turn(
    rank: Rank, lapses_in: float | None = None, *, out_in: float | None = None
) -> QueuePosition:
    until = None if lapses_in is None else AT - AHEAD + lapses_in
    out = None if out_in is None else AT - AHEAD + out_in
    return QueuePosition(
        7, lane_id("a"), 3, rank, 0 if until is None else 41_000, until, 1234.5, out
    )


@pytest.mark.parametrize(
    ("given", "waited", "sentence"),
    [
        (
            turn(Rank.LEAVING),
            100,
            "its client will soon wait no longer: it goes before those that can wait",
        ),
        (
            turn(Rank.CLOSING, 40, out_in=500),
            100,
            "its cache of 41,000 tokens lapses in 40 s: it goes before those that can wait",
        ),
        (
            turn(Rank.LAPSED, -20, out_in=120),
            480,
            (
                "it lost its cache of 41,000 tokens; warm conversations go first;"
                " it may go out of turn at 10:02 UTC"
            ),
        ),
        (
            turn(Rank.NEW, out_in=-1),
            5,
            "it begins a conversation; those that have begun go first",
        ),
        (turn(Rank.AGED, -20, out_in=-60), 745, "it has waited for 12 min: it goes out of turn"),
        (
            turn(Rank.NORMAL, 240, out_in=500),
            100,
            "its cache of 41,000 tokens holds until 10:04 UTC; the most urgent goes first",
        ),
        (turn(Rank.NORMAL), 100, "the most urgent goes first"),
    ],
)
def test_a_turn_is_reported_in_one_sentence(
    given: QueuePosition, waited: float, sentence: str
) -> None:
    assert TurnStatus.of(given, AHEAD, AT - waited, NOW).why == sentence


def test_a_turn_is_reported_in_figures_and_its_moments_are_dates() -> None:
    shown = TurnStatus.of(turn(Rank.LAPSED, -20, out_in=120), AHEAD, AT - 480, NOW)
    assert (shown.rank, shown.place) == ("lapsed", 3)
    assert (shown.cached_tokens, shown.cost_tokens) == (41_000, 1234)
    assert (shown.cached_until, shown.out_of_turn_at) == (AT - 20, AT + 120)
