"""The numbers that the journal runs by, each with its reason.

Laws: (1) frozen; (2) times are in seconds, sizes in bytes, ages in days.
Not here: reading them from files and flags (config/).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How long records are kept, and how they get to the disk."""

    keep_days: float = 30.0
    keep_bytes: int = 512 * 1024 * 1024
    # What a killed process may lose; one commit then carries all that came meanwhile.
    flush_seconds: float = 0.02
    # Small enough that a commit, and the wait of another program for it, stays in milliseconds.
    commit_records: int = 500
    # For each kind of record: calls in a storm must not push out the changes of lanes. About 1 KB
    # each while the disk is in trouble.
    waiting_records: int = 50_000
    # How long another program's lock is waited for before it counts as trouble.
    lock_seconds: float = 0.25
    retry_first: float = 0.25
    retry_longest: float = 30.0
    # How often the age and size of what is kept are looked at, and how much one bite removes.
    sweep_seconds: float = 60.0
    sweep_records: int = 500
    # `close` gives up on a disk that does not answer after this.
    close_seconds: float = 2.0
