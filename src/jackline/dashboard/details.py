"""Answer what the page asks about one run or agent: attempts, failures, waits, cost.

Laws: (1) files are read off the event loop; (2) what is told is bounded; (3) no prompt, answer, key
or token.
Not here: what is told all the time (feed.py), orders (face.py).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from jackline.agents.outcome import Usage
from jackline.agents.prices import cache_prices, dollars
from jackline.autopsy.lapsed_waits import lapsed_waits, waits_sentence
from jackline.clock import Clock
from jackline.control.board_parts import lane_shown
from jackline.dashboard.flow_book import FlowBook
from jackline.dashboard.run_told import call_told, note_told, resource_told, run_told
from jackline.errors import UnreadableError
from jackline.events import AttemptFailed, CallEnded
from jackline.flows.engine import Engine
from jackline.flows.records import CallRecord
from jackline.journal import JournalReader

_MOST_NOTES = 400
_MOST_CALLS = 200
_MOST_SEARCHED = 5000
_MOST_TROUBLED = 60
_DAY = 86_400.0


class Details:
    """Looks into the store of runs and the journal."""

    def __init__(self, flows: FlowBook, journal: Path, clock: Clock) -> None:
        self._flows = flows
        self._journal = journal
        self._clock = clock

    async def run(self, run_id: str) -> dict[str, object]:
        """Everything about one run; UnreadableError when there is none."""
        engine = self._flows.engine()
        record = None if engine is None or not run_id else await engine.run(run_id)
        if engine is None or record is None:
            raise UnreadableError(f"There is no run {run_id}.", next="`jackline ls` lists them.")
        now = self._clock.wall()
        calls = await engine.calls(record.run_id)
        notes = await engine.notes(record.run_id)
        held = [each for each in await engine.resources() if each.run_id == record.run_id]
        return {
            **run_told(record, calls, now),
            "calls": [call_told(call, record, now) for call in calls],
            "notes": [note_told(note) for note in notes[-_MOST_NOTES:]],
            "resources": [resource_told(each, record, now) for each in held],
            "more_notes": max(0, len(notes) - _MOST_NOTES),
        }

    async def agent(self, session: str, agent: str) -> dict[str, object]:
        """Everything about one agent: its calls, the attempts that failed, and its flow's word."""
        calls, failed = await asyncio.to_thread(self._read, session, agent)
        engine = self._flows.engine()
        told = None if engine is None else await self._told_of(engine, session, agent)
        return {
            "session": session,
            "agent": agent,
            "calls": [_call(each) for each in calls[:_MOST_CALLS]],
            "attempts": [_attempt(each) for each in failed],
            "sums": _sums(calls),
            "lapsed": waits_sentence(lapsed_waits(calls, cache_prices)),
            "flow": told,
        }

    async def _told_of(self, engine: Engine, session: str, agent: str) -> dict[str, object] | None:
        """What the agent's flow says of it; None where it has none."""
        call = await _flow_call(engine, session, agent)
        run = None if call is None else await engine.run(call.run_id)
        if call is None or run is None:
            return None
        return call_told(call, run, self._clock.wall()) | {"run": call.run_id}

    def _read(self, session: str, agent: str) -> tuple[list[CallEnded], list[AttemptFailed]]:
        now = self._clock.wall()
        with JournalReader(self._journal) as reader:
            found = reader.calls(now - _DAY, now + 60, _MOST_SEARCHED, session)
            calls = [call for call in found if (call.agent or "") == agent]
            troubled = [call for call in calls if call.attempts > 1 or call.outcome != "answered"]
            told = [reader.attempts(call.call) for call in troubled[:_MOST_TROUBLED]]
        failed = [attempt for attempts in told for attempt in attempts]
        return calls, sorted(failed, key=lambda each: -each.at)


async def _flow_call(engine: Engine, session: str, agent: str) -> CallRecord | None:
    """The flow's call behind this agent: messages agents go by their task, others by session."""
    found = await engine.find_task(agent) if agent else None
    return found if found is not None or not session else await engine.find_session(session)


def _call(call: CallEnded) -> dict[str, object]:
    return {
        "at": call.at,
        "call": call.call,
        "outcome": call.outcome,
        "lane": lane_shown(call.lane),
        "model": call.model,
        "status": call.status,
        "attempts": call.attempts,
        "waited": round(call.waited, 2),
        "took": round(call.took, 2),
        "tokens": _usage(call).total,
        "cost": dollars(call.model, _usage(call)),
        "request_id": call.request_id,
    }


def _attempt(attempt: AttemptFailed) -> dict[str, object]:
    return {
        "at": attempt.at,
        "call": attempt.call,
        "lane": lane_shown(attempt.lane),
        "kind": attempt.kind,
        "sub": attempt.sub,
        "status": attempt.status,
        "request_id": attempt.request_id,
        "took": round(attempt.took, 2),
        "resets_at": attempt.resets_at,
        "why": attempt.why.replace(attempt.lane, lane_shown(attempt.lane)),
    }


def _sums(calls: list[CallEnded]) -> dict[str, object]:
    costs = [dollars(call.model, _usage(call)) for call in calls if _usage(call).total]
    return {
        "calls": len(calls),
        "lost": sum(call.outcome in ("refused", "broken") for call in calls),
        "attempts": sum(call.attempts for call in calls),
        "waited": round(sum(call.waited for call in calls), 1),
        "tokens": sum(_usage(call).total for call in calls),
        "cost": round(sum(cost or 0.0 for cost in costs), 4),
        "unpriced": sum(cost is None for cost in costs),
    }


def _usage(call: CallEnded) -> Usage:
    return Usage(
        call.input_tokens,
        call.output_tokens,
        call.cache_read_tokens,
        call.cache_write_tokens,
        call.cache_write_1h_tokens,
    )
