"""Keep runs: their standing, who carries them, and what they were asked.

Laws: (1) only `claim` and `create` give a run to someone, each with a new epoch; (2) every refusal
comes before the first change.
Not here: the rules of leases and words (../engine_rules.py), calls (calls.py), whole runs copied or
deleted (whole_runs.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from jackline.flows import engine_rules
from jackline.flows.engine import Claim
from jackline.flows.local import signing
from jackline.flows.local.blobs import drop_unnamed, place
from jackline.flows.local.well_formed import (
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
from jackline.flows.local.writer import Transaction, Work
from jackline.flows.records import ENDED, RunRecord, RunState

_COLUMNS = (
    "run_id, flow, source, arguments, settings, cwd, state, created_at, updated_at, ended_at, why, "
    "wake_at, outcome, outcome_blob, forked_from, owner, lease_until, epoch, tokens, cost, "
    "confirmed, lease_seconds, asked"
)
_INSERT = f"INSERT INTO runs ({_COLUMNS}) VALUES ({', '.join('?' * 23)})"  # noqa: S608 -- see above
_SELECT = f"""SELECT run_id, flow, source, arguments, settings, cwd, state, created_at, updated_at,
    ended_at, why, wake_at, coalesce(runs.outcome, blobs.data), forked_from, owner, lease_until,
    epoch, tokens, cost, confirmed, {signing.holds("runs", signing.RUN)}
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
            raise engine_rules.taken_id(run.run_id)
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
        f"UPDATE runs SET signature = {signing.make(signing.RUN)} WHERE run_id = ?",  # noqa: S608
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
        if not free and engine_rules.lease_holds(until, seconds, now):
            return None
        transaction.connection.execute(
            "UPDATE runs SET owner = ?, lease_until = ?, lease_seconds = ?, epoch = ?, asked = ? "
            "WHERE run_id = ?",
            (owner, now + lease, lease, epoch + 1, engine_rules.word_after_claim(asked), run_id),
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
        engine_rules.must_be_of(claim, run.run_id)
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
        signing.change_signed(connection, run.run_id, change)
        if old_blob != outcome_blob:
            drop_unnamed(connection, [old_blob])
        if let_go:
            connection.execute(
                "UPDATE runs SET owner = '', lease_until = 0, "
                "asked = CASE WHEN ? THEN '' ELSE asked END WHERE run_id = ?",
                (engine_rules.answers_the_word(run.state), run.run_id),
            )
            transaction.owner_changed(run.run_id)

    return work


def allow_waking(run_id: str) -> Work[None]:
    """A person confirms the next waking."""

    def work(transaction: Transaction) -> None:
        connection = transaction.connection
        engine_rules.must_be_parked(must_have(connection, run_id))
        confirm = "UPDATE runs SET confirmed = 1 WHERE run_id = ?"
        signing.change_signed(connection, run_id, partial(connection.execute, confirm, (run_id,)))

    return work


def ask_to_stop(run_id: str, how: str) -> Work[None]:
    """Leave word for the owner."""

    def work(transaction: Transaction) -> None:
        row = transaction.connection.execute(
            "SELECT asked, state, owner FROM runs WHERE run_id = ?", (run_id,)
        ).fetchone()
        if row is None:
            raise engine_rules.unknown_run(run_id)
        asked, state, owner = row
        word = engine_rules.word_after_asking(asked, how)
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
            raise engine_rules.ambiguous(beginning, [run_id for (run_id,) in rows])
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
    return bool(owner) and engine_rules.lease_holds(until, seconds, now)


def must_have(connection: sqlite3.Connection, run_id: str) -> RunRecord:
    """The run with just this id; UnreadableError when there is none."""
    run = exactly(connection, run_id)
    if run is None:
        raise engine_rules.unknown_run(run_id)
    return run


def _record(*row: Any) -> RunRecord:
    run = RunRecord(*well_formed(row, _KINDS))  # the columns stand in the fields' order
    return replace(
        run,
        state=member(RunState, run.state),
        confirmed=bool(run.confirmed),
        trusted=bool(run.trusted),
    )
