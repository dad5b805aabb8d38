"""Whatever fails on the disk, traffic goes on, `health` reports it, and recording resumes."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from jackline.events import LanesLearned
from jackline.journal import Journal, JournalReader, JournalSettings
from jackline.journal.sqlite_file import cause_of, companions, connect
from jackline.journal.store import FILE
from tests.journal import made

ROOT = Path(__file__).parents[2]
deleting_open_files = pytest.mark.skipif(
    os.name != "posix", reason="Windows does not delete a file that is open"
)
CLOCK = f"{datetime.fromtimestamp(made.NOON).astimezone():%H:%M}"


def _opened(path: Path, settings: JournalSettings = made.AT_ONCE) -> Journal:
    return Journal(path, settings=settings, wall=lambda: made.NOON)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def test_while_another_program_has_the_lock_announcing_returns_and_records_wait(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    with _opened(path) as journal:
        with _locked(path):
            for number in range(1200):
                journal.announce(made.call(number))
            assert not journal.flush(made.PATIENCE)
            journal.announce(made.call(1200))
            health = journal.health
            assert not health.ok
            assert health.since == made.NOON
            assert (health.dropped, health.waiting) == (0, 1201)
            assert health.problem == (
                f"another program has locked it: 1201 records waiting in memory since {CLOCK}"
            )
        made.written(journal)
        assert journal.health.ok
        assert journal.health.problem == ""
        assert journal.health.since is None
    assert made.saved_numbers(path) == list(range(1201))


def test_a_lock_from_the_start_is_reported_and_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with _opened(path) as journal:
        journal.announce(made.call(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        journal = _opened(path)
        journal.open()
        journal.announce(made.call(2))
        assert not journal.flush(made.PATIENCE)
        assert journal.health.problem.startswith("another program has locked it: 1 record ")
        other.execute("ROLLBACK")
    made.written(journal)
    journal.close()
    assert made.saved_numbers(path) == [1, 2]


def test_announcing_never_waits_even_while_the_writer_waits_for_a_lock(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    patient = replace(made.AT_ONCE, lock_seconds=made.PATIENCE)
    with _opened(path, patient) as journal:
        with _locked(path):
            journal.announce(made.call(0))
            ask = journal._writer.flush()
            for number in range(1, 5000):
                journal.announce(made.call(number))
            # The writer has not come back from its commit, and yet all were taken.
            assert not ask.done()
            assert journal.health.waiting == 5000
        made.written(journal)
    assert made.saved_numbers(path) == list(range(5000))


def test_recording_resumes_without_a_flush(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with _opened(path, replace(made.AT_ONCE, retry_first=0.001, retry_longest=0.01)) as journal:
        with _locked(path):
            journal.announce(made.call(1))
            assert not journal.flush(made.PATIENCE)
        made.until(journal, lambda: made.saved_numbers(path) == [1])
        made.written(journal)
        assert journal.health.ok


def test_beyond_the_bound_the_oldest_are_lost_and_the_gap_is_reported_then_and_later(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    with _opened(path, replace(made.AT_ONCE, waiting_records=10)) as journal:
        with _locked(path):
            journal.announce(made.call(0))
            assert not journal.flush(made.PATIENCE)
            for number in range(1, 16):
                journal.announce(made.call(number))
            health = journal.health
            assert (health.dropped, health.waiting) == (5, 11)
            assert health.problem == (
                "another program has locked it: "
                f"5 records not saved since {CLOCK}, 11 wait in memory"
            )
        made.written(journal)
        made.written(journal)
        assert (journal.health.ok, journal.health.dropped) == (True, 5)
    # The first was in the writer's hands already; the newest ten are the others that were kept.
    assert made.saved_numbers(path) == [0, *range(6, 16)]
    with JournalReader(path) as reader:
        (note,) = reader.notes(0)
    assert note.what == "records lost"
    assert note.detail == (
        f"another program has locked it: 5 records not saved from {CLOCK} to {CLOCK}"
    )


class SmallDisk:
    """Connects to files that can have only so many pages, as if the disk were no larger."""

    def __init__(self) -> None:
        self.pages = 1_000_000

    def connect(self, path: Path, lock_seconds: float) -> sqlite3.Connection:
        connection = connect(path, lock_seconds)
        connection.execute(f"PRAGMA max_page_count = {self.pages}").fetchall()
        return connection


def test_a_full_disk_is_reported_and_nothing_is_lost_or_doubled_once_there_is_space(
    tmp_path: Path,
) -> None:
    path, disk = tmp_path / "journal.db", SmallDisk()
    disk.pages = 30
    with Journal(
        path, settings=made.AT_ONCE, wall=lambda: made.NOON, connect=disk.connect
    ) as journal:
        for number in range(3000):
            journal.announce(made.call(number))
        assert not journal.flush(made.PATIENCE)
        waiting = journal.health.waiting
        assert 0 < waiting <= 3000
        assert journal.health.problem == (
            f"the disk is full: {waiting} records waiting in memory since {CLOCK}"
        )
        assert not journal.flush(made.PATIENCE)
        assert journal.health.waiting == waiting
        disk.pages = 1_000_000
        made.written(journal)
        assert journal.health.ok
    assert made.saved_numbers(path) == list(range(3000))


@pytest.mark.skipif(os.name != "posix", reason="only POSIX limits a process like this")
@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("small-files", "the disk reports errors: "),
        ("no-rights", "its folder or file is not writable: "),
    ],
)
def test_what_the_operating_system_refuses_is_reported(
    tmp_path: Path, limit: str, words: str
) -> None:
    path = tmp_path / "state" / "journal.db"
    command = [sys.executable, "-m", "tests.journal.limited_process", str(path), limit]
    reported = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert reported.startswith(words)
    if limit == "small-files":
        assert made.saved_numbers(path) == list(range(4000))


def test_an_impossible_path_is_reported_and_used_as_soon_as_it_is_possible(tmp_path: Path) -> None:
    in_the_way = tmp_path / "state"
    in_the_way.write_text("a file where the folder should be")
    path = in_the_way / "journal.db"
    with _opened(path) as journal:
        journal.announce(made.call(1))
        assert not journal.flush(made.PATIENCE)
        assert journal.health.problem.startswith("it cannot be opened at its path: 1 record ")
        in_the_way.unlink()
        made.written(journal)
        assert journal.health.ok
    assert made.saved_numbers(path) == [1]


def test_a_folder_at_the_journals_path_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.mkdir()
    with _opened(path) as journal:
        journal.announce(made.call(1))
        assert not journal.flush(made.PATIENCE)
        assert not journal.health.ok
        assert path.is_dir()


def test_a_read_only_file_is_reported(tmp_path: Path) -> None:
    # By SQLite's own means, since the owner of the machine may write to anything.
    def only_reading(path: Path, lock_seconds: float) -> sqlite3.Connection:
        connection = connect(path, lock_seconds)
        connection.execute("PRAGMA query_only = ON")
        return connection

    with Journal(tmp_path / "journal.db", settings=made.AT_ONCE, connect=only_reading) as journal:
        journal.announce(made.call(1))
        assert not journal.flush(made.PATIENCE)
        assert journal.health.problem.startswith("its folder or file is not writable: ")


def test_a_file_damaged_under_the_running_writer_costs_no_waiting_record(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with _opened(path) as journal:
        for number in range(1000):
            journal.announce(made.call(number))
        made.written(journal)
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xa5" * (path.stat().st_size - 4096))
        for number in range(1000, 4000):
            journal.announce(made.call(number))
        made.written(journal)
        assert journal.health.ok
        assert "renamed to journal.db.damaged-1" in journal.health.notice
    # Commits that went into the damaged file before SQLite noticed are in the file put aside.
    kept = made.saved_numbers(path)
    assert kept == list(range(kept[0], 4000))


def _damage_head(path: Path) -> None:
    path.write_bytes(b"this was a database once" * 400)


def _damage_pages(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))


@pytest.mark.parametrize("damage", [_damage_head, _damage_pages])
def test_a_damaged_file_is_renamed_and_a_new_one_created_and_that_is_reported(
    tmp_path: Path, damage: object
) -> None:
    assert callable(damage)
    path = tmp_path / "journal.db"
    for number in (1, 2):
        with _opened(path) as journal:
            for _ in range(200):
                journal.announce(made.call(number))
        damage(path)
        spoilt = path.read_bytes()
        with _opened(path) as journal:
            journal.announce(made.call(3))
            made.written(journal)
            health = journal.health
        assert health.ok
        assert health.dropped == 0
        assert health.notice == (
            f"the journal was damaged and renamed to journal.db.damaged-{number};"
            f" a new one was created at {CLOCK}"
        )
        assert (tmp_path / f"journal.db.damaged-{number}").read_bytes()[:4096] == spoilt[:4096]
        assert made.saved_numbers(path) == [3]
        with JournalReader(path) as reader:
            assert [note.detail for note in reader.notes(0)] == [health.notice]


@deleting_open_files
@pytest.mark.parametrize("with_companions", [True, False])
def test_a_deleted_file_is_created_again_with_the_state_of_the_lanes(
    tmp_path: Path, with_companions: bool
) -> None:
    path = tmp_path / "journal.db"
    with _opened(path) as journal:
        journal.announce(made.call(1))
        journal.announce(LanesLearned(made.NOON, b"a wall until ten"))
        made.written(journal)
        for file in (path, *(companions(path) if with_companions else ())):
            file.unlink()
        journal.announce(made.call(2))
        made.written(journal)
        assert journal.health.ok
        assert journal.health.notice == (
            f"the journal file was deleted; a new one was created at {CLOCK}"
        )
        assert made.saved_numbers(path) == [2]
    with JournalReader(path) as reader:
        assert reader.lane_memory() == (made.NOON, b"a wall until ten")


@deleting_open_files
def test_a_file_deleted_during_a_commit_costs_no_record_of_that_commit(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    armed = False

    def watch(statement: str) -> None:
        nonlocal armed
        if armed and statement == "COMMIT":
            armed = False
            path.unlink()

    def watched(path: Path, lock_seconds: float) -> sqlite3.Connection:
        connection = connect(path, lock_seconds)
        connection.set_trace_callback(watch)
        return connection

    with Journal(path, settings=made.AT_ONCE, wall=lambda: made.NOON, connect=watched) as journal:
        made.written(journal)
        armed = True
        journal.announce(made.call(1))
        made.written(journal)
        assert not armed
        assert journal.health.notice.startswith("the journal file was deleted; ")
    assert made.saved_numbers(path) == [1]


@deleting_open_files
@pytest.mark.parametrize("watched", [False, True])
def test_a_deleted_log_costs_no_record(tmp_path: Path, watched: bool) -> None:
    path = tmp_path / "journal.db"
    with _opened(path) as journal, ExitStack() as watching:
        if watched:
            watching.enter_context(JournalReader(path))
        for number in range(5):
            journal.announce(made.call(number))
            made.written(journal)
            assert made.saved_numbers(path) == list(range(number + 1))
            for file in companions(path):
                file.unlink(missing_ok=True)
        made.written(journal)
        assert journal.health.ok
    assert made.saved_numbers(path) == list(range(5))


@deleting_open_files
def test_a_deleted_folder_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    with _opened(path) as journal:
        journal.announce(made.call(1))
        made.written(journal)
        for file in path.parent.iterdir():
            file.unlink()
        path.parent.rmdir()
        journal.announce(made.call(2))
        made.written(journal)
    assert made.saved_numbers(path) == [2]


def test_a_newer_journal_is_not_changed_and_that_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with _opened(path) as journal:
        journal.announce(made.call(1))
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {FILE.version + 1}")
    before = path.read_bytes()
    with _opened(path) as journal:
        journal.announce(made.call(2))
        assert not journal.flush(made.PATIENCE)
        assert journal.health.problem.startswith(
            "the journal was written by a newer Jackline"
            f" (version {FILE.version + 1}, known {FILE.version})"
        )
    assert path.read_bytes() == before


def test_another_programs_database_is_not_changed_and_that_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE holiday_photos (name)")
    before = path.read_bytes()
    with _opened(path) as journal:
        journal.announce(made.call(1))
        assert not journal.flush(made.PATIENCE)
        assert journal.health.problem.startswith("the file at the path of the journal belongs to ")
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*.damaged-*"))


@pytest.mark.parametrize(
    "spoilt",
    [
        made.call()._replace(input_tokens=2**70),
        made.call()._replace(session="half a letter: \ud800"),
        made.call()._replace(at=float("nan")),
        made.call()._replace(model=object()),  # type: ignore[arg-type]
    ],
    ids=["too large a number", "not Unicode", "not a time", "not a text"],
)
def test_a_record_that_cannot_be_stored_costs_only_itself(tmp_path: Path, spoilt: object) -> None:
    with _opened(tmp_path / "journal.db") as journal:
        for number in range(40):
            journal.announce(made.call(number))
        journal.announce(spoilt)  # type: ignore[arg-type]
        for number in range(40, 80):
            journal.announce(made.call(number))
        made.written(journal)
        assert journal.health.ok
        assert journal.health.dropped == 1
    assert made.saved_numbers(tmp_path / "journal.db") == list(range(80))


def test_closing_during_a_failure_ends_and_reports_what_was_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = _opened(path)
    journal.open()
    with _locked(path):
        journal.announce(made.call(1))
        journal.close()
    health = journal.health
    assert (health.ok, health.dropped, health.waiting) == (False, 1, 0)
    assert health.problem == f"another program has locked it: 1 record not saved since {CLOCK}"
    assert not journal._thread.is_alive()


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (PermissionError(errno.EACCES, "no"), "its folder or file is not writable"),
        (OSError(errno.EROFS, "no"), "its folder or file is not writable"),
        (OSError(errno.EIO, "no"), "the disk reports errors"),
        (OSError(errno.ELOOP, "Too many links"), "the system reports 'Too many links'"),
        (sqlite3.OperationalError("odd"), "SQLite reports 'odd'"),
    ],
)
def test_every_cause_has_a_text(error: OSError | sqlite3.Error, cause: str) -> None:
    assert cause_of(error) == cause
