"""Words for runs, their calls, notes and resources, a line each.

Laws: (1) nothing is changed; (2) the words for states are the records' own; (3) no prompt and no
answer.
Not here: which of them are shown (runs.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo

from jackline.control.run_view import until_words
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.flows.orders import is_dead
from jackline.flows.outcome_json import decode_outcome
from jackline.flows.records import (
    CallRecord,
    CallState,
    NoteRecord,
    ResourceRecord,
    RunRecord,
    RunState,
)
from jackline.flows.settings import decode_settings
from jackline.flows.waking import expected_cost, may_wake

_GLYPHS = {CallState.DONE: "✓", CallState.FAILED: "✗", CallState.RUNNING: "…"}


def run_line(run: RunRecord, now: datetime) -> str:
    """One run."""
    state = run.state.value
    gone = run.lease_until < now.timestamp() or is_dead(run.owner)
    if run.state is RunState.RUNNING and gone:
        state = "cut off"  # whoever carried it is gone, and left no word
    waits = until_words(run.wake_at, now) if run.state is RunState.PARKED else ""
    began = moment_in_words(_moment(run.created_at, now), now)
    why = f": {run.why}" if run.why else ""
    sums = f"{run.tokens:,} tokens, ${run.cost:,.2f}"
    return f"{run.run_id}  {run.flow}  {state}{waits}{why}  (began {began}; {sums})"


def waking_line(run: RunRecord, calls: Sequence[CallRecord], now: datetime) -> str:
    """When a parked run would wake, and at what cost."""
    decision = may_wake(now, run, decode_settings(run.settings).wake)
    if decision.now:
        when = "wakes at once, when `jackline up` runs"
    elif decision.at is not None:
        when = f"wakes {moment_in_words(decision.at.replace(microsecond=0), now)}"
    else:
        when = f"does not wake by itself: {decision.why}"
    done = sum(call.state is CallState.DONE for call in calls)
    cost = expected_cost(run, done=done, known=len(calls))
    guess = (
        "" if cost is None else f"; the {len(calls) - done} known calls left: about ${cost:,.2f}"
    )
    return f"{when}{guess}"


def call_lines(calls: Sequence[CallRecord], now: datetime) -> Iterator[str]:
    """Every call of a run, by phase."""
    phase = ""
    for call in calls:
        if call.phase != phase:
            phase = call.phase
            yield f"{phase}:" if phase else ""
        yield f"  {_GLYPHS[call.state]} {call.label}{_call_words(call, now)}"


def _call_words(call: CallRecord, now: datetime) -> str:
    if call.state is CallState.RUNNING:
        return f"  under way, task {call.task_id}"
    words = f"  {call.tokens:,} tokens" if call.tokens else ""
    if call.state is CallState.DONE or call.outcome is None:
        return words
    evidence = decode_outcome(call.outcome).evidence
    until = until_words(None if evidence.resets_at is None else evidence.resets_at.timestamp(), now)
    return f"  {call.terminated_by}: {evidence.says}{until}{words}, task {call.task_id}"


def resource_line(resource: ResourceRecord, now: datetime) -> str:
    """One rented thing."""
    held = duration_in_words(max(timedelta(0), now - _moment(resource.taken_at, now)))
    whose = f"agent {resource.task_id} of run" if resource.task_id else "run"
    lease = ""
    if resource.lease_until is not None:
        lease = f", lease ends {moment_in_words(_moment(resource.lease_until, now), now)}"
    trouble = f"; its release failed: {resource.trouble}" if resource.trouble else ""
    return (
        f"{resource.name}  {resource.state.value} for {held} by {whose} {resource.run_id}"
        f"{lease}{trouble}"
    )


def note_line(note: NoteRecord, *, as_json: bool, zone: tzinfo | None) -> str:
    """One line of a log."""
    at = datetime.fromtimestamp(note.at, zone)
    if as_json:
        told = {
            "schema": "jackline.run-note/1",
            "at": at.isoformat(timespec="milliseconds"),
            "run": note.run_id,
            "number": note.number,
            "what": note.what,
            "label": note.label or None,
            **note.detail,
        }
        return json.dumps(told, ensure_ascii=False)
    detail = ", ".join(f"{name} {value}" for name, value in note.detail.items() if value)
    label = f" {note.label}" if note.label else ""
    return f"{at:%Y-%m-%d %H:%M:%S} {note.what}{label}{': ' + detail if detail else ''}"


def _moment(at: float, now: datetime) -> datetime:
    return datetime.fromtimestamp(round(at), now.tzinfo)
