"""Bound how many client processes live at once, over all runs that one process carries.

Rules: (1) a slot is held exactly while a client process may live: an agent that waits at a quota
limit holds none; (2) who asks first is served first; (3) agents of a deeper level have slots of
their own: an agent holds its slot while it waits for those that it has started, which must not wait
for it in turn; (4) giving back is always possible, whether the slot was granted or is still asked
for.
Not here: how many agents of one run are at work (execution/execution.py), how it is shown that one
waits (execution/call_gate.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from jackline.flows.settings import RunSettings


@dataclass(eq=False, slots=True)
class ProcessSlot:
    """One place among the processes, or in the line for it."""

    level: int
    granted: asyncio.Event = field(default_factory=asyncio.Event)


class ProcessSlots:
    """The places of one process that carries runs; `most` at each level."""

    def __init__(self, most: int = RunSettings().processes_at_once) -> None:
        self.most = max(1, most)
        self._lines: dict[int, dict[ProcessSlot, None]] = {}
        """By level, those who wait, in the order in which they came."""
        self._granted: Counter[int] = Counter()

    def ask(self, level: int) -> ProcessSlot:
        """A slot, granted at once or when others were given back."""
        slot = ProcessSlot(level)
        self._lines.setdefault(level, {})[slot] = None
        self._grant(level)
        return slot

    def give_back(self, slot: ProcessSlot) -> None:
        """It is not needed any more."""
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
