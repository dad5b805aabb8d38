"""The rows that a run writes while it runs: calls with results and cost, agents' logs, spending.

Rules: (1) a done call is never written over; (2) what a call has cost beyond what was saved for
it before goes into the spending ledger with it, and stays there when the call is forgotten; (3)
the lines of a log are numbered from 1 without a gap; (4) one run writes an agent's log, and only
that run can delete it; it stays as long as some run has a call of its agent; (5) a value longer
than `INLINE_BYTES` is in `blobs`, once under its hash, written in the same transaction as the row
that names it; a blob that no row names any more is dropped with the change that dropped its last
name.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from jackline.errors import InternalError, JournalError
from jackline.flows.records import CallKind, CallRecord, CallState, EntryRecord, NoteRecord
from jackline.flows.store.run_store import Claim, unknown_run
from jackline.flows.store.sqlite.database import Database, Transaction, reads, writes
from jackline.flows.store.sqlite.row_checks import (
    BYTES,
    CALL,
    ENTRY,
    FLOAT,
    INTEGER,
    MAYBE_BYTES,
    MAYBE_FLOAT,
    TEXT,
    Kinds,
    MalformedError,
    is_signed,
    signature_of,
    well_formed,
)

_NAMES = "SELECT run_id, key, occurrence, kind, label, phase, task_id, state,"
_BARE = f"""{_NAMES} NULL, NULL,
    attempts, started_at, ended_at, tokens, cost, terminated_by, 1 FROM calls"""
_SELECT = f"""{_NAMES}
    coalesce(value, (SELECT data FROM blobs WHERE sha = value_blob)),
    coalesce(outcome, (SELECT data FROM blobs WHERE sha = outcome_blob)),
    attempts, started_at, ended_at, tokens, cost, terminated_by,
    {is_signed("calls", CALL)} FROM calls"""  # noqa: S608
_KINDS: tuple[Kinds, ...] = (
    *(TEXT, TEXT, INTEGER, CallKind, TEXT, TEXT, TEXT, CallState, MAYBE_BYTES, MAYBE_BYTES),
    *(INTEGER, FLOAT, MAYBE_FLOAT, INTEGER, FLOAT, TEXT, bool),
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

INLINE_BYTES = 64 * 1024
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
_FIND_LOG = """SELECT id, run_id, (SELECT coalesce(max(number), 0) FROM entries
    WHERE agent_log = id) FROM agent_logs WHERE task_id = ?"""
_ENTRIES = f"""SELECT task_id, number, kind,
    coalesce(data, (SELECT blobs.data FROM blobs WHERE sha = data_blob)), at,
    {is_signed("entries", ENTRY)}
    FROM entries JOIN agent_logs ON agent_logs.id = agent_log
    WHERE task_id = ? {{}} ORDER BY number"""  # noqa: S608
_ENTRY_KINDS = (TEXT, INTEGER, TEXT, BYTES, FLOAT, bool)
_SIGN_ENTRY = f"""UPDATE entries SET signature = {signature_of(ENTRY)}
    WHERE agent_log = ? AND number = ?"""  # noqa: S608


class CallRows(Database):
    """Keyed calls, what they cost, the logs of agents, and the log of a run."""

    @reads
    def calls(
        self, db: sqlite3.Connection, run_id: str, *, values: bool = True
    ) -> Sequence[CallRecord]:
        """All calls of a run, in the order they were begun."""
        select = _SELECT if values else _BARE
        rows = db.execute(f"{select} WHERE run_id = ? ORDER BY id", (run_id,)).fetchall()
        return [CallRecord(*well_formed(row, _KINDS)) for row in rows]

    @writes
    def begin_call(self, transaction: Transaction, claim: Claim, call: CallRecord) -> None:
        """Save that a call was begun (again), or how it ended; done ones are final."""
        transaction.must_own(claim, call.run_id)
        db = transaction.connection
        which = (call.run_id, call.key, call.occurrence)
        saved = db.execute(_FIND, which).fetchone()
        if saved is not None and CallState(saved[0]) is CallState.DONE:
            raise InternalError(
                f"Call {call.label or call.key[:12]!r} of run {call.run_id} is done already; "
                "its result stays."
            )
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

    end_call = begin_call

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
            _add_line(transaction, claim, line)
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
    def entries(
        self, db: sqlite3.Connection, task_id: str, *, kinds: Collection[str] = ()
    ) -> Sequence[EntryRecord]:
        """An agent's log, the oldest line first."""
        of_kinds = f"AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        rows = db.execute(_ENTRIES.format(of_kinds), (task_id, *kinds)).fetchall()
        return [EntryRecord(*well_formed(row, _ENTRY_KINDS)) for row in rows]

    @writes
    def write_entry(self, transaction: Transaction, claim: Claim, entry: EntryRecord) -> None:
        """Add a line to a log; its number must be the next one."""
        _add_line(transaction, claim, entry)

    @reads
    def agent_logs(self, db: sqlite3.Connection, run_id: str) -> Sequence[str]:
        """The ids of the agents whose logs this run has written, the oldest first."""
        rows = db.execute("SELECT task_id FROM agent_logs WHERE run_id = ? ORDER BY id", (run_id,))
        return [well_formed(row, (TEXT,))[0] for row in rows.fetchall()]

    @reads
    def find_task(self, db: sqlite3.Connection, task_id: str) -> CallRecord | None:
        """The agent call with this task id; the first, where forks have copies."""
        return _with_task(db, task_id)

    @reads
    def find_session(self, db: sqlite3.Connection, session_id: str) -> CallRecord | None:
        """The agent call that was the last to use this session."""
        rows = db.execute(
            "SELECT task_id FROM sessions JOIN agent_logs ON agent_logs.id = agent_log "
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
                raise unknown_run(run_id)

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


def _with_task(db: sqlite3.Connection, task_id: str) -> CallRecord | None:
    row = db.execute(
        f"{_SELECT} WHERE task_id = ? AND task_id <> '' ORDER BY id LIMIT 1", (task_id,)
    ).fetchone()
    return None if row is None else CallRecord(*well_formed(row, _KINDS))


def _detail(text: str) -> dict[str, object]:
    try:
        detail = json.loads(text)
    except ValueError as error:
        raise MalformedError("a note's detail is no JSON") from error
    if not isinstance(detail, dict):
        raise MalformedError("a note's detail is no JSON object")
    return detail


def _add_line(transaction: Transaction, claim: Claim, entry: EntryRecord) -> None:
    transaction.must_own(claim)
    db = transaction.connection
    log, run_id, last = db.execute(_FIND_LOG, (entry.task_id,)).fetchone() or (
        None,
        claim.run_id,
        0,
    )
    if run_id != claim.run_id:
        raise InternalError(f"The log of agent {entry.task_id} belongs to another run.")
    if entry.number != last + 1:
        raise JournalError(
            f"Line {entry.number} of the log of agent {entry.task_id} cannot be saved: "
            f"{last + 1} would be the next.",
            hint="Resume the run: the agent continues after its last whole line.",
        )
    if log is None:
        log = db.execute(
            "INSERT INTO agent_logs (task_id, run_id) VALUES (?, ?)", (entry.task_id, run_id)
        ).lastrowid
    db.execute(
        "INSERT INTO entries (agent_log, number, kind, data, data_blob, at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (log, entry.number, entry.kind, *place(db, entry.data), entry.at),
    )
    db.execute(_SIGN_ENTRY, (log, entry.number))
    session_id = None
    if entry.kind == "session":
        with suppress(ValueError):
            data = json.loads(entry.data)
            session_id = data.get("session_id") if isinstance(data, dict) else None
    if isinstance(session_id, str) and session_id:
        db.execute(
            "INSERT OR REPLACE INTO sessions (session_id, agent_log) VALUES (?, ?)",
            (session_id, log),
        )


def drop_logs(db: sqlite3.Connection, which: str, parameters: Sequence[str]) -> None:
    """Drop the logs for which this condition on `agent_logs` holds."""
    found = db.execute(f"SELECT id FROM agent_logs WHERE {which}", parameters)  # noqa: S608 -- ours
    for log in found.fetchall():
        blobs = db.execute("SELECT data_blob FROM entries WHERE agent_log = ?", log).fetchall()
        db.execute("DELETE FROM entries WHERE agent_log = ?", log)
        db.execute("DELETE FROM sessions WHERE agent_log = ?", log)
        db.execute("DELETE FROM agent_logs WHERE id = ?", log)
        drop_unnamed(db, [sha for (sha,) in blobs])


def place(db: sqlite3.Connection, data: bytes | None) -> tuple[bytes | None, bytes | None]:
    """What goes into a field's own column, and what into the one that names a blob, saved now."""
    if data is None or len(data) <= INLINE_BYTES:
        return data, None
    sha = hashlib.sha256(data).digest()
    db.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (sha, data))
    return None, sha


def drop_unnamed(db: sqlite3.Connection, shas: Iterable[bytes | None]) -> None:
    """Drop those of the blobs that no row names any more."""
    db.executemany(_DROP_BLOB, {(sha,) for sha in shas if sha is not None})
