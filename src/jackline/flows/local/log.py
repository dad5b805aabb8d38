"""Keep the runs' logs, and the ledger of what all of them have spent.

Laws: (1) a run's notes are numbered from 1 without a gap; (2) what is in the ledger stays there.
Not here: what is worth a note, and what a budget is (flows/).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable

from jackline.flows import engine_rules
from jackline.flows.local.well_formed import FLOAT, INTEGER, TEXT, MalformedError, well_formed
from jackline.flows.local.writer import Transaction, Work
from jackline.flows.records import NoteRecord

_ADD = """INSERT INTO notes (run_id, number, at, what, label, detail)
    SELECT run_id,
    (SELECT coalesce(max(number), 0) + 1 FROM notes WHERE notes.run_id = runs.run_id), ?, ?, ?, ?
    FROM runs WHERE run_id = ?"""
_KINDS = (INTEGER, FLOAT, TEXT, TEXT, TEXT)


def note(run_id: str, at: float, what: str, label: str, detail: dict[str, object]) -> Work[None]:
    """Add a line to the run's log."""
    told = json.dumps(detail)

    def work(transaction: Transaction) -> None:
        added = transaction.connection.execute(_ADD, (at, what, label, told, run_id))
        if not added.rowcount:
            raise engine_rules.unknown_run(run_id)

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
            for number, at, what, label, detail in (well_formed(row, _KINDS) for row in rows)
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
