"""Find what an agent goes on from: an earlier agent's session, and what cut the last attempt off.

Laws: (1) an agent that goes on with another sees its lines before its own, those of whom that one
went on from before them, and so on to the first; it writes none of them, and sees none that came
later;
(2) what happened is told in words that hold no prompt and no answer.
Not here: what a runner makes of it (agents/).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jackline.agents.outcome import Outcome
from jackline.agents.ports import Entry
from jackline.errors import BadArgumentError
from jackline.flows.agent_spec import OWN_LOOP, AgentSpec
from jackline.flows.engine import Engine
from jackline.flows.keys import session_id_of
from jackline.flows.notebook import Follows, follows_in, is_own_line
from jackline.flows.outcome_json import decode_outcome
from jackline.flows.records import CallRecord, CallState
from jackline.flows.trusting import how_to_accept


@dataclass(frozen=True, slots=True)
class Earlier:
    """The session to go on with, and the lines that a runner needs for it."""

    session_id: str | None = None
    entries: Sequence[Entry] = ()
    follows: Follows | None = None


async def earlier_entries(
    engine: Engine, spec: AgentSpec, runner: str, known: Follows | None = None
) -> Earlier:
    """What `resume=` or `continue_from=` names; BadArgumentError when it cannot be found.

    `known` is where the agent had begun, if it has.
    """
    if spec.resume is None and spec.continue_from is None:
        return Earlier()
    session: str | None
    if spec.resume is not None:
        call, session = await engine.find_session(spec.resume), spec.resume
    else:
        call = await engine.find_task(spec.continue_from or "")
        session = _session_of(call)
    if call is not None and not call.trusted:
        raise _not_ours(call)
    if call is None and (spec.resume is None or runner == OWN_LOOP):
        raise BadArgumentError(
            f"There is no earlier agent {spec.resume or spec.continue_from} to go on with.",
            next="Give the session id or the outcome of an agent that `jackline show` lists.",
        )
    if call is None or runner != OWN_LOOP:
        return Earlier(session)
    whom = known or Follows(call.task_id, len(await engine.entries(call.task_id)))
    lines = await _lines(engine, whom)
    if lines is None:
        raise _not_ours(call)
    return Earlier(session, lines, whom)


def _not_ours(call: CallRecord) -> BadArgumentError:
    return BadArgumentError(
        f"The agent {call.task_id} was not written by this installation: it is not gone on with.",
        next=how_to_accept(call.run_id),
    )


async def _lines(engine: Engine, whom: Follows | None) -> list[Entry] | None:
    """The lines of this agent and of all that it went on from, the oldest first.

    None when some of them are not ours.
    """
    parts: list[list[Entry]] = []
    while whom is not None:
        part: list[Entry] = []
        before: Follows | None = None
        for record in (await engine.entries(whom.task_id))[: whom.lines]:
            if not record.trusted:
                return None
            line = Entry(record.kind, json.loads(record.data), record.at)
            before = before or follows_in(line.kind, line.data)
            if not is_own_line(line):
                part.append(line)
        parts.append(part)
        whom = before
    return [line for part in reversed(parts) for line in part]


def what_happened(before: CallRecord | Outcome[Any] | None) -> str:
    """What cut the last attempt off, for the agent that goes on; empty when there was none."""
    if before is None:
        return ""
    if isinstance(before, CallRecord):
        if before.state is CallState.RUNNING:
            return "The process that carried you ended before you were done."
        if before.outcome is None or not before.started_at:
            return ""
        before = decode_outcome(before.outcome)
    says = before.evidence.says
    return f"Your last attempt ended by {before.terminated_by.value}{': ' + says if says else '.'}"


def _session_of(call: CallRecord | None) -> str | None:
    if call is None:
        return None
    kept = decode_outcome(call.outcome).session_id if call.outcome else ""
    return kept or session_id_of(call.task_id)
