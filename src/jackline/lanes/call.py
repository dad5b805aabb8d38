"""The values that go in and out of the controller: calls, attempts, usage and decisions.

Rules: (1) plain values without behaviour, and cheap: several are made for every call, and none is
changed once it was handed in; (2) every decision that lets a call wait has a reason and an end, in
words that users see; (3) an attempt is opened by one send and closed exactly once; (4) a call has
at most two attempts in flight, the second as a hedge for a silent first one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from jackline.failures import Failure
from jackline.lane_id import LaneId
from jackline.lanes.settings import CacheTtl


class Call(msgspec.Struct):
    """One logical model call that waits for its turn.

    `lanes` are those it may go to, the preferred first. `remaining` is the expected time, in
    seconds, that the work behind this call will still take once it is answered; calls with more
    ahead of them go first. 0 means unknown. `since` is when it was asked first, by a client that
    has come back. At `leaves_at` its client goes away without an answer; from `hurries_at` on it
    goes before those that can wait. `conversation` names what it goes on with, as prompt caches
    distinguish it; `prefix` the beginning that it shares with other conversations and asks to have
    cached, of about `prefix_tokens`. Empty means none, or unknown. A call that `begins` a
    conversation reads nothing of it, whatever is known under its name. `cache_ttl` is what its
    tag or class says of prompt caches, before what is said of its lanes; a call of a
    subscription's `login` has no price by which an hour could pay. The queues hold it for longer
    than the call lasts: no body may be in it.
    """

    id: int
    lanes: tuple[LaneId, ...]
    remaining: float = 0.0
    input_tokens: int = 0
    max_tokens: int = 0
    stream: bool = True
    since: float | None = None
    conversation: str = ""
    prefix: str = ""
    prefix_tokens: int = 0
    begins: bool = False
    cache_ttl: CacheTtl | None = None
    login: bool = False
    leaves_at: float = math.inf
    hurries_at: float = math.inf


class Send(msgspec.Struct, frozen=True):
    """Send this call on this lane now, and report everything about it under `permit`."""

    permit: int
    call: int
    lane: LaneId
    probe: bool = False
    # Another attempt of the call is under way and silent; whichever speaks first goes on.
    beside: bool = False
    # Its cache marks are to ask for an hour.
    hour_marks: bool = False


@dataclass(frozen=True, slots=True)
class Abort:
    """Give up this attempt; the call itself waits again and will be sent elsewhere or later."""

    permit: int
    call: int
    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """End this call with its true cause: waiting for it is hopeless."""

    call: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class LaneWait:
    """Why something waits, and until when as far as anyone knows."""

    why: str
    until: float | None = None


class LaneDecision(msgspec.Struct):
    """What to do now, and when to ask again if nothing happens before.

    `hang_ups` are permits of attempts to drop, as the other attempt of the same call speaks.
    """

    sends: list[Send] = []
    aborts: list[Abort] = []
    hang_ups: list[int] = []
    refusals: list[Refuse] = []
    wake_at: float | None = None


class LaneAttempt(msgspec.Struct):
    """One send that has not ended: when it began, when bytes last came, what was in flight then.

    `requests_before`, `input_before` and `written_before` are the lane's running totals just after
    this send, so that headers computed for it can be brought up to date with what was sent and
    answered since.
    """

    permit: int
    call: Call
    lane: LaneId
    sent_at: float
    in_flight_at_send: int
    requests_before: int
    input_before: float
    written_before: float
    expected_output: float
    probe: bool
    received_at: float
    # What it was taken to use of the input limit, and how much of its prompt to read from a cache.
    charged: float
    expected_read: float
    # A call whose stream froze before may be silent for longer between bytes: a slow upstream must
    # not be asked, and paid, for the same answer again and again.
    stretch: float = 1.0
    # The provider has begun to answer.
    confirmed: bool = False
    confirmed_at: float = 0.0
    # The model has begun to speak; before that, a provider that took the call may be thinking.
    begun: bool = False
    # The caller holds a part of the answer: nobody else can give the rest.
    committed: bool = False
    # It has been silent for so long that it does not count as work of its lane.
    doubted: bool = False
    # Its place is lent: it counts as no work either, but it is not asked for once more.
    lent: bool = False
