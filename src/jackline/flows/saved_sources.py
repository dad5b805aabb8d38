"""Save with a run what its flow's files held when a person started it, and wake it with that alone.

Rules: (1) the list is of the bytes that were run by the process that a person has started, and is
replaced when a person resumes the run; (2) it is saved in a signed notebook of the run before the
run is shown as parked; (3) a process that was woken adds nothing to it; (4) without a list, or with
one that this installation did not sign, a run does not wake by itself.
Not here: hashing and refusing (flow_sources.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from jackline.clock import Clock
from jackline.flows.flow_sources import SOURCES, Digests, first_changed, is_own
from jackline.flows.records import CallKind, EntryRecord, RunRecord, RunState, call_key, task_id_of
from jackline.flows.store.run_store import Claim, RunStore

_KIND = "flow:sources"


class KeptSources:
    """The sources of one run, as this process carries it."""

    def __init__(self, engine: RunStore, claim: Claim, clock: Clock, flow_module: str) -> None:
        self._engine = engine
        self._claim = claim
        self._clock = clock
        self._flow_module = flow_module
        self._name = _notebook_of(claim.run_id)
        self._lines = 0
        self._kept: Digests | None = None

    async def load(self) -> None:
        """Read what earlier processes have kept."""
        for line in await self._engine.entries(self._name):
            self._lines = line.number
            self._kept = _digests(line)

    async def keep(self) -> None:
        """Keep what has run so far, if a person has started this process and that is new."""
        now = None if SOURCES.is_unattended else SOURCES.of_flow(self._flow_module)
        if now is None or now == self._kept:
            return
        self._kept = now
        self._lines += 1
        data = json.dumps(now, sort_keys=True).encode()
        line = EntryRecord(self._name, self._lines, _KIND, data, self._clock.wall())
        await self._engine.write_entry(self._claim, line)


async def run_only_known(engine: RunStore, run: RunRecord) -> None:
    """From now on, this process runs nothing but what a person has started this run with."""
    SOURCES.only(await _known(engine, run.run_id) or {}, run.source)


async def why_not_woken(engine: RunStore, run: RunRecord) -> str:
    """Why the run must not wake by itself as its files are now; empty if it may."""
    if not run.source or is_own(run.source):
        return ""
    known = await _known(engine, run.run_id)
    if known is None:
        name = run.source.replace("\\", "/").rpartition("/")[2]
        return f"nothing tells whether {name} is what it was when you started this run"
    return first_changed(known, run.source)


def to_look_at(why: str, run: RunRecord) -> str:
    """Why a run is not woken, with the next step."""
    return f"{why}; look at it and go on with: jackline resume {run.run_id}"


async def leave_to_person(engine: RunStore, claim: Claim, run: RunRecord, why: str) -> RunRecord:
    """Give a parked run back such that only a person goes on with it; its new standing."""
    left = replace(run, state=RunState.PARKED, why=why, wake_at=None)
    if run.confirmed:
        # What a person has confirmed was another content; the store forgets it when a run goes on.
        await engine.change(claim, replace(left, state=RunState.RUNNING))
    await engine.let_go(claim, left)
    return left


async def _known(engine: RunStore, run_id: str) -> Digests | None:
    lines = await engine.entries(_notebook_of(run_id))
    return _digests(lines[-1]) if lines else None


def _digests(line: EntryRecord) -> Digests | None:
    if not line.trusted or line.kind != _KIND:
        return None
    found = json.loads(line.data)
    return found if isinstance(found, Mapping) else None


def _notebook_of(run_id: str) -> str:
    return task_id_of(run_id, call_key(CallKind.STEP, "", "sources"), 0)
