"""Forget the oldest records, by age and by size, a small bite at a time.

Laws: (1) one bite is one short transaction, so that records do not wait for it; (2) all tables
forget up to the same moment when space is short; (3) freed space goes back to the system.
Not here: when bites are taken, and which time is believed (writer.py).
"""

from __future__ import annotations

import sqlite3

from jackline.journal.records import GROWING, Table
from jackline.journal.settings import JournalSettings

DAY = 86_400.0
# Freed pages are used again by the next records; only more than this share is given back.
FREE_SHARE = 8
PAGES_AT_ONCE = 256


def bite(connection: sqlite3.Connection, settings: JournalSettings, now: float) -> bool:
    """Forget some of what has outlived its time or has no room; whether there may be more to do."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        more = _forget(connection, now - settings.keep_days * DAY, settings.sweep_records)
        if _used_bytes(connection) > settings.keep_bytes:
            more = _forget_for_room(connection, settings.sweep_records) or more
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return _give_back(connection, settings.keep_bytes) or more


def _forget(connection: sqlite3.Connection, before: float, limit: int) -> bool:
    removed = [
        connection.execute(
            f"DELETE FROM {table.name} WHERE rowid IN"  # noqa: S608 -- a name from records.py
            f" (SELECT rowid FROM {table.name} WHERE at < ? ORDER BY at LIMIT ?)",
            (before, limit),
        ).rowcount
        for table in GROWING
    ]
    return max(removed) == limit


def _forget_for_room(connection: sqlite3.Connection, limit: int) -> bool:
    ends = [end for table in GROWING if (end := _end_of_bite(connection, table, limit)) is not None]
    if not ends:
        return False
    _forget(connection, min(ends), limit)
    return True


def _end_of_bite(connection: sqlite3.Connection, table: Table, limit: int) -> float | None:
    row = connection.execute(
        f"SELECT at FROM {table.name} ORDER BY at LIMIT 1 OFFSET ?",  # noqa: S608
        (limit,),
    ).fetchone()
    return None if row is None else float(row[0])


def _give_back(connection: sqlite3.Connection, keep_bytes: int) -> bool:
    pages, free = _number(connection, "page_count"), _number(connection, "freelist_count")
    crowded = free > 0 and pages * _number(connection, "page_size") > keep_bytes
    if not crowded and free <= max(PAGES_AT_ONCE, pages // FREE_SHARE):
        return False
    # The pragma works page by page as its rows are asked for.
    connection.execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()
    return _number(connection, "freelist_count") < free


def _used_bytes(connection: sqlite3.Connection) -> int:
    used = _number(connection, "page_count") - _number(connection, "freelist_count")
    return used * _number(connection, "page_size")


def newest(connection: sqlite3.Connection) -> float | None:
    """The time of the newest record; None when there is none."""
    found = [
        connection.execute(f"SELECT max(at) FROM {table.name}").fetchone()[0]  # noqa: S608
        for table in GROWING
    ]
    return max((float(at) for at in found if at is not None), default=None)


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
