"""Follow one throttle episode: refusals in a row with nothing accepted between them.

Laws: (1) the first refusal begins it and anything accepted ends it; (2) each further refusal makes
the pause longer; (3) what a pause should be is learned from how long episodes last.
Not here: shrinking the window (window.py), enforcing the pause (lane.py).
"""

from __future__ import annotations

_EPISODE_MEMORY = 0.3
# A stated wait is a lower bound, not a promise; it is stretched up to so much.
_LONGEST_STRETCH = 16.0


class Episode:
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

    def forgotten(self) -> None:
        """It was no throttling after all."""
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
