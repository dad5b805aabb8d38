"""Run the crew of a part, each agent a built-in client, all at once.

Laws: (1) records can be read at any time, also after the fleet was stopped; (2) a stopped fleet
leaves no task and no connection behind.
Not here: one agent's behaviour (builtin_client.py), the real client (claude_fleet.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from jackline.drills.builtin_client import BuiltinClient
from jackline.drills.drill import Part
from jackline.drills.habits import SUBSCRIBER, Habits
from jackline.drills.pace import Pace
from jackline.drills.record import AgentRecord
from jackline.simulator.lots import from_seed


class Fleet(Protocol):
    """A crew at work; there is one implementation per client."""

    @property
    def error_waits(self) -> Sequence[float]:
        """For each error that has reached the client, how long its request had been out."""
        ...

    @property
    def records(self) -> Sequence[AgentRecord]:
        """How far each agent of the crew is."""
        ...

    async def run(self) -> None:
        """Let all work to their ends."""
        ...


class BuiltinFleet:
    """The built-in client, once per agent of the crew."""

    def __init__(self, part: Part, url: str, pace: Pace, habits: Habits = SUBSCRIBER) -> None:
        self._clients = [
            BuiltinClient(plan, url, pace, from_seed(number), habits)
            for number, plan in enumerate(part.crew)
        ]

    @property
    def records(self) -> Sequence[AgentRecord]:
        """How far each agent of the crew is."""
        return [client.record for client in self._clients]

    @property
    def error_waits(self) -> Sequence[float]:
        """For each error that has reached the client, how long its request had been out."""
        return [error.waited for record in self.records for error in record.errors]

    async def run(self) -> None:
        """Let all work to their ends."""
        async with asyncio.TaskGroup() as group:
            for client in self._clients:
                group.create_task(client.run())
