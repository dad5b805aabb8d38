"""Bring a SQLite file of ours from version to version, and leave other files alone.

Laws: (1) a step happens whole or not at all; (2) a file of a newer version or of another program is
left alone, and so is one whose schema is not exactly that of its version: a trigger, a view or a
computed column in it would act when we read and write; (3) two processes may come at once: one
makes the file, the other finds it made; (4) every connection is guarded before its first statement,
so that a trigger or a view does nothing even if it comes into the file after the check. Against
any other change of the schema while the file is open only the folder's permissions protect.
Not here: the tables themselves (schema.py here and in flows/local), a damaged file (files.py).
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache

from jackline.errors import JournalError

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


def guard(connection: sqlite3.Connection) -> None:
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
