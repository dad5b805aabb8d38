"""What a caller submits to the call manager, what it receives, and the ports in between.

Rules: (1) a receiver gets `answer_began` at most once, and exactly one end: `answer_ended`,
`refused` or `broken_off`; (2) a refusal carries the vendor's own words where there are any; (3) the
history of attempts has times and kinds of failure, never prompts or answers, and can be rendered
for people.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from jackline.calls.stitch import Mode
from jackline.dialects import TokenUsage
from jackline.failures import Failure
from jackline.http1.headers import Headers
from jackline.lane_id import LaneId
from jackline.lanes import Call
from jackline.upstream.interface import UpstreamRequest


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One attempt that did not succeed: where, when, how long, and what came of it."""

    lane: LaneId
    began: float
    ended: float
    failure: Failure | None
    why: str = ""


Dialect: TypeAlias = Literal["anthropic", "openai-chat", "openai-responses"]
Cap: TypeAlias = tuple[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """How long a call may wait, in seconds: for a quota's reset, and for anything else."""

    quota: float = math.inf
    other: float = math.inf


class CallRequest(msgspec.Struct):
    """One logical call; `call` is what the lane controller is to know of it.

    The call manager numbers `call`, and may withhold some of its lanes. `last_resorts` are lanes
    that it may take only when none of its own takes calls. `caps` are limits on how many calls with
    the same key may be under way at once. `continues` says that the model may be asked to go on
    from its own words. `own_key` names the lanes that are closed to it once another one has refused
    its client's credential; those are withheld from an `unproven` client, whom no vendor has
    accepted yet, until the others are known to be down for everybody, or one of them knows the
    client's account. What an `is_metered` call uses is counted, for which long texts are searched.
    """

    id: str
    message: UpstreamRequest
    call: Call
    last_resorts: tuple[LaneId, ...] = ()
    mode: Mode = "block"
    dialect: Dialect = "anthropic"
    continues: bool = False
    hold: HoldLimits = msgspec.field(default_factory=HoldLimits)
    caps: tuple[Cap, ...] = ()
    own_key: tuple[LaneId, ...] = ()
    unproven: bool = False
    is_metered: bool = False


@dataclass(frozen=True, slots=True)
class VendorRejection:
    """What a vendor answered instead of an answer, as it came; maybe to an earlier call."""

    status: int
    headers: Headers
    body: bytes
    lane: LaneId | None = None
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class CallRefusal:
    """Waiting is hopeless: why, what the vendor said last, and when it may be otherwise."""

    why: str
    failure: Failure | None
    rejection: VendorRejection | None
    retry_at: float | None
    attempts: Sequence[FailedAttempt]


class CallCompletion(NamedTuple):
    """An answer has been delivered whole, or closed early as a valid shorter one.

    `attempts` are those that failed, of the `tries` that were made: one that broke may have
    delivered all that was needed.
    """

    lane: LaneId
    usage: TokenUsage
    shortened: bool
    attempts: Sequence[FailedAttempt]
    tries: int


class Receiver(Protocol):
    """Who wants the answer."""

    def answer_began(self, status: int, headers: Headers, lane: LaneId) -> None:
        """From here on bytes of the answer come."""
        ...

    def answer_received(self, data: bytes) -> None:
        """Bytes of the answer, to be passed on as they are."""
        ...

    def answer_ended(self, ending: CallCompletion) -> None:
        """That was all of it."""
        ...

    def refused(self, refusal: CallRefusal) -> None:
        """There will be no answer; none of it has been delivered."""
        ...

    def broken_off(self, refusal: CallRefusal) -> None:
        """A part was delivered, and the rest will not come."""
        ...


class Outages(Protocol):
    """Knows which upstreams are down, whatever an unknown client meets there."""

    def failed(self, request: CallRequest, lane: LaneId, now: float) -> None:
        """A lane's upstream has shown a call that it is down: by a 5xx."""
        ...

    def is_down(self, lane: LaneId, now: float) -> bool:
        """Whether the lane's upstream is down, also for others than whoever asks."""
        ...
