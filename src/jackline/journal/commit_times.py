"""Keep how long commits took, in a few numbers.

Laws: (1) one thread writes, any may read; (2) the size does not grow.
Not here: telling it (telemetry/).
"""

from __future__ import annotations

from bisect import bisect_left

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class CommitTimes:
    """How many commits took how long: `counts` by the bounds above, the last without one."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def took(self, seconds: float) -> None:
        """One more commit."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
