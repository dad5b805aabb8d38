"""Keep what the provider knows of one request that is under way.

Laws: (1) an exchange has at most one planned step, the one whose ticket it holds; (2) state only:
nothing here decides or draws.
Not here: moving an exchange on (provider.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from jackline.simulator.exchange import NO_HEADERS, How, SimRequest
from jackline.simulator.ledger import Entry
from jackline.simulator.refusals import OVERLOADED, Refusal

NO_STEP = -1


class Step(IntEnum):
    """What the next planned moment of an exchange is."""

    FIRST_BYTE = 0
    ALIVE = 1
    LAST_BYTE = 2
    REFUSAL = 3
    BREAK = 4
    SILENCE = 5


class Exchange:
    """One request under way; `ticket` is the heap entry that is still valid for it."""

    __slots__ = (
        "admitted",
        "at_byte",
        "begins",
        "begun",
        "ends",
        "entry",
        "failure",
        "headers",
        "how",
        "id",
        "last_step",
        "output_tokens",
        "refusal",
        "request",
        "silent_since",
        "stops",
        "ticket",
    )

    def __init__(self, id: int, request: SimRequest, entry: Entry) -> None:  # noqa: A002
        self.id = id
        self.request = request
        self.entry = entry
        self.ticket = NO_STEP
        self.admitted = False
        self.begun = False
        self.begins = 0.0
        self.ends = 0.0
        """When a healthy answer would end."""
        self.stops = 0.0
        """When this one ends, breaks or falls silent."""
        self.last_step = Step.LAST_BYTE
        self.output_tokens = 0
        self.headers: Mapping[str, str] = NO_HEADERS
        self.refusal: Refusal | None = None
        self.how = How.CUT
        self.failure = OVERLOADED
        """What an error event inside the answer says."""
        self.at_byte: int | None = None
        self.silent_since: float | None = None

    def share(self, now: float) -> float:
        """How much of the answer is generated."""
        if now >= self.ends:
            return 1.0
        return max(0.0, (now - self.begins) / (self.ends - self.begins))
