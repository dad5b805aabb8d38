"""Look at a run of agents as the store keeps it.

Laws: (1) only what is kept counts; (2) a run that the service itself stopped has not settled: the
next service takes it up; (3) a run is a model's by its flow and by the file of that: a user's
flow may have the same name.
Not here: waiting and carrying (agent_desk.py), words (agent_words.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from jackline.control.run_view import AgentView
from jackline.errors import UsageError
from jackline.flows.engine import Engine
from jackline.flows.executed_sources import is_own
from jackline.flows.orders import is_dead
from jackline.flows.records import ENDED, CallKind, CallRecord, CallState, RunRecord, RunState
from jackline.mcp_server.flow.started_agents import started_agents
from jackline.mcp_server.model_tool import JsonObject

STOPPED = "The service that carried it was stopped; it goes on when the service runs again."
_OUR_FILE = os.path.join("jackline", "mcp_server", "flow", "started_agents.py")  # noqa: PTH118


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
        if not is_of_models(self.record) or not self.record.trusted:
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


def is_of_models(record: RunRecord) -> bool:
    """Whether a model has started the run, or the service for one; not a user by a flow."""
    if record.flow != started_agents.name:
        return False
    # One that an installation of Jackline at another place has begun, before an upgrade.
    replaced = record.source.endswith(_OUR_FILE) and not Path(record.source).exists()
    return replaced or (bool(record.source) and is_own(record.source))


def must_be_of_models(record: RunRecord, verb: str) -> None:
    """Refuse a model what only the user may do with a run of the user's own."""
    if not is_of_models(record):
        raise UsageError(
            f"The run {record.run_id} was started by the user, not by a model: nothing was done.",
            next=f"It is the user's to decide; in a terminal: jackline {verb} {record.run_id}",
        )


async def looked(engine: Engine, record: RunRecord) -> Look:
    """The run with its agents."""
    calls = await engine.calls(record.run_id)
    return Look(record, tuple(call for call in calls if call.kind is CallKind.AGENT))


def is_held(record: RunRecord, now: float) -> bool:
    """Whether a living process carries the run, as far as one can know."""
    return bool(record.owner) and record.lease_until > now and not is_dead(record.owner)
