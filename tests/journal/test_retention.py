"""Records are deleted by age and size, oldest first, a few at a time, and space is returned."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from jackline.events import LanesLearned, ServiceNoted
from jackline.journal import Journal, JournalReader, JournalSettings
from jackline.journal.store import CALLS, DAY, JournalStore
from tests.journal import made

BITES = replace(made.AT_ONCE, sweep_seconds=0.0, sweep_records=100)


def _swept(journal: Journal) -> None:
    made.written(journal)
    while journal._writer._more_to_sweep:
        made.written(journal)


def test_records_older_than_the_limit_are_deleted_in_every_table_and_no_younger_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    now = made.NOON
    with Journal(
        path, settings=replace(BITES, keep=2 * DAY), wall=lambda: now, elapsed=lambda: now
    ) as journal:
        for hours in range(96):
            at = made.NOON + hours * 3600
            journal.announce(made.call(hours, at=at))
            journal.announce(made.attempt(hours, at=at))
            journal.announce(made.change(at=at))
            journal.announce(ServiceNoted(at, "noted"))
        journal.announce(LanesLearned(made.NOON, b"old but the latest"))
        made.written(journal)
        assert len(made.saved_calls(path)) == 96
        now = made.NOON + 3 * DAY
        _swept(journal)
    with JournalReader(path) as reader:
        assert made.saved_numbers(path) == list(range(24, 96))
        ends = {
            min(saved.at for saved in reader.failed_attempts(0, made.FOREVER, 1000)),
            min(saved.at for saved in reader.lane_changes(0)),
            min(saved.at for saved in reader.notes(0)),
        }
        assert ends == {made.NOON + DAY}
        assert reader.lane_memory() == (made.NOON, b"old but the latest")


def test_one_sweep_is_small_and_returns_whether_another_should_follow(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(JournalStore(path, replace(BITES, keep=DAY))) as store:
        store.write({CALLS: [made.call(n, at=made.NOON + n) for n in range(450)]})
        assert not store.sweep(made.NOON)
        for left, more in ((350, True), (250, True), (150, True), (50, True), (0, False)):
            assert store.sweep(made.NOON + 2 * DAY) is more
            assert made.saved_numbers(path) == list(range(450 - left, 450))


def test_sweeps_follow_one_another_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    now = made.NOON
    with Journal(
        path, settings=replace(BITES, keep=DAY), wall=lambda: now, elapsed=lambda: now
    ) as journal:
        for number in range(450):
            journal.announce(made.call(number))
        made.written(journal)
        now = made.NOON + 2 * DAY
        journal.announce(made.call(450, at=now))
        made.until(journal, lambda: made.saved_numbers(path) == [450])


def test_when_space_is_short_the_oldest_are_deleted_and_the_file_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    roomy = JournalSettings(flush_seconds=0.0)
    with Journal(path, settings=roomy, wall=lambda: made.NOON) as journal:
        for number in range(20_000):
            journal.announce(made.call(number, at=made.NOON + number))
            journal.announce(made.attempt(number, at=made.NOON + number))
            if number % 1000 == 0:
                # A journal drops what its writer cannot keep up with, as is reported elsewhere.
                made.written(journal)
    before = path.stat().st_size
    keep = before // 4
    with Journal(path, settings=replace(BITES, size=keep), wall=lambda: made.NOON) as journal:
        _swept(journal)
    assert path.stat().st_size <= keep
    saved = made.saved_numbers(path)
    assert saved == list(range(saved[0], 20_000))
    assert len(saved) > 20_000 // 8
    with JournalReader(path) as reader:
        # One moment for all tables, give or take a bite.
        oldest = reader.failed_attempts(0, made.FOREVER, 100_000)[-1].at
        assert abs(oldest - (made.NOON + saved[0])) <= BITES.sweep_records


def test_a_single_record_larger_than_the_limit_does_not_keep_the_sweep_busy(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    settings = replace(BITES, size=100_000)
    with Journal(path, settings=settings, wall=lambda: made.NOON) as journal:
        journal.announce(LanesLearned(made.NOON, b"x" * 400_000))
        _swept(journal)
        assert journal.health.ok
    with JournalReader(path) as reader:
        assert reader.lane_memory() == (made.NOON, b"x" * 400_000)
