"""Forget the calls of deleted runs, while a gateway may be writing.

Rules: (1) only rows that carry the run's own mark go, with their attempts; (2) what is deleted is
overwritten; (3) a journal that is not there, or that another program holds, is left as it is, and
whoever asked is told.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from jackline.journal import schema
from jackline.journal.files import check_rollback_journal
from jackline.journal.store import connect
from jackline.journal.versioned_file import guard

_LOCK_SECONDS = 15.0


def forget_runs(path: Path, run_ids: Collection[str]) -> int | None:
    """How many calls were forgotten; None when the journal could not be written."""
    if not path.is_file():
        return 0
    check_rollback_journal(path)
    try:
        with closing(connect(path, _LOCK_SECONDS)) as connection:
            return _forget(connection, run_ids)
    except sqlite3.Error:
        return None


def _forget(connection: sqlite3.Connection, run_ids: Collection[str]) -> int:
    run = connection.execute
    guard(connection)
    if schema.FILE.version_of(connection) == 0:
        return 0
    run("PRAGMA secure_delete = ON").fetchall()
    gone = 0
    run("BEGIN IMMEDIATE")
    for run_id in run_ids:
        run("DELETE FROM attempts WHERE call IN (SELECT call FROM calls WHERE tag = ?)", (run_id,))
        gone += run("DELETE FROM calls WHERE tag = ?", (run_id,)).rowcount
    run("COMMIT")
    run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return gone
