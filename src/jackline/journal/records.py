"""Say which event becomes a row of which table, and back.

Laws: (1) a column is a field of the event, in the same order and under the same name: nothing else
can get into the journal; (2) a row read back is equal to the event that was written.
Not here: the tables' definition over time (schema.py), connections (store.py, reading.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias, cast

from jackline.events import AttemptFailed, CallEnded, Event, LaneChanged, LanesLearned, ServiceNoted

Row: TypeAlias = tuple[Any, ...]
Rowed: TypeAlias = Callable[[Event], Row]

# One statement for many rows: the interpreter's lock is given up and won back once for all of them
# instead of once for each. 32 rows of 21 columns stay under the 999 variables of old SQLite.
ROWS_AT_ONCE = (32, 16, 8, 4, 2, 1)


class Table:
    """The statements for one kind of event."""

    def __init__(self, name: str, kind: type[Event], *, only_latest: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.only_latest = only_latest
        self.columns = tuple(inspect.signature(kind).parameters)
        # Calls, by far the most, are tuples of their fields already.
        is_row = issubclass(kind, tuple)
        self._row = cast(Rowed, tuple if is_row else attrgetter(*self.columns))
        listed = ", ".join(self.columns)
        marks = f"({', '.join('?' * len(self.columns))})"
        if only_latest:
            marks = marks.replace("(", "(1, ")
            listed_for_insert = f"only, {listed}"
        else:
            listed_for_insert = listed
        verb = "INSERT OR REPLACE" if only_latest else "INSERT"
        one = f"{verb} INTO {name} ({listed_for_insert}) VALUES {marks}"
        # By the number of rows.
        self.insert = {rows: one + f", {marks}" * (rows - 1) for rows in ROWS_AT_ONCE}
        self.select = f"SELECT {listed} FROM {name}"  # noqa: S608 -- names from this file only

    def row(self, event: Event) -> Row:
        """The event's values in the order of the columns."""
        return self._row(event)

    def rows_flat(self, events: Sequence[Event]) -> list[Any]:
        """The values of many events one behind the other, as `insert` takes them."""
        return list(chain.from_iterable(map(self._row, events)))


CALLS = Table("calls", CallEnded)
ATTEMPTS = Table("attempts", AttemptFailed)
LANE_CHANGES = Table("lane_changes", LaneChanged)
LANE_MEMORY = Table("lane_memory", LanesLearned, only_latest=True)
NOTES = Table("notes", ServiceNoted)

TABLES = (CALLS, ATTEMPTS, LANE_CHANGES, LANE_MEMORY, NOTES)
# Those that grow, and so have an end.
GROWING = (CALLS, ATTEMPTS, LANE_CHANGES, NOTES)


def call_from(row: Row) -> CallEnded:
    """The event that was written as this row of `calls`."""
    call = CallEnded(*row)
    return call._replace(stream=bool(call.stream))
