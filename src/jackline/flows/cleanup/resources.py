"""Keep the ledger of what was rented, and give it back.

Laws: (1) a resource is kept before its user goes on; (2) it is released at the end of the agent or
run that took it, or when its lease ends, whatever happened; (3) a release that fails leaves it on
the ledger, with the reason, for the next try.
Not here: what a release does (acting.py), looking over all runs (reaper.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

from jackline.flows.cleanup.acting import Act, Actor
from jackline.flows.cleanup.hooks import Told
from jackline.flows.engine import Engine
from jackline.flows.records import ResourceRecord, ResourceState
from jackline.flows.trusting import NOT_OURS


class Resources:
    """What one run has rented."""

    def __init__(self, engine: Engine, run_id: str, actor: Actor, told: Told) -> None:
        self._engine = engine
        self._run_id = run_id
        self._actor = actor
        self._told = told
        self._held: dict[str, ResourceRecord] = {}
        # When leases end in real seconds, which nobody sets; kept they are as dates.
        self._ends: dict[str, float] = {}

    async def load(self) -> None:
        """Read what the run still holds."""
        rows = await self._engine.resources()
        mine = (row for row in rows if row.run_id == self._run_id and row.trusted)
        self._held = {row.name: row for row in mine}
        for row in self._held.values():
            self._note_end(row)

    async def take(self, resource: ResourceRecord) -> None:
        """Keep that it was rented; one that is held already stays as it is, with the new lease."""
        before = self._held.get(resource.name)
        if before is not None:
            resource = replace(before, lease_until=resource.lease_until, release=resource.release)
        self._held[resource.name] = resource
        self._note_end(resource)
        await self._engine.keep_resource(resource)

    async def release_of_agent(self, task_id: str) -> None:
        """Give back what this agent took."""
        await self._release_where(lambda row: row.task_id == task_id)

    async def release_at_park(self) -> None:
        """Give back what was taken with `release_on_park`."""
        await self._release_where(lambda row: row.release_on_park)

    async def release_overdue(self) -> None:
        """Give back what was taken for a time that is over."""
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
        """Give everything back: the run has ended."""
        await self._release_where(lambda _row: True)

    async def _release_where(self, fits: Callable[[ResourceRecord], bool]) -> None:
        for row in [row for row in self._held.values() if fits(row)]:
            # Out of the way at once, so that a second end does not release it too.
            del self._held[row.name]
            after = await release(row, self._engine, self._actor, self._told)
            if after.state is not ResourceState.RELEASED:
                self._held[row.name] = after


async def release(row: ResourceRecord, engine: Engine, actor: Actor, told: Told) -> ResourceRecord:
    """Give one thing back, and keep how that went."""
    if not row.trusted:
        told(f"release {row.name}", "", NOT_OURS)
        return row
    tries = row.tries + 1
    await engine.keep_resource(replace(row, state=ResourceState.RELEASING, tries=tries))
    trouble = await actor.do(_act(row)) if row.release else ""
    now = actor.clock.wall()
    after = replace(
        row,
        state=ResourceState.FAILED if trouble else ResourceState.RELEASED,
        released_at=None if trouble else now,
        tries=tries,
        trouble=trouble,
    )
    await engine.keep_resource(after)
    told(f"release {row.name}", "", trouble)
    return after


def _act(row: ResourceRecord) -> Act:
    told = json.dumps({"resource": row.name, "run_id": row.run_id, "task_id": row.task_id})
    environment = {"JACKLINE_RESOURCE": row.name, "JACKLINE_RUN_ID": row.run_id}
    return Act(row.run_id, row.task_id, row.release, told.encode(), row.name, environment)
