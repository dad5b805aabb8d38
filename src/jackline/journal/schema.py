"""Define the tables, version by version.

Laws: a step of `MIGRATIONS` is never changed once released: a new version is a new step.
Not here: going from version to version (versioned_file.py), what goes into the tables (records.py),
a damaged file (files.py).
"""

from __future__ import annotations

from jackline.journal.versioned_file import VersionedFile

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
    ("ALTER TABLE calls ADD COLUMN cache_write_1h_tokens INTEGER NOT NULL DEFAULT 0",),
)
# The mark is "JKLN".
FILE = VersionedFile(application=0x4A4B4C4E, steps=MIGRATIONS, holds="the journal")
