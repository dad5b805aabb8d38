"""Keep what is known about one attempt in flight.

Laws: (1) an attempt is opened by one send and closed exactly once; (2) it knows how long its own
silence may last.
Not here: what its end means for the lane (lane.py).
"""

from __future__ import annotations

import msgspec

from jackline.lanes.decision import Call
from jackline.lanes.settings import Patience

# Whoever made the call may have been told anything: a product with more need not fit into a float.
_MOST_TOKENS = 1_000_000_000


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
    input_before: int
    written_before: float
    expected_output: float
    probe: bool
    heard_at: float
    # A call that was given up for silence before may be silent for longer: a slow upstream must not
    # be asked, and paid, for the same answer again and again.
    stretch: float = 1.0
    confirmed: bool = False

    def patience(self, settings: Patience) -> float:
        """How long it may be silent from now on before it is given up."""
        if not self.call.stream:
            whole = settings.whole_answer + settings.whole_answer_per_token * _bounded(
                self.call.max_tokens
            )
            return whole * self.stretch
        if self.confirmed:
            return settings.between_bytes * self.stretch
        thinking = settings.first_byte_per_token * _bounded(self.call.input_tokens)
        if self.probe:
            return settings.probe + thinking
        return (settings.first_byte + thinking) * self.stretch

    def deadline(self, settings: Patience) -> float:
        """When it is given up if nothing is heard before."""
        return self.heard_at + self.patience(settings)


def _bounded(tokens: int) -> int:
    return min(max(0, tokens), _MOST_TOKENS)
