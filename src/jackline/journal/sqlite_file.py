"""Open SQLite files of ours safely: private, of a known version, with every fault in plain words.

Rules: (1) a file is for its owner alone before the first byte is in it, and a file that others
can have written is refused with `NotPrivateError`, never opened; (2) a damaged file is renamed,
never deleted; (3) a file with a rollback journal that names a third file is not opened, since
SQLite would delete that one; (4) a migration step happens whole or not at all, and two processes
may migrate at once; (5) a file of a newer version, of another program or with other tables than
ours is left alone; (6) every connection is guarded before its first statement, so that no trigger
or view of the file can act; (7) the text of an error names what a person can change, and nothing
of a record.
Not here: the tables (store.py; flows/store/sqlite/store_file.py).
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
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
# SQLite would play back what an interrupted program seems to have left there.
_PLAYED_BACK = "-journal"
# The last bytes of a journal of a transaction over several files, which ours never are.
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")


def make_private(path: Path) -> None:
    """Folder and file exist, and are their owner's alone; NotPrivateError if they cannot be."""
    make_private_folder(path.parent)
    check_rollback_journal(path)
    # Never opened when it is there: closing it again would take away every lock that SQLite holds
    # on it in this process, and another process would then delete the log under our hands.
    with suppress(FileExistsError):
        os.close(open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    _check_files(path)


def check_private(path: Path) -> None:
    """NotPrivateError unless nobody else can have written the file; nothing is made."""
    check_private_folder(path.parent)
    _check_files(path)


def _check_files(path: Path) -> None:
    for file in (path, *companions(path), path.with_name(path.name + _PLAYED_BACK)):
        check_private_file(file)


def check_rollback_journal(path: Path) -> None:
    """Refuse a file whose rollback journal names another one; a missing journal is fine."""
    journal = path.with_name(path.name + _PLAYED_BACK)
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
            next="Look where it came from; another state folder is chosen with --state.",
        )


def identity(path: Path) -> tuple[int, int] | None:
    """What tells this file from another one of the same name; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def companions(path: Path) -> list[Path]:
    """The files that SQLite keeps beside this one."""
    return [path.with_name(path.name + end) for end in COMPANIONS]


def put_aside(path: Path) -> Path:
    """Rename the file and its companions to the first free `.damaged-<n>`; the new name."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(1))
    aside = next(name for name in names if not name.exists())
    path.rename(aside)
    for old, new in zip(companions(path), companions(aside), strict=True):
        if old.exists():
            old.rename(new)
    return aside


# What SQLite itself takes for white space; others, as U+00A0, are letters of a name to it.
_WHITE_SPACE = re.compile(r"[ \t\n\f\r]+")
# The tables that ANALYZE makes, in which SQLite keeps statistics for its planner.
_STATISTICS = frozenset(
    ("table", name, name, f"CREATE TABLE {name}({columns})")
    for name, columns in (
        ("sqlite_stat1", "tbl,idx,stat"),
        ("sqlite_stat4", "tbl,idx,neq,nlt,ndlt,sample"),
    )
)


def harden_connection(connection: sqlite3.Connection) -> None:
    """Let nothing that the file brings along act by itself; before the first statement."""
    # `SQLITE_DBCONFIG_ENABLE_TRIGGER` needs Python 3.12; this works everywhere, and SQLite asks
    # again when the schema has changed since a statement was prepared.
    connection.set_authorizer(_from_our_statements_only)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0").fetchall()


def _from_our_statements_only(
    _action: int, _first: str | None, _second: str | None, _database: str | None, by: str | None
) -> int:
    """Deny what a trigger or a view (`by`) does; a common table expression would count as one."""
    return sqlite3.SQLITE_OK if by is None else sqlite3.SQLITE_DENY


@dataclass(frozen=True, slots=True)
class VersionedFile:
    """One kind of file: its mark, the steps that lead to its newest version, its name in words."""

    application: int  # SQLite keeps it in the file's head for programs to know their own
    steps: Sequence[Sequence[str]]
    holds: str  # "the journal", for people

    @property
    def version(self) -> int:
        """The newest version."""
        return len(self.steps)

    def version_of(self, connection: sqlite3.Connection) -> int:
        """The version of the open file, 0 for an empty one; `JournalError` if it is not for us."""
        # The mark comes last: a file that another process makes meanwhile must not look foreign.
        tables = _number(connection, "SELECT count(*) FROM sqlite_master")
        version = _number(connection, "PRAGMA user_version")
        application = _number(connection, "PRAGMA application_id")
        if application == self.application:
            if version > self.version:
                raise JournalError(
                    f"{self.holds} was written by a newer Jackline (version {version}, known"
                    f" {self.version})",
                    next="Update Jackline, or choose another state folder with --state.",
                )
            return self._with_own_tables(connection, version)
        if application or version or tables:
            raise JournalError(
                f"the file at the place of {self.holds} belongs to another program",
                next="Move that file away, or choose another state folder with --state.",
            )
        return 0

    def migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the open file to the newest version."""
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

    def _with_own_tables(self, connection: sqlite3.Connection, version: int) -> int:
        """The version, of a file whose schema is exactly that of this version."""
        while _schema(connection) != _schema_of(tuple(map(tuple, self.steps[:version]))):
            before, version = version, _number(connection, "PRAGMA user_version")
            if version == before:  # else another process brought it up in between
                raise self._not_ours()
        # Two tables on one page would be one: what is written to the first is read from the other.
        if _number(connection, _SHARED_PAGES):
            raise self._not_ours()
        return version

    def _not_ours(self) -> JournalError:
        return JournalError(
            f"{self.holds} was not made by Jackline: its tables are not ours",
            next="Look where it came from; another state folder is chosen with --state.",
        )


_SHARED_PAGES = "SELECT count(*) - count(DISTINCT rootpage) FROM sqlite_master"


@cache
def _schema_of(steps: tuple[tuple[str, ...], ...]) -> Counter[tuple[object, ...]]:
    """What SQLite itself says of a file that these steps have made."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for step in steps:
            for statement in step:
                connection.execute(statement)
        return _schema(connection)


def _schema(connection: sqlite3.Connection) -> Counter[tuple[object, ...]]:
    """Every row of the schema but those of SQLite's own statistics."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    found = (
        (kind, name, table, _WHITE_SPACE.sub(" ", sql) if isinstance(sql, str) else sql)
        for kind, name, table, sql in rows
    )
    return Counter(row for row in found if row not in _STATISTICS)


def _number(connection: sqlite3.Connection, question: str) -> int:
    return int(connection.execute(question).fetchone()[0])


StorageFault: TypeAlias = sqlite3.Error | OSError | JournalError

FULL = "the disk is full"
FORBIDDEN = "its folder or file may not be written to"
LOCKED = "another program holds it locked"
UNREACHABLE = "it cannot be opened at its place"
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


def cause_of(error: StorageFault) -> str:
    """The cause as a clause that can follow "the journal is not written: "."""
    if isinstance(error, JournalError):
        return error.message
    if isinstance(error, NotPrivateError):
        return f"{error.filename} {error.problem}"
    if isinstance(error, OSError):
        return _OF_SYSTEM.get(error.errno or 0, f"the system says {error.strerror!r}")
    return _OF_SQLITE.get(_primary(error), f"SQLite says {str(error)!r}")


def is_damage(error: StorageFault) -> bool:
    """Whether the file itself is unusable, so that waiting cannot help."""
    return isinstance(error, sqlite3.Error) and cause_of(error) == DAMAGED


def _primary(error: sqlite3.Error) -> int:
    # The low byte is the kind, the rest its variety; errors of Python's own layer have no code.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


@dataclass(frozen=True, slots=True)
class JournalHealth:
    """How recording is going; `problem` is empty while all is well.

    `dropped` counts since the process started, `waiting` is what memory holds now, `since` is when
    the present problem began. `notice` tells what happened to the file earlier, if anything did;
    `gap` tells what is missing in it for good.
    """

    ok: bool
    problem: str
    dropped: int
    waiting: int
    since: float | None
    notice: str = ""
    gap: str = ""


def problem_clause(cause: str, lost: int, waiting: int, since: float) -> str:
    """The problem as one clause for `status`."""
    start = clock_time(since)
    if lost and waiting:
        return f"{cause}: {counted(lost)} not kept since {start}, {waiting} wait in memory"
    if lost:
        return f"{cause}: {counted(lost)} not kept since {start}"
    return f"{cause}: {counted(waiting)} waiting in memory since {start}"


def gap_clause(lost: int, last: tuple[float, str] | None) -> str:
    """The gap as one clause for `status`; `last` is when it was last seen to grow, and why."""
    told = f"{counted(lost)} not kept"
    return told if last is None else f"{told}, the last at {clock_time(last[0])} ({last[1]})"


def counted(records: int) -> str:
    """So many records, in words."""
    return "1 record" if records == 1 else f"{records} records"


def clock_time(at: float) -> str:
    """Hour and minute where the host is."""
    return f"{SystemClock().in_host_zone(datetime.fromtimestamp(at, UTC)):%H:%M}"
