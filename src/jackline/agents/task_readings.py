"""Read what the gateway has counted for agents: how long it held their calls, what they used.

Rules: (1) the gateway is asked once a second at most for all agents, unless a reading must be
fresh; those that need a fresh one at the same time share it; (2) where the gateway does not say,
nothing is known, which is not zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from jackline.clock import Clock
from jackline.dialects import TokenUsage

_CURRENT_SECONDS = 1.0


class _ReadingFields(msgspec.Struct):
    epoch: str
    held: float
    answers: int
    usage: dict[str, tuple[int, int, int, int, int]]
    # Gateways of other versions do not say.
    unsent: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class TaskReading:
    """What the gateway has counted for one agent."""

    held: float = 0.0
    """Seconds in which it held all calls of the agent."""
    answers: int = 0
    usage: Mapping[str, TokenUsage] = field(default_factory=dict)
    """By requested model, of calls that are over: answered, broken, or left by the program."""
    epoch: str = ""
    """Which meter says so: another one has counted from zero. Empty where there is none yet."""
    unsent: Mapping[str, int] = field(default_factory=dict)
    """By the same model: of what was read from caches, what nobody had sent before."""

    @property
    def counted(self) -> int:
        """Answers and tokens together: what one meter says later is never less."""
        return self.answers + sum(used.total for used in self.usage.values())

    @classmethod
    def from_json(cls, data: object) -> TaskReading:
        """The reading in a gateway's document; ValueError where it is none."""
        found = msgspec.convert(data, _ReadingFields)
        usage = {model: TokenUsage(*counts) for model, counts in found.usage.items()}
        return cls(found.held, found.answers, usage, found.epoch, found.unsent)


class ReadTask(Protocol):
    """Gives the reading of this agent; None when the gateway does not say."""

    def __call__(self, task_id: str, *, fresh: bool = False) -> Awaitable[TaskReading | None]:
        """A `fresh` reading was made after this was called."""
        ...


class TaskReadings:
    """The readings of all agents of one host."""

    def __init__(
        self, request: Callable[[], Mapping[str, TaskReading] | None], clock: Clock
    ) -> None:
        """`request` blocks, and gives readings by task id; None when the gateway does not say."""
        self._request = request
        self._clock = clock
        self._requested_at = -_CURRENT_SECONDS
        self._requests = 0
        self._reply: asyncio.Future[Mapping[str, TaskReading] | None] | None = None

    async def of(self, task_id: str, *, fresh: bool = False) -> TaskReading | None:
        """The reading of this agent; a `fresh` one was made after this was called."""
        if fresh:
            before = self._requests
            if self._reply is not None and not self._reply.done():
                await asyncio.wait([self._reply])
            is_due = self._requests == before
        else:
            is_due = self._clock.monotonic() - self._requested_at >= _CURRENT_SECONDS
        if self._reply is None or is_due:
            self._requested_at = self._clock.monotonic()
            self._requests += 1
            self._reply = asyncio.ensure_future(asyncio.to_thread(self._request))
        # Others wait for the same reply: who is cancelled leaves it to them.
        readings = await asyncio.shield(self._reply)
        return None if readings is None else readings.get(task_id, TaskReading())
