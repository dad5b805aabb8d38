"""Bring a SQLite file of ours from version to version, and leave other files alone.

Laws: (1) a step happens whole or not at all; (2) a file of a newer version or of another program is
left alone, and so is one whose tables are not exactly those of its version: a trigger, a view or a
computed column in it would act when we read and write; (3) two processes may come at once: one
makes the file, the other finds it made.
Not here: the tables themselves (schema.py here and in flows/local), a damaged file (files.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache

from jackline.errors import JournalError


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
        """The version, of a file whose tables are exactly those of that version."""
        while _tables(connection) != _tables_of(tuple(map(tuple, self.steps[:version]))):
            before, version = version, _number(connection, "PRAGMA user_version")
            if version == before:  # else another process brought it up in between
                raise JournalError(
                    f"{self.holds} was not made by Jackline: its tables are not ours",
                    next="Look where it came from; another state folder is chosen with --state.",
                )
        return version


@cache
def _tables_of(steps: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
    """What SQLite itself says of a file that these steps have made."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for step in steps:
            for statement in step:
                connection.execute(statement)
        return _tables(connection)


def _tables(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    # ANALYZE keeps statistics in tables of SQLite's own, which nobody else can make.
    rows = connection.execute(
        "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master "
        "WHERE name NOT GLOB 'sqlite_stat[1-4]'"
    ).fetchall()
    return sorted((kind, name, table, " ".join(sql.split())) for kind, name, table, sql in rows)


def _number(connection: sqlite3.Connection, question: str) -> int:
    return int(connection.execute(question).fetchone()[0])
