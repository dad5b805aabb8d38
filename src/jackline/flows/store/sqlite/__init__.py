"""Save runs in one SQLite file that any number of processes of one machine share.

Rules: (1) a write is on the disk when it returns: WAL with `synchronous=FULL`; (2) writes that
wait at the same time share one transaction and one sync; (3) the event loop never waits for the
disk.
Not here: the contract (../run_store.py) and what all stores decide alike (../store_rules.py).
"""

from jackline.flows.store.sqlite.store import SqliteRunStore

__all__ = ["SqliteRunStore"]
