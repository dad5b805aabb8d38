"""Times of a simulated provider: the dates it announces, its latencies, and its random draws.

Rules: (1) dates are in the client's time, so a model that runs faster announces them sooner; (2)
a wait is rounded up: a provider never announces a moment at which it would still refuse; (3)
latencies depend on the request and on draws that are arguments; the defaults are those of the
design's simulation; (4) each part of the simulation has its own draws, all from one seed, so a
part that draws more often does not change the others.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from jackline.simulator.exchange import SimRequest


def seeded_random(seed: int | random.Random) -> random.Random:
    """The random generator of this seed, or of one that another generator draws."""
    seed = seed if isinstance(seed, int) else seed.getrandbits(64)
    return random.Random(seed)  # noqa: S311 -- a simulation needs repeatable draws, not secret ones


# 2026-11-15T09:00:00Z: virtual runs need some date, and the same one each time.
DEFAULT_EPOCH = 1_794_733_200.0


@dataclass(frozen=True, slots=True)
class Calendar:
    """Time zero on the client's wall clock, and how many model seconds pass in one of its."""

    epoch: float = DEFAULT_EPOCH
    speed: float = 1.0

    def epoch_at(self, at: float) -> float:
        """The moment as Unix seconds."""
        return self.epoch + at / self.speed

    def epoch_seconds(self, at: float) -> int:
        """The moment as whole Unix seconds, rounded up."""
        return math.ceil(self.epoch_at(at))

    def rfc3339(self, at: float) -> str:
        """The moment as `2026-11-15T09:00:00Z`, rounded up."""
        return datetime.fromtimestamp(self.epoch_seconds(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def wait(self, seconds: float) -> str:
        """A duration as whole client seconds, at least one."""
        return str(max(1, math.ceil(seconds / self.speed)))

    def clock_text(self, at: float, zone: tzinfo = UTC) -> str:
        """The moment as clients write it, rounded up to the minute: `10:10pm (Europe/Kiev)`."""
        moment = self._minute(at, zone)
        hour = moment.hour % 12 or 12
        minute = f":{moment.minute:02d}" if moment.minute else ""
        half = "am" if moment.hour < 12 else "pm"
        return f"{hour}{minute}{half} ({moment.tzname() if zone is UTC else zone})"

    def day_text(self, at: float, zone: tzinfo = UTC) -> str:
        """The moment as clients write one that is days away: `Nov 18, 7pm (America/Chicago)`."""
        moment = self._minute(at, zone)
        return f"{moment:%b} {moment.day}, {self.clock_text(at, zone)}"

    def _minute(self, at: float, zone: tzinfo) -> datetime:
        return datetime.fromtimestamp(math.ceil(self.epoch_seconds(at) / 60) * 60, zone)


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Seconds and speeds of the provider; ranges are (shortest, longest).

    `first_byte_per_kilotoken`: seconds more for every thousand input tokens that no prompt cache
    has. `bytes_every`: seconds between `Bytes` events of a stream; 0 for none. `cold_start`:
    seconds until the model is loaded, from the first request on.
    """

    median: float = 16.0
    spread: float = 0.6
    shortest: float = 5.0
    longest: float = 60.0
    tokens_per_second: float = 60.0
    first_byte: float = 1.2
    first_byte_spread: float = 0.25
    first_byte_per_kilotoken: float = 0.0
    bytes_every: float = 5.0
    cold_start: float = 0.0
    throttle_latency: tuple[float, float] = (0.2, 0.5)
    error_latency: tuple[float, float] = (0.5, 2.5)

    def course(self, request: SimRequest, draw: random.Random) -> tuple[float, float, int]:
        """When a healthy answer begins and ends, counted from arrival, and its tokens.

        It takes one draw for the first byte, and one for an unknown length.
        """
        first = self.first_byte
        if self.first_byte_spread:
            first *= math.exp(self.first_byte_spread * draw.gauss(0.0, 1.0))
        fresh = request.input_tokens - request.read_tokens
        first += self.first_byte_per_kilotoken * fresh / 1000.0
        tokens = request.output_tokens
        if request.service is not None:
            last = request.service
        elif tokens:
            last = first + tokens / self.tokens_per_second
        else:
            drawn = self.median * math.exp(self.spread * draw.gauss(0.0, 1.0))
            last = min(self.longest, max(self.shortest, drawn))
        first = min(first, last)
        tokens = tokens or max(1, round((last - first) * self.tokens_per_second))
        return first + request.delay, last + request.delay, tokens

    def refusal_latency(self, status: int, draw: random.Random) -> float:
        """How long a refusal with this status takes to arrive."""
        slow = status >= 500 and status != 529
        low, high = self.error_latency if slow else self.throttle_latency
        return low + (high - low) * draw.random()


# For tests that are not about time: everything is answered at once.
AT_ONCE = ServiceSettings(
    shortest=0.0,
    longest=0.0,
    tokens_per_second=1e9,
    first_byte=0.0,
    first_byte_spread=0.0,
    throttle_latency=(0.0, 0.0),
    error_latency=(0.0, 0.0),
)
