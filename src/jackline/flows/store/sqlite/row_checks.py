"""Check the rows of the store: each value of its column's kind, each record with its signature.

Rules: (1) SQLite puts any kind of value into any column: a file of somebody else, or a damaged
one, must not bring a text where a number is compared; (2) a signature covers every field that
leads to code, a command, a folder or an order, and the store's own id: it fits no other row and
no other store; (3) it is made in the transaction that writes the record; (4) a change of a record
that was not signed leaves it unsigned: only `accept` signs what is there already; (5) the SQL
functions work in our own statements only (`trusted_schema` is off).
Not here: what is done about a record without a signature (../run_store.py).
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import struct
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

from jackline import private_files
from jackline.errors import JournalError

Kinds: TypeAlias = tuple[type, ...] | type[StrEnum] | type[bool]
"""What a column may hold; an enumeration, or `bool` for a number that says yes or no."""

TEXT: Kinds = (str,)
FLOAT: Kinds = (float, int)
MAYBE_FLOAT: Kinds = (float, int, type(None))
INTEGER: Kinds = (int,)
BYTES: Kinds = (bytes,)
MAYBE_BYTES: Kinds = (bytes, type(None))
MAYBE_TEXT: Kinds = (str, type(None))
# Most of these numbers are times, and no calendar goes further.
_FARTHEST = 2.5e11


class MalformedError(ValueError):
    """A row holds a value of another kind than its column."""


def well_formed(row: Sequence[Any], kinds: Sequence[Kinds]) -> Sequence[Any]:
    """The row, as a record has it; MalformedError when a value is not of its column's kind."""
    found: list[Any] = []
    for value, kind in zip(row, kinds, strict=True):
        far = isinstance(value, float) and not abs(value) < _FARTHEST
        stored = kind if isinstance(kind, tuple) else int if kind is bool else str
        if far or not isinstance(value, stored):
            raise MalformedError("a row holds a value of another kind than its column")
        if isinstance(kind, tuple):
            found.append(value)
            continue
        make: Callable[[Any], Any] = kind
        try:
            found.append(make(value))
        except ValueError as error:
            raise MalformedError("a row names a member that its enumeration has not") from error
    return found


_Field: TypeAlias = str | bytes | int | float | None
_STORE_ID = re.compile(r"[0-9a-f]{32}")

# What each signature covers, as SQL sees it: values in this order, so that a column may be renamed.
RUN = (
    "'run', run_id, flow, source, arguments, settings, cwd, forked_from, state, wake_at, confirmed"
)
CALL = """'call', run_id, key, occurrence, kind, label, phase, task_id, state,
    coalesce(value, (SELECT data FROM blobs WHERE sha = value_blob)),
    coalesce(calls.outcome, (SELECT data FROM blobs WHERE sha = outcome_blob)),
    attempts, terminated_by"""
ENTRY = """'entry', (SELECT task_id FROM agent_logs WHERE id = agent_log),
    (SELECT run_id FROM agent_logs WHERE id = agent_log), number, kind,
    coalesce(entries.data, (SELECT blobs.data FROM blobs WHERE sha = data_blob))"""
RESOURCE = "'resource', run_id, name, task_id, release, release_on_park, lease_until, state"
HOOK = "'hook', run_id, end_id, hook, outcome, state"


def signature_of(fields: str) -> str:
    """SQL: the signature of the row."""
    return f"jackline_signature({fields})"


def is_signed(table: str, fields: str) -> str:
    """SQL: 1 when the row of this table has its right signature, else 0."""
    return f"jackline_is_signed({table}.signature, {fields})"


def prepare(connection: sqlite3.Connection, key: bytes | None) -> None:
    """Let the connection sign and verify, with the store's own id and this or our own key."""
    try:
        used = key or private_files.installation_key()
    except private_files.NotPrivateError as error:
        raise JournalError(
            f"The key that signs runs cannot be used: {error.filename} {error.problem}.",
            hint=error.fix,
        ) from error
    except OSError as error:
        raise JournalError(
            f"The key that signs runs cannot be saved in {private_files.key_folder()}: "
            f"{error.strerror}.",
            hint="Make that folder writable for yourself (XDG_STATE_HOME moves it).",
        ) from error
    rows = connection.execute("SELECT store_id FROM store LIMIT 2").fetchall()
    found = rows[0][0] if len(rows) == 1 else None
    if not isinstance(found, str) or not _STORE_ID.fullmatch(found):
        raise JournalError(
            "The store of runs was not made by Jackline: it has no id of its own.",
            hint="Find out where it came from, or choose another state folder with --state.",
        )
    store = found.encode()

    def sign(*fields: _Field) -> str:
        return private_files.signature(used, "flows", store, *map(_encoded, fields))

    def is_signed(found: _Field, *fields: _Field) -> bool:
        if not isinstance(found, str):
            return False
        return private_files.is_signature(used, found, "flows", store, *map(_encoded, fields))

    connection.create_function("jackline_signature", -1, sign)
    connection.create_function("jackline_is_signed", -1, is_signed)


# The rows of one run, in an order that does not depend on the file.
OF_RUN = (
    ("runs", RUN, "run_id = ?1", "run_id"),
    ("calls", CALL, "run_id = ?1", "key, occurrence"),
    (
        "entries",
        ENTRY,
        "agent_log IN (SELECT id FROM agent_logs WHERE run_id = ?1)",
        "agent_log, number",
    ),
    ("resources", RESOURCE, "run_id = ?1", "name"),
    ("hooks", HOOK, "run_id = ?1", "end_id, hook"),
)


def digest(connection: sqlite3.Connection, run_id: str) -> str:
    """A hash of all that a signature of this run's rows would cover."""
    whole = hashlib.sha256()
    for table, fields, where, order in OF_RUN:
        for row in connection.execute(
            f"SELECT {fields} FROM {table} WHERE {where} ORDER BY {order}",  # noqa: S608 -- ours
            (run_id,),
        ):
            for field in row:
                part = _encoded(field)
                whole.update(b"%d:%b" % (len(part), part))
    return whole.hexdigest()


def change_signed(
    connection: sqlite3.Connection, run_id: str, change: str, parameters: Sequence[_Field]
) -> None:
    """Change columns of a run's row; it is signed afterwards if it was signed before."""
    (signed,) = connection.execute(
        f"SELECT {is_signed('runs', RUN)} FROM runs WHERE run_id = ?",  # noqa: S608
        (run_id,),
    ).fetchone()
    connection.execute(f"UPDATE runs SET {change} WHERE run_id = ?", (*parameters, run_id))  # noqa: S608
    connection.execute(
        f"UPDATE runs SET signature = CASE WHEN ? THEN {signature_of(RUN)} END WHERE run_id = ?",  # noqa: S608
        (signed, run_id),
    )


def _encoded(field: _Field) -> bytes:
    """The field with its kind, so that a text never passes for bytes or a number."""
    if field is None:
        return b"n"
    if isinstance(field, str):
        return b"t" + field.encode("utf-8", "surrogatepass")
    if isinstance(field, bytes):
        return b"b" + field
    if isinstance(field, float):
        return b"f" + struct.pack(">d", field)
    return b"i" + str(field).encode()
