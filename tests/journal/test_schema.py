"""A journal of any earlier version is migrated to the newest, whole or not at all."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from jackline.errors import JournalError
from jackline.journal import Journal, JournalReader, JournalSettings
from jackline.journal.store import FILE, MIGRATIONS, JournalStore
from jackline.lane_id import LaneId
from tests.journal import made

NEXT = replace(
    FILE,
    steps=(
        *MIGRATIONS,
        ("ALTER TABLE calls ADD COLUMN mood TEXT", "CREATE TABLE moods (name TEXT)"),
    ),
)
BROKEN = replace(
    FILE, steps=(*MIGRATIONS, ("CREATE TABLE moods (name TEXT)", "CREATE TABLE calls (twice)"))
)


def _file(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _columns(file: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in file.execute(f"PRAGMA table_info({table})")]


def _insert(table: str, columns: int) -> str:
    return f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})"  # noqa: S608 -- our own names


def test_an_older_journal_is_migrated_and_keeps_its_records(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db") as journal:
        journal.announce(made.call(1))
    with closing(_file(tmp_path / "journal.db")) as file:
        NEXT.migrate(file)
        assert NEXT.version_of(file) == FILE.version + 1
        assert "mood" in _columns(file, "calls")
        assert file.execute("SELECT call, mood FROM calls").fetchall() == [("call-1", None)]
        NEXT.migrate(file)


def test_calls_of_the_first_version_have_wasted_nothing_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(_file(path)) as file:
        replace(FILE, steps=MIGRATIONS[:1]).migrate(file)
        file.execute(
            "INSERT INTO calls VALUES (4e9, 'old', 'answered', 'l', 'm', NULL, NULL, NULL, NULL,"
            " 1, 200, 1, 0.0, 1.0, NULL, 1, 2, 3, 4)"
        )
    with pytest.raises(JournalError) as refused, JournalReader(path):
        pass
    assert "jackline up" in refused.value.hint
    with Journal(path):
        pass
    with JournalReader(path) as reader:
        (call,) = reader.calls(0.0, made.FOREVER, 9)
    assert (call.call, call.wasted_input_tokens, call.wasted_output_tokens) == ("old", 0, 0)
    assert call.cache_write_1h_tokens == 0
    assert call.lane == LaneId("l")


@pytest.mark.parametrize(
    ("text", "lane"),
    [
        ("anthropic/claude-opus#12ab", LaneId("anthropic", "claude-opus", "12ab")),
        ("router/openai/gpt#5#12ab", LaneId("router", "openai/gpt#5", "12ab")),
        ("anthropic/#12ab", LaneId("anthropic", "", "12ab")),
        ("up/model", LaneId("up", "model")),
        ("", None),
    ],
)
def test_the_lane_of_an_older_journal_becomes_three_columns(
    tmp_path: Path, text: str, lane: LaneId | None
) -> None:
    path = tmp_path / "journal.db"
    with closing(_file(path)) as file:
        replace(FILE, steps=MIGRATIONS[:3]).migrate(file)
        call = (made.NOON, "old", "answered", text, "m", *(None,) * 4, 1, 200, 1, 0.0, 1.0, None)
        file.execute(_insert("calls", 22), (*call, *range(7)))
        attempt = (made.NOON, "old", text, "throttled", None, 429, None, 0.1, None, "why")
        file.execute(_insert("attempts", 10), attempt)
        change = (made.NOON, text, "parked", "why", None)
        file.execute(_insert("lane_changes", 5), change)
    with Journal(path, settings=JournalSettings(keep=1e6 * 86_400)):
        pass
    with JournalReader(path) as reader:
        (call_read,) = reader.calls(0.0, made.FOREVER, 9)
        (attempt_read,) = reader.attempts("old")
        (change_read,) = reader.lane_changes(0.0)
    assert call_read.lane == attempt_read.lane == change_read.lane == lane
    assert call_read[4:15] == call[4:15]
    assert call_read[15:] == tuple(range(7))
    assert (attempt_read.kind, change_read.state) == ("throttled", "parked")


def test_outcomes_and_states_of_an_older_journal_get_their_present_names(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    outcomes = ("answered", "come_back", "left", "broken")
    states = ("limited", "broken", "probing", "parked")
    with closing(_file(path)) as file:
        replace(FILE, steps=MIGRATIONS[:4]).migrate(file)
        for number, (outcome, state) in enumerate(zip(outcomes, states, strict=True)):
            at = made.NOON + number
            call = (at, f"c{number}", outcome, "up", "m", *(None,) * 4, 1, 200, 1, 0.0, 1.0, None)
            file.execute(_insert("calls", 24), (*call, *range(7), "model", ""))
            change = (at, "up", state, "why", None, "model", "")
            file.execute(_insert("lane_changes", 7), change)
    with Journal(path, settings=JournalSettings(keep=1e6 * 86_400)):
        pass
    with JournalReader(path) as reader:
        calls = [call.outcome for call in reversed(reader.calls(0.0, made.FOREVER, 9))]
        changes = [change.state for change in reader.lane_changes(0.0)]
        totals = reader.totals(0.0)
    assert calls == ["answered", "retry_later", "client_left", "broken"]
    assert changes == ["throttled", "down", "recovering", "parked"]
    assert (totals.retry_later, totals.client_left, totals.broken) == (1, 1, 1)


def test_a_step_that_fails_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db"):
        pass
    with closing(_file(tmp_path / "journal.db")) as file:
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            BROKEN.migrate(file)
        assert FILE.version_of(file) == FILE.version
        assert _columns(file, "moods") == []
        assert not file.in_transaction


def test_the_file_has_the_mode_that_its_promises_need(tmp_path: Path) -> None:
    normal, incremental = 1, 2
    with closing(JournalStore(tmp_path / "journal.db", JournalSettings())) as store:
        run = store._connection.execute
        assert run("PRAGMA journal_mode").fetchone() == ("wal",)
        assert run("PRAGMA synchronous").fetchone() == (normal,)
        assert run("PRAGMA auto_vacuum").fetchone() == (incremental,)
