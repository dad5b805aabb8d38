"""Hear how a run goes while this process carries it, for whoever waits for it.

Laws: (1) hearing never waits; (2) waiters are woken by what changes their answer, not by every
token; (3) nothing of a prompt or an answer is kept.
Not here: what is kept of the run (flows/), waiting (agent_desk.py).
"""

from __future__ import annotations

import asyncio

from jackline.flows.progress import (
    AgentAnswered,
    AgentBegan,
    AgentEnded,
    AgentWaits,
    FlowEvent,
    RunParked,
    RunWoke,
)


class RunHearing:
    """What was heard of one run; it is the run's listener."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Event] = set()
        self._at_work: dict[str, str] = {}
        self._ended = 0
        self._answers = 0
        self._tokens = 0
        self._parked = ""

    def __call__(self, event: FlowEvent) -> None:
        """Take note of an event."""
        if isinstance(event, AgentBegan):
            self._at_work[event.task_id] = "works"
        elif isinstance(event, AgentWaits):
            self._at_work[event.task_id] = f"waits: {event.why}" if event.why else "works"
        elif isinstance(event, AgentAnswered):
            self._answers += 1
            self._tokens = event.run_tokens
        elif isinstance(event, AgentEnded):
            self._at_work.pop(event.task_id, None)
            self._ended += 1
            self.wake()
        elif isinstance(event, RunParked):
            self._parked = event.why
            self.wake()
        elif isinstance(event, RunWoke):
            self._parked = ""
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
        if self._parked:
            return f"parked: {self._parked}"
        waits = [word for word in self._at_work.values() if word != "works"]
        parts = [f"{len(self._at_work)} at work"] if self._at_work else ["starting"]
        if self._ended:
            parts.append(f"{self._ended} ended")
        if self._answers:
            parts.append(f"{self._answers} answers, {self._tokens:,} tokens")
        return ", ".join([*parts, *waits[:1]])
