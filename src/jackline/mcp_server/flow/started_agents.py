"""The flow in which agents run that a model has started: one, or a group.

Rules: (1) everything that it needs is in its arguments, so that any process can continue it; (2)
one agent that fails fails its run, so that `resume` continues it; of a group, the others' results
stay; (3) an agent that was cancelled alone stays cancelled, also for the next process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.process.child import ProcessMark, is_alive
from jackline.budgets.budget import Budget
from jackline.errors import UsageError
from jackline.flows.authoring.calls import AgentCall, AgentFailedError, agent, parallel
from jackline.flows.authoring.context import ctx
from jackline.flows.authoring.flow_definition import flow
from jackline.flows.execution.execution import scope_for
from jackline.flows.records import render_allowed_command
from jackline.mcp_server.permissions import check_nested

CANCELLED_ALONE = "agent cancelled"
"""The line of a run's log by which one agent of a group is ordered to end."""
_LISTEN_EVERY = 2.0


@flow
async def started_agents(orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run the agents of all orders."""
    # Whoever started them may wait for them, and holds what they would wait for on its own level.
    scope_for("started_agents()").run.level = max(
        (int(each.get("depth", 1)) for each in orders), default=1
    )
    for order in orders:
        for resource in order.get("resources", ()):
            await ctx.resource(
                resource["name"],
                release=_release(order, resource) or "",
                lease=resource.get("lease"),
                release_on_park=resource.get("release_on_park", False),
            )
    if len(orders) == 1:
        await _check_place(orders[0])
        return [{"label": orders[0]["label"], "value": await _agent(orders[0])}]
    group = _Group()
    await group.read_notes()
    listening = asyncio.create_task(group.listen())
    try:
        batch = await parallel(group.member(order) for order in orders)
    finally:
        listening.cancel()
    return [
        {"label": order["label"], "terminated_by": outcome.terminated_by.value}
        for order, outcome in zip(orders, batch, strict=True)
    ]


async def _check_place(order: Mapping[str, Any]) -> None:
    """RefusedError when the folder has come to bring something since the order was taken."""
    if trusted := order.get("trusted"):
        await check_nested(Path(order["cwd"]), Path(trusted))


def _agent(order: Mapping[str, Any]) -> AgentCall[Any]:
    if any(is_alive(ProcessMark(*each)) for each in order.get("lived_in", ())):
        raise UsageError(
            f"The session {order['resume']} is still open in a process of this machine.",
            hint=f"Go on there; or end it, and then: jackline resume {ctx.run_id}",
        )
    budget = order.get("budget")
    call = agent(
        order["prompt"],
        schema=order.get("schema"),
        model=order.get("model"),
        tools=order.get("tools"),
        system=order.get("system"),
        runner=order["runner"],
        label=order["label"],
        cwd=order["cwd"],
        budget=Budget(**budget) if budget else None,
        resume=order.get("resume"),
        continue_from=order.get("continue_from"),
        on_end=_release(order, order),
    )
    # Of a session only what its user accepted; an order of before does not say what that was.
    is_session = "lived_in" in order
    return call.without_edits() if is_session and not order.get("accepts_edits") else call


def _release(order: Mapping[str, Any], of: Mapping[str, Any]) -> str | None:
    """The command of a model that gives something back, with all that its permission rests on."""
    command = of.get("release")
    if not command:
        return None
    return render_allowed_command(command, order["cwd"], order.get("allowed_by", ()))


class _Group:
    """The agents of one run, each of which may be cancelled by itself."""

    def __init__(self) -> None:
        self._run = scope_for("started_agents()").run
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._cancelled: set[str] = set()
        self._last_note = 0

    async def member(self, order: Mapping[str, Any]) -> Any:
        """The agent's answer; AgentFailedError when it comes to none, or was cancelled."""
        label = order["label"]
        evidence = Evidence(says="It was cancelled.")
        cancelled: Outcome[Any] = Outcome(Ending.CANCELLED, label=label, evidence=evidence)
        task = asyncio.current_task()
        if label in self._cancelled or task is None:
            raise AgentFailedError(cancelled)
        self._tasks[label] = task
        try:
            await _check_place(order)
            return await _agent(order)
        except asyncio.CancelledError:
            if label in self._cancelled and self._run.interruption is None:
                raise AgentFailedError(cancelled) from None
            raise
        finally:
            del self._tasks[label]

    async def listen(self) -> None:
        while True:
            await self._run.clock.sleep(_LISTEN_EVERY)
            await self.read_notes()

    async def read_notes(self) -> None:
        """Cancel the agents of which the log says so."""
        for note in await self._run.engine.notes(self._run.run_id, after=self._last_note):
            self._last_note = note.number
            if note.what == CANCELLED_ALONE:
                self._cancelled.add(note.label)
                if note.label in self._tasks:
                    self._tasks[note.label].cancel()
