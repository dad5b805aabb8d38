"""Rules for the table over many sessions."""

from __future__ import annotations

from datetime import timedelta

from jackline.autopsy.summary import Summary
from tests.autopsy.story_makers import (
    MISSED,
    NOON,
    RESET,
    WALL,
    after,
    agent,
    agent_report,
    evidence,
    overload,
    quota,
    stopped,
)

SINCE = NOON - timedelta(days=7)
LATER = after(100_000)


def test_walls_of_one_kind_share_a_row_and_sessions_are_counted() -> None:
    tomorrow = RESET + timedelta(days=1)
    found = evidence(
        stopped("a", quota(), spent={int(NOON.timestamp()): 70}),
        stopped("b", quota(tomorrow), 90_000, session_id="other"),
        stopped("c", overload()),
        agent("fine"),
    )
    summed = Summary.of(found, since=SINCE, now=LATER)
    first, second = summed.rows
    assert (first.agents, first.sessions, first.tokens_at_least) == (2, 2, 70)
    assert (first.first_at, first.last_at) == (after(100), after(90_000))
    assert (second.agents, second.kind) == (1, "overloaded")
    assert summed.verdict.startswith("3 of 4 agents in 2 sessions were stopped, most by")


def test_the_counts_of_reports_add_up_to_all_stopped_agents() -> None:
    found = evidence(
        stopped("wrong", quota(), reports=[agent_report(MISSED)]),
        stopped("right", quota(), reports=[agent_report(WALL)]),
        stopped("happy", quota(), reports=[agent_report(WALL, "completed", is_error=False)]),
        stopped("silent", quota()),
    )
    (row,) = Summary.of(found, since=SINCE, now=LATER).rows
    assert (row.reported_error, row.reported_success, row.not_reported) == (2, 1, 1)
    assert row.agents == row.reported_error + row.reported_success + row.not_reported


def test_agents_that_ended_before_the_time_are_left_out() -> None:
    old = stopped("old", quota(), -8 * 86_400)
    summed = Summary.of(evidence(old, agent("fine")), since=SINCE, now=LATER)
    assert summed.rows == ()
    assert summed.agents == 1
    assert "No agent was stopped" in summed.as_text()


def test_the_table_fits_the_width_and_becomes_a_list_where_it_cannot() -> None:
    found = evidence(stopped("a", quota()), stopped("b", overload()))
    summed = Summary.of(found, since=SINCE, now=LATER)
    for width in (70, 100, 140):
        _, *table = summed.as_text(width=width).splitlines()
        assert max(len(line) for line in table) <= width


def test_the_document_holds_every_row() -> None:
    summed = Summary.of(evidence(stopped("a", quota())), since=SINCE, now=LATER)
    document = summed.as_document()
    assert document["schema"] == "jackline.why/2"
    assert document["since"] == SINCE.isoformat()
    assert [row["kind"] for row in document["rows"]] == ["account_quota"]  # type: ignore[attr-defined]
