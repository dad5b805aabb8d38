"""Compute how many calls a lane may have in flight, and how long it pauses when it is throttled.

Rules: (1) the window is never below one; (2) it shrinks once per throttle episode, however many
rejections that has; (3) it grows only while it is used, because an idle window proves nothing; (4)
the first refusal begins an episode and anything accepted ends it; (5) each further refusal makes
the pause longer, and the length of a pause is learned from how long episodes last.
"""

from __future__ import annotations

import math

from jackline.lanes.settings import ConcurrencyWindowSettings

# An accept counts as proof that the window is used when this share of it was in flight.
USED = 0.8


class ConcurrencyWindow:
    """The learned number of parallel calls (CUBIC growth, slowed to the pace of LLM calls)."""

    __slots__ = (
        "_at_load",
        "_load",
        "_settings",
        "decreased_at",
        "epoch",
        "peak",
        "size",
        "slow_until",
    )

    def __init__(self, settings: ConcurrencyWindowSettings, now: float) -> None:
        self._settings = settings
        self.size = settings.start
        self.peak = 0.0
        self.slow_until = math.inf
        self.decreased_at = now
        self.epoch = settings.epoch_start
        self._load = 0.0
        self._at_load = now

    def limit(self) -> int:
        """How many calls may be in flight."""
        return max(1, int(self.size))

    def load_changed(self, before: int, now: float) -> None:
        """Remember the load, so that one early rejection does not forget what was carried."""
        passed = now - self._at_load
        if passed > 0:
            weight = math.exp(-passed / self._settings.load_memory)
            self._load = self._load * weight + before * (1 - weight)
        self._at_load = now

    def accepted(self, in_flight: int, now: float) -> None:
        """Grow, if this accept was made with the window in use."""
        if in_flight < USED * max(1, int(self.size)):
            return
        if self.size < self.slow_until:
            self.size += 1
            return
        tau = (now - self.decreased_at) / self.epoch
        if tau > self._settings.outdated:
            # So long without a rejection, the old peak is out of date: look for the new one.
            self.size += 0.5
            return
        share = 1 - self._settings.decrease
        curve = self.peak * (1 + share * (tau - 1) ** 3) + 0.5 * tau
        self.size = max(self.size, min(curve, self.size + 1))

    def rejected(self, in_flight_at_send: int, now: float) -> None:
        """Shrink to just below what was carried; called once per episode."""
        peak = max(1.0, in_flight_at_send - 1, USED * self._load)
        settings = self._settings
        if abs(peak - self.peak) <= max(1.0, 0.1 * self.peak):
            self.epoch = min(settings.epoch_longest, self.epoch * 1.25)
        else:
            self.epoch = max(settings.epoch_shortest, self.epoch / 2)
        self.peak = peak
        self.size = self.slow_until = max(1.0, settings.decrease * peak)
        self.decreased_at = now

    def restart(self, size: float, target: float, now: float) -> None:
        """Begin small after an outage, and grow quickly up to what was carried before."""
        self.size = max(1.0, size)
        self.slow_until = max(1.0, target)
        self.peak = max(self.peak, target)
        self.decreased_at = now


_EPISODE_MEMORY = 0.3
# A stated wait is a lower bound, not a promise; it is stretched up to so much.
_LONGEST_STRETCH = 16.0


class ThrottleEpisode:
    """How often in a row the lane has refused; 0 is no episode."""

    __slots__ = ("_began", "_usual_length", "refusals")

    def __init__(self, now: float) -> None:
        self.refusals = 0
        self._began = now
        self._usual_length = 5.0

    def refused(self, now: float) -> None:
        """The lane asked to slow down, perhaps again."""
        self.refusals += 1
        if self.refusals == 1:
            self._began = now

    def ended(self, now: float) -> None:
        """Something was accepted."""
        self._usual_length += _EPISODE_MEMORY * (now - self._began - self._usual_length)
        self.refusals = 0

    def stretch(self) -> float:
        """By how much a stated wait is to be stretched."""
        return min(_LONGEST_STRETCH, 1.5 ** min(self.refusals - 1, 12))

    def pause(self, window: float, in_flight: int) -> float:
        """How long to pause when no wait was stated."""
        if window < 2:
            pause = max(1.0, 0.4 * self._usual_length) * 1.5 ** min(self.refusals - 1, 12)
            return min(60.0, pause)
        # While calls are in flight their ends make room, so a long pause would leave it unused.
        longest = 8.0 if in_flight else 30.0
        return min(longest, 2.0 ** min(self.refusals - 1, 6))
