"""Save runs in one SQLite file that any number of processes of one machine share, or in memory.

Rules: (1) a write is on the disk when it returns: WAL with `synchronous=FULL`; (2) writes that
wait at the same time share one transaction and one sync; (3) the event loop never waits for the
disk. The contract is `RunStore` (../run_store.py), beside what all stores decide alike.
"""

from jackline.flows.store.sqlite.run_rows import SqliteRunStore as SqliteRunStore
