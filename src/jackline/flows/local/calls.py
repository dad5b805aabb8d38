"""Keep keyed calls, what they gave and what they cost.

Laws: (1) a done call is never written over; (2) what a call has cost beyond what was told of it
before goes into the ledger with it, and stays there when the call is forgotten.
Not here: notebooks (notebooks.py), copies for a fork (whole_runs.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import Any

from jackline.flows import engine_rules
from jackline.flows.engine import Claim
from jackline.flows.local import log, notebooks, signing
from jackline.flows.local.blobs import drop_unnamed, place
from jackline.flows.local.well_formed import (
    FLOAT,
    INTEGER,
    MAYBE_BYTES,
    MAYBE_FLOAT,
    TEXT,
    member,
    well_formed,
)
from jackline.flows.local.writer import Transaction, Work
from jackline.flows.records import CallKind, CallRecord, CallState, EntryRecord

_SELECT = f"""SELECT run_id, key, occurrence, kind, label, phase, task_id, state,
    coalesce(value, (SELECT data FROM blobs WHERE sha = value_blob)),
    coalesce(outcome, (SELECT data FROM blobs WHERE sha = outcome_blob)),
    attempts, started_at, ended_at, tokens, cost, terminated_by,
    {signing.holds("calls", signing.CALL)} FROM calls"""  # noqa: S608
_KINDS = (
    *(TEXT, TEXT, INTEGER, TEXT, TEXT, TEXT, TEXT, TEXT, MAYBE_BYTES, MAYBE_BYTES, INTEGER, FLOAT),
    *(MAYBE_FLOAT, INTEGER, FLOAT, TEXT, INTEGER),
)
_SIGN = f"""UPDATE calls SET signature = CASE WHEN ? THEN {signing.make(signing.CALL)} END
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
        engine_rules.must_be_of(claim, call.run_id)
        transaction.must_own(claim)
        connection = transaction.connection
        known = connection.execute(_FIND, (call.run_id, call.key, call.occurrence)).fetchone()
        if known is not None:
            engine_rules.must_not_be_done(CallState(known[1]), call)
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
        log.spend(connection, call.run_id, at, tokens, cost)

    return work


def forget(
    claim: Claim, calls: Collection[tuple[str, int]], leaving: Sequence[EntryRecord]
) -> Work[None]:
    """Drop these calls with what they gave, and add the lines that they leave."""

    def work(transaction: Transaction) -> None:
        transaction.must_own(claim)
        for line in leaving:
            notebooks.write(claim, line)(transaction)
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
                notebooks.drop(connection, claim.run_id, row[0])
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
        for task_id in notebooks.tasks_with(connection, session_id):
            call = of_task(task_id)(connection)
            if call is not None:
                return call
        return None

    return look


def _record(*row: Any) -> CallRecord:
    # The columns stand in the fields' order. Not `replace`: a replay reads ten thousand of these.
    fields = list(well_formed(row, _KINDS))
    fields[3], fields[7] = member(CallKind, row[3]), member(CallState, row[7])
    fields[16] = bool(row[16])
    return CallRecord(*fields)
