"""The rows of runs: state, owner, forks, deletion, orders to agents, rented resources and hooks.

Rules: (1) only `create`, `fork` and `claim` give a run to an owner, with a new epoch; (2) every
refusal comes before the first change; (3) a fork costs nothing twice: long values are shared, and
what was paid stays with the first run; (4) nothing that another run still needs is deleted with a
run, and spending stays counted; (5) of one name there is one order to agents, the latest; only
the run's owner answers it, and an answer to an order that was withdrawn or renewed is dropped; (6)
a resource is saved by run and name, whoever reports it; (7) of several processes that want to run
the hook of one end, one may.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from jackline.clock import CORRECTED
from jackline.errors import BadArgumentError, UsageError
from jackline.flows.records import (
    ENDED,
    AgentOrder,
    HookRecord,
    ResourceRecord,
    ResourceState,
    RunRecord,
    RunState,
)
from jackline.flows.store.run_store import (
    ANSWERS_STOP,
    CANCEL,
    STOP,
    Claim,
    lease_holds,
    must_be_deletable,
    named,
    unknown_run,
)
from jackline.flows.store.sqlite import row_checks, store_file
from jackline.flows.store.sqlite.call_rows import CallRows, drop_logs, drop_unnamed, place
from jackline.flows.store.sqlite.database import Transaction, reads, writes
from jackline.flows.store.sqlite.row_checks import (
    BYTES,
    CALL,
    ENTRY,
    FLOAT,
    HOOK,
    INTEGER,
    MAYBE_BYTES,
    MAYBE_FLOAT,
    MAYBE_TEXT,
    RESOURCE,
    RUN,
    TEXT,
    Kinds,
    change_signed,
    is_signed,
    signature_of,
    well_formed,
)
from jackline.journal.sqlite_file import LOCKED, cause_of

_INSERT = f"""INSERT INTO runs (run_id, flow, source, arguments, settings, cwd, state, created_at,
    updated_at, ended_at, why, wake_at, outcome, outcome_blob, forked_from, owner, lease_until,
    epoch, tokens, cost, confirmed, lease_seconds, stop_request)
    VALUES ({", ".join("?" * 23)})"""  # noqa: S608 -- names from here
_SIGN = f"UPDATE runs SET signature = {signature_of(RUN)} WHERE run_id = ?"  # noqa: S608
_SELECT = f"""SELECT run_id, flow, source, arguments, settings, cwd, state, created_at, updated_at,
    ended_at, why, wake_at, coalesce(runs.outcome, blobs.data), forked_from, owner, lease_until,
    epoch, tokens, cost, confirmed, {is_signed("runs", RUN)}
    FROM runs LEFT JOIN blobs ON blobs.sha = runs.outcome_blob"""  # noqa: S608
_KINDS: tuple[Kinds, ...] = (
    *(TEXT, TEXT, TEXT, BYTES, BYTES, TEXT, RunState, FLOAT, FLOAT, MAYBE_FLOAT, TEXT),
    *(MAYBE_FLOAT, MAYBE_BYTES, MAYBE_TEXT, TEXT, FLOAT, INTEGER, INTEGER, FLOAT),
    *(bool, bool),
)
_COPY_DONE = f"""INSERT INTO calls (run_id, key, occurrence, kind, label, phase, task_id, state,
    value, value_blob, outcome, outcome_blob, attempts, started_at, ended_at, tokens, cost,
    terminated_by, signature)
    SELECT ?, key, occurrence, kind, label, phase, task_id, state, value, value_blob, outcome,
    outcome_blob, attempts, started_at, ended_at, 0, 0, terminated_by,
    CASE WHEN {is_signed("calls", CALL)} THEN 'to be signed' END
    FROM calls WHERE run_id = ? AND state = 'done' ORDER BY id"""  # noqa: S608
_SIGN_COPIES = f"""UPDATE calls SET signature = {signature_of(CALL)}
    WHERE run_id = ? AND signature IS NOT NULL"""  # noqa: S608
_UNTRUSTED_CALLS = f"""SELECT count(*) FROM calls
    WHERE run_id = ? AND NOT {is_signed("calls", CALL)}"""  # noqa: S608
_UNTRUSTED_LINES = f"""SELECT count(*) FROM entries WHERE agent_log IN (
    SELECT agent_logs.id FROM agent_logs JOIN calls ON calls.task_id = agent_logs.task_id
    WHERE calls.run_id = ? AND calls.task_id <> '' AND calls.state <> 'done')
    AND NOT {is_signed("entries", ENTRY)}"""  # noqa: S608
_UNNEEDED_LOGS = """run_id = ? AND NOT EXISTS
    (SELECT 1 FROM calls WHERE calls.task_id = agent_logs.task_id AND calls.task_id <> '')"""
# Sorts behind everything that begins in the same way.
_LAST_CHARACTER = "\U0010ffff"
# What a deletion gives back to the disk at once; the rest is used again by later runs.
_PAGES_GIVEN_BACK = 10_000
# A larger file is not written anew for a deletion: only its free pages are cut off.
_REWRITTEN = 256 * 1024 * 1024


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
    "outcome": BYTES,
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


class SqliteRunStore(CallRows):
    """A `RunStore` over SQLite; see `Database` for its arguments."""

    @writes
    def create(
        self, transaction: Transaction, run: RunRecord, *, owner: str, lease: float
    ) -> Claim:
        """Save a new run, claimed by `owner` for `lease` seconds."""
        return _insert(transaction, run, owner, lease)

    @writes
    def claim(
        self,
        transaction: Transaction,
        run_id: str,
        *,
        owner: str,
        lease: float,
        instead_of: str = "",
    ) -> Claim | None:
        """Take a run over; None while another owner's lease holds, or when it is unknown."""
        row = transaction.connection.execute(
            "SELECT owner, lease_until, lease_seconds, epoch, stop_request FROM runs"
            " WHERE run_id = ?",
            (run_id,),
        ).fetchone()
        if row is None:
            return None
        held_by, until, seconds, epoch, request = row
        free = held_by in ("", owner, instead_of)
        if not free and lease_holds(until, seconds, transaction.now):
            return None
        _redate_spending(transaction)
        request = CANCEL if request == CANCEL else ""
        transaction.connection.execute(
            "UPDATE runs SET owner = ?, lease_until = ?, lease_seconds = ?, epoch = ?,"
            " stop_request = ? WHERE run_id = ?",
            (owner, transaction.now + lease, lease, epoch + 1, request, run_id),
        )
        transaction.owner_changed(run_id)
        return Claim(run_id, owner, epoch + 1)

    @writes
    def renew(self, transaction: Transaction, claim: Claim, *, lease: float) -> None:
        """Hold the run for longer."""
        transaction.must_own(claim)
        transaction.connection.execute(
            "UPDATE runs SET lease_until = ?, lease_seconds = ? WHERE run_id = ?",
            (transaction.now + lease, lease, claim.run_id),
        )

    @writes
    def change(self, transaction: Transaction, claim: Claim, run: RunRecord) -> None:
        """Save the run's new state and hold the lease."""
        _change(transaction, claim, run)

    @writes
    def let_go(self, transaction: Transaction, claim: Claim, run: RunRecord) -> None:
        """Save the run's new state and give up the lease."""
        _change(transaction, claim, run)
        transaction.connection.execute(
            "UPDATE runs SET owner = '', lease_until = 0, "
            "stop_request = CASE WHEN ? THEN '' ELSE stop_request END WHERE run_id = ?",
            (run.state in ANSWERS_STOP, run.run_id),
        )
        transaction.owner_changed(run.run_id)

    @writes
    def allow_waking(self, transaction: Transaction, run_id: str) -> None:
        """A person confirms the next waking of a parked run."""
        run = _must_have(transaction.connection, run_id)
        if run.state is not RunState.PARKED:
            raise UsageError(
                f"Run {run.run_id} is not parked (it is {run.state}).",
                hint="See `jackline ls --parked` for what would wake.",
            )
        change_signed(transaction.connection, run_id, "confirmed = 1", ())

    @writes
    def request_stop(self, transaction: Transaction, run_id: str, how: str) -> None:
        """Save a request to the owner, who may be another process: `stop` or `cancel`."""
        row = transaction.connection.execute(
            "SELECT stop_request, state, owner FROM runs WHERE run_id = ?", (run_id,)
        ).fetchone()
        if row is None:
            raise unknown_run(run_id)
        if how not in (STOP, CANCEL):
            raise BadArgumentError(
                f"A run cannot be requested to {how!r}.", hint="Request `stop` or `cancel`."
            )
        # The stronger one stays.
        request = CANCEL if CANCEL in (row[0], how) else how
        if row[2] or RunState(row[1]) not in ENDED:
            transaction.connection.execute(
                "UPDATE runs SET stop_request = ? WHERE run_id = ?", (request, run_id)
            )

    @reads
    def stop_request(self, db: sqlite3.Connection, run_id: str) -> str:
        """What was requested, or an empty string."""
        row = db.execute("SELECT stop_request FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        return row[0] if row else ""

    @reads
    def run(self, db: sqlite3.Connection, run_id: str) -> RunRecord | None:
        """The run, by its id or an unambiguous beginning of it."""
        whole = _with_id(db, run_id)
        if whole is not None or not run_id:
            return whole
        rows = db.execute(
            "SELECT run_id FROM runs WHERE run_id >= ? AND run_id < ? LIMIT 100",
            (run_id, run_id + _LAST_CHARACTER),
        ).fetchall()
        if len(rows) > 1:
            names = named([found for (found,) in rows])
            raise BadArgumentError(
                f"Several runs begin with {run_id!r}: {names}.",
                hint="Write more letters of the one that you want.",
            )
        return _with_id(db, rows[0][0]) if rows else None

    @reads
    def runs(
        self,
        db: sqlite3.Connection,
        *,
        states: Collection[RunState] | None = None,
        limit: int = 200,
    ) -> Sequence[RunRecord]:
        """Runs, the newest first."""
        chosen = list(RunState) if states is None else list(states)
        rows = db.execute(
            f"{_SELECT} WHERE state IN ({', '.join('?' * len(chosen))}) "
            "ORDER BY created_at DESC, runs.rowid DESC LIMIT ?",
            (*chosen, limit),
        )
        return [RunRecord(*well_formed(row, _KINDS)) for row in rows.fetchall()]

    @writes
    def fork(
        self,
        transaction: Transaction,
        run_id: str,
        new: RunRecord,
        *,
        owner: str,
        lease: float,
        without: Collection[tuple[str, int]],
    ) -> Claim:
        """A new run that begins with the other's done calls, except those named."""
        db = transaction.connection
        _must_have(db, run_id)
        claim = _insert(transaction, replace(new, forked_from=run_id), owner, lease)
        db.execute(_COPY_DONE, (new.run_id, run_id))
        db.execute(_SIGN_COPIES, (new.run_id,))
        db.executemany(
            "DELETE FROM calls WHERE run_id = ? AND key = ? AND occurrence = ?",
            ((new.run_id, key, occurrence) for key, occurrence in without),
        )
        return claim

    @writes
    def delete_run(self, transaction: Transaction, run_id: str, *, force: bool = False) -> None:
        """Drop an ended run and all that is saved of it."""
        db = transaction.connection
        run = _must_have(db, run_id)
        lease_seconds, outcome_blob = db.execute(
            "SELECT lease_seconds, outcome_blob FROM runs WHERE run_id = ?", (run_id,)
        ).fetchone()
        holds = lease_holds(run.lease_until, lease_seconds, transaction.now)
        held, hooks = [], []
        if not force:
            not_released = (run_id, ResourceState.RELEASED)
            held = _found_resources(db, "run_id = ? AND state <> ?", not_released)
            hooks = _found_hooks(db, "run_id = ? ORDER BY at, end_id, hook", (run_id,))
        must_be_deletable(
            run,
            carried=bool(run.owner) and holds,
            held=held,
            owed=[hook for hook in hooks if hook.trusted and hook.state != "done"],
        )
        of_calls = "SELECT value_blob, outcome_blob FROM calls WHERE run_id = ?"
        blobs = [sha for row in db.execute(of_calls, (run_id,)) for sha in row]
        for table in ("calls", "agent_orders", "resources", "hooks", "notes", "runs"):
            db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608
        # A fork of the run still names some of its logs.
        drop_logs(db, _UNNEEDED_LOGS, (run_id,))
        drop_unnamed(db, [*blobs, outcome_blob])
        transaction.owner_changed(run_id)
        db.execute(f"PRAGMA incremental_vacuum({_PAGES_GIVEN_BACK})").fetchall()

    async def wipe(self) -> bool:
        """Overwrite what was deleted, also in files beside the store; False: others use it now."""
        return await self.write_apart(_wipe)

    @writes
    def order_end(self, transaction: Transaction, order: AgentOrder) -> None:
        """Save the order to end the agents of this name."""
        _must_have(transaction.connection, order.run_id)
        transaction.connection.execute(
            "INSERT OR REPLACE INTO agent_orders (run_id, name, at, ended) VALUES (?, ?, ?, ?)",
            (order.run_id, order.name, order.at, order.ended),
        )

    @reads
    def ordered_ends(self, db: sqlite3.Connection, run_id: str) -> Sequence[AgentOrder]:
        """The orders to agents of a run, the oldest first."""
        rows = db.execute(
            "SELECT run_id, name, at, ended FROM agent_orders WHERE run_id = ? ORDER BY at, name",
            (run_id,),
        )
        return [AgentOrder(*row) for row in rows.fetchall()]

    @writes
    def answer_order(self, transaction: Transaction, claim: Claim, order: AgentOrder) -> None:
        """Save the result of an order, unless the order was withdrawn or replaced."""
        transaction.must_own(claim, order.run_id)
        transaction.connection.execute(
            "UPDATE agent_orders SET ended = ? WHERE run_id = ? AND name = ? AND at = ?",
            (order.ended, order.run_id, order.name, order.at),
        )

    @writes
    def withdraw_order(self, transaction: Transaction, run_id: str, name: str) -> bool:
        """Drop the order of this name; False when there is none."""
        dropped = transaction.connection.execute(
            "DELETE FROM agent_orders WHERE run_id = ? AND name = ?", (run_id, name)
        )
        return bool(dropped.rowcount)

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
        return _found_resources(
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
        saved = next(iter(_found_hooks(db, _THIS_HOOK, name)), None)
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
        saved = next(iter(_found_hooks(db, _THIS_HOOK, name)), None)
        _save_hook(db, replace(hook, tries=hook.tries if saved is None else saved.tries))

    @reads
    def hooks(self, db: sqlite3.Connection, run_id: str) -> Sequence[HookRecord]:
        """All hooks of a run, the oldest first."""
        return _found_hooks(db, "run_id = ? ORDER BY at, end_id, hook", (run_id,))

    @reads
    def owing_hooks(self, db: sqlite3.Connection) -> Sequence[str]:
        """The ids of the runs with a hook of ours that is not done."""
        return [str(run_id) for (run_id,) in db.execute(_OWING).fetchall()]

    @reads
    def untrusted_rows(self, db: sqlite3.Connection, run_id: str) -> int:
        """How many calls of this run, or lines that unfinished ones continue, are not ours."""
        (calls,) = db.execute(_UNTRUSTED_CALLS, (run_id,)).fetchone()
        (lines,) = db.execute(_UNTRUSTED_LINES, (run_id,)).fetchone()
        return int(calls + lines)

    @reads
    def digest(self, db: sqlite3.Connection, run_id: str) -> str:
        """A hash of all that is saved of this run and leads to code."""
        return row_checks.digest(db, run_id)

    @writes
    def accept(self, transaction: Transaction, run_id: str, digest: str) -> None:
        """Count all records of this run as ours, unless they changed since `digest`."""
        _must_have(transaction.connection, run_id)
        if row_checks.digest(transaction.connection, run_id) != digest:
            raise UsageError(
                f"The run {run_id} was changed while it was being shown; nothing was accepted.",
                hint=f"Look again: jackline show {run_id} --trust",
            )
        for table, fields, where, _ in row_checks.OF_RUN:
            change = f"UPDATE {table} SET signature = {signature_of(fields)} WHERE {where}"  # noqa: S608
            transaction.connection.execute(change, (run_id,))

    async def count_runs(self) -> Mapping[RunState, tuple[int, int]]:
        """How many runs are in each state, and how many of them have no time to wake."""
        if self.path is None:
            return await self.read(store_file.count_runs)
        return await asyncio.to_thread(self._read.count_runs)

    async def change_mark(self) -> object:
        """Something that differs after each write; None while nothing was ever saved."""
        if self.path is None:
            changes = await self.read(lambda db: db.total_changes)
            return changes if changes > 1 else None  # the first one is the store's own id
        return await asyncio.to_thread(self._read.stats) or None

    async def size(self) -> int:
        """The bytes that the store takes on the disk."""
        return 0 if self.path is None else await asyncio.to_thread(self._read.size)


def _insert(transaction: Transaction, run: RunRecord, owner: str, lease: float) -> Claim:
    db = transaction.connection
    if db.execute("SELECT 1 FROM runs WHERE run_id = ?", (run.run_id,)).fetchone():
        raise BadArgumentError(
            f"There is a run {run.run_id} already.",
            hint=f"Start it under another id, or continue it with `jackline resume {run.run_id}`.",
        )
    db.execute(
        _INSERT,
        (
            *(run.run_id, run.flow, run.source, run.arguments, run.settings, run.cwd, run.state),
            *(run.created_at, run.updated_at, run.ended_at, run.why, run.wake_at),
            *(*place(db, run.outcome), run.forked_from, owner, transaction.now + lease, 1),
            *(run.tokens, run.cost, run.confirmed, lease, ""),
        ),
    )
    db.execute(_SIGN, (run.run_id,))
    _redate_spending(transaction)
    transaction.owner_changed(run.run_id)
    return Claim(run.run_id, owner, 1)


def _redate_spending(transaction: Transaction) -> None:
    """What was spent while the wall clock was ahead was spent by now."""
    transaction.connection.execute(
        "UPDATE spending SET at = ? WHERE at > ?", (transaction.now, transaction.now + CORRECTED)
    )


def _change(transaction: Transaction, claim: Claim, run: RunRecord) -> None:
    transaction.must_own(claim, run.run_id)
    db = transaction.connection
    (old_blob,) = db.execute(
        "SELECT outcome_blob FROM runs WHERE run_id = ?", (run.run_id,)
    ).fetchone()
    outcome, outcome_blob = place(db, run.outcome)
    change_signed(
        db,
        run.run_id,
        """settings = ?, state = ?, updated_at = ?, ended_at = ?, why = ?, wake_at = ?, outcome = ?,
        outcome_blob = ?, tokens = ?, cost = ?, confirmed = confirmed AND ?""",
        (
            *(run.settings, run.state, run.updated_at, run.ended_at, run.why, run.wake_at),
            *(outcome, outcome_blob, run.tokens, run.cost, run.state is RunState.PARKED),
        ),
    )
    if old_blob != outcome_blob:
        drop_unnamed(db, [old_blob])


def _with_id(db: sqlite3.Connection, run_id: str) -> RunRecord | None:
    row = db.execute(f"{_SELECT} WHERE run_id = ?", (run_id,)).fetchone()
    return None if row is None else RunRecord(*well_formed(row, _KINDS))


def _must_have(db: sqlite3.Connection, run_id: str) -> RunRecord:
    run = _with_id(db, run_id)
    if run is None:
        raise unknown_run(run_id)
    return run


def _wipe(db: sqlite3.Connection) -> bool:
    """Leave no byte of what was deleted: not in the file's free space, and not in its log."""
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    size = pages * db.execute("PRAGMA page_size").fetchone()[0]
    try:
        if size <= _REWRITTEN:
            # Also what was deleted by versions that did not overwrite it.
            db.execute("VACUUM")
        else:
            db.execute("PRAGMA incremental_vacuum").fetchall()
        busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:
        if cause_of(error) != LOCKED:
            raise
        return False
    return not busy


def _found_resources(
    db: sqlite3.Connection, where: str, values: Sequence[object]
) -> list[ResourceRecord]:
    """The resources for which this condition holds."""
    rows = db.execute(f"{_RESOURCES} WHERE {where}", values).fetchall()
    return [ResourceRecord(*well_formed(row, (*_RESOURCE_COLUMNS.values(), bool))) for row in rows]


def _found_hooks(db: sqlite3.Connection, where: str, values: Sequence[object]) -> list[HookRecord]:
    """The hooks for which this condition holds."""
    rows = db.execute(f"{_HOOKS} WHERE {where}", values).fetchall()
    return [HookRecord(*well_formed(row, (*_HOOK_COLUMNS.values(), bool))) for row in rows]


def _save_hook(db: sqlite3.Connection, hook: HookRecord) -> None:
    row = (hook.run_id, hook.end_id, hook.hook, hook.outcome, hook.state, hook.tries)
    db.execute(_SAVE_HOOK, (*row, hook.trouble, hook.at))
    db.execute(_SIGN_HOOK, (hook.trusted, hook.run_id, hook.end_id, hook.hook))
