"""The rows that a run writes while it runs: calls with results and cost, log lines, spending.

Rules: (1) a done call is never written over; (2) what a call has cost beyond what was saved for
it before goes into the spending ledger with it, and stays there when the call is forgotten; (3)
the lines of a run's log are numbered from 1 without a gap.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

from jackline.flows.records import CallKind, CallRecord, CallState, EntryRecord, NoteRecord
from jackline.flows.store import store_rules
from jackline.flows.store.run_store import Claim
from jackline.flows.store.sqlite.agent_log_rows import add_line, drop_logs, drop_unnamed, place
from jackline.flows.store.sqlite.database import Database, Transaction, reads, writes
from jackline.flows.store.sqlite.row_checks import (
    CALL,
    FLOAT,
    INTEGER,
    MAYBE_BYTES,
    MAYBE_FLOAT,
    TEXT,
    MalformedError,
    is_signed,
    member,
    signature_of,
    well_formed,
)

_SELECT = f"""SELECT run_id, key, occurrence, kind, label, phase, task_id, state,
    coalesce(value, (SELECT data FROM blobs WHERE sha = value_blob)),
    coalesce(outcome, (SELECT data FROM blobs WHERE sha = outcome_blob)),
    attempts, started_at, ended_at, tokens, cost, terminated_by,
    {is_signed("calls", CALL)} FROM calls"""  # noqa: S608
_KINDS = (
    *(TEXT, TEXT, INTEGER, TEXT, TEXT, TEXT, TEXT, TEXT, MAYBE_BYTES, MAYBE_BYTES, INTEGER, FLOAT),
    *(MAYBE_FLOAT, INTEGER, FLOAT, TEXT, INTEGER),
)
_WHICH = "run_id = ? AND key = ? AND occurrence = ?"
_FIND = f"SELECT state, tokens, cost, value_blob, outcome_blob FROM calls WHERE {_WHICH}"  # noqa: S608
_CHANGED = (
    *("kind", "label", "phase", "task_id", "state", "value", "value_blob", "outcome"),
    *("outcome_blob", "attempts", "started_at", "ended_at", "tokens", "cost", "terminated_by"),
)
_INSERT = f"""INSERT INTO calls ({", ".join(_CHANGED)}, run_id, key, occurrence)
    VALUES ({", ".join("?" * (len(_CHANGED) + 3))})"""  # noqa: S608
_UPDATE = f"UPDATE calls SET {' = ?, '.join(_CHANGED)} = ? WHERE {_WHICH}"  # noqa: S608
_SIGN = f"""UPDATE calls SET signature = CASE WHEN ? THEN {signature_of(CALL)} END
    WHERE {_WHICH}"""  # noqa: S608
_ADD_NOTE = """INSERT INTO notes (run_id, number, at, what, label, detail)
    SELECT run_id,
    (SELECT coalesce(max(number), 0) + 1 FROM notes WHERE notes.run_id = runs.run_id), ?, ?, ?, ?
    FROM runs WHERE run_id = ?"""
_NOTE_KINDS = (INTEGER, FLOAT, TEXT, TEXT, TEXT)


class CallRows(Database):
    """Keyed calls, what they cost, and the log of a run."""

    @reads
    def calls(self, db: sqlite3.Connection, run_id: str) -> Sequence[CallRecord]:
        """All calls of a run, in the order they were begun; values included."""
        rows = db.execute(f"{_SELECT} WHERE run_id = ? ORDER BY id", (run_id,)).fetchall()
        return [_call(row) for row in rows]

    @writes
    def begin_call(self, transaction: Transaction, claim: Claim, call: CallRecord) -> None:
        """Save that a call was begun (again)."""
        _save(transaction, claim, call)

    @writes
    def end_call(self, transaction: Transaction, claim: Claim, call: CallRecord) -> None:
        """Save how a call ended; done ones are final."""
        _save(transaction, claim, call)

    @writes
    def forget_calls(
        self,
        transaction: Transaction,
        claim: Claim,
        calls: Collection[tuple[str, int]],
        *,
        leaving: Sequence[EntryRecord] = (),
    ) -> None:
        """Drop the results of these calls, so that they run again, with a new log."""
        transaction.must_own(claim)
        for line in leaving:
            add_line(transaction, claim, line)
        db = transaction.connection
        blobs: list[bytes | None] = []
        for key, occurrence in calls:
            row = db.execute(
                f"DELETE FROM calls WHERE {_WHICH} RETURNING task_id, value_blob, outcome_blob",  # noqa: S608
                (claim.run_id, key, occurrence),
            ).fetchone()
            if row is not None:
                blobs += row[1:]
                drop_logs(db, "task_id = ? AND run_id = ?", (row[0], claim.run_id))
        drop_unnamed(db, blobs)

    @reads
    def find_task(self, db: sqlite3.Connection, task_id: str) -> CallRecord | None:
        """The agent call with this task id; the first, where forks have copies."""
        return _with_task(db, task_id)

    @reads
    def find_session(self, db: sqlite3.Connection, session_id: str) -> CallRecord | None:
        """The agent call that was the last to use this session."""
        rows = db.execute(
            "SELECT task_id FROM sessions JOIN notebooks ON notebooks.id = notebook "
            "WHERE session_id = ? ORDER BY sessions.id DESC",
            (session_id,),
        )
        calls = (_with_task(db, task_id) for (task_id,) in rows.fetchall())
        return next((call for call in calls if call is not None), None)

    @reads
    def spent_since(self, db: sqlite3.Connection, at: float) -> tuple[int, float]:
        """Tokens and dollars of all runs' calls since then."""
        tokens, cost = db.execute(
            "SELECT coalesce(sum(tokens), 0), coalesce(sum(cost), 0) FROM spending WHERE at >= ?",
            (at,),
        ).fetchone()
        return int(tokens), float(cost)

    async def note(
        self, run_id: str, at: float, what: str, label: str, detail: dict[str, object]
    ) -> None:
        """Add a line to the run's log."""
        # As JSON at once: the caller may change it while the write waits.
        row = (at, what, label, json.dumps(detail), run_id)

        def add(transaction: Transaction) -> None:
            if not transaction.connection.execute(_ADD_NOTE, row).rowcount:
                raise store_rules.unknown_run(run_id)

        await self.write(add)

    @reads
    def notes(self, db: sqlite3.Connection, run_id: str, *, after: int = 0) -> Sequence[NoteRecord]:
        """The run's log after the line of that number."""
        rows = db.execute(
            "SELECT number, at, what, label, detail FROM notes "
            "WHERE run_id = ? AND number > ? ORDER BY number",
            (run_id, after),
        )
        return [
            NoteRecord(run_id, number, at, what, label, _detail(detail))
            for number, at, what, label, detail in (
                well_formed(row, _NOTE_KINDS) for row in rows.fetchall()
            )
        ]


def _save(transaction: Transaction, claim: Claim, call: CallRecord) -> None:
    store_rules.must_be_of(claim, call.run_id)
    transaction.must_own(claim)
    db = transaction.connection
    which = (call.run_id, call.key, call.occurrence)
    saved = db.execute(_FIND, which).fetchone()
    if saved is not None:
        store_rules.must_not_be_done(CallState(saved[0]), call)
    row = (
        *(call.kind, call.label, call.phase, call.task_id, call.state),
        *(*place(db, call.value), *place(db, call.outcome)),
        *(call.attempts, call.started_at, call.ended_at, call.tokens, call.cost),
        *(call.terminated_by, *which),
    )
    db.execute(_INSERT if saved is None else _UPDATE, row)
    db.execute(_SIGN, (call.trusted, *which))
    tokens, cost = call.tokens, call.cost
    if saved is not None:
        drop_unnamed(db, saved[3:])
        tokens, cost = tokens - saved[1], cost - saved[2]
    # A count that was begun anew takes nothing back.
    if tokens > 0 or cost > 0:
        at = transaction.now if call.ended_at is None else call.ended_at
        db.execute(
            "INSERT INTO spending (at, run_id, tokens, cost) VALUES (?, ?, ?, ?)",
            (at, call.run_id, max(tokens, 0), max(cost, 0.0)),
        )


def _with_task(db: sqlite3.Connection, task_id: str) -> CallRecord | None:
    row = db.execute(
        f"{_SELECT} WHERE task_id = ? AND task_id <> '' ORDER BY id LIMIT 1", (task_id,)
    ).fetchone()
    return None if row is None else _call(row)


def _call(row: Sequence[Any]) -> CallRecord:
    # The columns are in the fields' order. Not `replace`: a replay reads ten thousand of these.
    fields = list(well_formed(row, _KINDS))
    fields[3], fields[7] = member(CallKind, row[3]), member(CallState, row[7])
    fields[16] = bool(row[16])
    return CallRecord(*fields)


def _detail(text: str) -> dict[str, object]:
    try:
        detail = json.loads(text)
    except ValueError as error:
        raise MalformedError("a note's detail is no JSON") from error
    if not isinstance(detail, dict):
        raise MalformedError("a note's detail is no JSON object")
    return detail
