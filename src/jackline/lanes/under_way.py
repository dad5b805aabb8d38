"""Know every attempt that is under way, and of which call it is the first or the second.

Rules: (1) a call has at most two attempts, the second asked beside a silent first; (2) when the
first ends, the second is the first from then on.
Not here: when a second is asked for (hedging.py), what an attempt's end means (lane.py).
"""

from __future__ import annotations

from jackline.lanes.attempt import Attempt


class UnderWay:
    """All attempts by permit; `calls` counts the calls they belong to."""

    __slots__ = ("_first", "_second", "attempts")

    def __init__(self) -> None:
        self.attempts: dict[int, Attempt] = {}
        self._first: dict[int, int] = {}
        self._second: dict[int, int] = {}

    @property
    def calls(self) -> int:
        """How many calls have an attempt under way."""
        return len(self._first)

    def __contains__(self, call_id: int) -> bool:
        return call_id in self._first

    def add(self, attempt: Attempt) -> None:
        """An attempt was sent: the call's first, or its second."""
        self.attempts[attempt.permit] = attempt
        call_id = attempt.call.id
        (self._second if call_id in self._first else self._first)[call_id] = attempt.permit

    def take(self, permit: int) -> Attempt | None:
        """An attempt has ended; None if it had ended before."""
        attempt = self.attempts.pop(permit, None)
        if attempt is None:
            return None
        call_id = attempt.call.id
        second = self._second.pop(call_id, None) if self._second else None
        if second is None:
            del self._first[call_id]
        elif second != permit:
            self._first[call_id] = second
        return attempt

    def first_of(self, call_id: int) -> Attempt | None:
        """The call's first attempt that is still under way."""
        permit = self._first.get(call_id)
        return None if permit is None else self.attempts[permit]

    def second_of(self, call_id: int) -> Attempt | None:
        """The attempt beside the first."""
        permit = self._second.get(call_id) if self._second else None
        return None if permit is None else self.attempts[permit]

    def other_than(self, attempt: Attempt) -> Attempt | None:
        """The call's other attempt."""
        if attempt.call.id not in self._second:
            return None
        second = self.second_of(attempt.call.id)
        return self.first_of(attempt.call.id) if second is attempt else second
