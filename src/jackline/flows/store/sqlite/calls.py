"""The rows that a run writes while it runs: calls with results and cost, log lines, spending.

Rules: (1) a done call is never written over; (2) what a call has cost beyond what was saved for
it before goes into the spending ledger with it, and stays there when the call is forgotten; (3)
the lines of a run's log are numbered from 1 without a gap.
Not here: agents' logs (agent_logs.py), copies for a fork (flows/store/sqlite/runs.py).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import Any

from jackline.flows.records import CallKind, CallRecord, CallState, EntryRecord, NoteRecord
from jackline.flows.store import store_rules
from jackline.flows.store.run_store import Claim
from jackline.flows.store.sqlite import agent_logs, row_checks
from jackline.flows.store.sqlite.agent_logs import drop_unnamed, place
from jackline.flows.store.sqlite.row_checks import (
    FLOAT,
    INTEGER,
    MAYBE_BYTES,
    MAYBE_FLOAT,
    TEXT,
    MalformedError,
    member,
    well_formed,
)
from jackline.flows.store.sqlite.threads import Transaction, Work

_ADD = """INSERT INTO notes (run_id, number, at, what, label, detail)
    SELECT run_id,
    (SELECT coalesce(max(number), 0) + 1 FROM notes WHERE notes.run_id = runs.run_id), ?, ?, ?, ?
    FROM runs WHERE run_id = ?"""
_NOTE_KINDS = (INTEGER, FLOAT, TEXT, TEXT, TEXT)


def note(run_id: str, at: float, what: str, label: str, detail: dict[str, object]) -> Work[None]:
    """Add a line to the run's log."""
    told = json.dumps(detail)

    def work(transaction: Transaction) -> None:
        added = transaction.connection.execute(_ADD, (at, what, label, told, run_id))
        if not added.rowcount:
            raise store_rules.unknown_run(run_id)

    return work


def notes(run_id: str, after: int) -> Callable[[sqlite3.Connection], list[NoteRecord]]:
    """The lines after that number."""

    def look(connection: sqlite3.Connection) -> list[NoteRecord]:
        rows = connection.execute(
            "SELECT number, at, what, label, detail FROM notes "
            "WHERE run_id = ? AND number > ? ORDER BY number",
            (run_id, after),
        ).fetchall()
        return [
            NoteRecord(run_id, number, at, what, label, _detail(detail))
            for number, at, what, label, detail in (well_formed(row, _NOTE_KINDS) for row in rows)
        ]

    return look


def _detail(text: str) -> dict[str, object]:
    try:
        detail = json.loads(text)
    except ValueError as error:
        raise MalformedError("a note's detail is no JSON") from error
    if not isinstance(detail, dict):
        raise MalformedError("a note's detail is no JSON object")
    return detail


def spend(connection: sqlite3.Connection, run_id: str, at: float, tokens: int, cost: float) -> None:
    """Put what was spent into the ledger; a count that was begun anew takes nothing back."""
    if tokens > 0 or cost > 0:
        connection.execute(
            "INSERT INTO spending (at, run_id, tokens, cost) VALUES (?, ?, ?, ?)",
            (at, run_id, max(tokens, 0), max(cost, 0.0)),
        )


def spent_since(at: float) -> Callable[[sqlite3.Connection], tuple[int, float]]:
    """Tokens and dollars since then."""

    def look(connection: sqlite3.Connection) -> tuple[int, float]:
        tokens, cost = connection.execute(
            "SELECT coalesce(sum(tokens), 0), coalesce(sum(cost), 0) FROM spending WHERE at >= ?",
            (at,),
        ).fetchone()
        return int(tokens), float(cost)

    return look


_SELECT = f"""SELECT run_id, key, occurrence, kind, label, phase, task_id, state,
    coalesce(value, (SELECT data FROM blobs WHERE sha = value_blob)),
    coalesce(outcome, (SELECT data FROM blobs WHERE sha = outcome_blob)),
    attempts, started_at, ended_at, tokens, cost, terminated_by,
    {row_checks.holds("calls", row_checks.CALL)} FROM calls"""  # noqa: S608
_CALL_KINDS = (
    *(TEXT, TEXT, INTEGER, TEXT, TEXT, TEXT, TEXT, TEXT, MAYBE_BYTES, MAYBE_BYTES, INTEGER, FLOAT),
    *(MAYBE_FLOAT, INTEGER, FLOAT, TEXT, INTEGER),
)
_SIGN = f"""UPDATE calls SET signature = CASE WHEN ? THEN {row_checks.make(row_checks.CALL)} END
    WHERE run_id = ? AND key = ? AND occurrence = ?"""  # noqa: S608
_FIND = """SELECT id, state, tokens, cost, value_blob, outcome_blob FROM calls
    WHERE run_id = ? AND key = ? AND occurrence = ?"""
_INSERT = """INSERT INTO calls (kind, label, phase, task_id, state, value, value_blob, outcome,
    outcome_blob, attempts, started_at, ended_at, tokens, cost, terminated_by, run_id, key,
    occurrence) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UPDATE = """UPDATE calls SET kind = ?, label = ?, phase = ?, task_id = ?, state = ?, value = ?,
    value_blob = ?, outcome = ?, outcome_blob = ?, attempts = ?, started_at = ?, ended_at = ?,
    tokens = ?, cost = ?, terminated_by = ? WHERE id = ?"""


def keep(claim: Claim, call: CallRecord, now: float) -> Work[None]:
    """Keep how a call stands, unless it is done."""

    def work(transaction: Transaction) -> None:
        store_rules.must_be_of(claim, call.run_id)
        transaction.must_own(claim)
        connection = transaction.connection
        known = connection.execute(_FIND, (call.run_id, call.key, call.occurrence)).fetchone()
        if known is not None:
            store_rules.must_not_be_done(CallState(known[1]), call)
        blobs = (*place(connection, call.value), *place(connection, call.outcome))
        row = (
            *(call.kind, call.label, call.phase, call.task_id, call.state, *blobs),
            *(call.attempts, call.started_at, call.ended_at, call.tokens, call.cost),
            call.terminated_by,
        )
        tokens, cost = call.tokens, call.cost
        name = (call.run_id, call.key, call.occurrence)
        if known is None:
            connection.execute(_INSERT, (*row, *name))
        else:
            connection.execute(_UPDATE, (*row, known[0]))
        connection.execute(_SIGN, (call.trusted, *name))
        if known is not None:
            drop_unnamed(connection, known[4:])
            tokens, cost = tokens - known[2], cost - known[3]
        at = now if call.ended_at is None else call.ended_at
        spend(connection, call.run_id, at, tokens, cost)

    return work


def forget(
    claim: Claim, calls: Collection[tuple[str, int]], leaving: Sequence[EntryRecord]
) -> Work[None]:
    """Drop these calls with what they gave, and add the lines that they leave."""

    def work(transaction: Transaction) -> None:
        transaction.must_own(claim)
        for line in leaving:
            agent_logs.write(claim, line)(transaction)
        connection = transaction.connection
        blobs: list[bytes | None] = []
        for key, occurrence in calls:
            row = connection.execute(
                "DELETE FROM calls WHERE run_id = ? AND key = ? AND occurrence = ? "
                "RETURNING task_id, value_blob, outcome_blob",
                (claim.run_id, key, occurrence),
            ).fetchone()
            if row is not None:
                blobs += row[1:]
                agent_logs.drop(connection, claim.run_id, row[0])
        drop_unnamed(connection, blobs)

    return work


def of_run(run_id: str) -> Callable[[sqlite3.Connection], list[CallRecord]]:
    """All calls of a run, in the order they were begun."""

    def look(connection: sqlite3.Connection) -> list[CallRecord]:
        rows = connection.execute(f"{_SELECT} WHERE run_id = ? ORDER BY id", (run_id,)).fetchall()
        return [_record(*row) for row in rows]

    return look


def of_task(task_id: str) -> Callable[[sqlite3.Connection], CallRecord | None]:
    """The agent call with this task id; the first, where forks have copies."""

    def look(connection: sqlite3.Connection) -> CallRecord | None:
        row = connection.execute(
            f"{_SELECT} WHERE task_id = ? AND task_id <> '' ORDER BY id LIMIT 1", (task_id,)
        ).fetchone()
        return None if row is None else _record(*row)

    return look


def of_session(session_id: str) -> Callable[[sqlite3.Connection], CallRecord | None]:
    """The agent call that was the last to carry this session."""

    def look(connection: sqlite3.Connection) -> CallRecord | None:
        for task_id in agent_logs.tasks_with(connection, session_id):
            call = of_task(task_id)(connection)
            if call is not None:
                return call
        return None

    return look


def _record(*row: Any) -> CallRecord:
    # The columns stand in the fields' order. Not `replace`: a replay reads ten thousand of these.
    fields = list(well_formed(row, _CALL_KINDS))
    fields[3], fields[7] = member(CallKind, row[3]), member(CallState, row[7])
    fields[16] = bool(row[16])
    return CallRecord(*fields)
