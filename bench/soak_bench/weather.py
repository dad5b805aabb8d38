"""Random faults of the provider: one after another, sometimes two at once, with calm between.

Rules: the same seed draws the same faults; quota walls reset within a minute, so that the gateway
waits for them instead of passing them on; nothing here is longer than a soak of one minute can bear
(`scale`), which is why a short soak lets only streams fall silent: without a stream the gateway
bears silence for five minutes.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from jackline.simulator.faults import Effect, Fault
from jackline.simulator.live_provider import LiveProvider

_CALM_MEAN = 40.0
_TWO_AT_ONCE = 0.3
_SILENT = ("hangs", "silence in streams", "frozen streams")
# The share of silences that strike streams only, so that the others are not always waiting.
_STREAMS_ONLY = 0.7

Make = Callable[[random.Random], Fault]


def _some(effect: Effect, low: float, high: float, shortest: float, longest: float) -> Make:
    """A fault that strikes between these shares of requests, for so many seconds."""

    def make(draw: random.Random) -> Fault:
        share = low + (high - low) * draw.random()
        return Fault(effect, share=share, until=draw.uniform(shortest, longest))

    return make


def _storm(draw: random.Random) -> Fault:
    told = draw.choice((None, 1.0, 2.0, 5.0))
    share = draw.choice((0.3, 0.7, 1.0))
    return Fault(Effect.THROTTLED, share=share, until=draw.uniform(5.0, 30.0), retry_after=told)


def _outage(draw: random.Random) -> Fault:
    """The provider fails for all, and what was under way breaks with it."""
    return Fault(Effect.SERVER_ERROR, until=draw.uniform(3.0, 15.0), kills_in_flight=draw.random())


def _freeze(draw: random.Random) -> Fault:
    return Fault(Effect.OVERLOADED, until=draw.uniform(3.0, 10.0), freezes_in_flight=True)


FAULTS: dict[str, Make] = {
    "429 storm": _storm,
    "overload": _some(Effect.OVERLOADED, 0.3, 1.0, 5.0, 25.0),
    "500": _some(Effect.SERVER_ERROR, 0.2, 1.0, 5.0, 20.0),
    "502": _some(Effect.BAD_GATEWAY, 0.2, 1.0, 3.0, 15.0),
    "503 of a proxy": _some(Effect.ENVOY, 0.2, 1.0, 3.0, 15.0),
    "outage": _outage,
    "frozen streams": _freeze,
    "quota wall": _some(Effect.QUOTA_WALL, 1.0, 1.0, 8.0, 40.0),
    "refused connections": _some(Effect.REFUSED, 1.0, 1.0, 2.0, 10.0),
    "reset connections": _some(Effect.RESET, 0.1, 0.6, 5.0, 20.0),
    "hangs": _some(Effect.HANG, 0.05, 0.3, 5.0, 15.0),
    "silence in streams": _some(Effect.SILENCE, 0.05, 0.3, 5.0, 15.0),
    "cut streams": _some(Effect.CUT, 0.1, 0.5, 5.0, 25.0),
    "streams ended early": _some(Effect.CLEAN_END, 0.1, 0.5, 5.0, 25.0),
    "errors in streams": _some(Effect.ERROR_EVENT, 0.1, 0.5, 5.0, 25.0),
    "dripping streams": _some(Effect.SLOW_DRIP, 0.1, 0.4, 5.0, 15.0),
}


class Weather:
    """Faults at work; `counts` says which there have been."""

    def __init__(self, playing: LiveProvider, draw: random.Random, scale: float) -> None:
        self.counts: Counter[str] = Counter()
        self._playing = playing
        self._draw = draw
        self._scale = scale

    async def blow(self) -> None:
        """Break things until cancelled; then all is well again."""
        try:
            while True:
                await asyncio.sleep(
                    self._draw.expovariate(1.0 / (_CALM_MEAN * max(0.2, self._scale)))
                )
                longest = self._strike()
                if self._draw.random() < _TWO_AT_ONCE:
                    longest = max(longest, self._strike())
                await asyncio.sleep(longest)
        finally:
            self._playing.clear_faults()

    def _strike(self) -> float:
        """Let one fault begin; the seconds that it lasts."""
        name = self._draw.choice(sorted(FAULTS))
        fault = FAULTS[name](self._draw)
        fault = replace(fault, until=max(2.0, fault.until * self._scale), slowness=8.0)
        if name in _SILENT and (self._scale < 1.0 or self._draw.random() < _STREAMS_ONLY):
            fault = replace(fault, model="sonnet")
        self._playing.add_fault(fault)
        self.counts[name] += 1
        return fault.until
