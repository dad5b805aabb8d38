"""Copy a run's finished work into a new run, and delete runs that ended.

Laws: (1) a fork costs nothing twice: long values are shared, and what was paid stays with the
first run; (2) nothing that another run still needs goes with a deleted one; (3) what was spent
stays told.
Not here: when to delete (whoever asks), single calls (calls.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import replace

from jackline.flows import engine_rules
from jackline.flows.engine import Claim
from jackline.flows.local import cleaning, notebooks, runs, signing
from jackline.flows.local.blobs import drop_unnamed
from jackline.flows.local.opening import is_locked
from jackline.flows.local.writer import Transaction, Work
from jackline.flows.records import RunRecord

_COPY_DONE = f"""INSERT INTO calls (run_id, key, occurrence, kind, label, phase, task_id, state,
    value, value_blob, outcome, outcome_blob, attempts, started_at, ended_at, tokens, cost,
    terminated_by, signature)
    SELECT ?, key, occurrence, kind, label, phase, task_id, state, value, value_blob, outcome,
    outcome_blob, attempts, started_at, ended_at, 0, 0, terminated_by,
    CASE WHEN {signing.holds("calls", signing.CALL)} THEN 'to be signed' END
    FROM calls WHERE run_id = ? AND state = 'done' ORDER BY id"""  # noqa: S608
_SIGN_COPIES = f"""UPDATE calls SET signature = {signing.make(signing.CALL)}
    WHERE run_id = ? AND signature IS NOT NULL"""  # noqa: S608
_UNTRUSTED_CALLS = f"""SELECT count(*) FROM calls
    WHERE run_id = ? AND NOT {signing.holds("calls", signing.CALL)}"""  # noqa: S608 -- ours
_UNTRUSTED_LINES = f"""SELECT count(*) FROM entries WHERE notebook IN (
    SELECT notebooks.id FROM notebooks JOIN calls ON calls.task_id = notebooks.task_id
    WHERE calls.run_id = ? AND calls.task_id <> '' AND calls.state <> 'done')
    AND NOT {signing.holds("entries", signing.ENTRY)}"""  # noqa: S608 -- ours
_BLOBS_OF_CALLS = "SELECT value_blob, outcome_blob FROM calls WHERE run_id = ?"
# What a deletion gives back to the disk at once; the rest is used again by later runs.
_PAGES_GIVEN_BACK = 10_000
# A larger file is not written anew for a deletion: only its free pages are cut off.
_REWRITTEN = 256 * 1024 * 1024


def fork(
    run_id: str,
    new: RunRecord,
    lease: float,
    without: Collection[tuple[str, int]],
) -> Work[Claim]:
    """A new run, owned and leased as its record says, with the other's done calls but those."""

    def work(transaction: Transaction) -> Claim:
        connection = transaction.connection
        runs.must_have(connection, run_id)
        if runs.exactly(connection, new.run_id) is not None:
            raise engine_rules.taken_id(new.run_id)
        runs.insert(transaction, replace(new, forked_from=run_id), lease)
        connection.execute(_COPY_DONE, (new.run_id, run_id))
        connection.execute(_SIGN_COPIES, (new.run_id,))
        connection.executemany(
            "DELETE FROM calls WHERE run_id = ? AND key = ? AND occurrence = ?",
            ((new.run_id, key, occurrence) for key, occurrence in without),
        )
        return Claim(new.run_id, new.owner, new.epoch)

    return work


def accept(run_id: str, digest: str) -> Work[None]:
    """Sign all that is kept of a run, if it is what a person was shown."""

    def work(transaction: Transaction) -> None:
        runs.must_have(transaction.connection, run_id)
        if signing.digest(transaction.connection, run_id) != digest:
            raise engine_rules.changed_since_shown(run_id)
        signing.accept(transaction.connection, run_id)

    return work


def untrusted_rows(run_id: str) -> Callable[[sqlite3.Connection], int]:
    """Count the rows that going on with a run would use and that are not signed."""

    def look(connection: sqlite3.Connection) -> int:
        (calls,) = connection.execute(_UNTRUSTED_CALLS, (run_id,)).fetchone()
        (lines,) = connection.execute(_UNTRUSTED_LINES, (run_id,)).fetchone()
        return int(calls + lines)

    return look


def wipe(connection: sqlite3.Connection) -> bool:
    """Leave no byte of what was deleted: not in the file's free space, and not in its log."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    size = pages * connection.execute("PRAGMA page_size").fetchone()[0]
    try:
        if size <= _REWRITTEN:
            # Also what was deleted by versions that did not overwrite it.
            connection.execute("VACUUM")
        else:
            connection.execute("PRAGMA incremental_vacuum").fetchall()
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:
        if not is_locked(error):
            raise
        return False
    return not busy


def delete(run_id: str, now: float, *, force: bool = False) -> Work[None]:
    """Drop an ended run and all that is kept of it."""

    def work(transaction: Transaction) -> None:
        connection = transaction.connection
        engine_rules.must_be_deletable(
            runs.must_have(connection, run_id),
            carried=runs.is_carried(connection, run_id, now),
            held=[] if force else cleaning.held_by(connection, run_id),
            owed=[] if force else cleaning.owed_by(connection, run_id),
        )
        blobs = [sha for row in connection.execute(_BLOBS_OF_CALLS, (run_id,)) for sha in row]
        blobs += connection.execute(
            "SELECT outcome_blob FROM runs WHERE run_id = ?", (run_id,)
        ).fetchone()
        for table in ("calls", "agent_orders", "resources", "hooks", "notes", "runs"):
            connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608
        notebooks.drop_unneeded(connection, run_id)
        drop_unnamed(connection, blobs)
        transaction.owner_changed(run_id)
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES_GIVEN_BACK})").fetchall()

    return work
