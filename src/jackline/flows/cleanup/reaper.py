"""Look over all runs for what nobody will give back any more, and give it back.

Rules: (1) what a live run holds within its lease is left alone; (2) an ended run holds nothing, and
owes no hook; (3) hooks go first, as in a live run: they may have to save something from what is
about to be given back; (4) each try is kept with its result; (5) of several that clean up after one
run, one does it, by the lease that carries runs; (6) what this installation did not write is left
alone.
Not here: what a live run releases itself (ledger.py), listing for people (cli/).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from jackline.agents.outcome import Ending
from jackline.clock import Clock
from jackline.flows.cleanup.action_runner import ActionRunner, OwnerlessRun
from jackline.flows.cleanup.ledger import Hooks, release
from jackline.flows.records import ENDED, ResourceRecord, RunRecord, decode_outcome
from jackline.flows.saved_sources import run_only_known
from jackline.flows.settings import AllowPatterns
from jackline.flows.store.run_store import Claim, RunStore

ModuleOf = Callable[[RunRecord], ModuleType | None]
"""The flow's module of a run; None when its file is gone or cannot be loaded."""
Take = Callable[[RunRecord, float], Awaitable[Claim | None]]
"""Takes a run over for so many seconds; None when somebody else has it."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """One thing that was done: `trouble` is empty when it went well."""

    run_id: str
    what: str
    trouble: str


async def reap(
    engine: RunStore,
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
    for left in await _left_behind(engine, clock.wall()):
        # Two that clean up after one run would run its hooks twice.
        claim = await take(left.run, limit * (left.acts + 1))
        if claim is None:
            continue
        try:
            # Whoever held it until now may have done it all.
            for still in await _left_behind(engine, clock.wall(), ours=left.run.run_id):
                if unattended:
                    await run_only_known(engine, still.run)
                await _Reaper(engine, clock, module_of, limit, done, still, allow).clean_up()
        finally:
            standing = await engine.run(left.run.run_id)
            await engine.let_go(claim, standing or left.run)
    return done


async def is_overdue(engine: RunStore, now: float) -> bool:
    """Whether something rented, or a hook of an ended run, waits for `reap`."""
    return bool(await _left_behind(engine, now))


@dataclass(frozen=True, slots=True)
class _Left:
    """What is to be cleaned up after one run."""

    run: RunRecord
    owes_hooks: bool
    held: int

    @property
    def acts(self) -> int:
        """About how many acts it takes: of hooks, only that there are some is known."""
        return 10 * self.owes_hooks + self.held


class _Reaper:
    """Cleans up after one run."""

    def __init__(
        self,
        engine: RunStore,
        clock: Clock,
        module_of: ModuleOf,
        limit: float,
        done: list[Reaped],
        left: _Left,
        allow: AllowPatterns,
    ) -> None:
        self._engine = engine
        self._clock = clock
        # Loaded once: what a hook names must be of the very module that it stands in.
        self._module = cache(lambda: module_of(left.run))
        self._limit = limit
        self._done = done
        self._left = left
        self._allow = allow

    async def clean_up(self) -> None:
        """Run the hooks that it owes, then give back what it holds."""
        run = self._left.run
        calls = {call.task_id: call for call in await self._engine.calls(run.run_id)}
        phases = {name: call.phase for name, call in calls.items()}
        left = OwnerlessRun(run.run_id, self._engine, self._clock, self._module, phases)
        actor = ActionRunner(
            self._clock,
            self._limit,
            run.cwd,
            self._module,
            left=left,
            trusted=run.trusted,
            allow=self._allow,
        )
        if self._left.owes_hooks:
            hooks = Hooks(self._engine, run.run_id, actor, self._told)
            await hooks.load()
            await hooks.recover()
            ended = None if run.outcome is None else decode_outcome(run.outcome)
            await hooks.run_due(calls, ending=Ending.CRASH, run=ended)
        # Looked at only now: a hook may have rented something, too.
        for row in _over(run, await self._engine.resources(), self._clock.wall()):
            await release(row, self._engine, actor, self._told)

    def _told(self, what: str, _label: str, trouble: str) -> None:
        self._done.append(Reaped(self._left.run.run_id, what, trouble))


async def _left_behind(engine: RunStore, now: float, ours: str = "") -> list[_Left]:
    """What nobody carries and somebody has to clean up; with `ours`, of this run, which we hold."""
    owing = await engine.owing_hooks()
    held = await engine.resources()
    found = []
    for run_id in [ours] if ours else dict.fromkeys((*owing, *(row.run_id for row in held))):
        run = await engine.run(run_id)
        if run is None or not run.trusted:
            continue  # only listed
        if run.lease_until > now and not ours:
            continue  # a live owner does it itself
        owes_hooks = run.state in ENDED and run_id in owing
        rows = _over(run, held, now)
        if rows or owes_hooks:
            found.append(_Left(run, owes_hooks, len(rows)))
    return found


def _over(run: RunRecord, held: Iterable[ResourceRecord], now: float) -> list[ResourceRecord]:
    """Of what is held, what this run should not hold any more."""
    mine = [row for row in held if row.run_id == run.run_id and row.trusted]
    if run.state in ENDED:
        return mine
    return [row for row in mine if row.lease_until is not None and row.lease_until < now]
