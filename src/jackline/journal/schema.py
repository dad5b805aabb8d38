"""Define the tables, version by version, and recognise a file that is ours.

Laws: (1) a step of `MIGRATIONS` is never changed once released: a new version is a new step; (2) a
step happens whole or not at all; (3) a file of a newer version or of another program is
left alone.
Not here: what goes into the tables (records.py), a damaged file (files.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from jackline.errors import JournalError

# "JKLN": SQLite keeps it in the file's head for programs to know their own.
APPLICATION = 0x4A4B4C4E

# Each step leads from the version before it, one statement after the other. Indexes are few, since
# every one is paid for by every call: time for ranges and retention, the call for its attempts.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE calls (
            at REAL NOT NULL, call TEXT NOT NULL, outcome TEXT NOT NULL, lane TEXT NOT NULL,
            model TEXT NOT NULL, session TEXT, agent TEXT, parent TEXT, tag TEXT,
            stream INTEGER NOT NULL, status INTEGER, attempts INTEGER NOT NULL,
            waited REAL NOT NULL, took REAL NOT NULL, request_id TEXT,
            input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
            cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL)""",
        "CREATE INDEX calls_at ON calls (at)",
        """CREATE TABLE attempts (
            at REAL NOT NULL, call TEXT NOT NULL, lane TEXT NOT NULL, kind TEXT NOT NULL, sub TEXT,
            status INTEGER, request_id TEXT, took REAL NOT NULL, resets_at REAL,
            why TEXT NOT NULL)""",
        "CREATE INDEX attempts_at ON attempts (at)",
        "CREATE INDEX attempts_call ON attempts (call)",
        """CREATE TABLE lane_changes (
            at REAL NOT NULL, lane TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,
            until REAL)""",
        "CREATE INDEX lane_changes_at ON lane_changes (at)",
        """CREATE TABLE lane_memory (
            only INTEGER PRIMARY KEY CHECK (only = 1), at REAL NOT NULL, memory BLOB NOT NULL)""",
        "CREATE TABLE notes (at REAL NOT NULL, what TEXT NOT NULL, detail TEXT NOT NULL)",
        "CREATE INDEX notes_at ON notes (at)",
    ),
    (
        "ALTER TABLE calls ADD COLUMN wasted_input_tokens INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE calls ADD COLUMN wasted_output_tokens INTEGER NOT NULL DEFAULT 0",
    ),
)
VERSION = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection, known: int = VERSION) -> int:
    """The version of the open file, 0 for an empty one; `JournalError` if it is not for us."""
    application = _number(connection, "PRAGMA application_id")
    version = _number(connection, "PRAGMA user_version")
    if application == APPLICATION:
        if version > known:
            raise JournalError(
                f"the journal was written by a newer Jackline (version {version}, known {known})",
                next="Update Jackline, or move the journal file away to begin a new one.",
            )
        return version
    if application or version or _number(connection, "SELECT count(*) FROM sqlite_master"):
        raise JournalError(
            "the file at the journal's place belongs to another program",
            next="Move that file away, or choose another state folder with --state.",
        )
    return 0


def migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring the open file to the newest version."""
    if version_of(connection, len(steps)) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it while this one waited for the lock.
        for step in steps[version_of(connection, len(steps)) :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _number(connection: sqlite3.Connection, question: str) -> int:
    return int(connection.execute(question).fetchone()[0])
