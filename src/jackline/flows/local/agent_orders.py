"""Keep what people ordered of single agents, until it is carried out or taken back.

Laws: (1) of one name there is one order, the latest; (2) only the run's owner answers one, and an
answer to an order that was taken back or given anew is dropped.
Not here: what an order does (flows/agent_orders.py), orders to whole runs (runs.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from jackline.flows import engine_rules
from jackline.flows.engine import Claim
from jackline.flows.local import runs
from jackline.flows.local.writer import Transaction, Work
from jackline.flows.records import AgentOrder

_KEEP = "INSERT OR REPLACE INTO agent_orders (run_id, name, at, ended) VALUES (?, ?, ?, ?)"


def keep(order: AgentOrder) -> Work[None]:
    """Keep an order."""

    def work(transaction: Transaction) -> None:
        runs.must_have(transaction.connection, order.run_id)
        row = (order.run_id, order.name, order.at, order.ended)
        transaction.connection.execute(_KEEP, row)

    return work


def answer(claim: Claim, order: AgentOrder) -> Work[None]:
    """Keep how many agents the owner has ended for it."""

    def work(transaction: Transaction) -> None:
        engine_rules.must_be_of(claim, order.run_id)
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
