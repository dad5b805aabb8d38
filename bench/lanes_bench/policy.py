"""Say what a policy sees and what it may do: the one door between the stage and all policies.

Rules: (1) a policy sees only what a client sees: status, headers, bytes, silence; (2) it acts only
through its `Desk`; (3) every attempt ends exactly once, answered or in trouble.
Not here: the policies (patient.py, impatient.py, shared.py, jackline_policy.py), time (stage.py).
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from jackline.simulator.exchange import How
from jackline.simulator.prompt_cache import Hit
from lanes_bench.crew import Call


class Ill(Enum):
    """How an attempt ended badly, as far as a client can tell without reading texts."""

    REFUSED = auto()
    BROKEN = auto()
    SILENT = auto()


@dataclass(frozen=True, slots=True)
class Trouble:
    """A bad end: a status with headers and body, a broken stream, or silence until we hung up."""

    ill: Ill
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    how: How | None = None

    @property
    def throttled(self) -> bool:
        """Whether the status says "slow down"."""
        return self.status in (429, 529)

    @property
    def retry_after(self) -> float | None:
        """The wait the server asks for, in seconds."""
        value = self.headers.get("retry-after")
        return None if value is None else float(value)


@dataclass(slots=True, eq=False)
class Attempt:
    """One request on the wire."""

    id: int
    call: Call
    lane: int
    sent_at: float
    received_at: float
    accepted: bool = False
    over: bool = False
    ticket: object = None
    # What it read from prompt caches, once it is accepted.
    hit: Hit | None = None


class Desk(Protocol):
    """What a policy can do."""

    now: float
    lanes: int
    # For each lane, whether its vendor counts what is read from a prompt cache.
    reads_count: list[bool]

    def send(self, call: Call, lane: int = 0, ticket: object = None) -> Attempt:
        """Put the call on the wire."""
        ...

    def cancel(self, attempt: Attempt) -> None:
        """Hang up; no report follows."""
        ...

    def give_up(self, call: Call) -> None:
        """Surface the failure: the agent dies."""
        ...

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Do something later."""
        ...


class Policy(ABC):
    """One way to send calls; `idle_limit` is the silence after which the stage hangs up for it."""

    idle_limit: float | None = 60.0

    def __init__(self, desk: Desk, draw: random.Random) -> None:
        self.desk = desk
        self.draw = draw

    @abstractmethod
    def ready(self, call: Call) -> None:
        """An agent wants this answered."""

    # A policy may care about these, or not.
    def first_byte(  # noqa: B027
        self, attempt: Attempt, headers: Mapping[str, str]
    ) -> None:
        """The provider accepted the request."""

    def received(self, attempt: Attempt) -> None:  # noqa: B027
        """More bytes came."""

    def answered(self, attempt: Attempt, output_tokens: int) -> None:  # noqa: B027
        """The answer is complete."""

    @abstractmethod
    def troubled(self, attempt: Attempt, trouble: Trouble) -> None:
        """The attempt ended badly."""
