"""The flow in which agents run that a model has started: one, or a group.

Laws: (1) what it needs stands in its arguments, so that any process can go on with it; (2) one
agent that fails fails its run, so that `resume` goes on with it; of a group, the others' results
stay; (3) an agent that was cancelled by itself stays so, also for the next process.
Not here: what the orders mean (agent_orders.py), carrying the run (agent_desk.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.flows.authoring import agent
from jackline.flows.context import ctx
from jackline.flows.definition import flow
from jackline.flows.parallel import parallel
from jackline.flows.calls import AgentCall
from jackline.flows.scope import scope_for
from jackline.flows.settings import Budget

CANCELLED_ALONE = "agent cancelled"
"""The line of a run's log by which one agent of a group is told to end."""
_LOOK_EVERY = 2.0


@flow
async def started_agents(
    orders: list[dict[str, Any]], folder: str = "", background: bool = False
) -> list[dict[str, Any]]:
    """Carry all orders; `folder` is where their client works, for whoever asks later."""
    for order in orders:
        for resource in order.get("resources", ()):
            await ctx.resource(
                resource["name"],
                release=resource.get("release", ""),
                lease=resource.get("lease"),
                release_on_park=resource.get("release_on_park", False),
            )
    if len(orders) == 1:
        return [{"label": orders[0]["label"], "value": await _agent(orders[0])}]
    cancelled = _Cancelled()
    looking = asyncio.create_task(cancelled.look())
    try:
        batch = await parallel(cancelled.unless(order["label"], order) for order in orders)
    finally:
        looking.cancel()
    return [
        {
            "label": order["label"],
            "terminated_by": outcome.terminated_by.value,
            "value": outcome.value,
        }
        for order, outcome in zip(orders, batch, strict=True)
    ]


def _agent(order: Mapping[str, Any]) -> AgentCall[Any]:
    budget = order.get("budget")
    return agent(
        order["prompt"],
        schema=order.get("schema"),
        model=order.get("model"),
        tools=order.get("tools"),
        system=order.get("system"),
        runner=order["runner"],
        label=order["label"],
        cwd=order["cwd"],
        budget=Budget(**budget) if budget else None,
        retries=order.get("retries", 1),
        resume=order.get("resume"),
        continue_from=order.get("continue_from"),
        on_end=order.get("release") or None,
    )


class _Cancelled:
    """The agents of this run that were cancelled by themselves, by label."""
