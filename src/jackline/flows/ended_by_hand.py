"""End an agent by a person's order that nobody carries just now, from what is kept of it.

Laws: (1) its end is kept before its hooks run and what it rented is given back; (2) what it had
used and said stays told; (3) no other agent's clean-up is begun.
Not here: agents that wait or work in this process (agent_orders.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jackline.agents.outcome import Ending, Outcome
from jackline.flows.agent_orders import by_hand
from jackline.flows.agent_telling import tell_ended
from jackline.flows.execution import Execution
from jackline.flows.keys import session_id_of
from jackline.flows.notebook import used_before
from jackline.flows.outcome_json import decode_outcome, encode_kept_beside
from jackline.flows.records import CallRecord, CallState
from jackline.flows.scope import Scope, inside


async def end_by_hand(run: Execution, call: CallRecord, name: str) -> Outcome[Any]:
    """How this agent ended now that an order of that name has ended it, clean-up included."""
    outcome = await _outcome(run, call, name)
    ended = replace(
        call,
        state=CallState.FAILED,
        value=None,
        outcome=encode_kept_beside(outcome),
        ended_at=run.clock.wall(),
        tokens=max(call.tokens, outcome.usage.total),
        cost=max(call.cost, outcome.cost or 0.0),
        terminated_by=outcome.terminated_by.value,
    )
    await run.end(ended)
    with inside(Scope(run, run.account, call.phase, call.task_id)):
        await run.hooks.run_due({call.task_id: ended}, ending=None)
        await run.resources.release_of_agent(call.task_id)
    tell_ended(run, call, outcome)
    return outcome


async def _outcome(run: Execution, call: CallRecord, name: str) -> Outcome[Any]:
    before: Outcome[Any] = Outcome(Ending.CANCELLED)
    if call.outcome is not None:
        before = decode_outcome(call.outcome)
    used = used_before(await run.engine.entries(call.task_id))
    known = before.usage.total >= used.usage.total
    return replace(
        before,
        terminated_by=Ending.CANCELLED,
        value=None,
        evidence=by_hand(run.run_id, name),
        session_id=before.session_id or session_id_of(call.task_id),
        task_id=call.task_id,
        label=call.label,
        usage=before.usage if known else used.usage,
        cost=before.cost if known else used.dollars or None,
        turns=max(before.turns, used.turns),
        duration=max(before.duration, used.seconds),
    )
