"""Meter the calls of each agent of a flow at the gateway, and read the meters from its process.

Rules: (1) an agent names itself in `x-jackline-task` with a proof that this user's installation has
named it so; any other name is as if there were none; (2) it counts as held while all of its calls
wait, to about a second; (3) a call is counted once, at its end, with all that its attempts used,
delivered or not; (4) agents, and models of one agent, are limited in number; (5) a restart forgets
all of it, and so may a very old meter be: each has an epoch, by which readers see that it began at
zero; (6) the gateway is asked once a second at most for all agents, unless a reading must be fresh;
those that need a fresh one at the same time share it; (7) where the gateway does not say, nothing
is known, which is not zero.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import msgspec

from jackline.clock import Clock
from jackline.dialects import TokenUsage

MOST_TASKS = 4096
MOST_MODELS = 16
_OTHER_MODELS = "other"
_NOTHING_USED = TokenUsage()
_THIS_PROCESS = os.urandom(6).hex()
_numbers = count(1)


def _new_epoch() -> str:
    return f"{_THIS_PROCESS}-{next(_numbers)}"


@dataclass(slots=True)
class TaskMeter:
    """What the calls of one agent took so far."""

    held: float = 0.0
    """Seconds."""
    answers: int = 0
    usage: dict[str, TokenUsage] = field(default_factory=dict)
    """By the model that the upstream was asked for."""
    epoch: str = field(default_factory=_new_epoch)
    """No other meter has the same."""

    def to_json(self) -> dict[str, object]:
        """The same as plain JSON: counts in the order of `TokenUsage`."""
        usage = {model: list(msgspec.structs.astuple(used)) for model, used in self.usage.items()}
        held = round(self.held, 3)
        return {"epoch": self.epoch, "held": held, "answers": self.answers, "usage": usage}


class TaskMeters:
    """One meter for each agent that names itself; the longest unused ones are forgotten."""

    def __init__(self) -> None:
        self._meters: OrderedDict[str, TaskMeter] = OrderedDict()
        self._looked_at: float | None = None

    @property
    def by_task(self) -> Mapping[str, TaskMeter]:
        """All meters, by task id."""
        return self._meters

    def to_json(self) -> dict[str, object]:
        """All meters as plain JSON."""
        return {task: meter.to_json() for task, meter in self._meters.items()}

    def look(self, calls: Iterable[tuple[str, bool]], now: float) -> None:
        """Count the time since the last look; `calls` are their tasks, and whether each waits."""
        passed = 0.0 if self._looked_at is None else max(0.0, now - self._looked_at)
        self._looked_at = now
        held: set[str] = set()
        works: set[str] = set()
        for task, waits in calls:
            (held if waits else works).add(task)
        for task in held - works:
            self._of(task).held += passed

    def count_call(self, task: str, model: str, used: TokenUsage, *, answered: bool) -> None:
        """A call of this agent is over."""
        if not answered and used == _NOTHING_USED:
            return
        meter = self._of(task)
        meter.answers += answered
        if model not in meter.usage and len(meter.usage) >= MOST_MODELS:
            model = _OTHER_MODELS
        meter.usage[model] = meter.usage.get(model, _NOTHING_USED) + used

    def _of(self, task: str) -> TaskMeter:
        meter = self._meters.get(task)
        if meter is None:
            meter = self._meters[task] = TaskMeter()
            while len(self._meters) > MOST_TASKS:
                self._meters.popitem(last=False)
        self._meters.move_to_end(task)
        return meter


_CURRENT_SECONDS = 1.0


class _ReadingFields(msgspec.Struct):
    epoch: str
    held: float
    answers: int
    usage: dict[str, tuple[int, int, int, int, int]]


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

    @property
    def counted(self) -> int:
        """Answers and tokens together: what one meter says later is never less."""
        return self.answers + sum(used.total for used in self.usage.values())

    @classmethod
    def from_json(cls, data: object) -> TaskReading:
        """The reading in a gateway's document; ValueError where it is none."""
        found = msgspec.convert(data, _ReadingFields)
        usage = {model: TokenUsage(*counts) for model, counts in found.usage.items()}
        return cls(found.held, found.answers, usage, found.epoch)


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
