"""Read how runs of flows stand, off the event loop, and only when their file has changed.

Laws: (1) nothing is written, and without a store nothing is made; (2) what is read is bounded: the
newest runs, and of a large run the calls that matter; (3) no argument, prompt or answer is told;
(4) a store that cannot be read is no reason to show nothing: what was known stays.
Not here: orders to runs (assembly/run_orders.py), words for one run's page (run_told.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from jackline.clock import Clock
from jackline.control.board import NO_FLOWS, Flows, Rest
from jackline.control.fleet import Doing
from jackline.dashboard.run_told import call_told, resource_told, run_told
from jackline.errors import JacklineError
from jackline.flows.engine import Engine
from jackline.flows.local import LocalEngine
from jackline.flows.records import CallRecord, CallState, NoteRecord, RunRecord, RunState

_log = logging.getLogger(__name__)
_ENDED = {CallState.DONE: Doing.FINISHED, CallState.FAILED: Doing.FAILED}
_MOST_RUNS = 30
_MOST_DONE = 40
_MOST_CALLS = 400
_MOST_NOTES = 60
# A file that is written all the time is read so often at most.
_EVERY = 2.0
# A process that takes a parked run up may go on waiting in it: only waking ends that.
_GOES_ON = frozenset(("woke", RunState.FINISHED, RunState.FAILED, RunState.CANCELLED))
_WORTH_TELLING = frozenset(
    ("started", "woke", "stopping", "budget near", "guard", "clean-up", "warning", *RunState)
)


@dataclass(frozen=True, slots=True)
class _Run:
    """One run as it was read last."""

    record: RunRecord
    told: dict[str, object]
    labels: dict[str, object]
    ended: dict[str, Doing]
    rests: dict[str, Rest]
    notes: list[NoteRecord]


class FlowBook:
    """The runs of one store; `close` it."""

    def __init__(self, store: Path, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._engine: LocalEngine | None = None
        self._seen: tuple[object, ...] = ()
        self._read_at = float("-inf")
        self._runs: dict[str, _Run] = {}
        self._flows = NO_FLOWS
        self.reads = 0
        """How often the file was read."""

    async def look(self) -> Flows:
        """How the runs stand; the same value as before when nothing was written."""
        now = self._clock.monotonic()
        if now - self._read_at < _EVERY:
            return self._flows
        seen = await asyncio.to_thread(_traces, self._store)
        if not seen or (seen == self._seen and not self._cut_off()):
            return self._flows
        self._read_at = now
        try:
            self._flows = await self._read()
            self._seen = seen
        except JacklineError as error:
            _log.warning("the page does not show how runs stand: %s", error.message)
        return self._flows

    @property
    def known(self) -> Flows:
        """How the runs stood at the last look."""
        return self._flows

    def engine(self) -> Engine | None:
        """The store to ask more of; None where there is none."""
        if self._engine is None and self._store.exists():
            self._engine = LocalEngine(self._store)
        return self._engine

    async def close(self) -> None:
        """Let go of the file."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.close()

    def _cut_off(self) -> bool:
        """Whether the lease of a run has ended that was running: nobody writes that down."""
        now = self._clock.wall()
        return any(
            run.told["state"] == RunState.RUNNING and run.record.lease_until < now
            for run in self._runs.values()
        )

    async def _read(self) -> Flows:
        engine = self.engine()
        if engine is None:
            return NO_FLOWS
        self.reads += 1
        records = await engine.runs(limit=_MOST_RUNS)
        held = await engine.resources()
        self._runs = {each.run_id: await self._run(engine, each) for each in records}
        by_id = {each.run_id: each for each in records}
        now = self._clock.wall()
        resources = {
            f"{each.run_id}|{each.name}": resource_told(each, by_id.get(each.run_id), now)
            for each in held
        }
        labels: dict[str, object] = {}
        ended: dict[str, Doing] = {}
        rests: dict[str, Rest] = {}
        notes: list[tuple[float, str, str]] = []
        for name, run in self._runs.items():
            labels |= run.labels
            ended |= run.ended
            rests |= run.rests
            notes += [(n.at, f"{run.record.flow} {name}", _words(n)) for n in run.notes]
        runs = {name: run.told for name, run in self._runs.items()}
        parkings = {name: parkings_of(run.notes) for name, run in self._runs.items()}
        return Flows(runs, resources, labels, ended, notes, rests, parkings)

    async def _run(self, engine: Engine, record: RunRecord) -> _Run:
        known = self._runs.get(record.run_id)
        if known is not None and known.record == record and record.state is not RunState.RUNNING:
            return known
        calls = await engine.calls(record.run_id)
        notes = [] if known is None else known.notes
        after = notes[-1].number if notes else 0
        fresh = await engine.notes(record.run_id, after=after)
        notes = [*notes, *(each for each in fresh if _is_news(each))][-_MOST_NOTES:]
        now = self._clock.wall()
        told = run_told(record, calls, now)
        chosen = worth_showing(calls)
        told["calls"] = [call_told(call, record, now) for call in chosen]
        told["more"] = len(calls) - len(chosen)
        labels: dict[str, object] = {call.task_id: call.label for call in calls if call.task_id}
        doing, rest = _meanwhile(record, str(told["state"]))
        ended = {call.task_id: _ENDED.get(call.state, doing) for call in calls if call.task_id}
        rests = {
            call.task_id: rest
            for call in calls
            if rest is not None and call.task_id and call.state not in _ENDED
        }
        return _Run(record, told, labels, ended, rests, notes)


def parkings_of(notes: Sequence[NoteRecord]) -> list[tuple[float, float]]:
    """When a run was parked, from its own notes; the last may have no end yet."""
    found: list[tuple[float, float]] = []
    since: float | None = None
    for note in notes:
        if note.what == RunState.PARKED:
            since = note.at if since is None else since
        elif since is not None and note.what in _GOES_ON:
            found.append((since, note.at))
            since = None
    return found if since is None else [*found, (since, inf)]


def _meanwhile(run: RunRecord, state: str) -> tuple[Doing, Rest | None]:
    """What the agents of a run do that have not ended, and have no call under way."""
    if state == "cut off":
        return Doing.FAILED, Rest(f"its run was cut off: jackline resume {run.run_id}")
    if state == RunState.STOPPED:
        return Doing.PARKED, Rest(f"its run was stopped: jackline resume {run.run_id}")
    if state == RunState.PARKED:
        return Doing.PARKED, Rest(run.why, run.wake_at)
    # A tool may take hours; of a run that has ended nothing goes on.
    return (Doing.BETWEEN if state == RunState.RUNNING else Doing.FINISHED), None


def worth_showing(calls: Sequence[CallRecord]) -> list[CallRecord]:
    """What fails or is under way, and the latest of what is done; in the order of the run."""
    done = [call for call in calls if call.state is CallState.DONE]
    latest = {id(call) for call in done[-_MOST_DONE:]}
    chosen = [call for call in calls if call.state is not CallState.DONE or id(call) in latest]
    return chosen[-_MOST_CALLS:]


def _is_news(note: NoteRecord) -> bool:
    failed = note.what in ("agent ended", "step ended") and (
        note.detail.get("terminated_by", "completion") != "completion" or note.detail.get("trouble")
    )
    return note.what in _WORTH_TELLING or bool(failed)


def _words(note: NoteRecord) -> str:
    detail = note.detail
    says = detail.get("says") or detail.get("trouble") or detail.get("why") or ""
    ending = detail.get("terminated_by")
    label = f"{note.label}: " if note.label else ""
    words = f"{label}{note.what}" + (f", {ending}" if ending else "")
    return f"{words}. {says}" if says else words


def _traces(store: Path) -> tuple[object, ...]:
    """What changes whenever the store is written; empty while there is none."""
    found: list[object] = []
    for path in (store, store.with_name(f"{store.name}-wal")):
        try:
            stat = path.stat()
        except OSError:
            continue  # there is no log beside it, or no store yet
        found += [stat.st_mtime_ns, stat.st_size, stat.st_ino]
    return tuple(found)
