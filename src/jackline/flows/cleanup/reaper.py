"""Look over all runs for what nobody will give back any more, and give it back.

Rules: (1) what a live run holds within its lease is left alone; (2) an ended run holds nothing, and
owes no hook; (3) hooks go first, as in a live run: they may have to save something from what is
about to be given back; (4) each try is saved with its result; (5) of several that clean up after
one run, one does it, by the lease that carries runs; (6) what this installation did not write is
left alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType

from jackline.agents.outcome import Ending
from jackline.clock import Clock
from jackline.flows.cleanup.action_runner import ActionRunner, OwnerlessRun
from jackline.flows.cleanup.ledger import Hooks, Resources
from jackline.flows.flow_sources import run_only_known
from jackline.flows.records import ENDED, ResourceRecord, RunRecord
from jackline.flows.settings import AllowPatterns
from jackline.flows.store.run_store import Claim, RunStore

ModuleOf = Callable[[RunRecord], ModuleType | None]
"""The flow's module of a run; None when its file is gone or cannot be loaded."""
Take = Callable[[RunRecord, float], Awaitable[Claim | None]]
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
    take: Take,
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
        claim = await take(run, limit * (_USUAL_HOOKS * owes_hooks + held + 1))
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

                def listener(
                    what: str, _label: str, trouble: str, run_id: str = still.run_id
                ) -> None:
                    done.append(Reaped(run_id, what, trouble))

                if owes_still:
                    owed = Hooks(store, still.run_id, actor, listener)
                    await owed.load()
                    await owed.recover()
                    by_task = {call.task_id: call for call in calls}
                    await owed.run_due(by_task, ending=Ending.CRASH, run=still.decoded_outcome())
                # Looked at only now: a hook may have rented something, too.
                resources = Resources(store, still.run_id, actor, listener)
                for row in _over(still, await store.resources(), clock.wall()):
                    await resources.release(row)
        finally:
            await store.let_go(claim, await store.run(run.run_id) or run)
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
