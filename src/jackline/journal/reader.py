"""Read the journal, also while a gateway writes to it.

Rules: (1) nothing is ever written; (2) rows are returned as the events they were; (3) every fault
of the file becomes a `JournalError` that says what to do; (4) rows are fetched before they are
returned, so that no reader blocks the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from jackline.dialects import TokenUsage
from jackline.errors import JournalError
from jackline.events import AttemptFailed, CallEnded, LaneChanged, ServiceNoted
from jackline.journal.sqlite_file import (
    FORBIDDEN,
    cause_at,
    cause_of,
    check_private,
    connect,
    harden_connection,
)
from jackline.journal.store import (
    ATTEMPTS,
    CALLS,
    FILE,
    LANE_CHANGES,
    LANE_MEMORY,
    NEWEST,
    NOTES,
    Row,
)
from jackline.private_files import NotPrivateError

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
