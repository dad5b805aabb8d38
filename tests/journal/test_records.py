"""Announced events are saved: all of them, once, unchanged, and for the owner only."""

from __future__ import annotations

import inspect
import os
import sqlite3
import stat
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings

from jackline.events import (
    AttemptFailed,
    CallEnded,
    Event,
    LaneChanged,
    LanesLearned,
    ServiceNoted,
    TranscriptsRead,
)
from jackline.journal import Journal, JournalReader, JournalSettings
from jackline.journal.journal import RecordQueue
from jackline.journal.store import TABLES
from tests.journal import made


@settings(max_examples=60)
@given(made.any_events)
def test_whatever_is_announced_is_read_back_equal(events: list[Event]) -> None:
    reported: dict[type[Event], list[Event]] = defaultdict(list)
    for event in events:
        reported[type(event)].append(event)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        with Journal(path, settings=_keeping_all(commit_records=50)) as journal:
            for event in events:
                journal.announce(event)
        with JournalReader(path) as reader:
            assert reader.calls(-made.FOREVER, made.FOREVER, 1000)[::-1] == _by_time(
                reported[CallEnded]
            )
            kept = reader.calls(-made.FOREVER, made.FOREVER, 1000)
            assert all(isinstance(call.stream, bool) for call in kept)
            assert reader.lane_changes(-made.FOREVER) == _by_time(reported[LaneChanged])
            assert reader.notes(-made.FOREVER) == _by_time(reported[ServiceNoted])
            assert reader.failed_attempts(-made.FOREVER, made.FOREVER, 1000)[::-1] == _by_time(
                reported[AttemptFailed]
            )
            learned = [(e.at, e.memory) for e in events if isinstance(e, LanesLearned)]
            assert reader.lane_memory() == (learned[-1] if learned else None)


def _keeping_all(**others: int) -> JournalSettings:
    return JournalSettings(keep=1e20, flush_seconds=0.0, **others)


def _by_time(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: getattr(event, "at"))  # noqa: B009 -- not all have it


def test_every_column_is_a_field_of_its_event_and_nothing_else_is_stored(tmp_path: Path) -> None:
    events: list[Event] = [
        made.call(),
        made.attempt(),
        made.change(),
        LanesLearned(made.NOON, b"{}"),
        ServiceNoted(made.NOON, "started", "on port 8766"),
    ]
    with Journal(tmp_path / "journal.db", wall=lambda: made.NOON) as journal:
        for event in events:
            journal.announce(event)
    with sqlite3.connect(tmp_path / "journal.db") as file:
        tables = {
            name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }
        assert tables == {table.name for table in TABLES}
        for table, event in zip(TABLES, events, strict=True):
            asked = file.execute(f"SELECT * FROM {table.name}")  # noqa: S608
            columns = [column[0] for column in asked.description]
            own: dict[str, object] = {"only": 1} if table.only_latest else {}
            for name in inspect.signature(type(event)).parameters:
                value = getattr(event, name)
                if name == "lane":
                    own |= {f"lane_{part}": text for part, text in value._asdict().items()}
                else:
                    own[name] = value
            assert [dict(zip(columns, row, strict=True)) for row in asked] == [own]
    file.close()


def test_events_of_other_kinds_are_ignored(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db") as journal:
        journal.announce(TranscriptsRead(1, 2, 3, 4))
        assert journal.health.waiting == 0
        made.written(journal)
        assert journal.health.ok


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such file modes")
def test_file_and_companions_are_for_their_owner_only_even_if_an_older_file_was_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new" / "state" / "journal.db"
    before = os.umask(0)
    try:
        with Journal(path) as journal:
            made.written(journal)
        path.chmod(0o644)
        with Journal(path) as journal:
            journal.announce(made.call())
            made.written(journal)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("journal.db", "journal.db-wal", "journal.db-shm"), 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_records_are_written_without_a_flush(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal(path) as journal:
        journal.announce(made.call(1))
        made.until(journal, lambda: made.saved_numbers(path) == [1])


def test_events_before_opening_and_at_the_very_end_are_saved(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    journal.announce(made.call(1))
    journal.open()
    journal.announce(made.call(2))
    journal.close()
    journal.close()
    assert made.saved_numbers(tmp_path / "journal.db") == [1, 2]


def test_after_closing_nothing_is_recorded(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.db") as journal:
        pass
    journal.announce(made.call())
    assert journal.health.waiting == 0
    assert journal.flush()


def test_a_second_run_continues_the_same_file(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        with Journal(tmp_path / "journal.db") as journal:
            journal.announce(made.call(number))
    assert made.saved_numbers(tmp_path / "journal.db") == [1, 2, 3]


def test_two_gateways_may_write_to_one_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal(path) as one, Journal(path) as other:
        for number in range(0, 200, 2):
            one.announce(made.call(number))
            other.announce(made.call(number + 1))
        made.written(one)
        made.written(other)
    assert sorted(made.saved_numbers(path)) == list(range(200))


def test_a_full_queue_drops_and_counts_its_oldest_and_no_other_kinds() -> None:
    waiting = RecordQueue(bound=10)
    waiting.put(made.change())
    for number in range(25):
        waiting.put(made.call(number))
    for number in range(25):
        waiting.put(LanesLearned(number, b""))
    assert waiting.dropped == 15
    assert len(waiting) == 12
    taken = {table.name: events for table, events in waiting.take(100).items()}
    assert taken["calls"] == [made.call(number) for number in range(15, 25)]
    assert taken["lane_changes"] == [made.change()]
    assert taken["lane_memory"] == [LanesLearned(24, b"")]


def test_the_writer_is_woken_from_sleep_only_and_only_once() -> None:
    waiting = RecordQueue(bound=10)
    waiting.put(made.call())
    assert not waiting.sleep_until_woken(0)
    assert waiting.sleep_until_put(0)
    waiting.take(10)
    assert not waiting.sleep_until_put(0)
    waiting._asleep = True
    waiting.put(made.call())
    waiting.put(made.call())
    assert waiting.sleep_until_woken(0)
    assert not waiting.sleep_until_woken(0)
