"""Render the state and result of agents for a model: as text, and the same as JSON.

Rules: (1) an agent that did not complete is never shown as completed: the text begins with what
ended it; (2) every text names the id for the next request, and the call that resumes; (3) what an
agent said before a bad end is shown as that, after the verdict; (4) the text about an unfinished
agent is in the JSON too: of a success Claude Code shows its model only the JSON, of a failure only
the text.
Not here: reading the state (agent_manager.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from jackline.agents.outcome import Outcome
from jackline.control.text import whole_second
from jackline.failures import Kind
from jackline.failures.sentences import moment_in_words
from jackline.flows.records import ENDED, CallRecord, CallState, RunState, decode_outcome
from jackline.mcp_server.agent_manager import RunSnapshot
from jackline.mcp_server.model_tool import JsonObject, ToolReply

_LONGEST_LINE = 300
_BRIEF = (
    *("label", "state", "task_id", "session_id", "since", "ended_at", "waits"),
    *("terminated_by", "turns", "tokens", "cost_usd"),
)
_LOGIN = (
    "The service has no login that works. If it is in the environment (CLAUDE_CODE_OAUTH_TOKEN is"
    " kept from servers that Claude Code starts), the user restarts it in a shell that has it:"
    " jackline down; jackline up -d"
)


def run_reply(look: RunSnapshot, now: datetime, notes: Sequence[str] = ()) -> ToolReply:
    """One run: its only agent, or all of its group."""
    data = run_json(look, now)
    agents = _agents(look, now)
    if len(agents) == 1:
        text, failed = _one(look, agents[0], now)
        says = "" if agents[0]["state"] in ("done", "failed") else text
        data |= agents[0]
    else:
        text, failed = _many(look, agents, now)
        says = "" if look.record.state in ENDED else _not_ended_group(look, now)
        data |= {"agents": agents, "summary": summary(look, now)}
    if says:
        data = {"says": says, **data}
    if notes:
        data["notes"] = list(notes)
    return ToolReply("\n".join([text, *notes]), data, failed)


def runs_reply(looks: Sequence[RunSnapshot], now: datetime) -> ToolReply:
    """Several runs, each in its own paragraph."""
    told = [run_reply(look, now) for look in looks]
    data: JsonObject = {"runs": [one.data for one in told]}
    return ToolReply("\n\n".join(one.text for one in told), data)


def listed(looks: Sequence[RunSnapshot], now: datetime) -> ToolReply:
    """Runs, a line each."""
    if not looks:
        return ToolReply("No agent was started here yet.", {"runs": []})
    lines = [_line(look, now) for look in looks]
    runs = [
        {
            **run_json(look, now),
            "summary": summary(look, now),
            "agents": _briefly(_agents(look, now)),
        }
        for look in looks
    ]
    return ToolReply("\n".join(lines), {"runs": runs})


def summary(look: RunSnapshot, now: datetime) -> str:
    """In words: "17 of 20 ok, 3 failed: 2 quota, 1 schema"."""
    agents = _agents(look, now)
    whole = f"{sum(agent['state'] == 'done' for agent in agents)} of {len(agents)} ok"
    failed = Counter(str(a["terminated_by"]) for a in agents if a["state"] == "failed")
    parts = [whole]
    if failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in failed.most_common())
        parts.append(f"{failed.total()} failed: {kinds}")
    open_ = sum(agent["state"] not in ("done", "failed") for agent in agents)
    return ", ".join([*parts, *([f"{open_} not ended"] if open_ else [])])


def run_json(look: RunSnapshot, now: datetime) -> JsonObject:
    """What is known of the run itself."""
    record = look.record
    data: JsonObject = {
        "run_id": record.run_id,
        "run_state": record.state.value,
        "since": _iso(record.created_at, now),
        "cost_usd": record.cost,
        "tokens": record.tokens,
    }
    if record.ended_at is not None:
        data["ended_at"] = _iso(record.ended_at, now)
    if record.why:
        data["why"] = record.why
    if record.state is RunState.PARKED:
        data["goes_on_at"] = _iso(record.wake_at, now)
    return data


# --- agents -------------------------------------------------------------------------------------


def _agents(look: RunSnapshot, now: datetime) -> list[JsonObject]:
    calls = {call.label: call for call in look.calls}
    labels = [str(order["label"]) for order in look.orders] or list(calls)
    if look.label is not None:
        labels = [look.label]
    return [_agent(label, calls.get(label), look, now) for label in labels]


def _briefly(agents: Sequence[JsonObject]) -> list[JsonObject]:
    """How they stand, without what they answered."""
    return [{name: agent[name] for name in _BRIEF if name in agent} for agent in agents]


def _agent(label: str, call: CallRecord | None, look: RunSnapshot, now: datetime) -> JsonObject:
    data: JsonObject = {"label": label}
    if call is None or call.state is CallState.RUNNING or call.outcome is None:
        return data | _open_agent(call, look, now)
    data |= {"since": _iso(call.started_at, now), "ended_at": _iso(call.ended_at, now)}
    outcome = decode_outcome(call.outcome)
    data |= {"state": call.state.value, "task_id": call.task_id}
    data |= {"session_id": outcome.session_id, "terminated_by": outcome.terminated_by.value}
    if call.state is CallState.DONE:
        data["answer"] = json.loads(call.value or b"null")
    elif outcome.text:
        data["said_before"] = outcome.text
    return data | _facts(outcome)


def _open_agent(call: CallRecord | None, look: RunSnapshot, now: datetime) -> JsonObject:
    """One of which no end is kept."""
    record = look.record
    data: JsonObject = {"state": record.state.value}
    if call is not None:
        data |= {"task_id": call.task_id, "since": _iso(call.started_at, now)}
        data |= {"cost_usd": call.cost, "tokens": call.tokens}
    present = look.under_way.get(call.task_id) if call is not None else None
    if record.state in ENDED:
        data |= {"state": "failed", "terminated_by": "cancelled", "evidence": {"says": record.why}}
    elif record.state is RunState.PARKED:
        data["waits"] = {"why": record.why, "until": _iso(record.wake_at, now)}
    elif present is not None:
        data |= {"turns": present.turns, "tokens": present.tokens}
        if present.why:
            data["state"] = present.state
            data["waits"] = {"why": present.why, "until": _iso(present.until, now)}
    return data


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


def _one(look: RunSnapshot, agent: Mapping[str, object], now: datetime) -> tuple[str, bool]:
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


def _many(look: RunSnapshot, agents: Sequence[JsonObject], now: datetime) -> tuple[str, bool]:
    lines = [f"{summary(look, now)} (run {look.record.run_id})"]
    if look.record.state not in ENDED:
        lines.append(_not_ended_group(look, now))
    lines += [_one(look, agent, now)[0] for agent in agents if agent["state"] in ("done", "failed")]
    ended = look.record.state in ENDED
    return "\n\n".join(lines), ended and not any(agent["state"] == "done" for agent in agents)


def _not_ended_group(look: RunSnapshot, now: datetime) -> str:
    return _not_ended(look, "This group", f"run {look.record.run_id}", now)


def _not_ended(look: RunSnapshot, who: str, ids: str, now: datetime) -> str:
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


def _line(look: RunSnapshot, now: datetime) -> str:
    record = look.record
    labels = ", ".join(str(agent["label"]) for agent in _agents(look, now))
    words = f"{record.run_id} {record.state.value}: {summary(look, now)} ({labels})"
    if record.state is RunState.PARKED and record.wake_at is not None:
        words += f", goes on at {moment_in_words(_moment(record.wake_at, now), now)}"
    return words[:_LONGEST_LINE]


def _iso(at: float | None, now: datetime) -> str | None:
    return None if at is None else _moment(at, now).isoformat()


def _moment(at: float, now: datetime) -> datetime:
    return datetime.fromtimestamp(whole_second(at), now.tzinfo)
