"""The rows of rented resources and of clean-up hooks.

Rules: (1) a resource is saved by run and name, whoever reports it; (2) of several processes that
want to run the hook of one end, one may.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from jackline.flows.records import HookRecord, ResourceRecord, ResourceState
from jackline.flows.store.sqlite.database import Database, Transaction, reads, writes
from jackline.flows.store.sqlite.row_checks import (
    BYTES,
    FLOAT,
    HOOK,
    INTEGER,
    MAYBE_FLOAT,
    RESOURCE,
    TEXT,
    Kinds,
    is_signed,
    signature_of,
    well_formed,
)

# The columns of a record in the order of its fields, and what each holds.
_RESOURCE_COLUMNS: dict[str, Kinds] = {
    **dict.fromkeys(("run_id", "name", "task_id", "release"), TEXT),
    "release_on_park": bool,
    "lease_until": MAYBE_FLOAT,
    "state": ResourceState,
    "taken_at": FLOAT,
    "released_at": MAYBE_FLOAT,
    "tries": INTEGER,
    "trouble": TEXT,
}
_HOOK_COLUMNS: dict[str, Kinds] = {
    **dict.fromkeys(("run_id", "end_id", "hook"), TEXT),
    "told": BYTES,
    "state": TEXT,
    "tries": INTEGER,
    "trouble": TEXT,
    "at": FLOAT,
}
_RESOURCES = f"""SELECT {", ".join(_RESOURCE_COLUMNS)}, {is_signed("resources", RESOURCE)}
    FROM resources"""  # noqa: S608 -- names from here
_SAVE_RESOURCE = f"""INSERT OR REPLACE INTO resources ({", ".join(_RESOURCE_COLUMNS)})
    VALUES ({", ".join("?" * len(_RESOURCE_COLUMNS))})"""  # noqa: S608
_SIGN_RESOURCE = f"""UPDATE resources SET signature = CASE WHEN ? THEN {signature_of(RESOURCE)} END
    WHERE run_id = ? AND name = ?"""  # noqa: S608
_HOOKS = f"SELECT {', '.join(_HOOK_COLUMNS)}, {is_signed('hooks', HOOK)} FROM hooks"  # noqa: S608
_SAVE_HOOK = f"""INSERT OR REPLACE INTO hooks ({", ".join(_HOOK_COLUMNS)})
    VALUES ({", ".join("?" * len(_HOOK_COLUMNS))})"""  # noqa: S608
_SIGN_HOOK = f"""UPDATE hooks SET signature = CASE WHEN ? THEN {signature_of(HOOK)} END
    WHERE run_id = ? AND end_id = ? AND hook = ?"""  # noqa: S608
_THIS_HOOK = "run_id = ? AND end_id = ? AND hook = ?"
_OWING = f"""SELECT DISTINCT run_id FROM hooks
    WHERE state <> 'done' AND {is_signed("hooks", HOOK)} ORDER BY run_id"""  # noqa: S608


class CleanupRows(Database):
    """Resources and hooks."""

    @writes
    def save_resource(self, transaction: Transaction, resource: ResourceRecord) -> None:
        """Save a resource's state, by run and name."""
        db = transaction.connection
        db.execute(_SAVE_RESOURCE, [getattr(resource, name) for name in _RESOURCE_COLUMNS])
        db.execute(_SIGN_RESOURCE, (resource.trusted, resource.run_id, resource.name))

    @reads
    def resources(
        self, db: sqlite3.Connection, *, held_only: bool = True
    ) -> Sequence[ResourceRecord]:
        """What was rented, the oldest first."""
        return found_resources(
            db,
            "NOT ? OR state <> ? ORDER BY taken_at, run_id, name",
            (held_only, ResourceState.RELEASED),
        )

    @writes
    def begin_hook(
        self, transaction: Transaction, hook: HookRecord, *, again: bool = False
    ) -> bool:
        """Mark a hook as running; False when it is not to be run."""
        db, name = transaction.connection, (hook.run_id, hook.end_id, hook.hook)
        saved = next(iter(found_hooks(db, _THIS_HOOK, name)), None)
        tries = 0
        if saved is not None:
            tries, begun = saved.tries, saved.state != "due"
            # Of several callers that saw the same number of tries, one may begin it again.
            if begun and not (again and saved.state != "done" and saved.tries == hook.tries):
                return False
        _save_hook(db, replace(hook, state="running", tries=tries + 1))
        return True

    @writes
    def end_hook(self, transaction: Transaction, hook: HookRecord) -> None:
        """Save how a hook ended."""
        db, name = transaction.connection, (hook.run_id, hook.end_id, hook.hook)
        saved = next(iter(found_hooks(db, _THIS_HOOK, name)), None)
        _save_hook(db, replace(hook, tries=hook.tries if saved is None else saved.tries))

    @reads
    def hooks(self, db: sqlite3.Connection, run_id: str) -> Sequence[HookRecord]:
        """All hooks of a run, the oldest first."""
        return found_hooks(db, "run_id = ? ORDER BY at, end_id, hook", (run_id,))

    @reads
    def owing_hooks(self, db: sqlite3.Connection) -> Sequence[str]:
        """The ids of the runs with a hook of ours that is not done."""
        return [str(run_id) for (run_id,) in db.execute(_OWING).fetchall()]


def found_resources(
    db: sqlite3.Connection, where: str, values: Sequence[object]
) -> list[ResourceRecord]:
    """The resources for which this condition holds."""
    rows = db.execute(f"{_RESOURCES} WHERE {where}", values).fetchall()
    return [ResourceRecord(*well_formed(row, (*_RESOURCE_COLUMNS.values(), bool))) for row in rows]


def found_hooks(db: sqlite3.Connection, where: str, values: Sequence[object]) -> list[HookRecord]:
    """The hooks for which this condition holds."""
    rows = db.execute(f"{_HOOKS} WHERE {where}", values).fetchall()
    return [HookRecord(*well_formed(row, (*_HOOK_COLUMNS.values(), bool))) for row in rows]


def _save_hook(db: sqlite3.Connection, hook: HookRecord) -> None:
    row = (hook.run_id, hook.end_id, hook.hook, hook.outcome, hook.state, hook.tries)
    db.execute(_SAVE_HOOK, (*row, hook.trouble, hook.at))
    db.execute(_SIGN_HOOK, (hook.trusted, hook.run_id, hook.end_id, hook.hook))
