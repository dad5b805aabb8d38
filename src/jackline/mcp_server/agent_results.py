"""Render the state and result of agents for a model: as text, and the same as JSON.

Rules: (1) an agent that did not complete is never shown as completed: the text begins with what
ended it; (2) every text names the id for the next request, and the call that resumes; (3) what an
agent said before a bad end is shown as that, after the verdict; (4) the text about an unfinished
agent is in the JSON too: of a success Claude Code shows its model only the JSON, of a failure only
the text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from jackline.agents.prices import known_cost
from jackline.control.run_view import WAITING
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


def run_reply(run: RunSnapshot, now: datetime, notes: Sequence[str] = ()) -> ToolReply:
    """One run: its only agent, or all of its group."""
    return _RunReport(run, now).reply(notes)


def runs_reply(runs: Sequence[RunSnapshot], now: datetime) -> ToolReply:
    """Several runs, each in its own paragraph."""
    replies = [run_reply(run, now) for run in runs]
    data: JsonObject = {"runs": [reply.data for reply in replies]}
    return ToolReply("\n\n".join(reply.text for reply in replies), data)


def listed(runs: Sequence[RunSnapshot], now: datetime) -> ToolReply:
    """Runs, a line each."""
    if not runs:
        return ToolReply("No agent was started here yet.", {"runs": []})
    reports = [_RunReport(run, now) for run in runs]
    return ToolReply(
        "\n".join(report.line for report in reports),
        {"runs": [report.brief_json for report in reports]},
    )


class _RunReport:
    """A run at one moment, as a model reads it."""

    def __init__(self, run: RunSnapshot, now: datetime) -> None:
        self._run = run
        self._record = run.record
        self._now = now
        calls = {call.label: call for call in run.calls}
        if run.label is not None:
            labels = [run.label]
        else:
            labels = [str(order["label"]) for order in run.orders] or list(calls)
        self._agents = [self._agent(label, calls.get(label)) for label in labels]

    # --- JSON -----------------------------------------------------------------------------------

    @property
    def _json(self) -> JsonObject:
        record = self._record
        data: JsonObject = {
            "run_id": record.run_id,
            "run_state": record.state.value,
            "since": self._iso(record.created_at),
            "cost_usd": known_cost(record.cost, record.unpriced),
            "tokens": record.tokens,
        }
        if record.unpriced:
            data["unpriced_tokens"] = record.unpriced
        if record.ended_at is not None:
            data["ended_at"] = self._iso(record.ended_at)
        if record.why:
            data["why"] = record.why
        if record.state is RunState.PARKED:
            data["goes_on_at"] = self._iso(record.wake_at)
        return data

    @property
    def brief_json(self) -> JsonObject:
        """How its agents stand, without what they answered."""
        brief = [{name: each[name] for name in _BRIEF if name in each} for each in self._agents]
        return {**self._json, "summary": self._summary, "agents": brief}

    def _agent(self, label: str, call: CallRecord | None) -> JsonObject:
        data: JsonObject = {"label": label}
        if call is None or call.state is CallState.RUNNING or call.outcome is None:
            return data | self._open_agent(call)
        data |= {"since": self._iso(call.started_at), "ended_at": self._iso(call.ended_at)}
        outcome = decode_outcome(call.outcome)
        data |= {"state": call.state.value, "task_id": call.task_id}
        data |= {"session_id": outcome.session_id, "terminated_by": outcome.terminated_by.value}
        if call.state is CallState.DONE:
            data["answer"] = json.loads(call.value or b"null")
        elif outcome.text:
            data["said_before"] = outcome.text
        evidence: dict[str, object] = {
            name: value
            for name, value in msgspec.to_builtins(outcome.evidence).items()
            if value not in (None, "", 0) and name != "private"
        }
        if evidence:
            data["evidence"] = evidence
        data |= {
            "usage": msgspec.to_builtins(outcome.usage),
            "cost_usd": known_cost(outcome.cost, outcome.unpriced),
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

    def _open_agent(self, call: CallRecord | None) -> JsonObject:
        """One of which no end is saved."""
        record = self._record
        data: JsonObject = {"state": record.state.value}
        if call is not None:
            data |= {"task_id": call.task_id, "since": self._iso(call.started_at)}
            data |= {"cost_usd": known_cost(call.cost, call.unpriced), "tokens": call.tokens}
        present = self._run.under_way.get(call.task_id) if call is not None else None
        if record.state in ENDED:
            evidence = {"says": record.why}
            data |= {"state": "failed", "terminated_by": "cancelled", "evidence": evidence}
        elif record.state is RunState.PARKED:
            data["waits"] = {"why": record.why, "until": self._iso(record.wake_at)}
        elif present is not None:
            data |= {"turns": present.turns, "tokens": present.tokens}
            if present.why:
                data["state"] = WAITING
                data["waits"] = {"why": present.why, "until": self._iso(present.until)}
        return data

    # --- texts ----------------------------------------------------------------------------------

    def reply(self, notes: Sequence[str]) -> ToolReply:
        data, agents, has_ended = self._json, self._agents, self._record.state in ENDED
        if len(agents) == 1:
            text, failed = self._one(agents[0])
            says = "" if agents[0]["state"] in ("done", "failed") else text
            data |= agents[0]
        else:
            open_ = self._not_ended("This group", f"run {self._record.run_id}")
            says = "" if has_ended else open_
            lines = [f"{self._summary} (run {self._record.run_id})", *([says] if says else [])]
            lines += [self._one(each)[0] for each in agents if each["state"] in ("done", "failed")]
            text = "\n\n".join(lines)
            failed = has_ended and not any(each["state"] == "done" for each in agents)
            data |= {"agents": agents, "summary": self._summary}
        if says:
            data = {"says": says, **data}
        if notes:
            data["notes"] = list(notes)
        return ToolReply("\n".join([text, *notes]), data, failed)

    @property
    def line(self) -> str:
        record = self._record
        labels = ", ".join(str(agent["label"]) for agent in self._agents)
        words = f"{record.run_id} {record.state.value}: {self._summary} ({labels})"
        if record.state is RunState.PARKED and record.wake_at is not None:
            words += f", goes on at {moment_in_words(self._moment(record.wake_at), self._now)}"
        return words[:_LONGEST_LINE]

    @property
    def _summary(self) -> str:
        """In words: "17 of 20 ok, 3 failed: 2 quota, 1 schema"."""
        agents = self._agents
        parts = [f"{sum(agent['state'] == 'done' for agent in agents)} of {len(agents)} ok"]
        failed = Counter(str(a["terminated_by"]) for a in agents if a["state"] == "failed")
        if failed:
            kinds = ", ".join(f"{count} {kind}" for kind, count in failed.most_common())
            parts.append(f"{failed.total()} failed: {kinds}")
        if open_ := sum(agent["state"] not in ("done", "failed") for agent in agents):
            parts.append(f"{open_} not ended")
        return ", ".join(parts)

    def _one(self, agent: JsonObject) -> tuple[str, bool]:
        """The text about one agent, and whether it failed."""
        label, task = agent["label"], agent.get("task_id")
        ids = f"run {self._record.run_id}" + (f", task {task}" if task else "")
        if agent["state"] == "done":
            answer = agent["answer"]
            shown = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
            session = agent["session_id"]
            return f'["{label}" completed; {ids}, session {session}]\n{shown}', False
        if agent["state"] != "failed":
            return self._not_ended(f'The agent "{label}"', ids), False
        known = agent.get("evidence")
        evidence = known if isinstance(known, dict) else {}
        resets = evidence.get("resets_at")
        parts = (evidence.get("says", ""), resets and f"It resets at {resets}.")
        why = " ".join(str(part) for part in parts if part)
        lines = [f'The agent "{label}" did not complete: {agent["terminated_by"]}. {why}']
        if agent.get("said_before"):
            lines.append(f"What it had said before (no result): {agent['said_before']}")
        if evidence.get("failure") == Kind.AUTH:
            lines.append(_LOGIN)
        if task:
            session = agent.get("session_id")
            other = f', or agent(resume="{session}")' if session else ""
            lines.append(
                f"Its finished turns are kept ({ids}). To go on from there:"
                f' agent(continue_from_task_id="{task}"){other}.'
            )
        else:
            lines.append(f"It never began ({ids}): start it anew.")
        return "\n".join(lines), True

    def _not_ended(self, who: str, ids: str) -> str:
        record = self._record
        wait = f'agent_wait(ids=["{record.run_id}"])'
        if record.state is RunState.PARKED:
            if record.wake_at is None:
                why = record.why
                return f"{who} is parked ({ids}) until a person acts: {why}. Nothing is lost."
            at = moment_in_words(self._moment(record.wake_at), self._now)
            return (
                f"{who} is parked ({ids}): {record.why}. It goes on by itself at {at}, with"
                f" nothing lost; do something else meanwhile, or {wait} then."
            )
        if record.state is RunState.STOPPED:
            return (
                f"{who} is stopped ({ids}): {record.why} To go on now:"
                f' agent(continue_from_task_id="{record.run_id}").'
            )
        return f"{who} is still at work ({ids}). It goes on by itself: {wait} gives its result."

    def _iso(self, at: float | None) -> str | None:
        return None if at is None else self._moment(at).isoformat()

    def _moment(self, at: float) -> datetime:
        return datetime.fromtimestamp(whole_second(at), self._now.tzinfo)
