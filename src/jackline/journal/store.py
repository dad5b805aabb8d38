"""Hold the one connection that writes, and commit whole batches through it.

WAL with `synchronous=NORMAL`: a commit is handed to the operating system and not to the platter. A
killed process therefore loses nothing that was committed; a power cut may lose the commits since
the last checkpoint, but never leaves a half record or a damaged file.

Laws: (1) a batch is kept whole or not at all, so that it can be tried again; (2) a value that
SQLite cannot take costs its own record, not the others.
Not here: when to write, and what to do when it fails (writer.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from jackline.events import Event
from jackline.journal import retention, schema
from jackline.journal.files import companions, identity, make_private
from jackline.journal.records import ROWS_AT_ONCE, Table
from jackline.journal.settings import JournalSettings
from jackline.journal.versioned_file import guard

Batch: TypeAlias = Mapping[Table, Sequence[Event]]
Connect: TypeAlias = Callable[[Path, float], sqlite3.Connection]

# Numbers beyond 64 bits, text that is no Unicode, a value too long, missing or of an unknown type.
UNSTORABLE = (
    OverflowError,
    UnicodeEncodeError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
# A long reader may keep the log from being emptied; this is what it is cut back to afterwards.
LOG_BYTES = 16 * 1024 * 1024


def connect(path: Path, lock_seconds: float) -> sqlite3.Connection:
    """A connection that may write to an existing file, and leaves transactions to us."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=lock_seconds, isolation_level=None
    )


class Store:
    """The open journal file; for one thread."""

    def __init__(self, path: Path, settings: JournalSettings, connect: Connect = connect) -> None:
        self._path = path
        self._settings = settings
        make_private(path)
        self._connection = connect(path, settings.lock_seconds)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise
        self._log = companions(path)[0]
        self._identity = identity(path)
        self._log_identity = identity(self._log)

    def write(self, batch: Batch) -> int:
        """Commit the batch; the number of records that could not be stored at all."""
        try:
            return self._commit(batch, self._insert)
        except UNSTORABLE:
            return self._commit(batch, self._insert_what_can_be)

    def sweep(self, now: float) -> bool:
        """Take one bite of what need not be kept; whether there may be more."""
        return retention.bite(self._connection, self._settings, now)

    def newest(self) -> float | None:
        """The time of the newest record; None when there is none."""
        return retention.newest(self._connection)

    def is_gone(self) -> bool:
        """Whether the file's name no longer leads to what is open here."""
        return self._identity is None or identity(self._path) != self._identity

    def has_lost_log(self) -> bool:
        """Whether the log beside the file is no longer the one that is written here.

        `rm journal.db*` takes several moments, in which a new file may have been begun already.
        """
        if not self._uses_log:
            return False
        return self._log_identity is None or identity(self._log) != self._log_identity

    def rescue(self) -> None:
        """Bring what is only in the log into the file."""
        self._connection.execute("PRAGMA wal_checkpoint").fetchall()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _prepare(self) -> None:
        run = self._connection.execute
        guard(self._connection)
        if schema.FILE.version_of(self._connection) == 0:
            run("PRAGMA auto_vacuum = INCREMENTAL")  # only an empty file can learn it
        # Some network folders cannot have it; there commits are slower and no less safe.
        self._uses_log = run("PRAGMA journal_mode = WAL").fetchone()[0] == "wal"
        run("PRAGMA synchronous = NORMAL")
        run(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        # Records hold nothing secret, so that overwriting what is deleted would be wasted work.
        run("PRAGMA secure_delete = OFF").fetchall()
        schema.FILE.migrate(self._connection)

    def _commit(self, batch: Batch, insert: Callable[[Table, Sequence[Event]], int]) -> int:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            unkept = sum(insert(table, events) for table, events in batch.items())
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        return unkept

    def _insert(self, table: Table, events: Sequence[Event]) -> int:
        start = 0
        for rows in ROWS_AT_ONCE:
            while len(events) - start >= rows:
                chunk = events[start : start + rows]
                self._connection.execute(table.insert[rows], table.rows_flat(chunk))
                start += rows
        return 0

    def _insert_what_can_be(self, table: Table, events: Sequence[Event]) -> int:
        unkept = 0
        for event in events:
            try:
                self._connection.execute(table.insert[1], table.row(event))
            except UNSTORABLE:
                unkept += 1
        return unkept
