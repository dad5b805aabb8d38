"""Open the file of runs for one thread, and say in words why it cannot be used.

Laws: (1) the file is its owner's alone; (2) every trouble of the disk becomes a `JournalError` that
says what to do; (3) a damaged file is left where it is: it is somebody's work, not a log; (4) one
try waits no longer than `lock_seconds` for another program's lock, and all tries together no longer
than the `Patience` of whoever opened it.
Not here: the tables (schema.py), when to write (writer.py).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from jackline.clock import SystemClock
from jackline.errors import JournalError, StoreLockedError
from jackline.flows.local import schema, signing
from jackline.journal.files import identity, make_private
from jackline.journal.trouble import (
    DAMAGED,
    FAILING,
    FORBIDDEN,
    FULL,
    LOCKED,
    UNREACHABLE,
    cause_of,
)
from jackline.journal.versioned_file import guard
from jackline.private_files import NotPrivateError

Connect: TypeAlias = Callable[[Path, float], sqlite3.Connection]

LOCK_SECONDS = 15.0
# A run waits so long for a lock before it is paused: what was paid for is worth more than minutes.
RUN_PATIENCE = 600.0
# A long reader may keep the log from being emptied; this is what it is cut back to afterwards.
_LOG_BYTES = 64 * 1024 * 1024
# SQLite refuses some of the steps of opening at once instead of waiting for the lock.
_BETWEEN_TRIES = 0.02
_KEPT = "Nothing that was told as finished is lost: `jackline resume` goes on from there."
_NEXT = {
    FULL: f"Free some space on that disk. {_KEPT}",
    FORBIDDEN: "Give yourself the right to write there, or choose another folder with --state.",
    LOCKED: f"End the program that holds it, a database browser perhaps. {_KEPT}",
    UNREACHABLE: "Look whether its folder is there, or choose another one with --state.",
    FAILING: "Copy the file to a healthy disk and choose its folder with --state.",
    DAMAGED: "Restore it from a copy, rescue what can be read with `sqlite3 FILE .recover`, or "
    "move it away with its -wal and -shm files to begin anew.",
}


def connect(path: Path, lock_seconds: float) -> sqlite3.Connection:
    """A connection to an existing file that leaves transactions to us."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=lock_seconds,
        isolation_level=None,
        check_same_thread=False,
    )


class Patience:
    """How long a lock is waited for beyond one try, and who is told of it; for several threads."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._listeners: list[Callable[[], None]] = []

    def lasts(self, tried_since: float) -> bool:
        """A try that began then has met the lock: whether to try again."""
        now = SystemClock().monotonic()
        first = self._since is None
        self._since = tried_since if self._since is None else self._since
        lasts = now - self._since < self._seconds
        if first and lasts:
            for told in list(self._listeners):
                told()
        return lasts

    def got_through(self) -> None:
        """The lock is gone."""
        self._since = None

    def end(self) -> None:
        """Wait for nothing beyond one try from now on."""
        self._seconds = 0.0

    def tell(self, told: Callable[[], None]) -> Callable[[], None]:
        """Have `told` called, in any thread, when a wait begins; gives what undoes that."""
        self._listeners.append(told)
        return lambda: self._listeners.remove(told)


class StoreFile:
    """The file, as one thread has it open."""

    def __init__(self, path: Path, connect: Connect, lock_seconds: float) -> None:
        self.path = path
        self._connect = connect
        self._lock_seconds = lock_seconds
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def opened(self) -> sqlite3.Connection:
        """The connection; opened now if it was not, or if the file was exchanged since."""
        if self._connection is not None and self._is_gone():
            self.let_go()
        if self._connection is None:
            make_private(self.path)
            self._connection = self._new_connection()
            self._identity = identity(self.path)
        return self._connection

    def must_be_there(self) -> None:
        """Refuse to promise what went into a file that has been taken away."""
        if self._is_gone():
            self.let_go()
            raise JournalError(
                f"The file of runs {self.path} was moved or deleted while it was written.",
                next="Put it back with its -wal and -shm files, then resume the run.",
            )

    def let_go(self) -> None:
        """Close the connection; the next use opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def unusable(self, error: sqlite3.Error | OSError) -> JournalError:
        """The trouble in words."""
        cause = cause_of(error)
        kind = StoreLockedError if cause == LOCKED else JournalError
        told = kind(
            f"The file of runs {self.path} cannot be used: {cause}.",
            next=error.fix
            if isinstance(error, NotPrivateError)
            else _NEXT.get(cause, "Look at that file; another folder is chosen with --state."),
        )
        told.__cause__ = error
        return told

    def unreadable(self) -> JournalError:
        """It holds a record that no version of ours has written."""
        return JournalError(
            f"The file of runs {self.path} holds a record that cannot be read.",
            next=_NEXT[DAMAGED],
        )

    def _is_gone(self) -> bool:
        return self._identity is None or identity(self.path) != self._identity

    def _new_connection(self) -> sqlite3.Connection:
        clock, pause = SystemClock(), threading.Event()
        give_up_at = clock.monotonic() + self._lock_seconds
        while True:
            connection = self._connect(self.path, self._lock_seconds)
            try:
                _prepare(connection)
            except sqlite3.Error as error:
                connection.close()
                if not is_locked(error) or clock.monotonic() >= give_up_at:
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                return connection
            pause.wait(_BETWEEN_TRIES)


def is_locked(error: sqlite3.Error | OSError) -> bool:
    """Whether another program stands in the way."""
    return cause_of(error) == LOCKED


def _prepare(connection: sqlite3.Connection) -> None:
    run = connection.execute
    guard(connection)
    if schema.FILE.version_of(connection) == 0:
        run("PRAGMA auto_vacuum = INCREMENTAL")  # only an empty file can learn it
    # Some network folders cannot have it; there commits are slower and no less safe.
    run("PRAGMA journal_mode = WAL").fetchall()
    run("PRAGMA synchronous = FULL")
    run(f"PRAGMA journal_size_limit = {_LOG_BYTES}").fetchall()
    # What is deleted is overwritten, not only forgotten.
    run("PRAGMA secure_delete = ON").fetchall()
    schema.FILE.migrate(connection)
    signing.prepare(connection)
