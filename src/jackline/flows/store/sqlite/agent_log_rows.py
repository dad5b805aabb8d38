"""The rows of agents' logs, line by line, and long values, each saved once under its hash.

Rules: (1) lines are numbered from 1 without a gap; (2) one run writes a log, and only that run
can delete it; (3) a log stays as long as some run has a call of its agent; (4) a value longer
than `INLINE_BYTES` is in `blobs`, written in the same transaction as the row that names it; a
blob that no row names any more is dropped with the change that dropped its last name.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from jackline.flows.records import EntryRecord
from jackline.flows.store import store_rules
from jackline.flows.store.run_store import Claim
from jackline.flows.store.sqlite.database import Database, Transaction, reads, writes
from jackline.flows.store.sqlite.row_checks import (
    BYTES,
    ENTRY,
    FLOAT,
    INTEGER,
    TEXT,
    is_signed,
    signature_of,
    well_formed,
)

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
_DROP_BLOB = f"DELETE FROM blobs WHERE sha = ? AND NOT ({_NAMED})"  # noqa: S608 -- as above
_FIND = """SELECT id, run_id, (SELECT coalesce(max(number), 0) FROM entries WHERE notebook = id)
    FROM notebooks WHERE task_id = ?"""
_ENTRIES = f"""SELECT task_id, number, kind,
    coalesce(data, (SELECT blobs.data FROM blobs WHERE sha = data_blob)), at,
    {is_signed("entries", ENTRY)}
    FROM entries JOIN notebooks ON notebooks.id = notebook WHERE task_id = ? ORDER BY number"""  # noqa: S608
_KINDS = (TEXT, INTEGER, TEXT, BYTES, FLOAT, INTEGER)
_SIGN = f"""UPDATE entries SET signature = {signature_of(ENTRY)}
    WHERE notebook = ? AND number = ?"""  # noqa: S608


class AgentLogRows(Database):
    """The logs of agents."""

    @reads
    def entries(self, db: sqlite3.Connection, task_id: str) -> Sequence[EntryRecord]:
        """An agent's log, the oldest line first."""
        lines = [
            EntryRecord(*well_formed(row, _KINDS))
            for row in db.execute(_ENTRIES, (task_id,)).fetchall()
        ]
        return [replace(line, trusted=bool(line.trusted)) for line in lines]

    @writes
    def write_entry(self, transaction: Transaction, claim: Claim, entry: EntryRecord) -> None:
        """Add a line to a log; its number must be the next one."""
        add_line(transaction, claim, entry)

    @reads
    def agent_logs(self, db: sqlite3.Connection, run_id: str) -> Sequence[str]:
        """The ids of the agents whose logs this run has written, the oldest first."""
        rows = db.execute("SELECT task_id FROM notebooks WHERE run_id = ? ORDER BY id", (run_id,))
        return [well_formed(row, (TEXT,))[0] for row in rows.fetchall()]


def add_line(transaction: Transaction, claim: Claim, entry: EntryRecord) -> None:
    """Add a line to a log of the claimed run."""
    transaction.must_own(claim)
    db = transaction.connection
    log, run_id, last = db.execute(_FIND, (entry.task_id,)).fetchone() or (None, claim.run_id, 0)
    if run_id != claim.run_id:
        raise store_rules.foreign_log(entry.task_id)
    store_rules.must_be_next(last, entry.number, entry.task_id)
    if log is None:
        log = db.execute(
            "INSERT INTO notebooks (task_id, run_id) VALUES (?, ?)", (entry.task_id, run_id)
        ).lastrowid
    db.execute(
        "INSERT INTO entries (notebook, number, kind, data, data_blob, at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (log, entry.number, entry.kind, *place(db, entry.data), entry.at),
    )
    db.execute(_SIGN, (log, entry.number))
    if session_id := store_rules.named_session(entry):
        db.execute(
            "INSERT OR REPLACE INTO sessions (session_id, notebook) VALUES (?, ?)",
            (session_id, log),
        )


def drop_logs(db: sqlite3.Connection, which: str, parameters: Sequence[str]) -> None:
    """Drop the logs for which this condition on `notebooks` holds."""
    found = db.execute(f"SELECT id FROM notebooks WHERE {which}", parameters)  # noqa: S608 -- ours
    for log in found.fetchall():
        blobs = db.execute("SELECT data_blob FROM entries WHERE notebook = ?", log).fetchall()
        db.execute("DELETE FROM entries WHERE notebook = ?", log)
        db.execute("DELETE FROM sessions WHERE notebook = ?", log)
        db.execute("DELETE FROM notebooks WHERE id = ?", log)
        drop_unnamed(db, [sha for (sha,) in blobs])


def place(db: sqlite3.Connection, data: bytes | None) -> Placed:
    """Where these bytes go; long ones are saved now, unless they are already."""
    if data is None or len(data) <= INLINE_BYTES:
        return data, None
    sha = hashlib.sha256(data).digest()
    db.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (sha, data))
    return None, sha


def drop_unnamed(db: sqlite3.Connection, shas: Iterable[bytes | None]) -> None:
    """Drop those of the blobs that no row names any more."""
    db.executemany(_DROP_BLOB, {(sha,) for sha in shas if sha is not None})
