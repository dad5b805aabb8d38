"""Count the runs of a store by their state, for whoever watches from outside.

Laws: (1) nothing is written, and without a store nothing is made; (2) no run is named.
Not here: what runs are (runs.py).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from jackline.errors import JournalError
from jackline.flows.local import schema
from jackline.flows.records import RunState
from jackline.journal.files import check_private
from jackline.journal.trouble import cause_of
from jackline.journal.versioned_file import guard

_LOCK_SECONDS = 2.0
_COUNT = "SELECT state, count(*), count(*) FILTER (WHERE wake_at IS NULL) FROM runs GROUP BY state"


def runs_by_state(store: Path) -> dict[RunState, tuple[int, int]]:
    """How many runs are in each state, and how many of them have no time to wake at."""
    if not store.is_file():
        return {}
    try:
        check_private(store)
        address = f"{store.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=_LOCK_SECONDS)) as connection:
            guard(connection)
            schema.FILE.version_of(connection)
            rows = connection.execute(_COUNT).fetchall()
    except (sqlite3.Error, OSError) as error:
        raise JournalError(
            f"The runs at {store} cannot be counted: {cause_of(error)}.",
            next="`jackline ls` says more.",
        ) from error
    known = set(RunState)
    return {RunState(state): (count, timeless) for state, count, timeless in rows if state in known}
