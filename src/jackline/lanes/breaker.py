"""Circuit breaker of one lane: its states, the transitions between them, and the evidence for them.

Rules: (1) a transition that is not in the table is a bug and raises; a test compares the diagram in
the docs with it; (2) health is evidence only: it changes no state; (3) old failures fade, or a lane
without traffic would never recover; (4) the retry budget delays and never refuses.
"""

from __future__ import annotations

import math
from collections import deque
from enum import StrEnum

import msgspec

from jackline.lanes.settings import ControllerSettings
from jackline.states import LaneState


class LaneEvent(StrEnum):
    """What moves a lane from one state to another."""

    THROTTLED = "throttled"
    QUOTA_SPENT = "quota spent"
    NEVER_CLEARS = "throttled, and it never clears"
    OUTAGE = "outage"
    CLEAN = "clean for a while"
    PROBE_ACCEPTED = "probe accepted"
    ANSWERS_AGAIN = "answers again"
    RAMPED_UP = "ramped up"


TRANSITIONS: dict[tuple[LaneState, LaneEvent], LaneState] = {
    (LaneState.OPEN, LaneEvent.THROTTLED): LaneState.THROTTLED,
    (LaneState.OPEN, LaneEvent.QUOTA_SPENT): LaneState.PARKED,
    (LaneState.OPEN, LaneEvent.NEVER_CLEARS): LaneState.PARKED,
    (LaneState.OPEN, LaneEvent.OUTAGE): LaneState.DOWN,
    (LaneState.THROTTLED, LaneEvent.THROTTLED): LaneState.THROTTLED,
    (LaneState.THROTTLED, LaneEvent.QUOTA_SPENT): LaneState.PARKED,
    (LaneState.THROTTLED, LaneEvent.NEVER_CLEARS): LaneState.PARKED,
    (LaneState.THROTTLED, LaneEvent.OUTAGE): LaneState.DOWN,
    (LaneState.THROTTLED, LaneEvent.CLEAN): LaneState.OPEN,
    (LaneState.RECOVERING, LaneEvent.THROTTLED): LaneState.THROTTLED,
    (LaneState.RECOVERING, LaneEvent.QUOTA_SPENT): LaneState.PARKED,
    (LaneState.RECOVERING, LaneEvent.NEVER_CLEARS): LaneState.PARKED,
    (LaneState.RECOVERING, LaneEvent.OUTAGE): LaneState.DOWN,
    (LaneState.RECOVERING, LaneEvent.RAMPED_UP): LaneState.OPEN,
    (LaneState.PARKED, LaneEvent.QUOTA_SPENT): LaneState.PARKED,
    (LaneState.PARKED, LaneEvent.NEVER_CLEARS): LaneState.PARKED,
    (LaneState.PARKED, LaneEvent.PROBE_ACCEPTED): LaneState.RECOVERING,
    (LaneState.DOWN, LaneEvent.OUTAGE): LaneState.DOWN,
    (LaneState.DOWN, LaneEvent.QUOTA_SPENT): LaneState.PARKED,
    (LaneState.DOWN, LaneEvent.PROBE_ACCEPTED): LaneState.RECOVERING,
    (LaneState.DOWN, LaneEvent.ANSWERS_AGAIN): LaneState.OPEN,
}

# In these states a lane takes traffic; in the others only a single probe.
FLOWING = frozenset({LaneState.OPEN, LaneState.THROTTLED, LaneState.RECOVERING})


def after(state: LaneState, event: LaneEvent) -> LaneState:
    """The state that follows."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ValueError(f"a lane that is {state} cannot be {event}") from None


_ERROR_MEMORY = 0.05
_ERRORS_HALVE = 60.0
_RATE_MEMORY = 60.0
# In seconds: so little makes no difference to what is remembered for many.
_TOGETHER = 0.05


class _Noted(msgspec.Struct):
    """A call, or several at about the same time that went well."""

    at: float
    good: bool
    calls: int = 1


class LaneHealth:
    """What was accepted, what failed, and how much may still be tried again without a pause."""

    __slots__ = (
        "_accept_rate",
        "_budget",
        "_cut_in_a_row",
        "_cut_since",
        "_errors",
        "_errors_at",
        "_hard_in_a_row",
        "_noted",
        "_rate_at",
        "_recent",
        "_settings",
        "accepted_at",
    )

    def __init__(self, settings: ControllerSettings, now: float) -> None:
        self._settings = settings
        self._hard_in_a_row = 0
        # Since the last whole answer: how many were cut, and when the first of them.
        self._cut_in_a_row = 0
        self._cut_since = now
        self._recent: deque[_Noted] = deque()
        self._noted = 0
        self._errors = 0.0
        self._errors_at = now
        self.accepted_at = now
        self._accept_rate = 0.0
        self._rate_at = now
        self._budget = settings.retry_budget

    def accepted(self, now: float) -> None:
        """The provider has taken a call."""
        self._weigh(now, good=True)
        self._note(now, good=True)
        self._hard_in_a_row = 0
        weight = math.exp(-(now - self._rate_at) / _RATE_MEMORY)
        self._accept_rate = self._accept_rate * weight + 1 / _RATE_MEMORY
        self._rate_at = now
        self.accepted_at = now

    def answered(self) -> None:
        """A whole answer came: a little more may be tried again."""
        self._cut_in_a_row = 0
        settings = self._settings
        if self._budget < settings.retry_budget:
            self._budget = min(settings.retry_budget, self._budget + settings.retry_refill)

    def failed(self, now: float, *, refused: bool) -> None:
        """A call failed; `refused` before anything of it was accepted."""
        self._weigh(now, good=False)
        self._note(now, good=False)
        self._hard_in_a_row += refused

    def cut(self, now: float, sent_at: float) -> None:
        """An answer was cut before it was whole; what was noted for its beginning is taken back."""
        self._weigh(now, good=False)
        if not self._cut_in_a_row:
            self._cut_since = now
        elif sent_at < self._cut_since:
            # A proxy that restarts cuts all that is under way: only what is sent afterwards shows
            # whether it goes on.
            return
        self._cut_in_a_row += 1
        self._note(now, good=False)

    def take_back(self, accepted_at: float) -> None:
        """What was accepted then has failed after all: it was no good result."""
        for noted in reversed(self._recent):
            if noted.at <= accepted_at:
                if noted.good and noted.calls and accepted_at - noted.at < _TOGETHER:
                    noted.calls -= 1
                    self._noted -= 1
                    break
                if accepted_at - noted.at >= _TOGETHER:
                    break
        faded = math.exp(-(self._rate_at - accepted_at) / _RATE_MEMORY)
        self._accept_rate = max(0.0, self._accept_rate - faded / _RATE_MEMORY)
        self._errors = min(1.0, self._errors / (1 - _ERROR_MEMORY))

    def spend_budget(self, now: float) -> float:
        """Pay for trying again: until when to pause for it, at the earliest `now`."""
        self._budget = max(0.0, self._budget - 1)
        if self._budget >= 1:
            return now
        # As long as one call takes to be accepted here, so that a fast lane is not stopped.
        return now + 1 / max(1.0, self.accepts_per_second(now))

    def gone_down(self, now: float, *, probing: bool) -> bool:
        """Whether the failures so far are those of an outage."""
        breaker = self._settings.breaker
        patience = breaker.in_a_row_while_probing if probing else breaker.in_a_row
        # With many calls in flight, failures in a row happen by chance; an outage is quiet too.
        quiet = now - self.accepted_at >= breaker.quiet
        enough = patience if quiet else breaker.in_a_row_unquiet
        return self._hard_in_a_row >= enough or self._mostly_failing(now)

    def cuts_everything(self, now: float, *, alone: bool) -> bool:
        """Whether answers are cut as in an outage; `alone` if none is under way that has begun."""
        in_a_row = alone and self._cut_in_a_row >= self._settings.breaker.in_a_row
        return in_a_row or self._mostly_failing(now)

    def broke_down(self) -> None:
        """The outage is known: what led to it counts no longer.

        But for cut answers: only a whole one shows that they have ended, and no first byte.
        """
        self._recent.clear()
        self._noted = 0
        self._hard_in_a_row = 0

    def woke_up(self) -> None:
        """The lane is back: what failed before counts no longer."""
        self._errors = 0.0

    def error_share(self, now: float) -> float:
        """How much of what was sent lately failed."""
        return self._errors * math.pow(0.5, (now - self._errors_at) / _ERRORS_HALVE)

    def accepts_per_second(self, now: float) -> float:
        """How fast calls are taken, over the last minute or so."""
        return self._accept_rate * math.exp(-(now - self._rate_at) / _RATE_MEMORY)

    def _weigh(self, now: float, *, good: bool) -> None:
        if self._errors or not good:
            share = self.error_share(now)
            self._errors = share + _ERROR_MEMORY * ((0.0 if good else 1.0) - share)
        self._errors_at = now

    def _note(self, now: float, *, good: bool) -> None:
        recent = self._recent
        # A busy lane takes thousands of calls a second: those that went well together are one.
        if good and recent and recent[-1].good and now - recent[-1].at < _TOGETHER:
            recent[-1].calls += 1
        else:
            recent.append(_Noted(now, good))
        self._noted += 1
        too_old = now - self._settings.breaker.share_window
        while recent[0].at < too_old:
            self._noted -= recent.popleft().calls

    def _mostly_failing(self, now: float) -> bool:
        breaker = self._settings.breaker
        if self._noted < breaker.share_of_at_least:
            return False
        since = now - breaker.share_window
        bad = sum(each.calls for each in self._recent if not each.good and each.at >= since)
        return bad >= breaker.share * self._noted
