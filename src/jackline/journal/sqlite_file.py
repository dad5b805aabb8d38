"""Open our SQLite files safely: private, of a known version, with a text for every fault.

Rules: (1) a file is for its owner alone before the first byte is in it, and a file that others can
have written is refused with `NotPrivateError`, never opened; (2) a damaged file is renamed, never
deleted; (3) a file with a rollback journal that names a third file is not opened, since SQLite
would delete that one; (4) a migration step is done whole or not at all, and two processes may
migrate at once; (5) a file of a newer version, of another program or with other tables than ours is
not changed; (6) every connection is hardened before its first statement, so that no trigger or view
of the file can act; (7) the text of an error names what a person can change, and nothing of a
record.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TypeAlias

from jackline.clock import SystemClock
from jackline.errors import JournalError
from jackline.private_files import (
    NotPrivateError,
    check_private_file,
    check_private_folder,
    make_private_folder,
    open_private,
)

COMPANIONS = ("-wal", "-shm")
# SQLite would roll back what an interrupted program seems to have left there.
_ROLLBACK = "-journal"
# The last bytes of a journal of a transaction over several files, which ours never are.
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")


def make_private(path: Path) -> None:
    """Create folder and file for their owner alone; NotPrivateError if that cannot be."""
    make_private_folder(path.parent)
    check_rollback_journal(path)
    # Never opened when it exists: closing it again would release every lock that SQLite has on it
    # in this process, and another process would then delete the log.
    with suppress(FileExistsError):
        os.close(open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    check_private(path)


def check_private(path: Path) -> None:
    """NotPrivateError unless nobody else can have written the file; nothing is created."""
    check_private_folder(path.parent)
    for file in (path, *companions(path), path.with_name(path.name + _ROLLBACK)):
        check_private_file(file)


def check_rollback_journal(path: Path) -> None:
    """Refuse a file whose rollback journal names another one; a missing journal is fine."""
    journal = path.with_name(path.name + _ROLLBACK)
    try:
        descriptor = open_private(journal, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - len(_NAMES_ANOTHER)))
            ends = file.read()
    except FileNotFoundError:
        return
    if ends == _NAMES_ANOTHER:
        raise JournalError(
            f"the rollback journal {journal} names another file, which opening it would delete",
            hint="Find out where it came from, or choose another state folder with --state.",
        )


def identity(path: Path) -> tuple[int, int] | None:
    """What distinguishes this file from another one of the same name; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def companions(path: Path) -> list[Path]:
    """The files that SQLite writes beside this one."""
    return [path.with_name(path.name + end) for end in COMPANIONS]


def rename_damaged(path: Path) -> Path:
    """Rename the file and its companions to the first free `.damaged-<n>`; returns the new name."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(1))
    aside = next(name for name in names if not name.exists())
    path.rename(aside)
    for old, new in zip(companions(path), companions(aside), strict=True):
        if old.exists():
            old.rename(new)
    return aside


Connect: TypeAlias = Callable[[Path, float], sqlite3.Connection]


def connect(
    path: Path, lock_seconds: float, *, mode: str = "rw", any_thread: bool = False
) -> sqlite3.Connection:
    """A connection to an existing file that leaves transactions to us; `mode` may be "ro"."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=lock_seconds,
        isolation_level=None,
        check_same_thread=not any_thread,
    )


# SQLite's own white space; other characters, as U+00A0, are letters of a name to it.
_WHITE_SPACE = re.compile(r"[ \t\n\f\r]+")
# The tables that ANALYZE makes, with SQLite's statistics for its planner.
_STATISTICS = frozenset(
    ("table", name, name, f"CREATE TABLE {name}({columns})")
    for name, columns in (
        ("sqlite_stat1", "tbl,idx,stat"),
        ("sqlite_stat4", "tbl,idx,neq,nlt,ndlt,sample"),
    )
)


def harden_connection(connection: sqlite3.Connection) -> None:
    """Let no trigger or view of the file act; to be called before the first statement."""
    # `SQLITE_DBCONFIG_ENABLE_TRIGGER` needs Python 3.12; this works everywhere, and SQLite calls it
    # again when the schema has changed since a statement was prepared. `by` is the trigger or view;
    # a common table expression would count as one.
    connection.set_authorizer(
        lambda _action, _first, _second, _database, by: (
            sqlite3.SQLITE_OK if by is None else sqlite3.SQLITE_DENY
        )
    )
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0").fetchall()


@dataclass(frozen=True, slots=True)
class VersionedFile:
    """One kind of file.

    SQLite stores `application` in the file's header. `steps` migrate from one version to the next.
    `title` is its name in sentences, such as "the journal".
    """

    application: int
    steps: Sequence[Sequence[str]]
    title: str

    @property
    def version(self) -> int:
        """The newest version."""
        return len(self.steps)

    def version_of(self, connection: sqlite3.Connection) -> int:
        """The version of the open file, 0 for an empty one; `JournalError` if it is not ours."""
        # The application comes last: a file that another process creates now must not look foreign.
        tables = _number(connection, "SELECT count(*) FROM sqlite_master")
        version = _number(connection, "PRAGMA user_version")
        application = _number(connection, "PRAGMA application_id")
        if application == self.application:
            if version > self.version:
                raise JournalError(
                    f"{self.title} was written by a newer Jackline (version {version}, known"
                    f" {self.version})",
                    hint="Update Jackline, or choose another state folder with --state.",
                )
            return self._with_own_tables(connection, version)
        if application or version or tables:
            raise JournalError(
                f"the file at the path of {self.title} belongs to another program",
                hint="Move that file away, or choose another state folder with --state.",
            )
        return 0

    def migrate(self, connection: sqlite3.Connection) -> None:
        """Migrate the open file to the newest version."""
        if self.version_of(connection) == self.version:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have done it while this one waited for the lock.
            for step in self.steps[self.version_of(connection) :]:
                for statement in step:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self.application}")
            connection.execute(f"PRAGMA user_version = {self.version}")
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def prepare(
        self, connection: sqlite3.Connection, *, synchronous: str, log_bytes: int, overwrite: bool
    ) -> bool:
        """Harden a new connection and migrate the file; whether it has a log beside it.

        `overwrite`: what is deleted is overwritten, not only forgotten. The log is cut back to
        `log_bytes` when a long reader has kept it from being emptied.
        """
        run = connection.execute
        harden_connection(connection)
        if self.version_of(connection) == 0:
            run("PRAGMA auto_vacuum = INCREMENTAL")  # works on an empty file only
        # Some network folders do not support it; there commits are slower and no less safe.
        journal_mode: str = run("PRAGMA journal_mode = WAL").fetchone()[0]
        run(f"PRAGMA synchronous = {synchronous}")
        run(f"PRAGMA journal_size_limit = {log_bytes}").fetchall()
        run(f"PRAGMA secure_delete = {'ON' if overwrite else 'OFF'}").fetchall()
        self.migrate(connection)
        return journal_mode == "wal"

    def _with_own_tables(self, connection: sqlite3.Connection, version: int) -> int:
        """The version of a file whose schema is exactly that of this version."""
        before = -1
        while version != before:
            if _schema(connection) == _schema_of(tuple(map(tuple, self.steps[:version]))):
                # Two tables on one page would be one: writing to one would change the other.
                if _number(connection, _SHARED_PAGES):
                    break
                return version
            # Another process may have migrated it in between.
            before, version = version, _number(connection, "PRAGMA user_version")
        raise JournalError(
            f"{self.title} was not made by Jackline: its tables are not ours",
            hint="Find out where it came from, or choose another state folder with --state.",
        )


_SHARED_PAGES = "SELECT count(*) - count(DISTINCT rootpage) FROM sqlite_master"


@cache
def _schema_of(steps: tuple[tuple[str, ...], ...]) -> Counter[tuple[object, ...]]:
    """SQLite's own schema of a file that these steps have made."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for step in steps:
            for statement in step:
                connection.execute(statement)
        return _schema(connection)


def _schema(connection: sqlite3.Connection) -> Counter[tuple[object, ...]]:
    """Every row of the schema except those of SQLite's own statistics."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    found = (
        (kind, name, table, _WHITE_SPACE.sub(" ", sql) if isinstance(sql, str) else sql)
        for kind, name, table, sql in rows
    )
    return Counter(row for row in found if row not in _STATISTICS)


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


StorageFault: TypeAlias = sqlite3.Error | OSError | JournalError

FULL = "the disk is full"
FORBIDDEN = "its folder or file is not writable"
LOCKED = "another program has locked it"
UNREACHABLE = "it cannot be opened at its path"
FAILING = "the disk reports errors"
DAMAGED = "it is damaged"

_OF_SQLITE = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_READONLY: FORBIDDEN,
    sqlite3.SQLITE_PERM: FORBIDDEN,
    sqlite3.SQLITE_AUTH: FORBIDDEN,
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_CANTOPEN: UNREACHABLE,
    sqlite3.SQLITE_IOERR: FAILING,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
}
_OF_SYSTEM = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EACCES: FORBIDDEN,
    errno.EPERM: FORBIDDEN,
    errno.EROFS: FORBIDDEN,
    errno.ENOTDIR: UNREACHABLE,
    errno.EEXIST: UNREACHABLE,
    errno.EISDIR: UNREACHABLE,
    errno.ENOENT: UNREACHABLE,
    errno.EIO: FAILING,
}


def cause_at(path: Path | None, error: StorageFault) -> str:
    """The cause, as `cause_of`; of a file in a read-only folder SQLite says less."""
    cause = cause_of(error)
    if path is None or cause != UNREACHABLE or not path.is_file():
        return cause
    return cause if os.access(path.parent, os.W_OK) else FORBIDDEN


def cause_of(error: StorageFault) -> str:
    """The cause as a clause that can follow "the journal is not written: "."""
    if isinstance(error, JournalError):
        return error.message
    if isinstance(error, NotPrivateError):
        return f"{error.filename} {error.problem}"
    if isinstance(error, OSError):
        return _OF_SYSTEM.get(error.errno or 0, f"the system reports {error.strerror!r}")
    # The low byte is the kind, the rest its variety; errors of Python's own layer have no code.
    code = int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
    return _OF_SQLITE.get(code, f"SQLite reports {str(error)!r}")


def is_damage(error: StorageFault) -> bool:
    """Whether the file itself is damaged, so that waiting cannot help."""
    return isinstance(error, sqlite3.Error) and cause_of(error) == DAMAGED


def clock_time(at: float) -> str:
    """Hour and minute in the host's zone."""
    return f"{SystemClock().in_host_zone(datetime.fromtimestamp(at, UTC)):%H:%M}"
