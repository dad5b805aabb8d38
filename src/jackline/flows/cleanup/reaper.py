"""Look over all runs for what nobody will give back any more, and give it back.

Laws: (1) what a live run holds within its lease is left alone; (2) an ended run holds nothing, and
owes no hook; (3) each try is kept with its result.
Not here: what a live run releases itself (resources.py), listing for people (cli/).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from jackline.agents.outcome import Ending
from jackline.clock import Clock
from jackline.flows.cleanup.acting import Actor
from jackline.flows.cleanup.hooks import Hooks
from jackline.flows.cleanup.resources import release
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
    """Release what is overdue or left behind, and run the hooks that ended runs still owe."""
    done: list[Reaped] = []
    now = clock.wall()
    for row in await engine.resources():
        run = await engine.run(row.run_id)
        if run is not None and _is_left(row, run, now):
            actor = _actor(run, clock, module_of, limit)
            await release(row, engine, actor, _collector(done, run))
    for run in await engine.runs(states=ENDED):
        if run.lease_until > now:
            continue
        hooks = Hooks(
            engine, run.run_id, _actor(run, clock, module_of, limit), _collector(done, run)
        )
        await hooks.load()
        if not hooks.owing:
            continue
        calls = {call.task_id: call for call in await engine.calls(run.run_id)}
        await hooks.recover()
        ended = None if run.outcome is None else decode_outcome(run.outcome)
        await hooks.run_due(calls, ending=Ending.CRASH, run=ended)
    return done


async def is_overdue(engine: Engine, now: float) -> bool:
    """Whether something rented waits for `reap`."""
    for row in await engine.resources():
        run = await engine.run(row.run_id)
        if run is not None and _is_left(row, run, now):
            return True
    return False


def _is_left(row: ResourceRecord, run: RunRecord, now: float) -> bool:
    carried = run.lease_until > now
    if row.lease_until is not None and row.lease_until < now:
        return not carried  # a live owner releases it itself
    return run.state in ENDED and not carried


def _actor(run: RunRecord, clock: Clock, module_of: ModuleOf, limit: float) -> Actor:
    return Actor(clock, limit, run.cwd, lambda: module_of(run))


def _collector(done: list[Reaped], run: RunRecord) -> Callable[[str, str, str], None]:
    def told(what: str, _label: str, trouble: str) -> None:
        done.append(Reaped(run.run_id, what, trouble))

    return told
