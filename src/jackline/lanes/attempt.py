"""Keep what is known about one attempt in flight.

Rules: (1) an attempt is opened by one send and closed exactly once; (2) of one call there are at
most two, the second asked beside the first because that was silent.
Not here: what its end means for the lane (lane.py), how long it may be silent (patience.py).
"""

from __future__ import annotations

import msgspec

from jackline.lanes.decision import Call


class Attempt(msgspec.Struct):
    """One send that has not ended: when it began, when it was last heard, what was in flight then.

    `requests_before`, `input_before` and `written_before` are the lane's running totals just after
    this send, so that headers computed for it can be brought up to date with what was sent and
    answered since.
    """

    permit: int
    call: Call
    lane: str
    sent_at: float
    in_flight_at_send: int
    requests_before: int
    input_before: float
    written_before: float
    expected_output: float
    probe: bool
    heard_at: float
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
