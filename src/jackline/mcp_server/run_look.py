"""Look at a run of agents as the store keeps it.

Laws: (1) only what is kept counts; (2) a run that the service itself stopped has not settled: the
next service takes it up.
Not here: waiting and carrying (agent_desk.py), words (agent_words.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from jackline.control.run_view import AgentView
from jackline.flows.engine import Engine
from jackline.flows.orders import is_dead
from jackline.flows.records import ENDED, CallKind, CallRecord, CallState, RunRecord, RunState
from jackline.mcp_server.flow.started_agents import started_agents
from jackline.mcp_server.model_tool import JsonObject

STOPPED = "The service that carried it was stopped; it goes on when the service runs again."


@dataclass(frozen=True, slots=True)
class Look:
    """A run as it is kept now, or one agent of it (`label`)."""

    record: RunRecord
    calls: tuple[CallRecord, ...]
    label: str | None = None
    under_way: Mapping[str, AgentView] = field(default_factory=dict)
    """Its agents at work by their tasks, as far as this process carries them."""

    @property
    def orders(self) -> list[JsonObject]:
        """What was asked for; empty when the run was not started by a model, or is not ours."""
        if self.record.flow != started_agents.name or not self.record.trusted:
            return []
        return cast("list[JsonObject]", json.loads(self.record.arguments)["orders"])

    @property
    def chosen(self) -> tuple[CallRecord, ...]:
        """The agents that were asked about."""
        return tuple(call for call in self.calls if self.label in (None, call.label))

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for."""
        record = self.record
        # What the service itself stopped, it takes up again.
        if record.state in ENDED or (record.state is RunState.STOPPED and record.why != STOPPED):
            return True
        ended = [call for call in self.chosen if call.state is not CallState.RUNNING]
        return self.label is not None and len(ended) == len(self.chosen) == 1

    def rests_beyond(self, moment: float) -> bool:
        """Whether it is parked until after that moment, or until a person acts."""
        parked = self.record.state is RunState.PARKED
        return parked and (self.record.wake_at is None or self.record.wake_at > moment)


async def looked(engine: Engine, record: RunRecord) -> Look:
    """The run with its agents."""
    calls = await engine.calls(record.run_id)
    return Look(record, tuple(call for call in calls if call.kind is CallKind.AGENT))


def is_held(record: RunRecord, now: float) -> bool:
    """Whether a living process carries the run, as far as one can know."""
    return bool(record.owner) and record.lease_until > now and not is_dead(record.owner)
