"""Emit facts as they happen, to whoever listens.

Rules: (1) an event is an immutable fact in the past tense; (2) the emitter does not know who
listens, and works the same when nobody does; (3) no event holds a prompt, an answer or a secret.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from jackline.lane_id import LaneId


@dataclass(frozen=True, slots=True)
class TranscriptsRead:
    """How much of the transcripts has been read by now."""

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int


class CallEnded(NamedTuple):
    """A logical call has ended, in whatever way.

    `outcome` is answered, shortened (closed after a finished tool call), refused (the vendor's
    error was passed on), broken (the connection was cut on purpose), retry_later (the client
    is asked to) or client_left (it went away). Times are seconds since the epoch, or durations in
    seconds. What the attempts cost that broke is counted apart from the answer's tokens: their
    input of every kind, and their output as far as it was reported.
    """

    at: float
    call: str
    outcome: str
    lane: LaneId | None
    model: str
    session: str | None
    agent: str | None
    parent: str | None
    tag: str | None
    stream: bool
    status: int | None
    attempts: int
    waited: float
    took: float
    request_id: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    wasted_input_tokens: int = 0
    wasted_output_tokens: int = 0
    # The part of what was written to the cache that lives for an hour.
    cache_write_1h_tokens: int = 0


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """One attempt did not succeed; the call may well go on."""

    at: float
    call: str
    lane: LaneId
    kind: str
    sub: str | None
    status: int | None
    request_id: str | None
    took: float
    resets_at: float | None
    why: str


@dataclass(frozen=True, slots=True)
class LaneChanged:
    """A lane is in another state than before."""

    at: float
    lane: LaneId
    state: str
    why: str
    until: float | None


@dataclass(frozen=True, slots=True)
class LanesLearned:
    """The knowledge of the lanes, as JSON that `lanes.restore` reads after a restart."""

    at: float
    memory: bytes


@dataclass(frozen=True, slots=True)
class WindowsReported:
    """How much of its subscription's windows is used, by an answer: (name, share, reset) each.

    Sent with every answer, so it is for counters, not for a journal.
    """

    at: float
    lane: LaneId
    windows: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, slots=True)
class ClockMoved:
    """The wall clock has moved by `by` seconds beside the time that passed here.

    `slept` of them passed while the machine slept; by the others it was set, and what happened
    before `at` seems to have happened at other times than it did.
    """

    at: float
    by: float
    slept: float

    @property
    def set_by(self) -> float:
        """By how much it was set."""
        return self.by - self.slept


@dataclass(frozen=True, slots=True)
class ServiceNoted:
    """Something about the service itself: started, stopped, configuration read or rejected."""

    at: float
    what: str
    detail: str = ""


Event: TypeAlias = (
    TranscriptsRead
    | CallEnded
    | AttemptFailed
    | LaneChanged
    | LanesLearned
    | WindowsReported
    | ClockMoved
    | ServiceNoted
)
Announce: TypeAlias = Callable[[Event], None]


def to_nobody(_event: Event) -> None:
    """Listen to nothing: the default audience."""
