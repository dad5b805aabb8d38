"""Say how long a healthy answer takes, and how soon a refusal comes.

Laws: (1) times depend on the request and on draws handed in; (2) the defaults are those of the
design's simulation.
Not here: slowness ordered by a fault (faults.py).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import NamedTuple

from jackline.simulator.exchange import SimRequest


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Seconds and speeds of the provider; ranges are (shortest, longest)."""

    median: float = 16.0
    spread: float = 0.6
    shortest: float = 5.0
    longest: float = 60.0
    tokens_per_second: float = 60.0
    first_byte: float = 1.2
    first_byte_spread: float = 0.25
    first_byte_per_kilotoken: float = 0.0
    """Seconds more for every thousand input tokens that no prompt cache holds."""
    bytes_every: float = 5.0
    """Seconds between signs of life in a stream; 0 gives none."""
    cold_start: float = 0.0
    """Seconds until the model is loaded, from the first request on; all wait for it."""
    throttle_latency: tuple[float, float] = (0.2, 0.5)
    error_latency: tuple[float, float] = (0.5, 2.5)


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


class Course(NamedTuple):
    """When a healthy answer begins and ends, counted from arrival, and its length."""

    first_byte: float
    last_byte: float
    output_tokens: int


def healthy_course(settings: ServiceSettings, request: SimRequest, draw: random.Random) -> Course:
    """The course of an answer; one draw for the first byte, one for a length that is not given."""
    first = settings.first_byte
    if settings.first_byte_spread:
        first *= math.exp(settings.first_byte_spread * draw.gauss(0.0, 1.0))
    fresh = request.input_tokens - request.read_tokens
    first += settings.first_byte_per_kilotoken * fresh / 1000.0
    tokens = request.output_tokens
    if request.service is not None:
        last = request.service
    elif tokens:
        last = first + tokens / settings.tokens_per_second
    else:
        drawn = settings.median * math.exp(settings.spread * draw.gauss(0.0, 1.0))
        last = min(settings.longest, max(settings.shortest, drawn))
    first = min(first, last)
    tokens = tokens or max(1, round((last - first) * settings.tokens_per_second))
    return Course(first + request.delay, last + request.delay, tokens)


def refusal_latency(settings: ServiceSettings, status: int, draw: random.Random) -> float:
    """How long a refusal with this status takes to arrive."""
    slow = status >= 500 and status != 529
    low, high = settings.error_latency if slow else settings.throttle_latency
    return low + (high - low) * draw.random()
