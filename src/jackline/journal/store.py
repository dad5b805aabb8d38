"""Write and read the journal's file: its tables, batches of records, deletion of old ones, rows.

WAL with `synchronous=NORMAL`: a commit is handed to the operating system and not to the disk. A
killed process loses nothing that was committed; a power cut may lose the commits since the last
checkpoint, but never leaves half a record or a damaged file.

Rules: (1) a column is a field of the event, in the same order and with the same name, and a lane is
three columns: nothing else can get into the journal, and a row that is read is equal to the event
that was written; (2) a step of `MIGRATIONS` is never changed once released; (3) a batch is written
whole or not at all; a value that SQLite cannot take costs its own record only; (4) old records are
deleted by age and by size, in short transactions, and freed space is returned to the system; (5)
the calls of a deleted run are overwritten; (6) a reader writes nothing, also while a gateway
writes; every fault of the file becomes a `JournalError` that says what to do; rows are fetched
before they are returned, so that no reader blocks the file.
"""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from itertools import chain
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias, cast

from jackline.dialects import TokenUsage
from jackline.errors import JournalError
from jackline.events import AttemptFailed, CallEnded, Event, LaneChanged, LanesLearned, ServiceNoted
from jackline.journal.sqlite_file import (
    FORBIDDEN,
    Connect,
    VersionedFile,
    cause_at,
    cause_of,
    check_private,
    check_rollback_journal,
    companions,
    connect,
    harden_connection,
    identity,
    make_private,
)
from jackline.lane_id import LaneId
from jackline.private_files import NotPrivateError
from jackline.settings import Form, setting

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How long records are stored, and how they are written to the disk."""

    keep: float = setting(
        30 * DAY, "Older records are deleted.", Form.DURATION, least=3600, most=3660 * DAY
    )
    size: int = setting(
        512 * 1024 * 1024, "The oldest records are deleted when there is more.", Form.SIZE
    )
    # What a killed process may lose; one commit then has all records of that time.
    flush_seconds: float = 0.02
    # Small enough that a commit, and the wait of another program for it, stays in milliseconds.
    commit_records: int = 500
    # For each kind of record: many calls must not push out the changes of lanes. About 1 KB each
    # while the disk fails.
    waiting_records: int = 50_000
    # How long to wait for another program's lock before it counts as a failure.
    lock_seconds: float = 0.25
    retry_first: float = 0.25
    retry_longest: float = 30.0
    # How often age and size are checked, and how many records one transaction deletes.
    sweep_seconds: float = 60.0
    sweep_records: int = 500
    # `close` gives up on a disk that does not answer after this.
    close_seconds: float = 2.0


# Each step migrates from the version before it. Indexes are few, since every one slows down every
# call: time for ranges and retention, the call for its attempts.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE calls (
            at REAL NOT NULL, call TEXT NOT NULL, outcome TEXT NOT NULL, lane TEXT NOT NULL,
            model TEXT NOT NULL, session TEXT, agent TEXT, parent TEXT, tag TEXT,
            stream INTEGER NOT NULL, status INTEGER, attempts INTEGER NOT NULL,
            waited REAL NOT NULL, took REAL NOT NULL, request_id TEXT,
            input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
            cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL)""",
        "CREATE INDEX calls_at ON calls (at)",
        """CREATE TABLE attempts (
            at REAL NOT NULL, call TEXT NOT NULL, lane TEXT NOT NULL, kind TEXT NOT NULL, sub TEXT,
            status INTEGER, request_id TEXT, took REAL NOT NULL, resets_at REAL,
            why TEXT NOT NULL)""",
        "CREATE INDEX attempts_at ON attempts (at)",
        "CREATE INDEX attempts_call ON attempts (call)",
        """CREATE TABLE lane_changes (
            at REAL NOT NULL, lane TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,
            until REAL)""",
        "CREATE INDEX lane_changes_at ON lane_changes (at)",
        """CREATE TABLE lane_memory (
            only INTEGER PRIMARY KEY CHECK (only = 1), at REAL NOT NULL, memory BLOB NOT NULL)""",
        "CREATE TABLE notes (at REAL NOT NULL, what TEXT NOT NULL, detail TEXT NOT NULL)",
        "CREATE INDEX notes_at ON notes (at)",
    ),
    (
        "ALTER TABLE calls ADD COLUMN wasted_input_tokens INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE calls ADD COLUMN wasted_output_tokens INTEGER NOT NULL DEFAULT 0",
    ),
    ("ALTER TABLE calls ADD COLUMN cache_write_1h_tokens INTEGER NOT NULL DEFAULT 0",),
    # `upstream/model#account` becomes three columns; a call without a lane has none of them.
    tuple(
        statement.format(table=table)
        for table in ("calls", "attempts", "lane_changes")
        for statement in (
            "ALTER TABLE {table} RENAME COLUMN lane TO lane_upstream",
            "ALTER TABLE {table} ADD COLUMN lane_model TEXT NOT NULL DEFAULT ''",
            "ALTER TABLE {table} ADD COLUMN lane_account TEXT NOT NULL DEFAULT ''",
            # Up to the last `#` is what is left when all other characters are trimmed at the end.
            """UPDATE {table} SET lane_account = substr(lane_upstream,
                length(rtrim(lane_upstream, replace(lane_upstream, '#', ''))) + 1),
                lane_upstream = substr(lane_upstream, 1,
                length(rtrim(lane_upstream, replace(lane_upstream, '#', ''))) - 1)
                WHERE instr(lane_upstream, '#')""",
            """UPDATE {table} SET lane_model = substr(lane_upstream, instr(lane_upstream, '/') + 1),
                lane_upstream = substr(lane_upstream, 1, instr(lane_upstream, '/') - 1)
                WHERE instr(lane_upstream, '/')""",
        )
    ),
    # Outcomes of calls and states of lanes by their present names.
    (
        "UPDATE calls SET outcome = 'retry_later' WHERE outcome = 'come_back'",
        "UPDATE calls SET outcome = 'client_left' WHERE outcome = 'left'",
        "UPDATE lane_changes SET state = 'throttled' WHERE state = 'limited'",
        "UPDATE lane_changes SET state = 'down' WHERE state = 'broken'",
        "UPDATE lane_changes SET state = 'recovering' WHERE state = 'probing'",
    ),
)
# The mark is "JKLN".
FILE = VersionedFile(application=0x4A4B4C4E, steps=MIGRATIONS, title="the journal")


Row: TypeAlias = tuple[Any, ...]
ToRow: TypeAlias = Callable[[Event], Row]

# One statement for many rows: the interpreter's lock is released once for all of them instead of
# once for each. 32 rows of 24 columns are less than the 999 variables of old SQLite.
ROWS_AT_ONCE = (32, 16, 8, 4, 2, 1)
_LANE_COLUMNS = tuple(f"lane_{field}" for field in LaneId._fields)
_NO_LANE = ("", "", "")


class EventTable:
    """The statements for one kind of event."""

    def __init__(self, name: str, kind: type[Event], *, only_latest: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.only_latest = only_latest
        fields = tuple(inspect.signature(kind).parameters)
        # Calls, by far the most, are tuples of their fields already.
        self._values = cast(ToRow, tuple if issubclass(kind, tuple) else attrgetter(*fields))
        self._lane = fields.index("lane") if "lane" in fields else None
        self.columns = fields
        if self._lane is not None:
            self.columns = (*fields[: self._lane], *_LANE_COLUMNS, *fields[self._lane + 1 :])
        listed = ", ".join(self.columns)
        marks = f"({', '.join('?' * len(self.columns))})"
        one = f"INSERT INTO {name} ({listed}) VALUES {marks}"  # noqa: S608 -- names from this file
        if only_latest:
            marks = marks.replace("(", "(1, ")
            one = f"INSERT OR REPLACE INTO {name} (only, {listed}) VALUES {marks}"  # noqa: S608
        # By the number of rows.
        self.insert = {rows: one + f", {marks}" * (rows - 1) for rows in ROWS_AT_ONCE}
        self.select = f"SELECT {listed} FROM {name}"  # noqa: S608 -- names from this file only

    def row(self, event: Event) -> Row:
        """The event's values in the order of the columns."""
        values, lane = self._values(event), self._lane
        if lane is None:
            return values
        return values[:lane] + (values[lane] or _NO_LANE) + values[lane + 1 :]

    def event(self, row: Row) -> Any:
        """The event that a row was made of."""
        lane, kind = self._lane, cast(Callable[..., Event], self.kind)
        if lane is None:
            return kind(*row)
        after = lane + len(_LANE_COLUMNS)
        found = LaneId(*row[lane:after]) if row[lane] else None
        return kind(*row[:lane], found, *row[after:])


CALLS = EventTable("calls", CallEnded)
ATTEMPTS = EventTable("attempts", AttemptFailed)
LANE_CHANGES = EventTable("lane_changes", LaneChanged)
LANE_MEMORY = EventTable("lane_memory", LanesLearned, only_latest=True)
NOTES = EventTable("notes", ServiceNoted)

TABLES = (CALLS, ATTEMPTS, LANE_CHANGES, LANE_MEMORY, NOTES)
# Those from which old records are deleted.
GROWING = (CALLS, ATTEMPTS, LANE_CHANGES, NOTES)
# The time of the newest record; no value when there is none.
_EACH = " UNION ALL ".join(f"SELECT max(at) AS at FROM {table.name}" for table in GROWING)  # noqa: S608
NEWEST = f"SELECT max(at) FROM ({_EACH})"  # noqa: S608 -- names from this file only

Batch: TypeAlias = Mapping[EventTable, Sequence[Event]]

# Freed pages are used again by the next records; only more than this share is returned.
_FREE_SHARE = 8
_PAGES_AT_ONCE = 256
# Numbers beyond 64 bits, text that is no Unicode, a value too long, missing or of an unknown type.
_UNSTORABLE = (
    OverflowError,
    UnicodeEncodeError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
_LOG_BYTES = 16 * 1024 * 1024
_LOCK_SECONDS = 15.0


class JournalStore:
    """The open journal file; for one thread."""

    def __init__(self, path: Path, settings: JournalSettings, connect: Connect = connect) -> None:
        self._path = path
        self._settings = settings
        make_private(path)
        self._connection = connect(path, settings.lock_seconds)
        try:
            # Records have no secrets, so that overwriting what is deleted would be wasted work.
            self._uses_log = FILE.prepare(
                self._connection, synchronous="NORMAL", log_bytes=_LOG_BYTES, overwrite=False
            )
        except BaseException:
            self._connection.close()
            raise
        self._log = companions(path)[0]
        self._identity = identity(path)
        self._log_identity = identity(self._log)

    def write(self, batch: Batch) -> int:
        """Commit the batch; returns the number of records that cannot be stored at all."""
        try:
            return self._commit(batch, self._insert)
        except _UNSTORABLE:
            return self._commit(batch, self._insert_one_by_one)

    def sweep(self, now: float) -> bool:
        """Delete some records that are too old or too many; returns whether there may be more."""
        settings, run = self._settings, self._connection.execute
        limit = settings.sweep_records
        run("BEGIN IMMEDIATE")
        try:
            more = self._delete_before(now - settings.keep)
            used = self._pragma("page_count") - self._pragma("freelist_count")
            if used * self._pragma("page_size") > settings.size:
                query = "SELECT at FROM {} ORDER BY at LIMIT 1 OFFSET ?"
                rows = [run(query.format(table.name), (limit,)).fetchone() for table in GROWING]
                times = [row[0] for row in rows if row is not None]
                if times:
                    self._delete_before(min(times))
                    more = True
            run("COMMIT")
        finally:
            if self._connection.in_transaction:
                run("ROLLBACK")
        return self._shrink() or more

    def newest(self) -> float | None:
        """The time of the newest record; None when there is none."""
        (newest,) = self._connection.execute(NEWEST).fetchone()
        return None if newest is None else float(newest)

    def is_gone(self) -> bool:
        """Whether another file, or none, has the name of the open one."""
        return self._identity is None or identity(self._path) != self._identity

    def has_lost_log(self) -> bool:
        """Whether the log beside the file is no longer the one that is written here.

        `rm journal.db*` takes several moments, in which a new file may have been created already.
        """
        if not self._uses_log:
            return False
        return self._log_identity is None or identity(self._log) != self._log_identity

    def rescue(self) -> None:
        """Copy what is only in the log into the file."""
        self._connection.execute("PRAGMA wal_checkpoint").fetchall()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _commit(self, batch: Batch, insert: Callable[[EventTable, Sequence[Event]], int]) -> int:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            unstored = sum(insert(table, events) for table, events in batch.items())
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        return unstored

    def _insert(self, table: EventTable, events: Sequence[Event]) -> int:
        start = 0
        for rows in ROWS_AT_ONCE:
            while len(events) - start >= rows:
                chunk = events[start : start + rows]
                values = list(chain.from_iterable(map(table.row, chunk)))
                self._connection.execute(table.insert[rows], values)
                start += rows
        return 0

    def _insert_one_by_one(self, table: EventTable, events: Sequence[Event]) -> int:
        unstored = 0
        for event in events:
            try:
                self._connection.execute(table.insert[1], table.row(event))
            except _UNSTORABLE:
                unstored += 1
        return unstored

    def _delete_before(self, time: float) -> bool:
        limit = self._settings.sweep_records
        deleted = [
            self._connection.execute(
                f"DELETE FROM {table.name} WHERE rowid IN"  # noqa: S608 -- a name from this file
                f" (SELECT rowid FROM {table.name} WHERE at < ? ORDER BY at LIMIT ?)",
                (time, limit),
            ).rowcount
            for table in GROWING
        ]
        return max(deleted) == limit

    def _shrink(self) -> bool:
        """Return some free pages to the system, if there are many; whether that did anything."""
        pages, free = self._pragma("page_count"), self._pragma("freelist_count")
        is_too_large = free > 0 and pages * self._pragma("page_size") > self._settings.size
        if not is_too_large and free <= max(_PAGES_AT_ONCE, pages // _FREE_SHARE):
            return False
        # The pragma works page by page as its rows are fetched.
        self._connection.execute(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})").fetchall()
        return self._pragma("freelist_count") < free

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])


def forget_runs(path: Path, run_ids: Collection[str]) -> int | None:
    """Delete the calls of these runs; returns how many, or None when nothing could be written."""
    if not path.is_file():
        return 0
    check_rollback_journal(path)
    deleted = 0
    try:
        with closing(connect(path, _LOCK_SECONDS)) as connection:
            run = connection.execute
            harden_connection(connection)
            if FILE.version_of(connection) == 0:
                return 0
            run("PRAGMA secure_delete = ON").fetchall()
            run("BEGIN IMMEDIATE")
            for run_id in run_ids:
                run(
                    "DELETE FROM attempts WHERE call IN (SELECT call FROM calls WHERE tag = ?)",
                    (run_id,),
                )
                deleted += run("DELETE FROM calls WHERE tag = ?", (run_id,)).rowcount
            run("COMMIT")
            run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error:
        return None
    return deleted


# A call that waited for longer than this was held: a person would have noticed.
_HELD_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of the calls that ended in a period; outcomes as in `CallEnded`."""

    calls: int = 0
    answered: int = 0
    shortened: int = 0
    refused: int = 0
    broken: int = 0
    retry_later: int = 0
    client_left: int = 0
    failed_attempts: int = 0
    held: int = 0
    attempts: int = 0
    waited: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    wasted_input_tokens: int = 0
    wasted_output_tokens: int = 0
    cache_write_1h_tokens: int = 0


class Used(NamedTuple):
    """What the calls of one agent to one model used in a period; tokens as in `CallEnded`."""

    session: str
    agent: str
    model: str
    tag: str
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int

    @property
    def usage(self) -> TokenUsage:
        """The tokens together."""
        return TokenUsage(
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.cache_write_1h_tokens,
        )


class JournalReader:
    """Reads the journal at `path`; `with` or `close` closes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise JournalError(
                f"There is no journal at {path}.",
                hint="Start the gateway with `jackline up`: it creates one.",
            )
        try:
            check_private(path)
            self._connection = connect(path, 2.0, mode="ro", any_thread=True)
        except NotPrivateError as error:
            why = f"The journal at {path} is not read: {cause_of(error)}."
            raise JournalError(why, hint=error.fix) from error
        except (sqlite3.Error, OSError) as error:
            raise self._unreadable(error) from error
        try:
            self._check_version()
        except JournalError:
            self._connection.close()
            raise

    def lane_memory(self) -> tuple[float, bytes] | None:
        """When the lanes' state was last written, and what it was."""
        rows = self._rows(LANE_MEMORY.select)
        return (rows[0][0], rows[0][1]) if rows else None

    def calls(
        self, since: float, until: float, limit: int, session: str | None = None
    ) -> list[CallEnded]:
        """The latest calls that ended in `[since, until)`, the latest first."""
        chosen = "" if session is None else " AND session = ?"
        rows = self._rows(
            f"{CALLS.select} WHERE at >= ? AND at < ?{chosen} ORDER BY at DESC, rowid DESC LIMIT ?",
            (since, until, *(() if session is None else (session,)), limit),
        )
        calls: list[CallEnded] = [CALLS.event(row) for row in rows]
        return [call._replace(stream=bool(call.stream)) for call in calls]

    def used(self, since: float, until: float) -> list[Used]:
        """Calls that used tokens in `[since, until)`, summed up by agent, model and tag."""
        return [Used(*row) for row in self._rows(_USED, (since, until))]

    def totals(self, since: float) -> Totals:
        """Counts of the calls that ended since then."""
        rows = self._rows(_TOTALS, (since, _HELD_AFTER, since))
        return Totals(*rows[0])

    def lane_changes(self, since: float) -> list[LaneChanged]:
        """The changes of lanes since then, in their order."""
        return [LANE_CHANGES.event(row) for row in self._since(LANE_CHANGES.select, since)]

    def notes(self, since: float) -> list[ServiceNoted]:
        """What was noted about the service since then, in its order."""
        return [ServiceNoted(*row) for row in self._since(NOTES.select, since)]

    def newest(self) -> float | None:
        """The time of the newest record; None when there is none."""
        newest = self._rows(NEWEST)[0][0]
        return None if newest is None else float(newest)

    def attempts(self, call: str) -> list[AttemptFailed]:
        """The failed attempts of one call, in their order."""
        rows = self._rows(f"{ATTEMPTS.select} WHERE call = ? ORDER BY at, rowid", (call,))
        return [ATTEMPTS.event(row) for row in rows]

    def failed_attempts(self, since: float, until: float, limit: int) -> list[AttemptFailed]:
        """The latest failed attempts in `[since, until)`, the latest first."""
        rows = self._rows(
            f"{ATTEMPTS.select} WHERE at >= ? AND at < ? ORDER BY at DESC, rowid DESC LIMIT ?",
            (since, until, limit),
        )
        return [ATTEMPTS.event(row) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _since(self, select: str, since: float) -> list[Row]:
        return self._rows(f"{select} WHERE at >= ? ORDER BY at, rowid", (since,))

    def _rows(self, question: str, values: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._connection.execute(question, values).fetchall()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _check_version(self) -> None:
        try:
            harden_connection(self._connection)
            version = FILE.version_of(self._connection)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        if version == 0:
            raise JournalError(
                f"The journal at {self.path} is empty.",
                hint="Start the gateway with `jackline up`: it creates one.",
            )
        if version < FILE.version:
            raise JournalError(
                f"The journal at {self.path} was written by an older Jackline.",
                hint="Start the gateway with `jackline up`: it migrates the journal.",
            )

    def _unreadable(self, error: sqlite3.Error | OSError) -> JournalError:
        cause = cause_at(self.path, error)
        hint = "A running gateway renames a damaged journal itself; else move it away."
        if cause == FORBIDDEN:
            hint = "Give yourself the right to write there: readers of SQLite need it, too."
        return JournalError(f"The journal at {self.path} cannot be read: {cause}.", hint=hint)


_TOKENS = Used._fields[Used._fields.index("input_tokens") :]
_USED = (
    "SELECT coalesce(session, ''), coalesce(agent, ''), model, coalesce(tag, ''), count(*), "  # noqa: S608 -- names from this file only
    + ", ".join(f"sum({name})" for name in _TOKENS)
    + " FROM calls WHERE at >= ? AND at < ? AND lane_upstream != ''"
    + " AND input_tokens + output_tokens + cache_read_tokens + cache_write_tokens > 0"
    + " GROUP BY 1, 2, 3, 4"
)
_NAMES = tuple(field.name for field in fields(Totals))
_OUTCOMES = _NAMES[1 : _NAMES.index("failed_attempts")]
_SUMMED = _NAMES[_NAMES.index("attempts") :]
_TOTALS = (
    "SELECT count(*), "  # noqa: S608 -- names from this file only
    + ", ".join(f"count(*) FILTER (WHERE outcome = '{name}')" for name in _OUTCOMES)
    + ", (SELECT count(*) FROM attempts WHERE at >= ?), count(*) FILTER (WHERE waited > ?), "
    + ", ".join(f"coalesce(sum({name}), 0)" for name in _SUMMED)
    + " FROM calls WHERE at >= ?"
)
