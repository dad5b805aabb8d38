"""Hear how a run goes while this process carries it, for whoever waits for it.

Laws: (1) hearing never waits; (2) waiters are woken by what changes their answer, not by every
token; (3) nothing of a prompt or an answer is kept.
Not here: what is kept of the run (flows/), waiting (agent_desk.py).
"""

from __future__ import annotations

import asyncio

from jackline.control.run_view import RunView
from jackline.flows.progress import AgentAnswered, AgentEnded, FlowEvent, RunParked, RunWoke
from jackline.flows.records import RunState


class RunHearing:
    """What was heard of one run; it is the run's listener."""

    def __init__(self) -> None:
        self.view = RunView()
        self._waiters: set[asyncio.Event] = set()
        self._answers = 0

    def __call__(self, event: FlowEvent) -> None:
        """Take note of an event."""
        self.view.heard(event)
        self._answers += isinstance(event, AgentAnswered)
        if isinstance(event, AgentEnded | RunParked | RunWoke):
            self.wake()

    def wake(self) -> None:
        """Let those who wait look again."""
        for waiter in self._waiters:
            waiter.set()

    def add(self, waiter: asyncio.Event) -> None:
        """Wake this one, too, until it is removed."""
        self._waiters.add(waiter)

    def remove(self, waiter: asyncio.Event) -> None:
        """Wake this one no more."""
        self._waiters.discard(waiter)

    @property
    def words(self) -> str:
        """In a few words, what goes on."""
        view = self.view
        if view.state == RunState.PARKED.value:
            return f"parked: {view.why}"
        parts = [f"{len(view.agents)} at work"] if view.agents else ["starting"]
        if ended := view.ok + view.failed:
            parts.append(f"{ended} ended")
        if self._answers:
            parts.append(f"{self._answers} answers, {view.tokens:,} tokens")
        waits = [f"waits: {agent.why}" for agent in view.agents.values() if agent.why]
        return ", ".join([*parts, *waits[:1]])
