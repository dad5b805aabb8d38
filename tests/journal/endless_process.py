"""A process that journals numbered calls without end, to be killed; run by test_kill.py.

Arguments: the journal's path, the first number, `roomy` or `cramped`. After each flush that was
granted it prints the first number that is not yet saved for sure.
"""

from __future__ import annotations

import random
import sqlite3
import sys
from pathlib import Path

from jackline.journal import Journal, JournalSettings
from jackline.journal.sqlite_file import connect
from tests.journal import made

SETTINGS = {
    "roomy": JournalSettings(),
    "cramped": JournalSettings(size=150_000, sweep_seconds=0.0, sweep_records=100),
}


def connect_restlessly(path: Path, lock_seconds: float) -> sqlite3.Connection:
    """Checkpoint at almost every commit, so that kills fall into checkpoints too."""
    connection = connect(path, lock_seconds)
    connection.execute("PRAGMA wal_autocheckpoint = 20").fetchall()
    return connection


def main(path: Path, number: int, settings: JournalSettings) -> None:
    lots = random.Random(number)  # noqa: S311 -- sizes of bursts
    with Journal(
        path, settings=settings, wall=lambda: made.NOON, connect=connect_restlessly
    ) as journal:
        while True:
            for _ in range(lots.randrange(1, 400)):
                journal.announce(made.call(number, at=made.NOON + number / 1000))
                number += 1
            made.written(journal)
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), SETTINGS[sys.argv[3]])
