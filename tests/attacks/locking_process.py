"""Hold a lock on a SQLite file until standard input ends: what a database browser does."""

from __future__ import annotations

import sqlite3
import sys

if __name__ == "__main__":
    connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
    connection.execute("BEGIN EXCLUSIVE")
    print("locked", flush=True)  # noqa: T201 -- whoever started this waits for it
    sys.stdin.read()
    connection.execute("ROLLBACK")
