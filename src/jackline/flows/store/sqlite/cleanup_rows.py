"""The rows of rented resources and of clean-up hooks.

Rules: (1) a resource is saved by run and name, whoever reports it; (2) of several processes that
want to run the hook of one end, one may.
Not here: running hooks and releasing resources (flows/cleanup/).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jackline.flows.records import HookRecord, ResourceRecord, ResourceState
from jackline.flows.store import store_rules
from jackline.flows.store.sqlite import row_checks
from jackline.flows.store.sqlite.row_checks import (
    BYTES,
    FLOAT,
    INTEGER,
    MAYBE_FLOAT,
    TEXT,
    member,
    well_formed,
)
from jackline.flows.store.sqlite.threads import Transaction, Work

_RESOURCES = f"""SELECT run_id, name, task_id, release, release_on_park, lease_until, state,
    taken_at, released_at, tries, trouble, {row_checks.holds("resources", row_checks.RESOURCE)}
    FROM resources"""  # noqa: S608
_RESOURCE_KINDS = (
    *(TEXT, TEXT, TEXT, TEXT, INTEGER, MAYBE_FLOAT, TEXT, FLOAT, MAYBE_FLOAT, INTEGER, TEXT),
    INTEGER,
)
_SIGN_RESOURCE = f"""UPDATE resources
    SET signature = CASE WHEN ? THEN {row_checks.make(row_checks.RESOURCE)} END
    WHERE run_id = ? AND name = ?"""  # noqa: S608
_HOOKS = f"""SELECT run_id, end_id, hook, told, state, tries, trouble, at,
    {row_checks.holds("hooks", row_checks.HOOK)} FROM hooks"""  # noqa: S608
_HOOK_KINDS = (TEXT, TEXT, TEXT, BYTES, TEXT, INTEGER, TEXT, FLOAT, INTEGER)
_SIGN_HOOK = f"""UPDATE hooks
    SET signature = CASE WHEN ? THEN {row_checks.make(row_checks.HOOK)} END
    WHERE run_id = ? AND end_id = ? AND hook = ?"""  # noqa: S608
_OWING = f"""SELECT DISTINCT run_id FROM hooks
    WHERE state <> 'done' AND {row_checks.holds("hooks", row_checks.HOOK)} ORDER BY run_id"""  # noqa: S608
_KEEP_HOOK = """INSERT OR REPLACE INTO hooks
    (run_id, end_id, hook, told, state, tries, trouble, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""


def keep_resource(resource: ResourceRecord) -> Work[None]:
    """Keep a resource's standing."""

    def work(transaction: Transaction) -> None:
        transaction.connection.execute(
            """INSERT OR REPLACE INTO resources (run_id, name, task_id, release, release_on_park,
            lease_until, state, taken_at, released_at, tries, trouble)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                *(resource.run_id, resource.name, resource.task_id, resource.release),
                *(resource.release_on_park, resource.lease_until, resource.state),
                *(resource.taken_at, resource.released_at, resource.tries, resource.trouble),
            ),
        )
        transaction.connection.execute(
            _SIGN_RESOURCE, (resource.trusted, resource.run_id, resource.name)
        )

    return work


def resources(*, held_only: bool) -> Callable[[sqlite3.Connection], list[ResourceRecord]]:
    """What was rented, the oldest first."""

    def look(connection: sqlite3.Connection) -> list[ResourceRecord]:
        rows = connection.execute(
            f"{_RESOURCES} WHERE NOT ? OR state <> ? ORDER BY taken_at, run_id, name",
            (held_only, ResourceState.RELEASED),
        ).fetchall()
        return [_resource(*row) for row in rows]

    return look


def held_by(connection: sqlite3.Connection, run_id: str) -> list[ResourceRecord]:
    """What this run has not given back."""
    rows = connection.execute(
        f"{_RESOURCES} WHERE run_id = ? AND state <> ?", (run_id, ResourceState.RELEASED)
    ).fetchall()
    return [_resource(*row) for row in rows]


def owed_by(connection: sqlite3.Connection, run_id: str) -> list[HookRecord]:
    """Which hooks of ours this run has not done."""
    rows = hooks(run_id)(connection)
    return [row for row in rows if row.trusted and row.state != "done"]


def begin_hook(hook: HookRecord, *, again: bool) -> Work[bool]:
    """Mark a hook as running, if it is to run."""

    def work(transaction: Transaction) -> bool:
        kept = _hook(transaction.connection, hook)
        if not store_rules.may_begin_hook(kept, hook, again=again):
            return False
        tries = 0 if kept is None else kept.tries
        _keep(transaction.connection, replace(hook, state="running", tries=tries + 1))
        return True

    return work


def end_hook(hook: HookRecord) -> Work[None]:
    """Keep how a hook ended."""

    def work(transaction: Transaction) -> None:
        kept = _hook(transaction.connection, hook)
        tries = hook.tries if kept is None else kept.tries
        _keep(transaction.connection, replace(hook, tries=tries))

    return work


def hooks(run_id: str) -> Callable[[sqlite3.Connection], list[HookRecord]]:
    """All hooks of a run, the oldest first."""

    def look(connection: sqlite3.Connection) -> list[HookRecord]:
        rows = connection.execute(
            f"{_HOOKS} WHERE run_id = ? ORDER BY at, end_id, hook", (run_id,)
        ).fetchall()
        return [_hook_record(*row) for row in rows]

    return look


def owing_hooks(connection: sqlite3.Connection) -> list[str]:
    """The runs with a hook of ours that is not done."""
    rows = connection.execute(_OWING).fetchall()
    return [str(run_id) for (run_id,) in rows]


def _hook(connection: sqlite3.Connection, hook: HookRecord) -> HookRecord | None:
    row = connection.execute(
        f"{_HOOKS} WHERE run_id = ? AND end_id = ? AND hook = ?",
        (hook.run_id, hook.end_id, hook.hook),
    ).fetchone()
    return None if row is None else _hook_record(*row)


def _hook_record(*row: Any) -> HookRecord:
    hook = HookRecord(*well_formed(row, _HOOK_KINDS))
    return replace(hook, trusted=bool(hook.trusted))


def _keep(connection: sqlite3.Connection, hook: HookRecord) -> None:
    connection.execute(
        _KEEP_HOOK,
        (
            *(hook.run_id, hook.end_id, hook.hook, hook.told, hook.state),
            *(hook.tries, hook.trouble, hook.at),
        ),
    )
    connection.execute(_SIGN_HOOK, (hook.trusted, hook.run_id, hook.end_id, hook.hook))


def _resource(*row: Any) -> ResourceRecord:
    kept = ResourceRecord(*well_formed(row, _RESOURCE_KINDS))  # columns in the fields' order
    return replace(
        kept,
        state=member(ResourceState, kept.state),
        release_on_park=bool(kept.release_on_park),
        trusted=bool(kept.trusted),
    )
