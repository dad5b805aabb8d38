"""Look over all runs for what nobody will give back any more, and give it back.

Laws: (1) what a live run holds within its lease is left alone; (2) an ended run holds nothing, and
owes no hook; (3) hooks go first, as in a live run: they may have to save something from what is
about to be given back; (4) each try is kept with its result.
Not here: what a live run releases itself (resources.py), listing for people (cli/).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from jackline.agents.outcome import Ending
from jackline.clock import Clock
from jackline.flows.cleanup.acting import Actor
from jackline.flows.cleanup.hooks import Hooks
from jackline.flows.cleanup.resources import release
from jackline.flows.cleanup.standing import LeftRun
from jackline.flows.engine import Engine
from jackline.flows.outcome_json import decode_outcome
from jackline.flows.records import ENDED, ResourceRecord, RunRecord

ModuleOf = Callable[[RunRecord], ModuleType | None]
"""The flow's module of a run; None when its file is gone or cannot be loaded."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """One thing that was done: `trouble` is empty when it went well."""

    run_id: str
    what: str
    trouble: str


async def reap(
    engine: Engine, clock: Clock, module_of: ModuleOf, *, limit: float = 120.0
) -> list[Reaped]:
    """Run the hooks that ended runs still owe, and release what is overdue or left behind."""
    reaper = _Reaper(engine, clock, module_of, limit)
    now = clock.wall()
    for run in await _owing(engine, now):
        await reaper.run_hooks(run)
    for row in await engine.resources():
        taker = await engine.run(row.run_id)
        if taker is not None and _is_left(row, taker, now):
            await reaper.release(row, taker)
    return reaper.done


async def is_overdue(engine: Engine, now: float) -> bool:
    """Whether something rented, or a hook of an ended run, waits for `reap`."""
    if await _owing(engine, now):
        return True
    for row in await engine.resources():
        run = await engine.run(row.run_id)
        if run is not None and _is_left(row, run, now):
            return True
    return False


class _Reaper:
    """One look over all runs."""

    def __init__(self, engine: Engine, clock: Clock, module_of: ModuleOf, limit: float) -> None:
        self.done: list[Reaped] = []
        self._engine = engine
        self._clock = clock
        self._module_of = module_of
        self._limit = limit
        self._actors: dict[str, Actor] = {}

    async def run_hooks(self, run: RunRecord) -> None:
        """Run what an ended run owes."""
        told = _collector(self.done, run)
        hooks = Hooks(self._engine, run.run_id, await self._actor(run), told)
        await hooks.load()
        calls = {call.task_id: call for call in await self._engine.calls(run.run_id)}
        await hooks.recover()
        ended = None if run.outcome is None else decode_outcome(run.outcome)
        await hooks.run_due(calls, ending=Ending.CRASH, run=ended)

    async def release(self, row: ResourceRecord, run: RunRecord) -> None:
        """Give one thing back."""
        await release(row, self._engine, await self._actor(run), _collector(self.done, run))

    async def _actor(self, run: RunRecord) -> Actor:
        known = self._actors.get(run.run_id)
        if known is None:
            # Loaded once: what a hook names must be of the very module that it stands in.
            module = cache(lambda: self._module_of(run))
            phases = {call.task_id: call.phase for call in await self._engine.calls(run.run_id)}
            left = LeftRun(run.run_id, self._engine, self._clock, module, phases)
            known = Actor(self._clock, self._limit, run.cwd, module, left=left)
            self._actors[run.run_id] = known
        return known


async def _owing(engine: Engine, now: float) -> list[RunRecord]:
    """The runs that ended, are carried by nobody, and have a hook that is not done."""
    found = [await engine.run(run_id) for run_id in await engine.owing_hooks()]
    return [
        run for run in found if run is not None and run.state in ENDED and run.lease_until <= now
    ]


def _is_left(row: ResourceRecord, run: RunRecord, now: float) -> bool:
    carried = run.lease_until > now
    if row.lease_until is not None and row.lease_until < now:
        return not carried  # a live owner releases it itself
    return run.state in ENDED and not carried


def _collector(done: list[Reaped], run: RunRecord) -> Callable[[str, str, str], None]:
    def told(what: str, _label: str, trouble: str) -> None:
        done.append(Reaped(run.run_id, what, trouble))

    return told
