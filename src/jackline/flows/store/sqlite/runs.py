"""The rows of runs: their state, their owner, their forks and deletion, and orders to their agents.

Rules: (1) only `claim` and `create` give a run to an owner, each with a new epoch; (2) every
refusal comes before the first change; (3) a fork costs nothing twice: long values are shared, and
what was paid stays with the first run; (4) nothing that another run still needs is deleted with a
run, and spending stays counted; (5) of one name there is one order to agents, the latest; only
the run's owner answers it, and an answer to an order that was withdrawn or renewed is dropped.
Not here: the rules of leases (../store_rules.py), calls (flows/store/sqlite/calls.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from jackline.flows.records import ENDED, AgentOrder, RunRecord, RunState
from jackline.flows.store import store_rules
from jackline.flows.store.run_store import Claim
from jackline.flows.store.sqlite import agent_logs, cleanup_rows, row_checks
from jackline.flows.store.sqlite.agent_logs import drop_unnamed, place
from jackline.flows.store.sqlite.row_checks import (
    BYTES,
    FLOAT,
    INTEGER,
    MAYBE_BYTES,
    MAYBE_FLOAT,
    MAYBE_TEXT,
    TEXT,
    member,
    well_formed,
)
from jackline.flows.store.sqlite.store_file import is_locked
from jackline.flows.store.sqlite.threads import Transaction, Work

_COLUMNS = (
    "run_id, flow, source, arguments, settings, cwd, state, created_at, updated_at, ended_at, why, "
    "wake_at, outcome, outcome_blob, forked_from, owner, lease_until, epoch, tokens, cost, "
    "confirmed, lease_seconds, asked"
)
_INSERT = f"INSERT INTO runs ({_COLUMNS}) VALUES ({', '.join('?' * 23)})"  # noqa: S608 -- see above
_SELECT = f"""SELECT run_id, flow, source, arguments, settings, cwd, state, created_at, updated_at,
    ended_at, why, wake_at, coalesce(runs.outcome, blobs.data), forked_from, owner, lease_until,
    epoch, tokens, cost, confirmed, {row_checks.holds("runs", row_checks.RUN)}
    FROM runs LEFT JOIN blobs ON blobs.sha = runs.outcome_blob"""  # noqa: S608
_KINDS = (
    *(TEXT, TEXT, TEXT, BYTES, BYTES, TEXT, TEXT, FLOAT, FLOAT, MAYBE_FLOAT, TEXT),
    *(MAYBE_FLOAT, MAYBE_BYTES, MAYBE_TEXT, TEXT, FLOAT, INTEGER, INTEGER, FLOAT),
    *(INTEGER, INTEGER),
)
# Sorts behind everything that begins in the same way.
_LAST_CHARACTER = "\U0010ffff"


def create(run: RunRecord, owner: str, lease: float, now: float) -> Work[Claim]:
    """Keep a new run, claimed."""

    def work(transaction: Transaction) -> Claim:
        run_once = transaction.connection.execute
        if run_once("SELECT 1 FROM runs WHERE run_id = ?", (run.run_id,)).fetchone():
            raise store_rules.taken_id(run.run_id)
        insert(transaction, replace(run, owner=owner, lease_until=now + lease, epoch=1), lease)
        return Claim(run.run_id, owner, 1)

    return work


def insert(transaction: Transaction, run: RunRecord, lease: float) -> None:
    """Add the row of a run that is not there yet."""
    outcome, outcome_blob = place(transaction.connection, run.outcome)
    transaction.connection.execute(
        _INSERT,
        (
            *(run.run_id, run.flow, run.source, run.arguments, run.settings, run.cwd, run.state),
            *(run.created_at, run.updated_at, run.ended_at, run.why, run.wake_at),
            *(outcome, outcome_blob, run.forked_from, run.owner, run.lease_until, run.epoch),
            *(run.tokens, run.cost, run.confirmed, lease, ""),
        ),
    )
    transaction.connection.execute(
        f"UPDATE runs SET signature = {row_checks.make(row_checks.RUN)} WHERE run_id = ?",  # noqa: S608
        (run.run_id,),
    )
    transaction.owner_changed(run.run_id)


def claim(
    run_id: str, owner: str, lease: float, now: float, instead_of: str = ""
) -> Work[Claim | None]:
    """Take a run over, if nobody else holds it."""

    def work(transaction: Transaction) -> Claim | None:
        row = transaction.connection.execute(
            "SELECT owner, lease_until, lease_seconds, epoch, asked FROM runs WHERE run_id = ?",
            (run_id,),
        ).fetchone()
        if row is None:
            return None
        held_by, until, seconds, epoch, asked = row
        free = held_by in ("", owner, instead_of)
        if not free and store_rules.lease_holds(until, seconds, now):
            return None
        transaction.connection.execute(
            "UPDATE runs SET owner = ?, lease_until = ?, lease_seconds = ?, epoch = ?, asked = ? "
            "WHERE run_id = ?",
            (owner, now + lease, lease, epoch + 1, store_rules.word_after_claim(asked), run_id),
        )
        transaction.owner_changed(run_id)
        return Claim(run_id, owner, epoch + 1)

    return work


def renew(claim: Claim, lease: float, now: float) -> Work[None]:
    """Hold the run for longer."""

    def work(transaction: Transaction) -> None:
        transaction.must_own(claim)
        transaction.connection.execute(
            "UPDATE runs SET lease_until = ?, lease_seconds = ? WHERE run_id = ?",
            (now + lease, lease, claim.run_id),
        )

    return work


def change(claim: Claim, run: RunRecord, *, let_go: bool) -> Work[None]:
    """Keep the run's new standing; `let_go` gives up the lease with it."""

    def work(transaction: Transaction) -> None:
        store_rules.must_be_of(claim, run.run_id)
        transaction.must_own(claim)
        connection = transaction.connection
        (old_blob,) = connection.execute(
            "SELECT outcome_blob FROM runs WHERE run_id = ?", (run.run_id,)
        ).fetchone()
        outcome, outcome_blob = place(connection, run.outcome)
        change = partial(
            connection.execute,
            """UPDATE runs SET settings = ?, state = ?, updated_at = ?, ended_at = ?, why = ?,
            wake_at = ?, outcome = ?, outcome_blob = ?, tokens = ?, cost = ?,
            confirmed = confirmed AND ? WHERE run_id = ?""",
            (
                *(run.settings, run.state, run.updated_at, run.ended_at, run.why, run.wake_at),
                *(outcome, outcome_blob, run.tokens, run.cost, run.state is RunState.PARKED),
                run.run_id,
            ),
        )
        row_checks.change_signed(connection, run.run_id, change)
        if old_blob != outcome_blob:
            drop_unnamed(connection, [old_blob])
        if let_go:
            connection.execute(
                "UPDATE runs SET owner = '', lease_until = 0, "
                "asked = CASE WHEN ? THEN '' ELSE asked END WHERE run_id = ?",
                (store_rules.answers_the_word(run.state), run.run_id),
            )
            transaction.owner_changed(run.run_id)

    return work


def allow_waking(run_id: str) -> Work[None]:
    """A person confirms the next waking."""

    def work(transaction: Transaction) -> None:
        connection = transaction.connection
        store_rules.must_be_parked(must_have(connection, run_id))
        confirm = "UPDATE runs SET confirmed = 1 WHERE run_id = ?"
        row_checks.change_signed(
            connection, run_id, partial(connection.execute, confirm, (run_id,))
        )

    return work


def ask_to_stop(run_id: str, how: str) -> Work[None]:
    """Leave word for the owner."""

    def work(transaction: Transaction) -> None:
        row = transaction.connection.execute(
            "SELECT asked, state, owner FROM runs WHERE run_id = ?", (run_id,)
        ).fetchone()
        if row is None:
            raise store_rules.unknown_run(run_id)
        asked, state, owner = row
        word = store_rules.word_after_asking(asked, how)
        if owner or RunState(state) not in ENDED:
            transaction.connection.execute(
                "UPDATE runs SET asked = ? WHERE run_id = ?", (word, run_id)
            )

    return work


def asked_to_stop(run_id: str) -> Callable[[sqlite3.Connection], str]:
    """What the owner was asked."""

    def look(connection: sqlite3.Connection) -> str:
        row = connection.execute("SELECT asked FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return row[0] if row else ""

    return look


def find(beginning: str) -> Callable[[sqlite3.Connection], RunRecord | None]:
    """The run by its id or the beginning of it."""

    def look(connection: sqlite3.Connection) -> RunRecord | None:
        whole = exactly(connection, beginning)
        if whole is not None or not beginning:
            return whole
        rows = connection.execute(
            "SELECT run_id FROM runs WHERE run_id >= ? AND run_id < ? LIMIT 100",
            (beginning, beginning + _LAST_CHARACTER),
        ).fetchall()
        if len(rows) > 1:
            raise store_rules.ambiguous(beginning, [run_id for (run_id,) in rows])
        return exactly(connection, rows[0][0]) if rows else None

    return look


def newest(
    states: Collection[RunState] | None, limit: int
) -> Callable[[sqlite3.Connection], list[RunRecord]]:
    """Runs, the newest first."""
    chosen = list(RunState) if states is None else list(states)

    def look(connection: sqlite3.Connection) -> list[RunRecord]:
        rows = connection.execute(
            f"{_SELECT} WHERE state IN ({', '.join('?' * len(chosen))}) "
            "ORDER BY created_at DESC, runs.rowid DESC LIMIT ?",
            (*chosen, limit),
        ).fetchall()
        return [_record(*row) for row in rows]

    return look


def exactly(connection: sqlite3.Connection, run_id: str) -> RunRecord | None:
    """The run with just this id."""
    row = connection.execute(f"{_SELECT} WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else _record(*row)


def is_carried(connection: sqlite3.Connection, run_id: str, now: float) -> bool:
    """Whether someone's lease of this run holds."""
    owner, until, seconds = connection.execute(
        "SELECT owner, lease_until, lease_seconds FROM runs WHERE run_id = ?", (run_id,)
    ).fetchone()
    return bool(owner) and store_rules.lease_holds(until, seconds, now)


def must_have(connection: sqlite3.Connection, run_id: str) -> RunRecord:
    """The run with just this id; UnreadableError when there is none."""
    run = exactly(connection, run_id)
    if run is None:
        raise store_rules.unknown_run(run_id)
    return run


def _record(*row: Any) -> RunRecord:
    run = RunRecord(*well_formed(row, _KINDS))  # the columns stand in the fields' order
    return replace(
        run,
        state=member(RunState, run.state),
        confirmed=bool(run.confirmed),
        trusted=bool(run.trusted),
    )


_COPY_DONE = f"""INSERT INTO calls (run_id, key, occurrence, kind, label, phase, task_id, state,
    value, value_blob, outcome, outcome_blob, attempts, started_at, ended_at, tokens, cost,
    terminated_by, signature)
    SELECT ?, key, occurrence, kind, label, phase, task_id, state, value, value_blob, outcome,
    outcome_blob, attempts, started_at, ended_at, 0, 0, terminated_by,
    CASE WHEN {row_checks.holds("calls", row_checks.CALL)} THEN 'to be signed' END
    FROM calls WHERE run_id = ? AND state = 'done' ORDER BY id"""  # noqa: S608
_SIGN_COPIES = f"""UPDATE calls SET signature = {row_checks.make(row_checks.CALL)}
    WHERE run_id = ? AND signature IS NOT NULL"""  # noqa: S608
_UNTRUSTED_CALLS = f"""SELECT count(*) FROM calls
    WHERE run_id = ? AND NOT {row_checks.holds("calls", row_checks.CALL)}"""  # noqa: S608 -- ours
_UNTRUSTED_LINES = f"""SELECT count(*) FROM entries WHERE notebook IN (
    SELECT notebooks.id FROM notebooks JOIN calls ON calls.task_id = notebooks.task_id
    WHERE calls.run_id = ? AND calls.task_id <> '' AND calls.state <> 'done')
    AND NOT {row_checks.holds("entries", row_checks.ENTRY)}"""  # noqa: S608 -- ours
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
        must_have(connection, run_id)
        if exactly(connection, new.run_id) is not None:
            raise store_rules.taken_id(new.run_id)
        insert(transaction, replace(new, forked_from=run_id), lease)
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
        must_have(transaction.connection, run_id)
        if row_checks.digest(transaction.connection, run_id) != digest:
            raise store_rules.changed_since_shown(run_id)
        row_checks.accept(transaction.connection, run_id)

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
        store_rules.must_be_deletable(
            must_have(connection, run_id),
            carried=is_carried(connection, run_id, now),
            held=[] if force else cleanup_rows.held_by(connection, run_id),
            owed=[] if force else cleanup_rows.owed_by(connection, run_id),
        )
        blobs = [sha for row in connection.execute(_BLOBS_OF_CALLS, (run_id,)) for sha in row]
        blobs += connection.execute(
            "SELECT outcome_blob FROM runs WHERE run_id = ?", (run_id,)
        ).fetchone()
        for table in ("calls", "agent_orders", "resources", "hooks", "notes", "runs"):
            connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608
        agent_logs.drop_unneeded(connection, run_id)
        drop_unnamed(connection, blobs)
        transaction.owner_changed(run_id)
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES_GIVEN_BACK})").fetchall()

    return work


_KEEP = "INSERT OR REPLACE INTO agent_orders (run_id, name, at, ended) VALUES (?, ?, ?, ?)"


def keep(order: AgentOrder) -> Work[None]:
    """Keep an order."""

    def work(transaction: Transaction) -> None:
        must_have(transaction.connection, order.run_id)
        row = (order.run_id, order.name, order.at, order.ended)
        transaction.connection.execute(_KEEP, row)

    return work


def answer(claim: Claim, order: AgentOrder) -> Work[None]:
    """Keep how many agents the owner has ended for it."""

    def work(transaction: Transaction) -> None:
        store_rules.must_be_of(claim, order.run_id)
        transaction.must_own(claim)
        transaction.connection.execute(
            "UPDATE agent_orders SET ended = ? WHERE run_id = ? AND name = ? AND at = ?",
            (order.ended, order.run_id, order.name, order.at),
        )

    return work


def drop(run_id: str, name: str) -> Work[bool]:
    """Take an order back."""

    def work(transaction: Transaction) -> bool:
        dropped = transaction.connection.execute(
            "DELETE FROM agent_orders WHERE run_id = ? AND name = ?", (run_id, name)
        )
        return bool(dropped.rowcount)

    return work


def of_run(run_id: str) -> Callable[[sqlite3.Connection], list[AgentOrder]]:
    """All orders to agents of a run, the oldest first."""

    def look(connection: sqlite3.Connection) -> list[AgentOrder]:
        rows = connection.execute(
            "SELECT run_id, name, at, ended FROM agent_orders WHERE run_id = ? ORDER BY at, name",
            (run_id,),
        ).fetchall()
        return [AgentOrder(*row) for row in rows]

    return look
