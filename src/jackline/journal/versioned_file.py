"""Bring a SQLite file of ours from version to version, and leave other files alone.

Laws: (1) a step happens whole or not at all; (2) a file of a newer version or of another program is
left alone; (3) two processes may come at once: one makes the file, the other finds it made.
Not here: the tables themselves (schema.py here and in flows/local), a damaged file (files.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

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
            return version
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


def _number(connection: sqlite3.Connection, question: str) -> int:
    return int(connection.execute(question).fetchone()[0])
