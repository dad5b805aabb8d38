"""The rows of agents' logs, line by line, and long values, each saved once under its hash.

Rules: (1) lines are numbered from 1 without a gap; (2) one run writes a log, and only that run
can delete it; (3) a log stays as long as some run has a call of its agent; (4) a value longer
than `INLINE_BYTES` is in `blobs`, written in the same transaction as the row that names it; a
blob that no row names any more is dropped with the change that dropped its last name.
Not here: what a line means (agents/, ../agent_log.py), which fields may be long (their tables).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from jackline.flows.records import EntryRecord
from jackline.flows.store import store_rules
from jackline.flows.store.run_store import Claim
from jackline.flows.store.sqlite import row_checks
from jackline.flows.store.sqlite.row_checks import BYTES, FLOAT, INTEGER, TEXT, well_formed
from jackline.flows.store.sqlite.threads import Transaction, Work

INLINE_BYTES = 64 * 1024

# What goes into a field's own column, and what into the column that names a blob.
Placed: TypeAlias = tuple[bytes | None, bytes | None]

_NAMED = " OR ".join(
    f"EXISTS (SELECT 1 FROM {table} WHERE {column} = blobs.sha)"  # noqa: S608 -- names from here
    for table, column in (
        ("calls", "value_blob"),
        ("calls", "outcome_blob"),
        ("entries", "data_blob"),
        ("runs", "outcome_blob"),
    )
)
_DROP = f"DELETE FROM blobs WHERE sha = ? AND NOT ({_NAMED})"  # noqa: S608 -- as above


def place(connection: sqlite3.Connection, data: bytes | None) -> Placed:
    """Where these bytes go; long ones are kept now, unless they are already."""
    if data is None or len(data) <= INLINE_BYTES:
        return data, None
    sha = hashlib.sha256(data).digest()
    connection.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (sha, data))
    return None, sha


def drop_unnamed(connection: sqlite3.Connection, shas: Iterable[bytes | None]) -> None:
    """Drop those of the blobs that no row names any more."""
    connection.executemany(_DROP, {(sha,) for sha in shas if sha is not None})


_FIND = """SELECT id, run_id, (SELECT coalesce(max(number), 0) FROM entries WHERE notebook = id)
    FROM notebooks WHERE task_id = ?"""
_ENTRIES = f"""SELECT task_id, number, kind,
    coalesce(data, (SELECT blobs.data FROM blobs WHERE sha = data_blob)), at,
    {row_checks.holds("entries", row_checks.ENTRY)}
    FROM entries JOIN notebooks ON notebooks.id = notebook WHERE task_id = ? ORDER BY number"""  # noqa: S608
_KINDS = (TEXT, INTEGER, TEXT, BYTES, FLOAT, INTEGER)
_SIGN = f"""UPDATE entries SET signature = {row_checks.make(row_checks.ENTRY)}
    WHERE notebook = ? AND number = ?"""  # noqa: S608
_UNNEEDED = """SELECT id FROM notebooks WHERE run_id = ? AND NOT EXISTS
    (SELECT 1 FROM calls WHERE calls.task_id = notebooks.task_id AND calls.task_id <> '')"""


def write(claim: Claim, entry: EntryRecord) -> Work[None]:
    """Add a line."""
    session_id = store_rules.named_session(entry)

    def work(transaction: Transaction) -> None:
        transaction.must_own(claim)
        connection = transaction.connection
        notebook, run_id, last = connection.execute(_FIND, (entry.task_id,)).fetchone() or (
            *(None, claim.run_id, 0),
        )
        if run_id != claim.run_id:
            raise store_rules.foreign_notebook(entry.task_id)
        store_rules.must_be_next(last, entry.number, entry.task_id)
        if notebook is None:
            notebook = connection.execute(
                "INSERT INTO notebooks (task_id, run_id) VALUES (?, ?)", (entry.task_id, run_id)
            ).lastrowid
        connection.execute(
            "INSERT INTO entries (notebook, number, kind, data, data_blob, at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (notebook, entry.number, entry.kind, *place(connection, entry.data), entry.at),
        )
        connection.execute(_SIGN, (notebook, entry.number))
        if session_id:
            connection.execute(
                "INSERT OR REPLACE INTO sessions (session_id, notebook) VALUES (?, ?)",
                (session_id, notebook),
            )

    return work


def lines(task_id: str) -> Callable[[sqlite3.Connection], list[EntryRecord]]:
    """The whole notebook, the oldest line first."""

    def look(connection: sqlite3.Connection) -> list[EntryRecord]:
        rows = connection.execute(_ENTRIES, (task_id,)).fetchall()
        return [_record(*row) for row in rows]

    return look


def of_run(run_id: str) -> Callable[[sqlite3.Connection], list[str]]:
    """The agents whose notebooks this run has written, the oldest first."""

    def look(connection: sqlite3.Connection) -> list[str]:
        rows = connection.execute(
            "SELECT task_id FROM notebooks WHERE run_id = ? ORDER BY id", (run_id,)
        ).fetchall()
        return [well_formed(row, (TEXT,))[0] for row in rows]

    return look


def _record(*row: Any) -> EntryRecord:
    entry = EntryRecord(*well_formed(row, _KINDS))  # the columns stand in the fields' order
    return replace(entry, trusted=bool(entry.trusted))


def tasks_with(connection: sqlite3.Connection, session_id: str) -> list[str]:
    """The agents that carried this session, the latest first."""
    rows = connection.execute(
        "SELECT task_id FROM sessions JOIN notebooks ON notebooks.id = notebook "
        "WHERE session_id = ? ORDER BY sessions.id DESC",
        (session_id,),
    ).fetchall()
    return [task_id for (task_id,) in rows]


def drop(connection: sqlite3.Connection, run_id: str, task_id: str) -> None:
    """Drop the notebook that this run has written for this agent, if there is one."""
    row = connection.execute(
        "SELECT id FROM notebooks WHERE task_id = ? AND run_id = ?", (task_id, run_id)
    ).fetchone()
    if row is not None:
        _drop(connection, row[0])


def drop_unneeded(connection: sqlite3.Connection, run_id: str) -> None:
    """Drop the notebooks of a deleted run, except those that a fork of it still names."""
    for (notebook,) in connection.execute(_UNNEEDED, (run_id,)).fetchall():
        _drop(connection, notebook)


def _drop(connection: sqlite3.Connection, notebook: int) -> None:
    blobs = connection.execute(
        "SELECT data_blob FROM entries WHERE notebook = ? AND data_blob IS NOT NULL", (notebook,)
    ).fetchall()
    connection.execute("DELETE FROM entries WHERE notebook = ?", (notebook,))
    connection.execute("DELETE FROM sessions WHERE notebook = ?", (notebook,))
    connection.execute("DELETE FROM notebooks WHERE id = ?", (notebook,))
    drop_unnamed(connection, [sha for (sha,) in blobs])
