"""Render runs, their calls, notes and resources, one line each.

Rules: (1) nothing is changed; (2) the words for states are those of the records; (3) no prompt and
no answer; (4) the text of a record cannot move the cursor of a terminal.
Not here: which of them are shown (runs.py).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from jackline.autopsy.figures import counted
from jackline.control.text import until_text, whole_second
from jackline.errors import UsageError
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.flows.actions import shown_action
from jackline.flows.lifecycle import CancelledAgents, is_dead
from jackline.flows.records import (
    CallRecord,
    CallState,
    HookRecord,
    NoteRecord,
    ResourceRecord,
    RunRecord,
    RunState,
    decode_outcome,
)
from jackline.flows.settings import decode_settings, expected_cost, may_wake
from jackline.flows.store.pending_calls import PendingSession, PendingToolCall
from jackline.flows.store.run_store import NOT_OURS, how_to_accept
from jackline.outside_names import printable
from jackline.states import DerivedState

_SHOWN_OF_VALUE = 400
_LONGEST_ARGUMENTS = 20_000


def run_line(run: RunRecord, now: datetime) -> str:
    """One run."""
    state = run.state.value
    gone = run.lease_until < now.timestamp() or is_dead(run.owner)
    if run.state is RunState.RUNNING and gone:
        state = DerivedState.CUT_OFF.value
    waits = until_text(run.wake_at, now) if run.state is RunState.PARKED else ""
    if run.state is RunState.PARKED and run.wake_at is None and not run.confirmed:
        step = f"jackline resume {run.run_id}"
        waits = ", waits for you" if step in run.why else f", waits for you ({step})"
    began = moment_in_words(_moment(run.created_at, now), now)
    why = f": {run.why}" if run.why else ""
    sums = f"{run.tokens:,} tokens, ${run.cost:,.2f}"
    whose = "" if run.trusted else f"  {NOT_OURS}"
    line = f"{run.run_id}  {run.flow}  {state}{waits}{why}  (began {began}; {sums}){whose}"
    return printable(line)


@dataclass(frozen=True, slots=True)
class WakePlan:
    """When a parked run would wake, what holds it, and what the rest may cost."""

    at: datetime | None
    now: bool
    held_by: str
    calls_left: int
    expected_cost: float | None


def wake_plan(
    run: RunRecord, calls: Sequence[CallRecord], now: datetime, refused: str = ""
) -> WakePlan:
    """How a parked run would wake; `refused` is why it was not, when it was last to be woken."""
    if not run.trusted:
        return WakePlan(None, now=False, held_by=NOT_OURS, calls_left=0, expected_cost=None)
    decision = may_wake(now, run, decode_settings(run.settings).wake)
    done = sum(call.state is CallState.DONE for call in calls)
    cost = expected_cost(run, done=done, known=len(calls))
    left = len(calls) - done
    if refused:
        return WakePlan(None, now=False, held_by=refused, calls_left=left, expected_cost=cost)
    return WakePlan(decision.at, decision.now, decision.why, left, cost)


def wake_plan_line(
    run: RunRecord, calls: Sequence[CallRecord], now: datetime, refused: str = ""
) -> str:
    """The same for people."""
    if not run.trusted:
        return printable(f"does not wake: {NOT_OURS}; {how_to_accept(run.run_id)}")
    waking = wake_plan(run, calls, now, refused)
    if waking.now:
        when = "wakes at once, when `jackline up` runs"
    elif waking.at is not None:
        at_reset = run.wake_at is not None and waking.at.timestamp() <= run.wake_at
        why = "" if at_reset else f": {waking.held_by}"  # a brake holds it for longer than its wall
        hour = datetime.fromtimestamp(whole_second(waking.at.timestamp()), waking.at.tzinfo)
        when = f"wakes {moment_in_words(hour, now)}{why}"
    else:
        when = f"does not wake by itself: {waking.held_by}"
    cost = waking.expected_cost
    guess = (
        "" if cost is None else f"; the {waking.calls_left} known calls left: about ${cost:,.2f}"
    )
    return printable(f"{when}{guess}")


def call_lines(calls: Sequence[CallRecord], now: datetime) -> Iterator[str]:
    """Every call of a run, by phase."""
    phase = ""
    for call in calls:
        if call.phase != phase:
            phase = call.phase
            yield printable(f"{phase}:") if phase else ""
        yield printable(f"  {call.state.glyph} {call.label}{_call_words(call, now)}")


def _call_words(call: CallRecord, now: datetime) -> str:
    if call.state is CallState.RUNNING:
        return f"  under way, task {call.task_id}"
    words = f"  {call.tokens:,} tokens" if call.tokens else ""
    if call.state is CallState.DONE or call.outcome is None:
        return words
    evidence = decode_outcome(call.outcome).evidence
    until = until_text(None if evidence.resets_at is None else evidence.resets_at.timestamp(), now)
    return f"  {call.terminated_by}: {evidence.says}{until}{words}, task {call.task_id}"


def cancelled_lines(came: CancelledAgents) -> Iterator[str]:
    """What came of an order to cancel agents, and how to undo it."""
    return map(printable, _cancelled_lines(came))


def _cancelled_lines(came: CancelledAgents) -> Iterator[str]:
    run, name = came.run, came.name
    if came.ended is None:
        yield f"the process that carries run {run.run_id} was told: it ends {name} in a moment"
    elif not came.ended:
        yield f"no agent {name} has come yet; one that comes in run {run.run_id} is not started"
    else:
        who = name if came.ended == 1 else f"{counted(came.ended, 'agent')} labelled {name}"
        rest = "its run goes on" if came.carried else f"its run stays {run.state.value}"
        yield f"{who} of run {run.run_id} {'was' if came.ended == 1 else 'were'} cancelled; {rest}"
    when = ", once the run has ended or was stopped" if came.carried and came.ended else ""
    yield f"undo{when}: {_undo(came)}"


def cancelled_json(came: CancelledAgents) -> dict[str, object]:
    """The same as a document."""
    return {
        "schema": "jackline.agents-cancelled/1",
        "run": came.run.run_id,
        "state": came.run.state.value,
        "only": came.name,
        "ended": came.ended,
        "undo": _undo(came),
    }


def _undo(came: CancelledAgents) -> str:
    return f"jackline resume {came.run.run_id} --only {shlex.quote(came.name)}"


def resource_line(resource: ResourceRecord, now: datetime) -> str:
    """One rented thing."""
    held = duration_in_words(max(timedelta(0), now - _moment(resource.taken_at, now)))
    whose = f"agent {resource.task_id} of run" if resource.task_id else "run"
    lease = ""
    if resource.lease_until is not None:
        lease = f", lease ends {moment_in_words(_moment(resource.lease_until, now), now)}"
    trouble = f"; its release failed: {resource.trouble}" if resource.trouble else ""
    if not resource.trusted:
        trouble = f"; {NOT_OURS}; {how_to_accept(resource.run_id)}"
    return printable(
        f"{resource.name}  {resource.state.value} for {held} by {whose} {resource.run_id}"
        f"{lease}{trouble}"
    )


def code_of_run_lines(
    run: RunRecord,
    resources: Sequence[ResourceRecord],
    hooks: Sequence[HookRecord],
    calls: Sequence[CallRecord],
    kept: Sequence[PendingToolCall | PendingSession],
) -> Iterator[str]:
    """All of a run that leads to code or commands, for a person who decides about it."""
    yield printable(f"run {run.run_id}, {run.state.value}:")
    yield printable(f"  loads   {run.source or '(no file)'}, flow {run.flow}")
    yield printable(f"  works   in {run.cwd or '(no folder)'}")
    yield printable(f"  with    {run.arguments.decode('utf-8', 'replace')}")
    yield printable(f"  as      {run.settings.decode('utf-8', 'replace')}")
    for hook in hooks:
        yield printable(
            f"  runs    {shown_action(hook.hook)}   (at the end of {hook.end_id}, {hook.state})"
        )
    for each in resources:
        yield printable(
            f"  runs    {shown_action(each.release) or '(nothing)'}   (gives back {each.name})"
        )
    for use in kept:
        if isinstance(use, PendingSession):
            yield printable(f"  resumes session {use.session_id}   (agent {use.task_id})")
        else:
            yield printable(f"  calls   {use.name} {_bounded(use)}   (agent {use.task_id})")
    for call in calls:
        if call.value is not None:
            value = _cut(call.value.decode("utf-8", "replace"))
            yield printable(f"  takes   {value}   (for {call.kind.value} {call.label})")
    yield (
        f"  goes on from {counted(len(calls), 'call')} that it has kept: their results, and what"
        " agents have said so far, are used as they stand"
    )


def _bounded(call: PendingToolCall) -> str:
    """The arguments, whole: what is too long to be looked at is refused."""
    if len(call.arguments) > _LONGEST_ARGUMENTS:
        raise UsageError(
            f"agent {call.task_id} would call {call.name} with {len(call.arguments):,} characters,"
            " more than anybody can look at; nothing was accepted",
            next="delete the run (jackline rm ID --force) and begin it anew",
        )
    return call.arguments


def _cut(value: str) -> str:
    if len(value) <= _SHOWN_OF_VALUE:
        return value
    return f"{value[:_SHOWN_OF_VALUE]}… and {len(value) - _SHOWN_OF_VALUE:,} characters more"


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
        return json.dumps(told)
    detail = ", ".join(f"{name} {_plain(value)}" for name, value in note.detail.items() if value)
    label = f" {note.label}" if note.label else ""
    line = f"{at:%Y-%m-%d %H:%M:%S} {note.what}{label}{': ' + detail if detail else ''}"
    return printable(line)


def _plain(value: object) -> str:
    """A detail as people write it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _moment(at: float, now: datetime) -> datetime:
    return datetime.fromtimestamp(round(at), now.tzinfo)
