"""Find the agents of a run that a person names, and say plainly when there are none.

Laws: (1) a name is a label or a task id, and means all agents that have it; (2) who is named to go
on is ordered to end no more; (3) a name that nobody has is answered with those that there are.
Not here: what is done with them (orders.py, cancelling_agents.py).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable

from jackline.errors import BadArgumentError
from jackline.flows.agent_orders import agents_meant, was_ended_by_hand
from jackline.flows.engine import Engine
from jackline.flows.records import ENDED, CallKind, CallRecord, CallState, RunRecord

_MOST_LABELS = 10


async def to_go_on_with(engine: Engine, record: RunRecord, name: str) -> list[CallRecord]:
    """The unfinished agents of this name; an order to end them is taken back."""
    calls = await engine.calls(record.run_id)
    meant = agents_meant(calls, name)
    chosen = [call for call in meant if call.state is not CallState.DONE]
    taken_back = await take_back(engine, record.run_id, name, chosen)
    if chosen or (taken_back and record.state not in ENDED):
        return chosen
    if meant:
        raise BadArgumentError(
            f"The agent {name} of {record.run_id} has finished: there is nothing to go on with.",
            next="`jackline fork` runs finished ones again, in a new run.",
        )
    raise unknown_agent(record.run_id, calls, name)


async def take_back(
    engine: Engine, run_id: str, name: str, agents: Collection[CallRecord] = ()
) -> bool:
    """Take back the orders that mean these agents; whether one was not carried out yet."""
    names = {name, *(each for call in agents for each in (call.label, call.task_id))}
    orders = [order for order in await engine.ordered_ends(run_id) if order.name in names]
    for order in orders:
        await engine.take_back_order(run_id, order.name)
    return any(not order.ended for order in orders)


def unknown_agent(run_id: str, calls: Iterable[CallRecord], name: str) -> BadArgumentError:
    """No agent of this run has that name."""
    labels = dict.fromkeys(call.label for call in calls if call.kind is CallKind.AGENT)
    known = ", ".join(list(labels)[:_MOST_LABELS]) or "none yet"
    more = len(labels) - _MOST_LABELS
    return BadArgumentError(
        f"No agent of {run_id} is labelled {name!r}.",
        next=f"Its agents are: {known}{f' and {more} more' if more > 0 else ''}.",
    )


def nothing_failed(
    record: RunRecord, failed: Collection[CallRecord], only: str | None
) -> BadArgumentError:
    """There is nothing to retry; agents that a person cancelled are named, and how to go on."""
    by_hand = next((call.label for call in failed if was_ended_by_hand(call)), None)
    if only is None and by_hand is not None:
        return BadArgumentError(
            f"Nothing failed in {record.run_id} but what a person cancelled.",
            next=f"`jackline resume {record.run_id} --only {shlex.quote(by_hand)}` goes on with it",
        )
    labels = ", ".join(sorted({call.label for call in failed})[:_MOST_LABELS]) or "none"
    return BadArgumentError(
        f"Nothing failed in {record.run_id}" + (f" under {only!r}." if only else "."),
        next=f"Failed calls: {labels}. `jackline fork` runs finished ones again.",
    )
