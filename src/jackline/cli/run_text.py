"""Render runs, their calls, notes and resources, one line each.

Rules: (1) nothing is changed; (2) the words for states are those of the records; (3) no prompt and
no answer; (4) the text of a record cannot move the cursor of a terminal.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from jackline.autopsy.figures import counted
from jackline.clock import SystemClock
from jackline.control.text import ago_text, until_text, whole_second
from jackline.errors import JournalError, UnreadableError, UsageError
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.flows.lifecycle import CancelledAgents
from jackline.flows.records import (
    CallRecord,
    CallState,
    HookRecord,
    NoteRecord,
    ResourceRecord,
    RunRecord,
    RunState,
    decode_outcome,
    shown_action,
)
from jackline.flows.run_owner import is_dead
from jackline.flows.run_totals import RunTotals
from jackline.flows.settings import decode_settings, expected_cost, limits_in_words, may_wake
from jackline.flows.store.agent_log import PendingSession, PendingToolCall
from jackline.flows.store.run_store import NOT_OURS, how_to_accept
from jackline.outside_names import printable
from jackline.states import DerivedState

_SHOWN_OF_VALUE = 400
_LONGEST_ARGUMENTS = 20_000


def no_runs(folder: Path) -> UnreadableError:
    """The error for an id where there is no run at all."""
    return UnreadableError(f"there are no runs in {folder}", hint="start one: jackline run FLOW.py")


def has_live_owner(run: RunRecord, now: float) -> bool:
    """Whether a process that runs it is alive, as far as can be known."""
    return bool(run.owner) and run.lease_until > now and not is_dead(run.owner)


def run_line(run: RunRecord, totals: RunTotals, now: datetime, *, exact: bool = False) -> str:
    """One run; `exact`: with the date on which it began."""
    state = run.state.value
    if run.state is RunState.RUNNING and not has_live_owner(run, now.timestamp()):
        state = DerivedState.CUT_OFF.value
    waits = until_text(run.wake_at, now) if run.state is RunState.PARKED else ""
    if run.state is RunState.PARKED and run.wake_at is None and not run.confirmed:
        step = f"jackline resume {run.run_id}"
        waits = ", waits for you" if step in run.why else f", waits for you ({step})"
    began = ago_text(run.created_at, now, exact=exact)
    why = f": {run.why}" if run.why else ""
    sums = f"{totals.in_words(run.state)}; {totals.paid}"
    if limits := _limits(run):
        sums += f"; may use {limits}"
    foreign = "" if run.trusted else f"  {NOT_OURS}"
    line = f"{run.run_id}  {run.flow}  {state}{waits}{why}  (began {began}; {sums}){foreign}"
    return printable(line)


def run_json(run: RunRecord, totals: RunTotals) -> dict[str, Any]:
    """One run as a document."""
    return {
        "run": run.run_id,
        "flow": run.flow,
        "source": run.source,
        "state": run.state.value,
        "why": run.why or None,
        "created_at": moment_json(run.created_at),
        "updated_at": moment_json(run.updated_at),
        "wake_at": None if run.wake_at is None else moment_json(whole_second(run.wake_at)),
        **totals.to_json(),
        "may_use": _limits(run) or None,
        "forked_from": run.forked_from,
        "outcome": _outcome_without_answer(run.outcome),
        "trusted": run.trusted,
    }


def _limits(run: RunRecord) -> str:
    try:
        return limits_in_words(decode_settings(run.settings).budgets)
    except JournalError:
        return ""  # an older version's, or somebody else's


def public_outcome(data: bytes | None) -> dict[str, Any]:
    """A saved outcome without what code of users said; empty when nothing is saved."""
    found = saved_json(data)
    if not isinstance(found, dict):
        return {}
    if isinstance(evidence := found.get("evidence"), dict):
        evidence.pop("private", None)
    return found


def _outcome_without_answer(data: bytes | None) -> dict[str, Any] | None:
    """A saved outcome for lists: `jackline show ID --json` has all of it."""
    found = public_outcome(data)
    return {name: each for name, each in found.items() if name not in ("value", "text")} or None


def saved_json(data: bytes | None) -> Any:
    """Saved JSON; None where a foreign program saved something else."""
    try:
        return None if data is None else json.loads(data)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class WakePlan:
    """When a parked run will wake, what holds it, and what the rest may cost."""

    at: datetime | None
    now: bool
    held_by: str
    calls_left: int
    expected_cost: float | None

    @classmethod
    def of(
        cls, run: RunRecord, calls: Sequence[CallRecord], now: datetime, refused: str = ""
    ) -> WakePlan:
        """How a parked run would wake; `refused` is the reason why its last waking was refused."""
        if not run.trusted:
            return cls(None, now=False, held_by=NOT_OURS, calls_left=0, expected_cost=None)
        decision = may_wake(now, run, decode_settings(run.settings).wake)
        done = sum(call.state is CallState.DONE for call in calls)
        cost = expected_cost(run, done=done, known=len(calls))
        left = len(calls) - done
        if refused:
            return cls(None, now=False, held_by=refused, calls_left=left, expected_cost=cost)
        return cls(decision.at, decision.now, decision.why, left, cost)

    def line(self, run: RunRecord, now: datetime) -> str:
        """The plan for people."""
        if not run.trusted:
            return printable(f"does not wake: {NOT_OURS}; {how_to_accept(run.run_id)}")
        if self.now:
            when = "wakes at once, when `jackline up` runs"
        elif self.at is not None:
            at_reset = run.wake_at is not None and self.at.timestamp() <= run.wake_at
            # Else a brake holds it longer than its quota wall.
            why = "" if at_reset else f": {self.held_by}"
            hour = datetime.fromtimestamp(whole_second(self.at.timestamp()), self.at.tzinfo)
            when = f"wakes {moment_in_words(hour, now)}{why}"
        else:
            when = f"does not wake by itself: {self.held_by}"
        if self.expected_cost is not None:
            when += f"; the {self.calls_left} known calls left: about ${self.expected_cost:,.2f}"
        return printable(when)


def call_lines(calls: Sequence[CallRecord], now: datetime) -> Iterator[str]:
    """Every call of a run, by phase."""
    phase = ""
    for call in calls:
        if call.phase != phase:
            phase = call.phase
            yield printable(f"{phase}:") if phase else ""
        end = f"  {call.tokens:,} tokens" if call.tokens else ""
        if call.state is CallState.RUNNING:
            end = f"  in progress, task {call.task_id}"
        elif call.state is not CallState.DONE and call.outcome is not None:
            evidence = decode_outcome(call.outcome).evidence
            resets = None if evidence.resets_at is None else evidence.resets_at.timestamp()
            said = f" It said: {evidence.private}" if evidence.private else ""
            why = f"{evidence.says}{until_text(resets, now)}{said}"
            end = f"  {call.terminated_by}: {why}{end}, task {call.task_id}"
        yield printable(f"  {call.state.glyph} {call.label}{end}")


def cancelled_lines(result: CancelledAgents) -> Iterator[str]:
    """The result of an order to cancel agents, and how to undo it."""
    run, name, ended = result.run, result.name, result.ended
    if ended is None:
        line = f"the process of run {run.run_id} was notified: it ends {name} in a moment"
    elif not ended:
        line = f"there is no agent {name} yet; one that comes in run {run.run_id} is not started"
    else:
        who = name if ended == 1 else f"{counted(ended, 'agent')} labelled {name}"
        rest = "its run goes on" if result.carried else f"its run stays {run.state.value}"
        line = f"{who} of run {run.run_id} {'was' if ended == 1 else 'were'} cancelled; {rest}"
    yield printable(line)
    when = ", once the run has ended or was stopped" if result.carried and ended else ""
    yield printable(f"undo{when}: {cancelled_json(result)['undo']}")


def cancelled_json(result: CancelledAgents) -> dict[str, object]:
    """The result of an order to cancel agents as a document."""
    return {
        "schema": "jackline.agents-cancelled/1",
        "run": result.run.run_id,
        "state": result.run.state.value,
        "only": result.name,
        "ended": result.ended,
        "undo": f"jackline resume {result.run.run_id} --only {shlex.quote(result.name)}",
    }


def resource_line(resource: ResourceRecord, now: datetime) -> str:
    """One rented resource."""
    taken_at = datetime.fromtimestamp(round(resource.taken_at), now.tzinfo)
    held = duration_in_words(max(timedelta(0), now - taken_at))
    owner = f"agent {resource.task_id} of run" if resource.task_id else "run"
    lease = ""
    if resource.lease_until is not None:
        ends = datetime.fromtimestamp(round(resource.lease_until), now.tzinfo)
        lease = f", lease ends {moment_in_words(ends, now)}"
    trouble = ""
    if resource.trouble:
        trouble = f"; its release failed: {resource.trouble} (jackline logs {resource.run_id})"
    if not resource.trusted:
        trouble = f"; {NOT_OURS}; {how_to_accept(resource.run_id)}"
    return printable(
        f"{resource.name}  {resource.state.value} for {held} by {owner} {resource.run_id}"
        f"{lease}{trouble}"
    )


def code_of_run_lines(
    run: RunRecord,
    resources: Sequence[ResourceRecord],
    hooks: Sequence[HookRecord],
    calls: Sequence[CallRecord],
    pending: Sequence[PendingToolCall | PendingSession],
) -> Iterator[str]:
    """All of a run that leads to code or commands, for a person who decides about it.

    UsageError when a tool call is too long for a person to read.
    """
    lines = [
        f"run {run.run_id}, {run.state.value}:",
        f"  loads   {run.source or '(no file)'}, flow {run.flow}",
        f"  works   in {run.cwd or '(no folder)'}",
        f"  with    {run.arguments.decode('utf-8', 'replace')}",
        f"  as      {run.settings.decode('utf-8', 'replace')}",
    ]
    for hook in hooks:
        action = shown_action(hook.hook)
        lines.append(f"  runs    {action}   (at the end of {hook.end_id}, {hook.state})")
    for each in resources:
        action = shown_action(each.release) or "(nothing)"
        lines.append(f"  runs    {action}   (gives back {each.name})")
    for use in pending:
        if isinstance(use, PendingSession):
            lines.append(f"  resumes session {use.session_id}   (agent {use.task_id})")
            continue
        if len(use.arguments) > _LONGEST_ARGUMENTS:
            raise UsageError(
                f"agent {use.task_id} would call {use.name} with {len(use.arguments):,} characters,"
                " more than a person can check; nothing was accepted",
                hint=f"delete the run (jackline rm {run.run_id} --force) and start it again",
            )
        lines.append(f"  calls   {use.name} {use.arguments}   (agent {use.task_id})")
    for call in calls:
        if call.value is not None:
            value = call.value.decode("utf-8", "replace")
            if len(value) > _SHOWN_OF_VALUE:
                cut = len(value) - _SHOWN_OF_VALUE
                value = f"{value[:_SHOWN_OF_VALUE]}… and {cut:,} characters more"
            lines.append(f"  takes   {value}   (for {call.kind.value} {call.label})")
    lines.append(
        f"  goes on from {counted(len(calls), 'saved call')}: their results, and the conversations"
        " of its agents, are used as they are"
    )
    yield from map(printable, lines)


def note_line(note: NoteRecord, *, as_json: bool, zone: tzinfo | None) -> str:
    """One line of a run's log."""
    at = datetime.fromtimestamp(note.at, zone)
    if as_json:
        document = {
            "schema": "jackline.run-note/1",
            "at": at.isoformat(timespec="milliseconds"),
            "run": note.run_id,
            "number": note.number,
            "what": note.what,
            "label": note.label or None,
            **note.detail,
        }
        return json.dumps(document)
    details = []
    for name, value in note.detail.items():
        if isinstance(value, float) and value:
            details.append(f"{name} {value:.4g}")
        elif value:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            details.append(f"{name} {text}")
    label = f" {note.label}" if note.label else ""
    detail = f": {', '.join(details)}" if details else ""
    return printable(f"{at:%Y-%m-%d %H:%M:%S} {note.what}{label}{detail}")


def moment_json(moment: float) -> str:
    """A time in the zone of this host."""
    zone = SystemClock().now().tzinfo
    return datetime.fromtimestamp(moment, zone).isoformat(timespec="seconds")
