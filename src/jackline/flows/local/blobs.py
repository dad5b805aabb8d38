"""Keep long values once, under the hash of what they hold.

Laws: (1) what is longer than `INLINE_BYTES` lies in `blobs`, written in the same transaction as
the row that names it; (2) equal values lie there once, whoever names them; (3) one that no row
names any more is dropped with the change that dropped its last name.
Not here: which fields may be long (their tables).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from typing import TypeAlias

INLINE_BYTES = 64 * 1024

# What goes into a field's own column, and what into the column that names a blob.
Placed: TypeAlias = tuple[bytes | None, bytes | None]

_NAMED = " OR ".join(
    f"EXISTS (SELECT 1 FROM {table} WHERE {column} = blobs.sha)"  # noqa: S608 -- names from here
    for table, column in (
        ("calls", "value_blob"),
        ("calls", "outcome_blob"),
        ("entries", "data_blob"),
        ("runs", "outcome_blob"),
    )
)
_DROP = f"DELETE FROM blobs WHERE sha = ? AND NOT ({_NAMED})"  # noqa: S608 -- as above


def place(connection: sqlite3.Connection, data: bytes | None) -> Placed:
    """Where these bytes go; long ones are kept now, unless they are already."""
    if data is None or len(data) <= INLINE_BYTES:
        return data, None
    sha = hashlib.sha256(data).digest()
    connection.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (sha, data))
    return None, sha


def drop_unnamed(connection: sqlite3.Connection, shas: Iterable[bytes | None]) -> None:
    """Drop those of the blobs that no row names any more."""
    connection.executemany(_DROP, {(sha,) for sha in shas if sha is not None})
