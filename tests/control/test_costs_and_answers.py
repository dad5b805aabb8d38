"""Who costs most and who answers: sums of the journal's rows, and of the answers of minutes."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from jackline.control.answers import LATELY_MINUTES, AnswerCounts
from jackline.control.costs import MOST_ROWS, Costs, day_bounds
from jackline.dialects import TokenUsage
from jackline.events import CallEnded
from jackline.journal.store import Used
from jackline.lane_id import LaneId

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
AT = NOON.timestamp()
FIRST, SECOND = LaneId("anthropic", "opus", "1"), LaneId("bedrock", "opus", "2")


def price(model: str, usage: TokenUsage) -> float | None:
    """A dollar for a token; nobody knows what the strange model costs."""
    return None if model == "strange" else float(usage.total)


def used(session: str, agent: str, model: str, tokens: int, tag: str = "") -> Used:
    return Used(session, agent, model, tag, 1, tokens, 0, 0, 0, 0)


texts = st.sampled_from(["", "a", "b", "c"])
models = st.sampled_from(["opus", "strange"])


@given(st.lists(st.builds(used, texts, texts, models, st.integers(1, 99), texts), max_size=30))
def test_every_list_has_the_same_total(rows: list[Used]) -> None:
    costs = Costs(price)
    costs.add("2026-11-14", rows[::2])
    costs.add("2026-11-15", rows[1::2])
    document = costs.to_json()
    total = document["total"]
    assert total["tokens"] == sum(row.usage.total for row in rows)
    for found in document["by"].values():
        for name in ("calls", "tokens", "dollars", "unpriced"):
            assert sum(row[name] for row in found["rows"]) + found["rest"][name] == total[name]
        spent = [(row["dollars"], row["tokens"]) for row in found["rows"]]
        assert spent == sorted(spent, reverse=True)


def test_the_dearest_are_listed_and_the_others_summed_up() -> None:
    costs = Costs(price)
    costs.add("2026-11-15", [used("s", f"a{n}", "opus", n) for n in range(1, MOST_ROWS + 4)])
    found = costs.to_json()["by"]["agent"]
    assert [row["key"] for row in found["rows"][:2]] == [("s", "a203"), ("s", "a202")]
    assert (len(found["rows"]), found["more"], found["rest"]["tokens"]) == (MOST_ROWS, 3, 1 + 2 + 3)


def test_a_day_is_that_of_the_calendar_also_when_the_clocks_change() -> None:
    now = datetime(2026, 10, 26, 9, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    bounds = day_bounds(now, 7)
    assert len(bounds) == 7
    assert [f"{begins:%d %H:%M}" for begins, _ in bounds][-2:] == ["25 00:00", "26 00:00"]
    lengths = [ends.timestamp() - begins.timestamp() for begins, ends in bounds[:-1]]
    assert lengths == [86_400.0] * 5 + [90_000.0]
    assert all(one[1] == other[0] for one, other in pairwise(bounds))


def answered(at: float, lane: LaneId, outcome: str = "answered") -> CallEnded:
    who = ("s", "a", None, None, True, 200, 1)
    return CallEnded(at, "c", outcome, lane, "opus", *who, 0.0, 1.0, None, 1, 1, 0, 0)


def test_whole_answers_of_the_last_minutes_count_and_nothing_else() -> None:
    counts = AnswerCounts()
    for ago in (10, 60, 200, 60 * LATELY_MINUTES + 61):
        counts.call_ended(answered(AT - ago, FIRST))
    counts.call_ended(answered(AT - 5, SECOND, "shortened"))
    counts.call_ended(answered(AT - 5, SECOND, "refused"))
    found = {row["lane"]: row["calls"] for row in counts.rows(AT)}
    assert found == {"anthropic/opus": 3, "bedrock/opus": 1}
    assert {row["calls"] for row in counts.rows(AT + 60 * LATELY_MINUTES)} == {0}
    assert counts.rows(AT + 7200) == []


def test_what_is_counted_is_bounded() -> None:
    counts = AnswerCounts()
    for number in range(1000):
        counts.call_ended(answered(AT, LaneId("u", f"m{number}", "")))
    assert len(counts.rows(AT)) == 128


def test_answers_stay_as_long_ago_when_the_clock_is_set() -> None:
    counts = AnswerCounts()
    counts.call_ended(answered(AT - 30, FIRST))
    counts.follow_clock(3600.0)
    (row,) = counts.rows(AT + 3600)
    assert row["calls"] == 1
