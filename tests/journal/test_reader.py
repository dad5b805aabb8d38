"""The journal can be read at any time: it returns the events as written, or says why not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from jackline.errors import JournalError
from jackline.journal import Journal, JournalReader, Totals
from jackline.journal.store import FILE
from tests.journal import made


def test_calls_come_latest_first_within_their_time_up_to_the_limit_and_by_session(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    with Journal(path) as journal:
        for number in range(10):
            whose = "mine" if number % 2 else "yours"
            journal.announce(made.call(number, at=made.NOON + number)._replace(session=whose))
    with JournalReader(path) as reader:

        def numbers(since: float, until: float, limit: int, session: str | None) -> list[str]:
            found = reader.calls(made.NOON + since, made.NOON + until, limit, session)
            return [saved.call.removeprefix("call-") for saved in found]

        assert numbers(2, 6, 100, None) == ["5", "4", "3", "2"]
        assert numbers(0, 100, 3, None) == ["9", "8", "7"]
        assert numbers(0, 100, 3, "yours") == ["8", "6", "4"]
        assert numbers(0, 100, 3, "nobody's") == []


def test_totals_count_outcomes_held_calls_and_tokens_since_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    outcomes = (
        "answered",
        "answered",
        "shortened",
        "refused",
        "broken",
        "retry_later",
        "client_left",
    )
    with Journal(path) as journal:
        journal.announce(made.call(0, at=made.NOON - 1))
        journal.announce(made.attempt(0, at=made.NOON - 1))
        for number, outcome in enumerate(outcomes, 1):
            ended = made.call(number, outcome=outcome)
            journal.announce(ended._replace(waited=float(number - 1), attempts=number))
            journal.announce(made.attempt(number))
    with JournalReader(path) as reader:
        assert reader.totals(made.NOON) == Totals(
            calls=7,
            answered=2,
            shortened=1,
            refused=1,
            broken=1,
            retry_later=1,
            client_left=1,
            held=5,
            attempts=28,
            failed_attempts=7,
            waited=21.0,
            input_tokens=70,
            output_tokens=140,
            cache_read_tokens=210,
            cache_write_tokens=280,
            wasted_input_tokens=350,
            wasted_output_tokens=420,
            cache_write_1h_tokens=105,
        )
        assert reader.totals(made.NOON + 1) == Totals()


def test_the_failed_attempts_of_one_call_come_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    reported = [made.attempt(7, at=made.NOON + second) for second in range(3)]
    with Journal(path) as journal:
        for failed in (*reported, made.attempt(8)):
            journal.announce(failed)
    with JournalReader(path) as reader:
        assert reader.attempts("call-7") == reported
        assert reader.attempts("call-9") == []


def test_a_reader_sees_each_commit_of_a_running_writer_and_never_blocks_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    with Journal(path) as journal:
        made.written(journal)
        with JournalReader(path) as early, JournalReader(path) as other:
            for number in range(30):
                for reader in (early, other):
                    assert reader.totals(0).calls == number
                    assert len(reader.calls(0, made.FOREVER, 1000)) == number
                journal.announce(made.call(number))
                made.written(journal)
        assert journal.health.ok


def test_a_journal_can_be_read_after_its_writer_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal(path) as journal:
        journal.announce(made.change())
    assert not path.with_name("journal.db-wal").exists()
    with JournalReader(path) as reader:
        assert reader.lane_changes(made.NOON) == [made.change()]
        assert reader.lane_changes(made.NOON + 1) == []
        assert reader.lane_memory() is None


def test_any_path_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "50% off? #1 &mode=memory" / "jour nal.db"
    with Journal(path) as journal:
        journal.announce(made.call(1))
    assert path.is_file()
    assert made.saved_numbers(path) == [1]


def _missing(_path: Path) -> None:
    pass


def _empty(path: Path) -> None:
    path.touch()


def _folder(path: Path) -> None:
    path.mkdir()


def _no_database(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1000)


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE holiday_photos (name)")


def _newer(path: Path) -> None:
    with Journal(path):
        pass
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {FILE.version + 1}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_missing, "There is no journal at"),
        (_folder, "There is no journal at"),
        (_empty, "is empty"),
        (_no_database, "cannot be read: it is damaged"),
        (_foreign, "belongs to another program"),
        (_newer, "written by a newer Jackline"),
    ],
)
def test_what_is_no_readable_journal_is_refused_with_a_reason_and_advice(
    tmp_path: Path, make: object, words: str
) -> None:
    assert callable(make)
    make(tmp_path / "journal.db")
    with pytest.raises(JournalError, match=words) as refused:
        JournalReader(tmp_path / "journal.db")
    assert refused.value.hint


def test_damage_found_while_reading_is_reported_too(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal(path) as journal:
        for number in range(500):
            journal.announce(made.call(number))
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\xa5" * (len(content) - 8192))
    with JournalReader(path) as reader, pytest.raises(JournalError, match="it is damaged"):
        reader.calls(0, made.FOREVER, 1000)


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal(path):
        pass
    with JournalReader(path) as reader, pytest.raises(JournalError, match="is not writable"):
        reader._rows("DELETE FROM calls")
