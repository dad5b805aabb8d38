"""Let a provider come back slowly after an outage, and fall again when a herd meets it.

Laws: (1) above the ramp arrivals are refused as overloaded; (2) too many arrivals in a short time
collapse it again, a bounded number of times; (3) constants are those of the design's simulation.
Not here: the outage itself (faults.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """A ramp from `first` to all of `streams` in `seconds`.

    It collapses for `collapse_seconds` when more than
    `herd_base + herd_factor * capacity / mean_service * herd_window` requests come in a window.
    """

    streams: float
    first: float = 0.1
    seconds: float = 120.0
    collapse_seconds: float = 60.0
    most_collapses: int = 8
    herd_window: float = 5.0
    herd_base: float = 10.0
    herd_factor: float = 3.0
    mean_service: float = 19.0


class Phase(Enum):
    """What the recovering provider does with an arrival."""

    DOWN = "down"
    COLLAPSING = "collapsing"
    OVERLOADED = "overloaded"
    LETS_IN = "lets_in"


class Recovery:
    """The ramp after one outage."""

    def __init__(self, settings: RecoverySettings, begins: float) -> None:
        self.settings = settings
        self.collapses = 0
        self._begins = begins
        self._arrivals: deque[float] = deque()

    @property
    def ends(self) -> float:
        """When all capacity is back, if nothing collapses before."""
        return self._begins + self.settings.seconds

    def capacity(self, now: float) -> float:
        """The streams that fit on the ramp."""
        done = min(1.0, max(0.0, (now - self._begins) / self.settings.seconds))
        return self.settings.streams * (self.settings.first + (1 - self.settings.first) * done)

    def meet(self, now: float, in_flight: int) -> Phase:
        """Count an arrival after the outage and say what becomes of it."""
        if now < self._begins:
            return Phase.DOWN
        if now >= self.ends:
            return Phase.LETS_IN
        settings = self.settings
        self._arrivals.append(now)
        while self._arrivals[0] < now - settings.herd_window:
            self._arrivals.popleft()
        capacity = self.capacity(now)
        flow = settings.herd_factor * capacity / settings.mean_service * settings.herd_window
        herd = len(self._arrivals) > settings.herd_base + flow
        if herd and self.collapses < settings.most_collapses:
            self.collapses += 1
            self._begins = now + settings.collapse_seconds
            self._arrivals.clear()
            return Phase.COLLAPSING
        return Phase.LETS_IN if in_flight + 1 <= max(1.0, capacity) else Phase.OVERLOADED
