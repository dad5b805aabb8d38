"""Count what became of calls and attempts, by lane.

Laws: (1) pure: events come in, sums stand still until the next one; (2) bounded: only so many lanes
have sums of their own, the others are counted together; (3) nothing of whose call it was is looked
at.
Not here: tokens' prices (control/burn.py), when events are counted (assembly/observing.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from jackline.events import AttemptFailed, CallEnded
from jackline.telemetry.exposition import Histogram

MOST_LANES = 256
OTHERS = "other-lanes"
NOT_TAKEN_IN = "none"
"""The lane of calls that were turned away at the door."""
# Waits are nothing, a throttle's seconds, an outage's minutes or a quota's hours.
HELD_BOUNDS = (0.005, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 18000.0)
TOOK_BOUNDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 18000.0)
TOKEN_KINDS = ("input", "output", "cache_read", "cache_write", "wasted_input", "wasted_output")


class LaneTally:
    """What came of the calls of one lane."""

    __slots__ = ("cuts", "failures", "held", "outcomes", "tokens", "took")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.failures: dict[str, int] = {}
        self.cuts = 0
        self.held = Histogram(HELD_BOUNDS)
        self.took = Histogram(TOOK_BOUNDS)
        self.tokens = [0] * len(TOKEN_KINDS)


class Tally:
    """The sums of all lanes since the service started."""

    def __init__(self) -> None:
        # By the lane's full name, so that a known lane costs one look-up; several may share sums.
        self._found: dict[str, LaneTally] = {}
        self._lanes: dict[str, LaneTally] = {}

    @property
    def lanes(self) -> Mapping[str, LaneTally]:
        """The sums by what people call a lane."""
        return self._lanes

    def call_ended(self, event: CallEnded) -> None:
        """A call came to its end."""
        tally = self._found.get(event.lane) or self._meet(event.lane)
        outcomes = tally.outcomes
        outcomes[event.outcome] = outcomes.get(event.outcome, 0) + 1
        tally.held.observe(event.waited)
        tally.took.observe(event.took)
        if event.input_tokens or event.output_tokens or event.wasted_input_tokens:
            tokens = tally.tokens
            # In the order of TOKEN_KINDS.
            counts = (
                event.input_tokens,
                event.output_tokens,
                event.cache_read_tokens,
                event.cache_write_tokens,
                event.wasted_input_tokens,
                event.wasted_output_tokens,
            )
            for place, count in enumerate(counts):
                tokens[place] += count

    def attempt_failed(self, event: AttemptFailed) -> None:
        """An attempt did not succeed."""
        tally = self._found.get(event.lane) or self._meet(event.lane)
        tally.failures[event.kind] = tally.failures.get(event.kind, 0) + 1
        # It has a good status and failed nevertheless: the answer had begun.
        tally.cuts += event.status is not None and event.status < 300

    def _meet(self, lane: str) -> LaneTally:
        name = lane.partition("#")[0] or NOT_TAKEN_IN
        if name not in self._lanes and len(self._lanes) >= MOST_LANES:
            name = OTHERS
        tally = self._lanes.get(name)
        if tally is None:
            tally = self._lanes[name] = LaneTally()
        if len(self._found) < 2 * MOST_LANES:
            self._found[lane] = tally
        return tally
