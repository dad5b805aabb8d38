"""A call that waited while its prompt cache lapsed is found in the journal, and only such a one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jackline.autopsy.lapsed_caches import LapsedWait, lapsed_waits, waits_sentence
from jackline.autopsy.replica import BEGAN, SESSION_ID, write_replica
from jackline.events import CallEnded
from jackline.journal import Journal
from jackline.lane_id import LaneId
from tests.cli.commands import Answer, jackline

START = BEGAN.timestamp()
OPUS = (6.25, 0.5)

LANE = LaneId("anthropic", "opus", "1")


def call(
    at: float,
    read: int,
    written: int,
    *,
    waited: float = 0.0,
    took: float = 10.0,
    session: str | None = SESSION_ID,
    agent: str | None = None,
    outcome: str = "answered",
    lane: LaneId = LANE,
) -> CallEnded:
    """One that ended at so many seconds after the start."""
    who = (session, agent, None, None, True, 200, 1)
    name = f"c{at}{agent}{lane}"
    figures = (waited, took, None, 5, 100, read, written)
    return CallEnded(START + at, name, outcome, lane, "claude-opus-4-8", *who, *figures)


def found(*calls: CallEnded) -> list[LapsedWait]:
    return lapsed_waits(calls, lambda _model: OPUS)


def test_a_call_that_was_submitted_in_time_and_sent_too_late_is_found_with_its_price() -> None:
    first = call(100, 0, 64_000)  # sent at 90
    late = call(850, 15_000, 50_000, took=750.0, waited=700.0)  # asked at 100, sent at 800
    (wait,) = found(late, first)
    assert wait.waited == 700.0
    assert wait.tokens == 49_000, "what was cached, less what was still read"
    assert wait.dollars == pytest.approx(49_000 * 6.25 / 1e6)
    assert wait.dollars_warm == pytest.approx(49_000 * 0.5 / 1e6)
    assert waits_sentence([wait]) == (
        "1 call waited while its prompt cache lapsed, for up to 11 min 40 s: 49,000 tokens were"
        " written again, $0.31 instead of $0.0245."
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # it was sent in time
        (call(100, 0, 64_000), call(350, 0, 64_000, took=250.0, waited=240.0)),
        # it was read
        (call(100, 0, 64_000), call(850, 64_000, 900, took=750.0, waited=700.0)),
        # its client asked too late anyway
        (call(100, 0, 64_000), call(1850, 0, 64_000, took=750.0, waited=700.0)),
        # it did not wait
        (call(100, 0, 64_000), call(850, 0, 64_000, took=50.0)),
        # a smaller prompt was begun, as after a compaction
        (call(100, 0, 64_000), call(850, 0, 20_000, took=750.0, waited=700.0)),
        # others', and other lanes'
        (call(100, 0, 64_000, agent="b"), call(850, 0, 64_000, took=750.0, waited=700.0)),
        (call(100, 0, 64_000, lane=LaneId("b")), call(850, 0, 64_000, took=750.0, waited=700.0)),
        # nothing came of the one before, or nobody knows whose it is
        (
            call(100, 0, 64_000, outcome="client_left"),
            call(850, 0, 64_000, took=750.0, waited=700.0),
        ),
        (
            call(100, 0, 64_000, session=None),
            call(850, 0, 64_000, took=750.0, waited=700.0, session=None),
        ),
    ],
)
def test_other_calls_are_not_found(first: CallEnded, second: CallEnded) -> None:
    assert found(first, second) == []


def test_a_cache_of_an_hour_lapses_after_an_hour() -> None:
    late = call(4_000, 0, 64_000, took=3_890.0, waited=3_880.0)
    assert [wait.waited for wait in found(call(100, 0, 64_000), late)] == [3_880.0]


def test_several_are_summed_up_and_prices_that_nobody_knows_are_left_out() -> None:
    calls = [
        each
        for agent in ("a", "b")
        for each in (
            call(100, 0, 64_000, agent=agent),
            call(850, 0, 64_000, took=750.0, waited=700.0, agent=agent),
        )
    ]
    waits = lapsed_waits(calls, lambda _model: None)
    assert waits_sentence(waits) == (
        "2 calls waited while their prompt caches lapsed, for up to 11 min 40 s: 128,000 tokens"
        " were written again."
    )
    assert waits_sentence([]) == ""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Transcripts of an incident, and the journal of the gateway that its agents went through."""
    write_replica(tmp_path)
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    with Journal(folder / "journal.db", wall=lambda: START) as journal:
        journal.announce(call(100, 0, 64_000))
        journal.announce(call(850, 0, 64_000, took=750.0, waited=700.0))
        journal.announce(call(850, 0, 64_000, took=750.0, waited=700.0, session="another"))
    return tmp_path


def why(home: Path, *arguments: str) -> Answer:
    moved = {
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CODEX_HOME": str(home / ".codex"),
        "JACKLINE_STATE": str(home / "state"),
    }
    return jackline("why", "--now", "2026-06-18T20:50:00+03:00", *arguments, env=moved)


def test_why_says_where_calls_waited_while_their_caches_lapsed(home: Path) -> None:
    answer = why(home)
    assert (answer.code, answer.err) == (0, "")
    shown = " ".join(answer.out.split())
    assert "Prompt caches" in shown
    assert "1 call waited while its prompt cache lapsed, for up to 11 min 40 s" in shown
    assert "64,000 tokens were written again, $0.40 instead of $0.032" in shown
    document = json.loads(why(home, "--json").out)
    assert document["prompt_caches"] == {
        "calls": 1,
        "longest_wait_s": 700.0,
        "tokens_written_again": 64_000,
        "dollars": pytest.approx(0.4),
        "dollars_warm": pytest.approx(0.032),
    }
    page = home / "page.html"
    why(home, "--html", str(page))
    assert "while its prompt cache lapsed" in page.read_text()


def test_without_a_journal_caches_are_not_mentioned(tmp_path: Path) -> None:
    write_replica(tmp_path)
    answer = why(tmp_path)
    assert (answer.code, answer.err) == (0, "")
    assert "Prompt caches" not in answer.out
    assert json.loads(why(tmp_path, "--json").out)["prompt_caches"] is None
