"""Read the runs of the store for the page, off the event loop, only when their file has changed.

Rules: (1) nothing is written, and without a store nothing is created; (2) bounded: the newest runs
and those that have not ended, and of a large run the calls that matter; (3) no argument, prompt or
answer: of an outcome only the ending, the evidence and the sums; (4) when a store cannot be read,
the last known state remains.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from jackline.clock import Clock
from jackline.control.board import NO_FLOW_FACTS, FlowFacts, WaitReason
from jackline.control.run_view import step_after_end
from jackline.control.text import whole_second
from jackline.errors import JacklineError, JournalError
from jackline.flows.execution.agent_cancellation import is_cancelled_by_person
from jackline.flows.records import (
    ENDED,
    CallKind,
    CallRecord,
    CallState,
    NoteRecord,
    ResourceRecord,
    ResourceState,
    RunRecord,
    RunState,
    decode_outcome,
)
from jackline.flows.run_owner import is_dead
from jackline.flows.run_totals import RunTotals, fold, used_by_run
from jackline.flows.settings import decode_settings
from jackline.flows.store import open_run_store, run_store_exists
from jackline.flows.store.run_store import RunStore
from jackline.states import AgentState, DerivedState, State


def run_document(run: RunRecord, totals: RunTotals, now: float) -> dict[str, object]:
    """One run, without its calls."""
    agents = totals.agents
    is_cut_off = run.state is RunState.RUNNING and _is_left(run, now)
    state: State = DerivedState.CUT_OFF if is_cut_off else run.state
    can = []
    if state in _RESUMABLE and run.source and run.trusted:
        can.append("resume")
    if run.state in ENDED and (agents.failed or totals.steps_failed) and run.source and run.trusted:
        can.append("retry")
    if run.state not in ENDED:
        can.append("cancel")
    step = None
    try:
        outcome = run.decoded_outcome() if run.state in ENDED else None
        step = None if outcome is None else step_after_end(run, outcome)
    except JournalError:
        pass  # an older version's
    if step is not None and " --" in step.command:
        can = []  # an order without these words would end alike
    budget = None
    try:
        budgets = [each for each in decode_settings(run.settings).budgets if not each.window]
    except JournalError:
        budgets = []  # an older version's; it is no reason to show nothing
    dollars = [each.dollars for each in budgets if each.dollars is not None]
    tokens = [each.tokens for each in budgets if each.tokens is not None]
    if dollars or tokens:
        budget = {"dollars": min(dollars, default=None), "tokens": min(tokens, default=None)}
    return {
        "run": run.run_id,
        "flow": run.flow,
        "state": state.value,
        "why": run.why,
        "wake_at": None if run.wake_at is None else whole_second(run.wake_at),
        "created_at": round(run.created_at, 1),
        "ended_at": run.ended_at,
        "tokens": totals.tokens,
        "cost": round(totals.cost, 4),
        "unpriced": totals.unpriced,
        "counts": totals.in_words(run.state),
        "done": agents.ok,
        "failed": agents.failed,
        "running": agents.unfinished,
        "steps_done": totals.steps_done,
        "steps_failed": totals.steps_failed,
        "steps_running": totals.steps_running,
        "forked_from": run.forked_from,
        "budget": budget,
        "can": can,
        "next": "" if step is None else step.command,
        "trusted": run.trusted,
    }


def _is_left(run: RunRecord, now: float) -> bool:
    """Whether nobody runs it any more: its lease is over, or its process was one of ours and died.

    A process that dies because it can write nothing cannot give its lease back.
    """
    return run.lease_until < now or is_dead(run.owner)


def call_document(call: CallRecord, run: RunRecord, now: float) -> dict[str, object]:
    """One call of a run, with the evidence where it failed, and the possible orders."""
    can = []
    if call.kind is CallKind.AGENT and call.state is CallState.RUNNING and run.state not in ENDED:
        can = ["cancel"]
    # A flow that is running has already got the result of a failed agent.
    is_idle = run.lease_until <= now and run.source and run.trusted
    if call.kind is CallKind.AGENT and call.state is CallState.FAILED and is_idle:
        can = ["resume", "retry"]
    document: dict[str, object] = {
        "kind": call.kind.value,
        "label": call.label,
        "phase": call.phase,
        "task": call.task_id,
        "state": call.state.value,
        "ending": call.terminated_by,
        "attempts": call.attempts,
        "began": round(call.started_at, 1),
        "ended": call.ended_at,
        "tokens": call.tokens,
        "cost": round(call.cost, 4),
        "unpriced": call.unpriced,
        "can": can,
    }
    if call.outcome is None or call.state is CallState.DONE:
        return document
    try:
        outcome = decode_outcome(call.outcome)
    except JournalError:
        return document  # an older version's; the ending is shown without it
    evidence = outcome.evidence
    document |= {"by_hand": True} if is_cancelled_by_person(outcome) else {}
    return document | {
        "says": evidence.says,
        "failure": evidence.failure,
        "status": evidence.status,
        "request_id": evidence.request_id,
        "tries": evidence.attempts,
        "turns": outcome.turns,
        "session": outcome.session_id,
        "resets_at": None if evidence.resets_at is None else evidence.resets_at.timestamp(),
    }


def resource_document(
    resource: ResourceRecord, run: RunRecord | None, now: float
) -> dict[str, object]:
    """One rented resource, and whether an order can release it."""
    is_running = run is not None and run.lease_until > now
    overdue = resource.lease_until is not None and resource.lease_until < now
    left = not is_running and resource.trusted and (overdue or run is None or run.state in ENDED)
    return {
        "run": resource.run_id,
        "name": resource.name,
        "task": resource.task_id,
        "state": resource.state.value,
        "taken_at": round(resource.taken_at, 1),
        "lease_until": resource.lease_until,
        "trouble": resource.trouble,
        "trusted": resource.trusted,
        "can": ["release"] if left and resource.state is not ResourceState.RELEASED else [],
    }


_RESUMABLE = (RunState.PARKED, RunState.STOPPED, RunState.FAILED, DerivedState.CUT_OFF)
_log = logging.getLogger(__name__)
_ENDED_AS = {CallState.DONE: AgentState.FINISHED, CallState.FAILED: AgentState.FAILED}
_MAX_RUNS = 30
_MAX_OPEN_RUNS = 100
_MAX_DONE = 40
_MAX_CALLS = 400
_MAX_NOTES = 60
# A file that is written all the time is read so often at most.
_EVERY = 2.0
# A process that claims a parked run may wait on in it: only waking ends that.
_GOES_ON = frozenset(("woke", RunState.FINISHED, RunState.FAILED, RunState.CANCELLED))
_NEWS = frozenset(
    ("started", "woke", "stopping", "budget near", "guard", "clean-up", "warning", *RunState)
)


@dataclass(frozen=True, slots=True)
class _Run:
    """One run as it was read last."""

    record: RunRecord
    document: dict[str, object]
    labels: dict[str, object]
    agent_states: dict[str, AgentState]
    wait_reasons: dict[str, WaitReason]
    notes: list[NoteRecord]

    @property
    def parkings(self) -> list[tuple[float, float]]:
        """When it was parked, from its own notes; the last may have no end yet."""
        found: list[tuple[float, float]] = []
        since: float | None = None
        for note in self.notes:
            if note.what == RunState.PARKED:
                since = note.at if since is None else since
            elif since is not None and note.what in _GOES_ON:
                found.append((since, note.at))
                since = None
        return found if since is None else [*found, (since, inf)]

    @property
    def events(self) -> Iterator[tuple[float, str, str]]:
        """Its notes: when, who, what."""
        for note in self.notes:
            detail = note.detail
            says = detail.get("says") or detail.get("trouble") or detail.get("why") or ""
            ending = detail.get("terminated_by")
            label = f"{note.label}: " if note.label else ""
            text = f"{label}{note.what}" + (f", {ending}" if ending else "")
            who = f"{self.record.flow} {self.record.run_id}"
            yield note.at, who, f"{text}. {says}" if says else text


class StoredRuns:
    """The runs of one store; `close` it."""

    def __init__(self, store_url: str, clock: Clock) -> None:
        self._store_url = store_url
        self._clock = clock
        self._engine = open_run_store(store_url)
        self._seen: object = None
        self._read_at = float("-inf")
        self._runs: dict[str, _Run] = {}
        self._flows = NO_FLOW_FACTS
        self.reads = 0
        """How often the file was read."""

    async def look(self) -> FlowFacts:
        """The present runs; the same value as before when nothing was written."""
        now = self._clock.monotonic()
        if now - self._read_at < _EVERY:
            return self._flows
        seen = await self._engine.change_mark()
        wall = self._clock.wall()
        # Nobody writes down that a lease has ended, or a process.
        cut_off = any(
            run.document["state"] == RunState.RUNNING and _is_left(run.record, wall)
            for run in self._runs.values()
        )
        if seen is None or (seen == self._seen and not cut_off):
            return self._flows
        self._read_at = now
        try:
            self._flows = await self._read()
            self._seen = seen
        except JacklineError as error:
            _log.warning("the page does not show the present runs: %s", error.message)
        return self._flows

    @property
    def known(self) -> FlowFacts:
        """The runs at the last look."""
        return self._flows

    def engine(self) -> RunStore | None:
        """The store; None where there is none yet."""
        return self._engine if run_store_exists(self._store_url) else None

    async def count(self) -> Mapping[RunState, tuple[int, int]]:
        """How many runs are in each state, and how many of them have no time to wake."""
        return await self._engine.count_runs()

    async def close(self) -> None:
        """Close the store."""
        await self._engine.close()

    async def _read(self) -> FlowFacts:
        engine = self.engine()
        if engine is None:
            return NO_FLOW_FACTS
        self.reads += 1
        records = [*await engine.runs(limit=_MAX_RUNS)]
        # An older one may wait for a person.
        seen = {each.run_id for each in records}
        open_ = await engine.runs(states=(RunState.RUNNING, RunState.PARKED), limit=_MAX_OPEN_RUNS)
        records += [each for each in open_ if each.run_id not in seen]
        held = await engine.resources()
        self._runs = {each.run_id: await self._run(engine, each) for each in records}
        by_id = {each.run_id: each for each in records}
        now = self._clock.wall()
        resources = {
            f"{each.run_id}|{each.name}": resource_document(each, by_id.get(each.run_id), now)
            for each in held
        }
        labels: dict[str, object] = {}
        agent_states: dict[str, AgentState] = {}
        wait_reasons: dict[str, WaitReason] = {}
        notes: list[tuple[float, str, str]] = []
        for run in self._runs.values():
            labels |= run.labels
            agent_states |= run.agent_states
            wait_reasons |= run.wait_reasons
            notes += run.events
        runs = {name: run.document for name, run in self._runs.items()}
        parkings = {name: run.parkings for name, run in self._runs.items()}
        return FlowFacts(runs, resources, labels, agent_states, notes, wait_reasons, parkings)

    async def _run(self, engine: RunStore, record: RunRecord) -> _Run:
        known = self._runs.get(record.run_id)
        if known is not None and known.record == record and record.state is not RunState.RUNNING:
            return known
        calls = await engine.calls(record.run_id)
        notes = [] if known is None else list(known.notes)
        for note in await engine.notes(record.run_id, after=notes[-1].number if notes else 0):
            failed = note.what in ("agent ended", "step ended") and (
                note.detail.get("terminated_by", "completion") != "completion"
                or note.detail.get("trouble")
            )
            if failed or note.what in _NEWS:
                notes.append(note)
        notes = notes[-_MAX_NOTES:]
        now = self._clock.wall()
        totals = fold(record, calls, await used_by_run(engine, record.run_id, calls))
        document = run_document(record, totals, now)
        # What fails or is under way, and the latest of what is done; in the order of the run.
        done = [call for call in calls if call.state is CallState.DONE]
        latest = {id(call) for call in done[-_MAX_DONE:]}
        chosen = [call for call in calls if call.state is not CallState.DONE or id(call) in latest]
        chosen = chosen[-_MAX_CALLS:]
        document["calls"] = [call_document(call, record, now) for call in chosen]
        document["more"] = len(calls) - len(chosen)
        labels: dict[str, object] = {call.task_id: call.label for call in calls if call.task_id}
        # The state of the run's agents that have not ended, and have no call under way. A tool may
        # take hours; of a run that has ended nothing continues.
        resume = f"jackline resume {record.run_id}"
        state, reason = AgentState.FINISHED, None
        if document["state"] == DerivedState.CUT_OFF:
            state, reason = AgentState.FAILED, WaitReason(f"its run was cut off: {resume}")
        elif record.state is RunState.STOPPED:
            state, reason = AgentState.PARKED, WaitReason(f"its run was stopped: {resume}")
        elif record.state is RunState.PARKED:
            state, reason = AgentState.PARKED, WaitReason(record.why, record.wake_at)
        elif record.state is RunState.RUNNING:
            state = AgentState.BETWEEN
        tasks = {call.task_id: call.state for call in calls if call.task_id}
        states = {task: _ENDED_AS.get(each, state) for task, each in tasks.items()}
        reasons = {}
        if reason is not None:
            reasons = {task: reason for task, each in tasks.items() if each not in _ENDED_AS}
        return _Run(record, document, labels, states, reasons, notes)
