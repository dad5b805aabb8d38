"""The file of runs: its tables, opening it for one thread, and why it cannot be used.

Rules: (1) a step of `MIGRATIONS` is never changed once released: a new version is a new step; (2)
the file is its owner's alone; (3) every fault of the disk becomes a `JournalError` that says what
to do; (4) a damaged file is left where it is: it is somebody's work, not a log; (5) one try waits
no longer than `lock_seconds` for another program's lock, and all tries together no longer than the
`Patience` of the caller, which is also that with a disk that is full or fails; (6) counting runs
writes nothing and makes no file; (7) a store in memory has the same tables and checks, and a
signing key of its own.
Migrations in general are in journal/sqlite_file.py.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from jackline.clock import SystemClock
from jackline.errors import JournalError, StoreLockedError, StoreUnavailableError
from jackline.flows.records import RunState
from jackline.flows.store.sqlite import row_checks
from jackline.journal import sqlite_file
from jackline.journal.sqlite_file import (
    DAMAGED,
    FAILING,
    FORBIDDEN,
    FULL,
    LOCKED,
    UNREACHABLE,
    Connect,
    VersionedFile,
    cause_at,
    cause_of,
    check_private,
    companions,
    harden_connection,
    identity,
    make_private,
)
from jackline.private_files import NotPrivateError

# A column `…_blob` names the row of `blobs` that holds what is too long for its own. The indexes on
# them know only the few rows that have one. `spending` outlives its calls: money that is
# spent stays spent when a run is deleted.
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
    (
        # Names only: a signature covers the values, and stays what it was.
        "ALTER TABLE hooks RENAME COLUMN told TO outcome",
        "ALTER TABLE runs RENAME COLUMN asked TO stop_request",
        "ALTER TABLE notebooks RENAME TO agent_logs",
        "ALTER TABLE entries RENAME COLUMN notebook TO agent_log",
        "ALTER TABLE sessions RENAME COLUMN notebook TO agent_log",
        "DROP INDEX notebooks_run",
        "DROP INDEX sessions_notebook",
        "CREATE INDEX agent_logs_run ON agent_logs (run_id)",
        "CREATE INDEX sessions_agent_log ON sessions (agent_log)",
    ),
)
# The mark is "JKLF".
FILE = VersionedFile(application=0x4A4B4C46, steps=MIGRATIONS, title="the store of runs")


_LOG_BYTES = 64 * 1024 * 1024
# SQLite refuses some of the steps of opening at once instead of waiting for the lock.
_BETWEEN_TRIES = 0.02
_COUNT_LOCK_SECONDS = 2.0
_NOTHING_LOST = (
    "Nothing that was reported as finished is lost: `jackline resume ID` continues there."
)
_NEXT = {
    FULL: f"Free some space on that disk. {_NOTHING_LOST}",
    FORBIDDEN: "Give yourself the right to write there, or choose another folder with --state.",
    LOCKED: f"End the program that holds it, a database browser perhaps. {_NOTHING_LOST}",
    UNREACHABLE: "Look whether its folder is there, or choose another one with --state.",
    FAILING: "Copy the file to a healthy disk and choose its folder with --state.",
    DAMAGED: "Restore it from a copy, rescue what can be read with `sqlite3 FILE .recover`, or "
    "move it away with its -wal and -shm files to begin anew.",
}


connect: Connect = partial(sqlite_file.connect, any_thread=True)
"""A connection that the reading or the writing thread uses, and the one that closes the store."""


# What may be over soon, and for which the work that is under way is not thrown away.
_WAITED_FOR = {
    LOCKED: "Another program holds the file of runs {path} locked; the run waits for it.",
    FULL: "The disk with the file of runs {path} is full. The run starts nothing new, and holds in"
    " memory what is answered now, so do not stop it: free some space there, and it goes on.",
    FAILING: "The disk with the file of runs {path} reports errors. The run starts nothing new, and"
    " holds in memory what is answered now, so do not stop it: mend the disk, and it goes on.",
}


class Patience:
    """How long a lock or a disk is waited for beyond one try.

    `listeners` are called with a sentence when a wait begins.
    """

    def __init__(self, path: Path | None, seconds: float, pause: float) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self._path = path
        self._seconds = seconds
        self._pause = pause
        self._is_over = threading.Event()
        self._since: float | None = None

    def lasts(self, error: Exception, tried_since: float) -> bool:
        """A try that began then has failed so: whether to try again, now."""
        cause = cause_of(error) if isinstance(error, sqlite3.Error | OSError) else ""
        if cause not in _WAITED_FOR:
            return False
        now = SystemClock().monotonic()
        first = self._since is None
        self._since = tried_since if self._since is None else self._since
        lasts = not self._is_over.is_set() and now - self._since < self._seconds
        if first and lasts:
            says = _WAITED_FOR[cause].format(path=self._path)
            for listener in list(self.listeners):
                listener(says)
        if lasts and cause != LOCKED:
            self._is_over.wait(self._pause)  # for a lock, SQLite itself has waited
        return lasts

    def got_through(self) -> None:
        """It works again."""
        self._since = None

    def end(self) -> None:
        """Wait for nothing beyond one try from now on."""
        self._is_over.set()


class StoreFile:
    """The file, or the memory, as one thread has it open."""

    def __init__(self, path: Path | None, connect: Connect, lock_seconds: float) -> None:
        self._path = path
        self._connect = connect
        self._lock_seconds = lock_seconds
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def opened(self) -> sqlite3.Connection:
        """The connection; opened now if it was not, or if the file was exchanged since."""
        if self._connection is not None and self._is_gone():
            self.close()
        if self._connection is None:
            if self._path is None:
                memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
                _prepare(memory, secrets.token_bytes(32))
                self._connection = memory
            else:
                make_private(self._path)
                self._connection = self._new_connection(self._path)
                self._identity = identity(self._path)
        return self._connection

    def must_be_there(self) -> None:
        """Refuse to promise what went into a file that has been taken away."""
        if self._is_gone():
            self.close()
            raise JournalError(
                f"The file of runs {self._path} was moved or deleted while it was written.",
                hint="Put it back with its -wal and -shm files, then resume the run.",
            )

    def reopen(self) -> None:
        """Have the next use open the file again; memory has nothing to open again."""
        if self._path is not None:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def unusable(self, error: sqlite3.Error | OSError) -> JournalError:
        """The fault as an error for people."""
        cause = cause_at(self._path, error)
        text = f"The file of runs {self._path} cannot be used: {cause}."
        hint = _NEXT.get(cause, "Check that file, or choose another folder with --state.")
        if isinstance(error, NotPrivateError):
            hint = error.fix
        if cause == LOCKED:
            explained: JournalError = StoreLockedError(text, hint=hint)
        elif cause in (FULL, FAILING):
            explained = StoreUnavailableError(text, hint=hint)
        else:
            explained = JournalError(text, hint=hint)
        explained.__cause__ = error
        return explained

    def unreadable(self) -> JournalError:
        """It holds a record that no version of ours has written."""
        return JournalError(
            f"The file of runs {self._path} holds a record that cannot be read.",
            hint=_NEXT[DAMAGED],
        )

    def count_runs(self) -> dict[RunState, tuple[int, int]]:
        """How many runs are in each state, by a connection of its own; none if there is no file."""
        path = self._path
        if path is None or not path.is_file():
            return {}
        try:
            check_private(path)
            with closing(sqlite_file.connect(path, _COUNT_LOCK_SECONDS, mode="ro")) as db:
                harden_connection(db)
                FILE.version_of(db)
                return count_runs(db)
        except (sqlite3.Error, OSError) as error:
            raise JournalError(
                f"The runs at {path} cannot be counted: {cause_at(path, error)}.",
                hint="`jackline ls` says more.",
            ) from error

    def stats(self) -> tuple[int, ...]:
        """Values that change whenever the file is written; empty while there is none."""
        found: list[int] = []
        for part in () if self._path is None else (self._path, companions(self._path)[0]):
            try:
                stat = part.stat()
            except OSError:
                continue  # there is no log beside it, or no store yet
            found += [stat.st_mtime_ns, stat.st_size, stat.st_ino]
        return tuple(found)

    def size(self) -> int:
        """The bytes of the file and of those beside it."""
        files = () if self._path is None else (self._path, *companions(self._path))
        return sum(part.stat().st_size for part in files if part.exists())

    def _is_gone(self) -> bool:
        return self._path is not None and (
            self._identity is None or identity(self._path) != self._identity
        )

    def _new_connection(self, path: Path) -> sqlite3.Connection:
        clock, pause = SystemClock(), threading.Event()
        give_up_at = clock.monotonic() + self._lock_seconds
        while True:
            connection = self._connect(path, self._lock_seconds)
            try:
                _prepare(connection)
            except sqlite3.Error as error:
                connection.close()
                if cause_of(error) != LOCKED or clock.monotonic() >= give_up_at:
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                return connection
            pause.wait(_BETWEEN_TRIES)


def _prepare(connection: sqlite3.Connection, key: bytes | None = None) -> None:
    FILE.prepare(connection, synchronous="FULL", log_bytes=_LOG_BYTES, overwrite=True)
    row_checks.prepare(connection, key)


def count_runs(connection: sqlite3.Connection) -> dict[RunState, tuple[int, int]]:
    """How many runs are in each state, and how many of them have no time to wake."""
    rows = connection.execute(
        "SELECT state, count(*), count(*) FILTER (WHERE wake_at IS NULL) FROM runs GROUP BY state"
    ).fetchall()
    known = set(RunState)
    return {RunState(state): (count, timeless) for state, count, timeless in rows if state in known}
