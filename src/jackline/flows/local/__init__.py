"""Keep runs in one SQLite file that any number of processes of one machine share.

Laws: (1) a write is on the disk when it returns: WAL with `synchronous=FULL`; (2) writes that wait
at the same time share one transaction and one sync; (3) the event loop never waits for the disk.
Not here: the contract (../engine.py) and what all engines decide alike (../engine_rules.py).
"""

from jackline.flows.local.engine import LocalEngine

__all__ = ["LocalEngine"]
