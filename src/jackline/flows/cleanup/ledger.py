"""The clean-up that runs owe: `on_end` hooks to run, resources to release.

Rules: (1) a hook is saved as due before its agent begins, and a resource before its user goes on;
(2) the store decides which process runs a hook, so that two living processes never both do; (3) a
failed hook or release is saved with its reason, and tried again by a later process or an order;
(4) a resource is released at the end of the agent or run that took it, or when its lease ends; (5)
`reap` leaves alone what a live run holds within its lease, and what is not ours; an ended run holds
nothing and owes no hook, and hooks go first: they may save something from what is given back; (6)
of several that clean up after one run, one does it, by the lease; (7) no process can know whether a
hook whose process died had done its work. So:
A hook runs at least once per ending, each time with the same idempotency key.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import ModuleType
from typing import Any

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.clock import Clock
from jackline.flows.cleanup.action_runner import ActionRunner, CleanupAction, OwnerlessRun
from jackline.flows.flow_sources import run_only_known
from jackline.flows.records import (
    ENDED,
    CallRecord,
    CallState,
    HookRecord,
    ResourceRecord,
    ResourceState,
    RunRecord,
    decode_outcome,
    encode_outcome,
    shown_action,
)
from jackline.flows.settings import AllowPatterns
from jackline.flows.store.run_store import NOT_OURS, Claim, RunStore
from jackline.user_errors import ErrorTexts

CleanupListener = Callable[[str, str, ErrorTexts], None]
"""Called with what was done, the label, and the trouble (empty if there was none)."""


@dataclass(slots=True)
class Hooks:
    """The hooks of one run."""

    _store: RunStore
    _run_id: str
    _actor: ActionRunner
    _listener: CleanupListener
    _rows: dict[tuple[str, str], HookRecord] = field(default_factory=dict)
    _ends: dict[str, int] = field(default_factory=dict)

    async def load(self) -> None:
        """Read which hooks are due, ran or failed."""
        for row in await self._store.hooks(self._run_id):
            # One that is not ours is not run; a promise of the same name is made anew.
            if row.trusted:
                self._add(row)

    async def promise(self, whose: str, hooks: Iterable[str]) -> str:
        """Save these hooks as due for the next end of `whose`; returns the id of that end."""
        end_id = f"{whose}/{self._ends.get(whose, 0) + 1}"
        for hook in hooks:
            if (end_id, hook) not in self._rows:
                due = HookRecord(self._run_id, end_id, hook, b"{}", at=self._actor.clock.wall())
                await self._store.end_hook(due)
                self._rows[end_id, hook] = due
        return end_id

    async def run(self, end_id: str, hooks: Iterable[str], outcome: Outcome[Any]) -> None:
        """Run those hooks of this end that have not run."""
        encoded = encode_outcome(outcome)
        for hook in hooks:
            row = self._rows.get((end_id, hook))
            if row is None or row.state == "due":
                at = self._actor.clock.wall()
                row = row or HookRecord(self._run_id, end_id, hook, encoded, at=at)
                await self._do(replace(row, outcome=encoded), again=False)

    async def recover(self) -> None:
        """Run again what an earlier process failed at, or died under."""
        for row in self._in_order():
            if row.state in ("running", "failed"):
                await self._do(row, again=True)

    async def run_due(
        self,
        calls: Mapping[str, CallRecord],
        *,
        ending: Ending | None,
        run: Outcome[Any] | None = None,
    ) -> None:
        """Run what is due at an end that was saved, but not cleaned up after.

        With `ending`, the whole run ends here: agents that were underway end like that. `run` is
        how the run itself ended, once that is saved.
        """
        for row in self._in_order():
            if row.state != "due":
                continue
            whose = row.end_id.rpartition("/")[0]
            call = calls.get(whose)
            outcome = run if whose == self._run_id else None
            if call is not None and call.state is not CallState.RUNNING:
                outcome = call.decoded_outcome() if call.outcome else None
            elif call is not None and ending is not None:
                evidence = Evidence(says="Its run ended while it was underway.")
                outcome = Outcome(ending, evidence=evidence, task_id=whose, label=call.label)
            if outcome is not None:
                await self._do(replace(row, outcome=encode_outcome(outcome)), again=False)
            elif ending is not None and whose != self._run_id and call is None:
                # Promised to an agent that never began: it comes to no end.
                settled = replace(row, state="done", at=self._actor.clock.wall())
                await self._store.end_hook(settled)
                self._add(settled)

    def _in_order(self) -> list[HookRecord]:
        """The run's own hooks last: what its agents leave is cleaned up before."""
        own = f"{self._run_id}/"
        return sorted(self._rows.values(), key=lambda row: row.end_id.startswith(own))

    def _add(self, row: HookRecord) -> None:
        self._rows[row.end_id, row.hook] = row
        whose, _, number = row.end_id.rpartition("/")
        if row.state != "due":
            self._ends[whose] = max(self._ends.get(whose, 0), int(number))

    async def _do(self, row: HookRecord, *, again: bool) -> None:
        if not row.trusted or not await self._store.begin_hook(row, again=again):
            return
        outcome = decode_outcome(row.outcome)
        whose = row.end_id.rpartition("/")[0]
        # The hook is part of it: two hooks of one ending may write to the same place.
        ending = json.dumps([row.run_id, row.end_id, row.hook]).encode()
        key = hashlib.sha256(ending).hexdigest()[:32]
        act = CleanupAction(
            self._run_id,
            "" if whose == self._run_id else whose,
            row.hook,
            row.outcome,
            outcome,
            {
                "JACKLINE_RUN_ID": self._run_id,
                "JACKLINE_TASK_ID": outcome.task_id,
                "JACKLINE_TERMINATED_BY": outcome.terminated_by.value,
                "JACKLINE_IDEMPOTENCY_KEY": key,
            },
            key,
        )
        trouble = await self._actor.do(act)
        ended = replace(row, state="failed" if trouble else "done", trouble=trouble.brief)
        await self._store.end_hook(replace(ended, at=self._actor.clock.wall()))
        self._add(ended)
        self._listener(f"hook {shown_action(row.hook)}", outcome.label, trouble)


@dataclass(slots=True)
class Resources:
    """What one run has rented."""

    _store: RunStore
    _run_id: str
    _actor: ActionRunner
    _listener: CleanupListener
    _held: dict[str, ResourceRecord] = field(default_factory=dict)
    _ends: dict[str, float] = field(default_factory=dict)
    """When leases end in real seconds, which nobody sets; they are saved as dates."""

    async def load(self) -> None:
        """Read what the run still holds."""
        rows = await self._store.resources()
        mine = (row for row in rows if row.run_id == self._run_id and row.trusted)
        self._held = {row.name: row for row in mine}
        for row in self._held.values():
            self._note_end(row)

    async def take(self, resource: ResourceRecord) -> None:
        """Save that it was rented; one that is held already stays as it is, with the new lease."""
        before = self._held.get(resource.name)
        if before is not None:
            resource = replace(before, lease_until=resource.lease_until, release=resource.release)
        self._held[resource.name] = resource
        self._note_end(resource)
        await self._store.save_resource(resource)

    async def release_of_agent(self, task_id: str) -> None:
        """Release what this agent rented."""
        await self._release_where(lambda row: row.task_id == task_id)

    async def release_at_park(self) -> None:
        """Release what was rented with `release_on_park`."""
        await self._release_where(lambda row: row.release_on_park)

    async def release_overdue(self) -> None:
        """Release what was rented for a time that is over."""
        now = self._elapsed()
        await self._release_where(lambda row: self._ends.get(row.name, math.inf) < now)

    def _note_end(self, row: ResourceRecord) -> None:
        self._ends.pop(row.name, None)
        if row.lease_until is not None:
            left = row.lease_until - self._actor.clock.wall()
            self._ends[row.name] = self._elapsed() + left

    def _elapsed(self) -> float:
        # Whoever rents something out counts the time that this machine sleeps, too.
        return self._actor.clock.monotonic() + self._actor.clock.slept()

    async def release_all(self) -> None:
        """Release everything: the run has ended."""
        await self._release_where(lambda _row: True)

    async def _release_where(self, fits: Callable[[ResourceRecord], bool]) -> None:
        for row in [row for row in self._held.values() if fits(row)]:
            # Out of the way at once, so that a second end does not release it too.
            del self._held[row.name]
            after = await self.release(row)
            if after.state is not ResourceState.RELEASED:
                self._held[row.name] = after

    async def release(self, row: ResourceRecord) -> ResourceRecord:
        """Release one resource, and save the result."""
        if not row.trusted:
            self._listener(f"release {row.name}", "", ErrorTexts(NOT_OURS))
            return row
        row = replace(row, state=ResourceState.RELEASING, tries=row.tries + 1)
        await self._store.save_resource(row)
        stdin = json.dumps({"resource": row.name, "run_id": row.run_id, "task_id": row.task_id})
        environment = {"JACKLINE_RESOURCE": row.name, "JACKLINE_RUN_ID": row.run_id}
        act = CleanupAction(
            row.run_id, row.task_id, row.release, stdin.encode(), row.name, environment
        )
        trouble = await self._actor.do(act) if row.release else ErrorTexts("")
        after = replace(
            row,
            state=ResourceState.FAILED if trouble else ResourceState.RELEASED,
            released_at=None if trouble else self._actor.clock.wall(),
            trouble=trouble.brief,
        )
        await self._store.save_resource(after)
        self._listener(f"release {row.name}", "", trouble)
        return after


ModuleOf = Callable[[RunRecord], ModuleType | None]
"""The flow's module of a run; None when its file is gone or cannot be loaded."""
ClaimRun = Callable[[RunRecord, float], Awaitable[Claim | None]]
"""Takes a run over for so many seconds; None when somebody else has it."""
# Of the hooks that a run owes, only that there are some is known.
_USUAL_HOOKS = 10


@dataclass(frozen=True, slots=True)
class Reaped:
    """One thing that was done: `trouble` is empty when it went well."""

    run_id: str
    what: str
    trouble: str


async def reap(
    store: RunStore,
    clock: Clock,
    module_of: ModuleOf,
    claim_run: ClaimRun,
    *,
    limit: float = 120.0,
    unattended: bool = False,
    allow: AllowPatterns = tuple,
) -> list[Reaped]:
    """Run the hooks that ended runs still owe, and release what is overdue or left behind.

    `unattended`: functions are called only of sources that a person has started the run with.
    `allow` gives the user's patterns of now for commands that models have ordered.
    """
    done: list[Reaped] = []
    for run, owes_hooks, held in await _left_behind(store, clock.wall()):
        # Two that clean up after one run would run its hooks twice.
        claim = await claim_run(run, limit * (_USUAL_HOOKS * owes_hooks + held + 1))
        if claim is None:
            continue
        try:
            # Whoever held it until now may have done it all.
            for still, owes_still, _ in await _left_behind(store, clock.wall(), ours=run.run_id):
                if unattended:
                    await run_only_known(store, still)
                # Loaded once: what a hook names must be of the very module that it is in.
                module = cache(partial(module_of, still))
                calls = await store.calls(still.run_id)
                phases = {call.task_id: call.phase for call in calls}
                left = OwnerlessRun(still.run_id, store, clock, module, phases)
                trusted = still.trusted
                actor = ActionRunner(
                    clock, limit, still.cwd, module, left=left, trusted=trusted, allow=allow
                )
                done += await _clean_up(store, still, calls, actor, hooks=owes_still)
        finally:
            await store.let_go(claim, await store.run(run.run_id) or run)
    return done


async def _clean_up(
    store: RunStore,
    run: RunRecord,
    calls: Iterable[CallRecord],
    actor: ActionRunner,
    *,
    hooks: bool,
) -> list[Reaped]:
    done: list[Reaped] = []

    notes: list[dict[str, object]] = []

    def listener(what: str, _label: str, trouble: ErrorTexts) -> None:
        done.append(Reaped(run.run_id, what, trouble.brief))
        if trouble.private:
            notes.append({"what": what, "trouble": trouble.brief, "private": trouble.private})

    if hooks:
        owed = Hooks(store, run.run_id, actor, listener)
        await owed.load()
        await owed.recover()
        by_task = {call.task_id: call for call in calls}
        await owed.run_due(by_task, ending=Ending.CRASH, run=run.decoded_outcome())
    # Looked at only now: a hook may have rented something, too.
    resources = Resources(store, run.run_id, actor, listener)
    for row in _over(run, await store.resources(), actor.clock.wall()):
        await resources.release(row)
    for note in notes:
        await store.note(run.run_id, actor.clock.wall(), "clean-up", "", note)
    return done


async def is_overdue(store: RunStore, now: float) -> bool:
    """Whether something rented, or a hook of an ended run, waits for `reap`."""
    return bool(await _left_behind(store, now))


async def _left_behind(
    store: RunStore, now: float, ours: str = ""
) -> list[tuple[RunRecord, bool, int]]:
    """The runs to clean up after, whether each owes hooks, and how much it holds.

    With `ours`, only that run, which we hold; else only runs that nobody carries.
    """
    owing = await store.owing_hooks()
    held = await store.resources()
    found = []
    for run_id in [ours] if ours else dict.fromkeys((*owing, *(row.run_id for row in held))):
        run = await store.run(run_id)
        if run is None or not run.trusted:
            continue  # only listed
        if run.lease_until > now and not ours:
            continue  # a live owner does it itself
        owes_hooks = run.state in ENDED and run_id in owing
        rows = _over(run, held, now)
        if rows or owes_hooks:
            found.append((run, owes_hooks, len(rows)))
    return found


def _over(run: RunRecord, held: Iterable[ResourceRecord], now: float) -> list[ResourceRecord]:
    """Of what is held, what this run should not hold any more."""
    mine = [row for row in held if row.run_id == run.run_id and row.trusted]
    if run.state in ENDED:
        return mine
    return [row for row in mine if row.lease_until is not None and row.lease_until < now]
