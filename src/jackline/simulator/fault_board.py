"""Keep the faults of a provider: scheduled, switched on, switched off, gone.

Laws: (1) faults are asked in the order in which they came, and the first that strikes decides;
(2) a fault that can never strike again is forgotten.
Not here: what a fault does (faults.py), what it does to open streams (provider.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TypeAlias

from jackline.simulator.calendar import Calendar
from jackline.simulator.exchange import SimRequest
from jackline.simulator.faults import ActiveFault, Effect, Fault
from jackline.simulator.refusals import Refusal

Struck: TypeAlias = tuple[ActiveFault | None, Refusal | Effect | None]


class FaultBoard:
    """The faults of one provider."""

    def __init__(self, calendar: Calendar, draw: random.Random) -> None:
        self.faults: list[ActiveFault] = []
        self._calendar = calendar
        self._seeds = draw
        self._handles = 0

    def add(self, fault: Fault) -> ActiveFault:
        """Put up a fault; its handle takes it down."""
        self._handles += 1
        seed = self._seeds.getrandbits(64)
        active = ActiveFault(self._handles, fault, self._calendar, seed)
        self.faults.append(active)
        return active

    def clear(self, now: float, handle: int | None) -> None:
        """End one fault, or all; those with a recovery recover from now on."""
        for active in self.faults:
            if handle in (None, active.handle):
                active.end(now)
        self._forget_past(now)

    def strike(
        self,
        now: float,
        request: SimRequest,
        in_flight: int,
        collapse: Callable[[float, ActiveFault], None],
    ) -> Struck:
        """The fault that strikes this request and what it does, or neither."""
        over = False
        for active in self.faults:
            if active.over(now):
                over = True
                continue
            blow = active.strike(now, request, in_flight, collapse)
            if blow is not None:
                return active, blow
        if over:
            self._forget_past(now)
        return None, None

    def aim(self, now: float, ordered: Refusal | Fault) -> Struck:
        """What a script has ordered for one request."""
        if isinstance(ordered, Refusal):
            return None, ordered
        active = ActiveFault(0, ordered, self._calendar, self._seeds.getrandbits(64))
        return active, active.blow(now)

    def door(self, now: float) -> tuple[bool, float | None]:
        """Whether one can connect at all, and when that changes by schedule."""
        shut = any(active.refuses_connections(now) for active in self.faults)
        edges = [
            edge
            for active in self.faults
            if active.fault.effect is Effect.REFUSED
            for edge in (active.fault.start, active.fault.until)
            if now < edge < math.inf
        ]
        return not shut, min(edges, default=None)

    def _forget_past(self, now: float) -> None:
        self.faults = [active for active in self.faults if not active.over(now)]
