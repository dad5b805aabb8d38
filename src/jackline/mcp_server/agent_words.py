"""Tell a model how its agents stand: as text, and the same as JSON.

Laws: (1) an agent that did not complete is never shown as if it had: the text opens with what ended
it; (2) every text names the id to ask with next, and what to call to go on; (3) what an agent said
before a bad end is shown as that, after the verdict.
Not here: looking (agent_desk.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from jackline.agents.outcome import Outcome
from jackline.failures import Kind
from jackline.failures.sentences import moment_in_words
from jackline.flows.outcome_json import decode_outcome
from jackline.flows.records import ENDED, CallRecord, CallState, RunState
from jackline.mcp_server.model_tool import JsonObject, Told
from jackline.mcp_server.run_look import Look

_LONGEST_LINE = 300
_LOGIN = (
    "The service has no login that works. If it is in the environment (CLAUDE_CODE_OAUTH_TOKEN is"
    " kept from servers that Claude Code starts), the user restarts it in a shell that has it:"
    " jackline down; jackline up -d"
)


def told_run(look: Look, now: datetime, notes: Sequence[str] = ()) -> Told:
    """One run: its only agent, or all of its group."""
    data = run_json(look, now)
    agents = _agents(look)
    if len(agents) == 1:
        text, failed = _one(look, agents[0], now)
        data |= agents[0]
    else:
        text, failed = _many(look, agents, now)
        data |= {"agents": agents, "summary": summary(look)}
    if notes:
        data["notes"] = list(notes)
    return Told("\n".join([text, *notes]), data, failed)


def told_runs(looks: Sequence[Look], now: datetime) -> Told:
    """Several runs, each in its own paragraph."""
    told = [told_run(look, now) for look in looks]
    data: JsonObject = {"runs": [one.data for one in told]}
    return Told("\n\n".join(one.text for one in told), data)


def listed(looks: Sequence[Look], now: datetime) -> Told:
    """Runs, a line each."""
    if not looks:
        return Told("No agent was started here yet.", {"runs": []})
    lines = [_line(look, now) for look in looks]
    runs = [{**run_json(look, now), "summary": summary(look)} for look in looks]
    return Told("\n".join(lines), {"runs": runs})


def summary(look: Look) -> str:
    """In words: "17 of 20 ok, 3 failed: 2 quota, 1 schema"."""
    agents = _agents(look)
    whole = f"{sum(agent['state'] == 'done' for agent in agents)} of {len(agents)} ok"
    failed = Counter(str(a["terminated_by"]) for a in agents if a["state"] == "failed")
    parts = [whole]
    if failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in failed.most_common())
        parts.append(f"{failed.total()} failed: {kinds}")
    open_ = sum(agent["state"] not in ("done", "failed") for agent in agents)
    return ", ".join([*parts, *([f"{open_} not ended"] if open_ else [])])


def run_json(look: Look, now: datetime) -> JsonObject:
    """What is known of the run itself."""
    record = look.record
    data: JsonObject = {"run_id": record.run_id, "run_state": record.state.value}
    if record.why:
        data["why"] = record.why
    if record.state is RunState.PARKED:
        wake = record.wake_at
        data["goes_on_at"] = None if wake is None else _moment(wake, now).isoformat()
    return data


# --- agents -------------------------------------------------------------------------------------


def _agents(look: Look) -> list[JsonObject]:
    calls = {call.label: call for call in look.calls}
    labels = [str(order["label"]) for order in look.orders] or list(calls)
    if look.label is not None:
        labels = [look.label]
    return [_agent(label, calls.get(label), look) for label in labels]


def _agent(label: str, call: CallRecord | None, look: Look) -> JsonObject:
    data: JsonObject = {"label": label}
    if call is None or call.state is CallState.RUNNING or call.outcome is None:
        ended = look.record.state in ENDED
        data["state"] = "failed" if ended else look.record.state.value
        if call is not None:
            data["task_id"] = call.task_id
        if ended:
            data |= {"terminated_by": "cancelled", "evidence": {"says": look.record.why}}
        return data
    outcome = decode_outcome(call.outcome)
    data |= {"state": call.state.value, "task_id": call.task_id}
    data |= {"session_id": outcome.session_id, "terminated_by": outcome.terminated_by.value}
    if call.state is CallState.DONE:
        data["answer"] = json.loads(call.value or b"null")
    elif outcome.text:
        data["said_before"] = outcome.text
    return data | _facts(outcome)


def _facts(outcome: Outcome[Any]) -> JsonObject:
    evidence: dict[str, object] = {
        name: value
        for name, value in msgspec.to_builtins(outcome.evidence).items()
        if value not in (None, "", 0)
    }
    data: JsonObject = {"evidence": evidence} if evidence else {}
    data |= {
        "usage": msgspec.to_builtins(outcome.usage),
        "cost_usd": outcome.cost,
        "turns": outcome.turns,
        "seconds": round(outcome.duration, 1),
    }
    if outcome.transcript:
        data["transcript"] = outcome.transcript
    if not outcome.ok:
        data["resume_with"] = {
            "tool": "agent",
            "arguments": {"continue_from_task_id": outcome.task_id},
        }
    return data


# --- texts --------------------------------------------------------------------------------------


def _one(look: Look, agent: Mapping[str, object], now: datetime) -> tuple[str, bool]:
    run_id, label = look.record.run_id, agent["label"]
    ids = f"run {run_id}" + (f", task {agent['task_id']}" if agent.get("task_id") else "")
    if agent["state"] == "done":
        answer = agent["answer"]
        shown = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        session = agent["session_id"]
        return f'["{label}" completed; {ids}, session {session}]\n{shown}', False
    if agent["state"] == "failed":
        ending = agent["terminated_by"]
        lines = [f'The agent "{label}" did not complete: {ending}. {_says(agent)}']
        if agent.get("said_before"):
            lines.append(f"What it had said before (no result): {agent['said_before']}")
        if _lacks_login(agent):
            lines.append(_LOGIN)
        lines.append(_how_to_resume(agent, ids))
        return "\n".join(lines), True
    return _not_ended(look, f'The agent "{label}"', ids, now), False


def _many(look: Look, agents: Sequence[JsonObject], now: datetime) -> tuple[str, bool]:
    lines = [f"{summary(look)} (run {look.record.run_id})"]
    if look.record.state not in ENDED:
        lines.append(_not_ended(look, "This group", f"run {look.record.run_id}", now))
    lines += [_one(look, agent, now)[0] for agent in agents if agent["state"] in ("done", "failed")]
    ended = look.record.state in ENDED
    return "\n\n".join(lines), ended and not any(agent["state"] == "done" for agent in agents)


def _not_ended(look: Look, who: str, ids: str, now: datetime) -> str:
    record = look.record
    ask = f'agent_wait(ids=["{record.run_id}"])'
    if record.state is RunState.PARKED:
        if record.wake_at is None:
            return f"{who} is parked ({ids}) until a person acts: {record.why}. Nothing is lost."
        at = moment_in_words(_moment(record.wake_at, now), now)
        return (
            f"{who} is parked ({ids}): {record.why}. It goes on by itself at {at}, with"
            f" nothing lost; do something else meanwhile, or {ask} then."
        )
    if record.state is RunState.STOPPED:
        return (
            f"{who} is stopped ({ids}): {record.why} To go on now:"
            f' agent(continue_from_task_id="{record.run_id}").'
        )
    return f"{who} is still at work ({ids}). It goes on by itself: {ask} gives its result."


def _lacks_login(agent: Mapping[str, object]) -> bool:
    evidence = agent.get("evidence")
    return isinstance(evidence, dict) and evidence.get("failure") == Kind.AUTH


def _says(agent: Mapping[str, object]) -> str:
    evidence = agent.get("evidence")
    says = evidence.get("says", "") if isinstance(evidence, dict) else ""
    resets = evidence.get("resets_at") if isinstance(evidence, dict) else None
    return " ".join(str(part) for part in (says, resets and f"It resets at {resets}.") if part)


def _how_to_resume(agent: Mapping[str, object], ids: str) -> str:
    named = agent.get("task_id")
    if not named:
        return f"It never began ({ids}): start it anew."
    session = agent.get("session_id")
    other = f', or agent(resume="{session}")' if session else ""
    return (
        f'Its finished turns are kept ({ids}). To go on from there: agent(continue_from_task_id="'
        f'{named}"){other}.'
    )


def _line(look: Look, now: datetime) -> str:
    record = look.record
    labels = ", ".join(str(agent["label"]) for agent in _agents(look))
    words = f"{record.run_id} {record.state.value}: {summary(look)} ({labels})"
    if record.state is RunState.PARKED and record.wake_at is not None:
        words += f", goes on at {moment_in_words(_moment(record.wake_at, now), now)}"
    return words[:_LONGEST_LINE]


def _moment(at: float, now: datetime) -> datetime:
    return datetime.fromtimestamp(at, now.tzinfo).replace(microsecond=0)
