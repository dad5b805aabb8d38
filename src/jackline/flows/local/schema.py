"""Define the tables, version by version.

Laws: a step of `MIGRATIONS` is never changed once released: a new version is a new step.
Not here: going from version to version (journal/versioned_file.py), what goes into the tables
(blobs.py, runs.py, calls.py, notebooks.py, …).
"""

from __future__ import annotations

from jackline.journal.versioned_file import VersionedFile

# A column `…_blob` names the row of `blobs` that holds what is too long for its own. The indexes on
# them know only the few rows that have one. `spending` outlives the calls that it tells of: money
# that is spent stays spent when a run is deleted.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE blobs (sha BLOB NOT NULL PRIMARY KEY, data BLOB NOT NULL)",
        """CREATE TABLE runs (
            run_id TEXT NOT NULL PRIMARY KEY, flow TEXT NOT NULL, source TEXT NOT NULL,
            arguments BLOB NOT NULL, settings BLOB NOT NULL, cwd TEXT NOT NULL, state TEXT NOT NULL,
            created_at REAL NOT NULL, updated_at REAL NOT NULL, ended_at REAL, why TEXT NOT NULL,
            wake_at REAL, outcome BLOB, outcome_blob BLOB, forked_from TEXT, owner TEXT NOT NULL,
            lease_until REAL NOT NULL, lease_seconds REAL NOT NULL, epoch INTEGER NOT NULL,
            tokens INTEGER NOT NULL, cost REAL NOT NULL, confirmed INTEGER NOT NULL,
            asked TEXT NOT NULL)""",
        "CREATE INDEX runs_created ON runs (created_at)",
        "CREATE INDEX runs_outcome_blob ON runs (outcome_blob) WHERE outcome_blob IS NOT NULL",
        """CREATE TABLE calls (
            id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, key TEXT NOT NULL,
            occurrence INTEGER NOT NULL, kind TEXT NOT NULL, label TEXT NOT NULL,
            phase TEXT NOT NULL, task_id TEXT NOT NULL, state TEXT NOT NULL, value BLOB,
            value_blob BLOB, outcome BLOB, outcome_blob BLOB, attempts INTEGER NOT NULL,
            started_at REAL NOT NULL, ended_at REAL, tokens INTEGER NOT NULL, cost REAL NOT NULL,
            terminated_by TEXT NOT NULL, UNIQUE (run_id, key, occurrence))""",
        "CREATE INDEX calls_task ON calls (task_id) WHERE task_id <> ''",
        "CREATE INDEX calls_value_blob ON calls (value_blob) WHERE value_blob IS NOT NULL",
        "CREATE INDEX calls_outcome_blob ON calls (outcome_blob) WHERE outcome_blob IS NOT NULL",
        """CREATE TABLE notebooks (
            id INTEGER PRIMARY KEY, task_id TEXT NOT NULL UNIQUE, run_id TEXT NOT NULL)""",
        "CREATE INDEX notebooks_run ON notebooks (run_id)",
        """CREATE TABLE entries (
            notebook INTEGER NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL,
            data BLOB, data_blob BLOB, at REAL NOT NULL, PRIMARY KEY (notebook, number))""",
        "CREATE INDEX entries_data_blob ON entries (data_blob) WHERE data_blob IS NOT NULL",
        """CREATE TABLE sessions (
            id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, notebook INTEGER NOT NULL,
            UNIQUE (session_id, notebook))""",
        "CREATE INDEX sessions_notebook ON sessions (notebook)",
        """CREATE TABLE resources (
            run_id TEXT NOT NULL, name TEXT NOT NULL, task_id TEXT NOT NULL, release TEXT NOT NULL,
            release_on_park INTEGER NOT NULL, lease_until REAL, state TEXT NOT NULL,
            taken_at REAL NOT NULL, released_at REAL, tries INTEGER NOT NULL,
            trouble TEXT NOT NULL, PRIMARY KEY (run_id, name))""",
        """CREATE TABLE hooks (
            run_id TEXT NOT NULL, end_id TEXT NOT NULL, hook TEXT NOT NULL, told BLOB NOT NULL,
            state TEXT NOT NULL, tries INTEGER NOT NULL, trouble TEXT NOT NULL, at REAL NOT NULL,
            PRIMARY KEY (run_id, end_id, hook))""",
        """CREATE TABLE notes (
            run_id TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, what TEXT NOT NULL,
            label TEXT NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (run_id, number))
            WITHOUT ROWID""",
        """CREATE TABLE spending (
            at REAL NOT NULL, run_id TEXT NOT NULL, tokens INTEGER NOT NULL, cost REAL NOT NULL)""",
        "CREATE INDEX spending_at ON spending (at, tokens, cost)",
    ),
    (
        """CREATE TABLE agent_orders (
            run_id TEXT NOT NULL, name TEXT NOT NULL, at REAL NOT NULL, ended INTEGER,
            PRIMARY KEY (run_id, name)) WITHOUT ROWID""",
    ),
    (
        # The id ties signatures to this file; a row without one was written by somebody else, or
        # by a version that did not sign.
        "CREATE TABLE store (store_id TEXT NOT NULL)",
        "INSERT INTO store (store_id) VALUES (lower(hex(randomblob(16))))",
        "ALTER TABLE runs ADD COLUMN signature TEXT",
        "ALTER TABLE calls ADD COLUMN signature TEXT",
        "ALTER TABLE entries ADD COLUMN signature TEXT",
        "ALTER TABLE resources ADD COLUMN signature TEXT",
        "ALTER TABLE hooks ADD COLUMN signature TEXT",
    ),
)
# The mark is "JKLF".
FILE = VersionedFile(application=0x4A4B4C46, steps=MIGRATIONS, holds="the store of runs")
