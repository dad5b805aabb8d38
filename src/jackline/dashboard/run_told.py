"""Runs, their calls and what they rented, as plain data for the page.

Laws: (1) pure; (2) states and endings in the records' own words; (3) no argument, prompt or answer:
of an outcome only the ending, the evidence and the sums are told.
Not here: reading them (flow_book.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jackline.control.whole_seconds import whole_second
from jackline.errors import JournalError
from jackline.flows.agent_orders import is_by_hand
from jackline.flows.outcome_json import decode_outcome
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
)
from jackline.flows.settings import decode_settings


def run_told(run: RunRecord, calls: Sequence[CallRecord], now: float) -> dict[str, object]:
    """How a run stands."""
    states = Counter(call.state for call in calls)
    state = run.state.value
    if run.state is RunState.RUNNING and run.lease_until < now:
        state = "cut off"  # whoever carried it is gone, and left no word
    return {
        "run": run.run_id,
        "flow": run.flow,
        "state": state,
        "why": run.why,
        "wake_at": None if run.wake_at is None else whole_second(run.wake_at),
        "created_at": round(run.created_at, 1),
        "ended_at": run.ended_at,
        # The run's own sums are written now and then, those of its calls when they end.
        "tokens": max(run.tokens, sum(call.tokens for call in calls)),
        "cost": round(max(run.cost, sum(call.cost for call in calls)), 4),
        "done": states[CallState.DONE],
        "failed": states[CallState.FAILED],
        "running": states[CallState.RUNNING],
        "forked_from": run.forked_from,
        "budget": _budget(run),
        "can": _can(run, state, failed=states[CallState.FAILED]),
        "trusted": run.trusted,
    }


def call_told(call: CallRecord, run: RunRecord, now: float) -> dict[str, object]:
    """How one call of a run stands, with the evidence where it failed, and what may be ordered."""
    told: dict[str, object] = {
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
        "can": _can_agent(call, run, now),
    }
    if call.outcome is not None and call.state is not CallState.DONE:
        told |= _evidence(call.outcome)
    return told


def resource_told(resource: ResourceRecord, run: RunRecord | None, now: float) -> dict[str, object]:
    """What is rented, by whom, and whether an order can give it back."""
    carried = run is not None and run.lease_until > now
    overdue = resource.lease_until is not None and resource.lease_until < now
    left = not carried and resource.trusted and (overdue or run is None or run.state in ENDED)
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


def note_told(note: NoteRecord) -> dict[str, object]:
    """One line of a run's log."""
    return {"at": note.at, "what": note.what, "label": note.label, **note.detail}


def _can(run: RunRecord, state: str, *, failed: int) -> list[str]:
    """The orders that make sense for a run as it stands."""
    can = []
    if state in ("parked", "stopped", "cut off", "failed") and run.source and run.trusted:
        can.append("resume")
    if run.state in ENDED and failed and run.source and run.trusted:
        can.append("retry")
    if run.state not in ENDED:
        can.append("cancel")
    return can


def _can_agent(call: CallRecord, run: RunRecord, now: float) -> list[str]:
    """The orders that make sense for one agent; a flow that is carried has heard of ended ones."""
    if call.kind is not CallKind.AGENT or call.state is CallState.DONE:
        return []
    if call.state is CallState.RUNNING:
        return [] if run.state in ENDED else ["cancel"]
    goes_on = run.lease_until <= now and run.source and run.trusted
    return ["resume", "retry"] if goes_on else []


def _budget(run: RunRecord) -> dict[str, object] | None:
    """The tightest dollars and tokens that the run may take, if there are such."""
    try:
        budgets = decode_settings(run.settings).budgets
    except JournalError:
        return None  # an older version's; it is no reason to show nothing
    dollars = [each.dollars for each in budgets if each.dollars is not None and not each.window]
    tokens = [each.tokens for each in budgets if each.tokens is not None and not each.window]
    if not dollars and not tokens:
        return None
    return {"dollars": min(dollars, default=None), "tokens": min(tokens, default=None)}


def _evidence(outcome: bytes) -> dict[str, object]:
    try:
        seen = decode_outcome(outcome)
    except JournalError:
        return {}  # an older version's; the ending is told without it
    evidence = seen.evidence
    told: dict[str, object] = {"by_hand": True} if is_by_hand(seen) else {}
    return told | {
        "says": evidence.says,
        "failure": evidence.failure,
        "status": evidence.status,
        "request_id": evidence.request_id,
        "tries": evidence.attempts,
        "turns": seen.turns,
        "session": seen.session_id,
        "resets_at": None if evidence.resets_at is None else evidence.resets_at.timestamp(),
    }
