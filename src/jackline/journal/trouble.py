"""Say in words why the journal cannot be written, and how it is.

Laws: (1) the words name what a person can change; (2) no words of records appear in them.
Not here: what is done about it (writer.py).
"""

from __future__ import annotations

import errno
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from jackline.clock import SystemClock
from jackline.errors import JournalError
from jackline.private_files import NotPrivateError

Stumble: TypeAlias = sqlite3.Error | OSError | JournalError

FULL = "the disk is full"
FORBIDDEN = "its folder or file may not be written to"
LOCKED = "another program holds it locked"
UNREACHABLE = "it cannot be opened at its place"
FAILING = "the disk reports errors"
DAMAGED = "it is damaged"

_OF_SQLITE = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_READONLY: FORBIDDEN,
    sqlite3.SQLITE_PERM: FORBIDDEN,
    sqlite3.SQLITE_AUTH: FORBIDDEN,
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_CANTOPEN: UNREACHABLE,
    sqlite3.SQLITE_IOERR: FAILING,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
}
_OF_SYSTEM = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EACCES: FORBIDDEN,
    errno.EPERM: FORBIDDEN,
    errno.EROFS: FORBIDDEN,
    errno.ENOTDIR: UNREACHABLE,
    errno.EEXIST: UNREACHABLE,
    errno.EISDIR: UNREACHABLE,
    errno.ENOENT: UNREACHABLE,
    errno.EIO: FAILING,
}


def cause_of(error: Stumble) -> str:
    """The cause as a clause that can follow "the journal is not written: "."""
    if isinstance(error, JournalError):
        return error.message
    if isinstance(error, NotPrivateError):
        return f"{error.filename} {error.problem}"
    if isinstance(error, OSError):
        return _OF_SYSTEM.get(error.errno or 0, f"the system says {error.strerror!r}")
    return _OF_SQLITE.get(_primary(error), f"SQLite says {str(error)!r}")


def is_damage(error: Stumble) -> bool:
    """Whether the file itself is unusable, so that waiting cannot help."""
    return isinstance(error, sqlite3.Error) and cause_of(error) == DAMAGED


def _primary(error: sqlite3.Error) -> int:
    # The low byte is the kind, the rest its variety; errors of Python's own layer have no code.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


@dataclass(frozen=True, slots=True)
class JournalHealth:
    """How recording is going; `problem` is empty while all is well.

    `dropped` counts since the process started, `waiting` is what memory holds now, `since` is when
    the present problem began. `notice` tells what happened to the file earlier, if anything did;
    `gap` tells what is missing in it for good.
    """

    ok: bool
    problem: str
    dropped: int
    waiting: int
    since: float | None
    notice: str = ""
    gap: str = ""


def told(cause: str, lost: int, waiting: int, since: float) -> str:
    """The problem as one clause for `status`."""
    start = clock_time(since)
    if lost and waiting:
        return f"{cause}: {counted(lost)} not kept since {start}, {waiting} wait in memory"
    if lost:
        return f"{cause}: {counted(lost)} not kept since {start}"
    return f"{cause}: {counted(waiting)} waiting in memory since {start}"


def missing(lost: int, last: tuple[float, str] | None) -> str:
    """The gap as one clause for `status`; `last` is when it was last seen to grow, and why."""
    told = f"{counted(lost)} not kept"
    return told if last is None else f"{told}, the last at {clock_time(last[0])} ({last[1]})"


def counted(records: int) -> str:
    """So many records, in words."""
    return "1 record" if records == 1 else f"{records} records"


def clock_time(at: float) -> str:
    """Hour and minute where the host is."""
    return f"{SystemClock().in_host_zone(datetime.fromtimestamp(at, UTC)):%H:%M}"
