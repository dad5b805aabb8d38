"""What flows need of the process they run in: a store, runners, time.

Rules: flows know no gateway and no configuration: whoever hosts them brings ready runners.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from jackline.agents.prices import Price
from jackline.agents.runner import Runner
from jackline.agents.task_meter import ReadTask
from jackline.clock import Clock, SystemClock
from jackline.flows.run_events import Listener, ignore_event
from jackline.flows.settings import AllowPatterns, RunSettings
from jackline.flows.store.run_store import RunStore

WindowUsed: TypeAlias = Callable[[], Awaitable[tuple[float, float] | None]]
"""Gives the used share and the time of the reset; None when no window is known."""

ReadWaits: TypeAlias = Callable[[], Awaitable[Mapping[str, object] | None]]
"""Gives the gateway's document of the waits of agents; None when it does not answer."""


async def _unknown(*_arguments: object, **_options: object) -> None:
    """Nothing is known."""


@dataclass(eq=False, slots=True)
class ProcessSlot:
    """One place among the client processes, or in the line for it."""

    level: int
    granted: asyncio.Event = field(default_factory=asyncio.Event)


class ProcessSlots:
    """How many client processes live at once, over all runs of one host; `most` at each level.

    A slot is held exactly while a client process may live: an agent that waits at a quota limit
    holds none. First come, first served. Agents of a deeper level have slots of their own: an agent
    holds its slot while it waits for those that it has started, which must not wait for it.
    """

    def __init__(self, most: int = RunSettings().processes_at_once) -> None:
        self.most = max(1, most)
        self._lines: dict[int, dict[ProcessSlot, None]] = {}
        """By level, those who wait, in the order in which they came."""
        self._granted: Counter[int] = Counter()

    def request(self, level: int) -> ProcessSlot:
        """A slot, granted at once or when others are released."""
        slot = ProcessSlot(level)
        self._lines.setdefault(level, {})[slot] = None
        self._grant(level)
        return slot

    def release(self, slot: ProcessSlot) -> None:
        """It is not needed any more, whether it was granted or not."""
        if slot.granted.is_set():
            self._granted[slot.level] -= 1
        else:
            self._lines[slot.level].pop(slot)
        self._grant(slot.level)

    def _grant(self, level: int) -> None:
        line = self._lines[level]
        while line and self._granted[level] < self.most:
            slot = next(iter(line))
            del line[slot]
            self._granted[level] += 1
            slot.granted.set()


@dataclass(frozen=True, slots=True)
class FlowHost:
    """A process that can run flows."""

    engine: RunStore
    runners: Callable[[str], Mapping[str, Runner]]
    """The runners for the run of this id, by the name that `agent(runner=…)` gives."""
    clock: Clock = field(default_factory=SystemClock)
    draw: Callable[[], float] = random.random
    """A number from 0 to 1, for spreading things out."""
    settings: RunSettings = field(default_factory=RunSettings)
    """How runs behave that say nothing else."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """The user's own, by model name or pattern."""
    listener: Listener = ignore_event
    window_used: WindowUsed = _unknown
    """How full the account's fullest window is."""
    read_task: ReadTask = _unknown
    """What the gateway has counted for an agent."""
    read_waits: ReadWaits = _unknown
    """What the gateway says that agents do or wait for there."""
    processes: ProcessSlots = field(default_factory=ProcessSlots)
    """How many client processes live at once, over all runs of this host."""
    allow: AllowPatterns = tuple
    """Gives the user's patterns of now for clean-up commands that models have ordered."""
