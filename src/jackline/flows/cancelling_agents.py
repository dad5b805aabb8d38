"""Cancel single agents of a run: by its owner if one lives, else here and now.

Laws: (1) the order is kept before anything else, so that whoever carries the run next knows it; (2)
a run that nobody carries stays as it stands, parked or stopped: only the named agents end; (3) what
nobody can carry out is refused, and leaves no order behind; so is every order in the service's
process, which loads no flow (user_code.py).
Not here: how the owner ends them (agent_orders.py), cancelling whole runs (orders.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jackline.errors import BadArgumentError, UsageError
from jackline.flows.agent_orders import agents_meant
from jackline.flows.ended_by_hand import end_by_hand
from jackline.flows.engine import Claim, Engine
from jackline.flows.host import FlowHost
from jackline.flows.naming_agents import unknown_agent
from jackline.flows.orders import claim_run, duration_before, execution_of, known_run
from jackline.flows.records import ENDED, AgentOrder, CallState, RunRecord
from jackline.flows.settings import decode_settings
from jackline.flows.user_code import check_user_code

_LOOKS = 4
"""So many of its looks for orders an owner is given to answer, and a moment for the clean-up."""
_MOMENT = 5.0
_LOOK_EVERY = 0.2


@dataclass(frozen=True, slots=True)
class CancelledAgents:
    """What came of an order to cancel agents."""

    run: RunRecord
    name: str
    ended: int | None
    """How many; None when the owner has not said so in time, 0 when it is for one yet to come."""
    carried: bool
    """Whether a process carries the run, whose flow has heard of it."""


async def cancel_agents(
    host: FlowHost, run_id: str, name: str, *, ahead: bool = False
) -> CancelledAgents:
    """End the agents of this label or task id, and no others.

    With `ahead`, the order also stands for agents that the flow has not come to yet.
    """
    run = await known_run(host, run_id)
    if run.state in ENDED:
        raise UsageError(
            f"The run {run.run_id} has ended ({run.state}): none of its agents is at work.",
            next=f"`jackline show {run.run_id}` tells how each of them ended.",
        )
    # Their clean-up may be functions of the flow's file.
    check_user_code(f"the agent {name}", next_step=f"jackline cancel {run.run_id} --only …")
    order = AgentOrder(run.run_id, name, host.clock.wall())
    await host.engine.order_end(order)
    settings = decode_settings(run.settings)
    claim = await claim_run(host, run, settings.lease)
    if claim is None:
        ended = await _answer(host, order, settings.poll * _LOOKS + _MOMENT)
    else:
        ended = await _end_here(host, claim, order)
    if ended == 0 and not ahead:
        await host.engine.take_back_order(run.run_id, name)
        raise await _nobody(host.engine, run, name)
    return CancelledAgents(run, name, ended, carried=claim is None)


async def _answer(host: FlowHost, order: AgentOrder, within: float) -> int | None:
    """What the owner said; None when it said nothing in time."""
    until = host.clock.monotonic() + within
    while host.clock.monotonic() < until:
        for each in await host.engine.ordered_ends(order.run_id):
            if (each.name, each.at) == (order.name, order.at) and each.ended is not None:
                return each.ended
        await host.clock.sleep(_LOOK_EVERY)
    return None


async def _end_here(host: FlowHost, claim: Claim, order: AgentOrder) -> int:
    run = await known_run(host, order.run_id)
    execution = execution_of(host, claim, run, decode_settings(run.settings))
    await execution.load(duration_before=duration_before(run))
    calls = agents_meant(list(execution.known.values()), order.name)
    meant = [call for call in calls if call.state is CallState.RUNNING]
    for call in meant:
        await end_by_hand(execution, call, order.name)
    if meant:
        await host.engine.answer_order(claim, replace(order, ended=len(meant)))
    await execution.telling.settle()
    used = execution.account
    standing = replace(run, tokens=used.tokens, cost=used.dollars, updated_at=host.clock.wall())
    await host.engine.let_go(claim, standing)
    return len(meant)


async def _nobody(engine: Engine, run: RunRecord, name: str) -> BadArgumentError:
    calls = await engine.calls(run.run_id)
    ended = agents_meant(calls, name)
    if not ended:
        return unknown_agent(run.run_id, calls, name)
    return BadArgumentError(
        f"The agent {name} of {run.run_id} has ended already: {ended[-1].terminated_by}.",
        next=f"`jackline show {run.run_id}` tells more.",
    )
