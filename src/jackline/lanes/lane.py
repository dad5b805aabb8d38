"""One lane: may a call be sent now, and what does the lane learn from each outcome.

Rules: (1) a lane that is parked or down gets one probe at a time; (2) nothing is sent before
an announced reset; (3) the window shrinks once per throttle episode; (4) no clock and no randomness
of its own: `now`, on a time line that is never set, and the random draw are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TypeAlias

from jackline.dialects.token_usage import TokenUsage
from jackline.failures import Failure, Kind
from jackline.failures.sentences import name_of
from jackline.lanes.breaker import FLOWING, LaneEvent, LaneHealth, after
from jackline.lanes.call import Call, LaneAttempt, LaneWait
from jackline.lanes.estimators import (
    ConcurrencyWindow,
    HedgeBudget,
    LearnedPatience,
    ThrottleEpisode,
)
from jackline.lanes.prompt_caches import HourCaches, PromptCaches, prompt_tokens
from jackline.lanes.rate_limits import Allowance
from jackline.lanes.settings import ControllerSettings, LaneSettings
from jackline.states import LaneState

Draw: TypeAlias = Callable[[], float]

# Looked at for every call: a global is found faster than a member of an Enum.
_RECOVERING = LaneState.RECOVERING
_LATEST_COUNTS = 0.2
# Whoever is overloaded may ask for any wait; after so many seconds it is asked again.
_LONGEST_THROTTLE = 3600.0
_THROTTLES = frozenset((Kind.SERVER_THROTTLE, Kind.RATE_LIMIT, Kind.OVERLOADED))
# An upstream that refuses again without a wait, as by a date that has passed, names none.
_NO_WAIT = 0.1
# In seconds: a call that was not refused by then was taken on, whenever its answer comes.
_REFUSED_WITHIN = 5.0
# A learned window, or an outage, says little about the load of an hour later.
OUTDATED_AFTER = 3600.0
# In seconds: shorter silences in an answer are not worth a look.
_NOTICED = 1.0
_ANY_CALL = Call(0, ())


class Lane:
    """One (upstream, account, model): its state, its window, its buckets and its attempts."""

    def __init__(
        self, settings: LaneSettings, common: ControllerSettings, draw: Draw, now: float
    ) -> None:
        self.id = settings.id
        # Built once: it is part of every sentence about the lane.
        self.label = settings.id.label
        self._parallel = settings.limits.parallel
        self._settings = common
        self._draw = draw
        self.state = LaneState.OPEN
        self.since = now
        self.cause: Failure | None = None
        self.window = ConcurrencyWindow(common.window, now)
        self.allowance = Allowance(settings.limits, settings.vendor_limits, now)
        self.buckets = self.allowance.buckets
        self.health = LaneHealth(common, now)
        self.attempts: dict[int, LaneAttempt] = {}
        self.probe: int | None = None
        self.probe_at = math.inf
        self.reset_at: float | None = None
        # Whether it was given as a date, which follows the wall clock, or as a duration.
        self._reset_is_date = True
        # The announced reset that somebody does not believe in, until a probe has found out.
        self._doubted: float | None = None
        self.hold_until = now
        # Closed by hand.
        self.paused = False
        # Whether the provider has ever taken a call on it.
        self.is_proven = False
        self.episode = ThrottleEpisode(now)
        self._unconfirmed = 0
        self._sent_at = now
        # When a call was last sent on it, or placed there.
        self.used_at = now
        # When bytes last came, on any attempt.
        self.received_at = now
        self.patience = LearnedPatience(common.patience, now, local=settings.local)
        self.is_local = settings.local
        self.hedges = HedgeBudget(common.hedges)
        self.caches = PromptCaches(reads_count=settings.cached_counts)
        self.hours = HourCaches(settings.cache_ttl)
        # When it was last left alone because nothing came on it, until it is well again.
        self._silent_since: float | None = None
        # Whether it is left alone because its answers were cut.
        self._is_cutting = False
        # Attempts that were silent for so long that they do not count as work: doubted, or lent.
        self._uncounted = 0
        # How long the first byte took of late, for people to see; 0 before any came.
        self.first_byte = 0.0
        self._carried = common.window.start
        self._up_at = now
        self._ramp = common.breaker.ramp
        self._trips = 0

    def __repr__(self) -> str:
        return f"<Lane {self.id}: {self.state}, {len(self.attempts)} in flight>"

    def take_settings(self, settings: LaneSettings, now: float) -> None:
        """What the user or the vendor says of the lane has changed; what was learned stays."""
        self._parallel = settings.limits.parallel
        self.allowance.change_limits(settings.limits, settings.vendor_limits, now)
        self.caches.reads_count = settings.cached_counts
        self.hours.ttl = settings.cache_ttl

    @property
    def shown_state(self) -> LaneState:
        """The state for people: whose probes are throttled is not down, but throttled."""
        is_throttled = self.cause is not None and self.cause.kind in _THROTTLES
        return LaneState.THROTTLED if self.state is LaneState.DOWN and is_throttled else self.state

    @property
    def is_silent(self) -> bool:
        """Whether it is left alone only because nothing came on it."""
        return self.state is LaneState.DOWN and self._silent_since is not None

    def doubts(self, permit: int) -> bool:
        """Whether this attempt has been silent for so long that no answer is expected."""
        attempt = self.attempts.get(permit)
        return self.is_silent and attempt is not None and attempt.doubted

    @property
    def busy(self) -> int:
        """How many calls are in flight that may be expected to be answered."""
        return len(self.attempts) - self._uncounted

    # --- may a call be sent ---------------------------------------------------------------

    def limit(self, now: float) -> int:
        """How many calls may be in flight at `now`."""
        limit = max(1, int(self.window.size))
        if self.state is _RECOVERING and self._ramp > 0:
            step = math.floor(self._carried * (now - self._up_at) / self._ramp)
            limit = max(1, min(limit, 1 + step))
        parallel = self._parallel
        return limit if parallel is None or limit <= parallel else max(1, parallel)

    def closed_until(self, now: float) -> float:
        """`now` if the lane takes calls at all; else when to ask again, or infinity.

        This part of the question does not depend on the call, and is asked often.
        """
        if self.paused or self.state not in FLOWING:
            return math.inf
        if now < self.hold_until:
            return self.hold_until
        if len(self.attempts) - self._uncounted >= self.limit(now):
            if self.state is not _RECOVERING or self.busy >= self.window.limit():
                return math.inf
            step = self._ramp * self.busy / max(1.0, self._carried)
            return max(self._up_at + step, now + 0.05)
        if self.episode.refusals and self._unconfirmed:
            return max(now, self._trying_until())
        return now

    def ready_at(self, call: Call, now: float) -> float:
        """`now` if the call may be sent; else when to ask again; infinity if an event must come."""
        at = self.closed_until(now)
        if at > now:
            return at
        return self.allowance.ready_at(self.cost(call, now), now) if self.buckets else now

    def cost(self, call: Call, now: float) -> float:
        """What the call would take of the input limit."""
        # Looked at several times for each call: where there are no caches it is what it is.
        if self.caches.in_use and call.conversation:
            return self.caches.cost(call, now)
        return prompt_tokens(call)

    def asks_hour(self, call: Call, waited: float, now: float) -> bool:
        """Whether the call, sent now after so long a wait, asks for a prompt cache of an hour."""
        if self.hours.ttl is None or not call.conversation:
            return False
        known = self.caches.conversations.get(call.conversation)
        return self.hours.asks_hour(call, known, waited=waited, now=now)

    def _trying_until(self) -> float:
        """Until when one call alone finds out whether a throttle has ended; 0 if none does.

        Who refuses does so at once. An answer without a stream may take minutes, or never come.
        """
        if not self.episode.refusals or not self._unconfirmed:
            return 0.0
        return self._sent_at + _REFUSED_WITHIN

    def probe_due(self, now: float) -> bool:
        """Whether the lane wants a single call to find out its state."""
        if self.paused:
            return False
        return self.state not in FLOWING and self.probe is None and now >= self.probe_at

    def waiting(self, call: Call, now: float) -> LaneWait:
        """Why the call waits here, as text for people and callers."""
        if self.paused:
            return LaneWait(f"{self.label} is paused by hand")
        if self.state is LaneState.PARKED and self._doubted is not None:
            # What was announced is in doubt, not forgotten: to call it unknown would be a lie.
            return LaneWait(f"{self.label} is parked; the next call finds out its state", now)
        if self.state is LaneState.PARKED:
            unknown = "" if self.reset_at is not None else "; when it resets is not known"
            return LaneWait(f"{self.label} is parked: its limit is used up{unknown}", self.reset_at)
        if self.shown_state is LaneState.THROTTLED and self.state is LaneState.DOWN:
            how = f"{self.label} asked to slow down; it is tried again with one call"
            return LaneWait(how, self.probe_at)
        if self.state is LaneState.DOWN:
            how = "is down"
            if self.is_silent:
                how = "is silent"
            elif self._is_cutting:
                how = "breaks its answers off"
            elif self.cause is not None and self.cause.kind is Kind.NETWORK_EDGE:
                how = f"cannot be reached ({name_of(self.cause)})"
            return LaneWait(f"{self.label} {how}; it is tried again with one call", self.probe_at)
        if now < self.hold_until:
            return LaneWait(f"{self.label} asked to slow down", self.hold_until)
        if self.busy >= self.limit(now):
            calls = "1 call" if self.busy == 1 else f"{self.busy} calls"
            return LaneWait(f"{self.label} carries {calls}, its limit for now")
        if self._trying_until() > now:
            return LaneWait(f"{self.label} throttles; one call is finding out whether it has ended")
        at = self.ready_at(call, now)
        return LaneWait(
            f"{self.label} has used up this minute's allowance", at if at > now else None
        )

    def may_be_forgotten(self, now: float) -> bool:
        """Whether nothing is under way, and nothing is known that still counts at `now`."""
        if self.attempts or self.paused or now < self.hold_until or now <= self.used_at:
            return False
        if self.state is LaneState.PARKED and self.reset_at is not None:
            return self.reset_at <= now
        return self.state in FLOWING or now - self.since >= OUTDATED_AFTER

    def is_unproven(self, now: float) -> bool:
        """Whether it is shut, nothing is under way, and nobody was ever answered on it."""
        if self.is_proven or self.attempts or self.paused or now <= self.used_at:
            return False
        return self.state not in FLOWING or now < self.hold_until

    def held_up(self, now: float) -> LaneWait | None:
        """Why no call is sent on just now, whichever it is; None where each has its own reason."""
        shut = self.paused or self.state not in FLOWING or now < self.hold_until
        full = self.busy >= self.limit(now)
        trying = self._trying_until() > now
        return self.waiting(_ANY_CALL, now) if shut or full or trying else None

    # --- what happens to attempts ---------------------------------------------------------

    def send(
        self, permit: int, call: Call, now: float, *, probe: bool, stretch: float = 1.0
    ) -> LaneAttempt:
        """Open an attempt; `stretch` makes it more patient with silence."""
        attempts = self.attempts
        self.used_at = now
        in_flight = len(attempts) - self._uncounted
        self.window.load_changed(in_flight, now)
        allowance = self.allowance
        if call.conversation or call.prefix:
            charged, expected_read = self.caches.charge(permit, call, now)
        else:
            charged, expected_read = prompt_tokens(call), 0.0
        charged = allowance.charge(charged)
        output = allowance.sent(charged, now)
        # By position: names would cost as much again, for every call.
        attempts[permit] = attempt = LaneAttempt(
            permit,
            call,
            self.id,
            now,
            in_flight + 1,
            allowance.requests,
            allowance.input,
            allowance.written,
            output,
            probe,
            now,
            charged,
            expected_read,
            stretch,
        )
        self._unconfirmed += 1
        self._sent_at = now
        if probe:
            self.probe = permit
        return attempt

    def received(self, attempt: LaneAttempt, now: float) -> bool:
        """Bytes came: whether that shows that a lane which was left alone as silent is not dead."""
        if now - attempt.received_at > _NOTICED or not attempt.begun:
            self.patience.silence_ended(attempt, now)
        attempt.received_at = self.received_at = now
        if attempt.confirmed:
            self._believe(attempt)
        if self._silent_since is None or attempt.sent_at >= self._silent_since:
            return False
        self._speaks_again(now)
        return True

    def doubt_attempt(self, attempt: LaneAttempt, now: float) -> None:
        """The attempt is silent for so long that it does not count as work any more.

        It is still listened to; if it was the probe, another may find out the lane's state.
        """
        self.pass_on_probe(attempt, now)
        if not (attempt.doubted or attempt.lent):
            self._leave_out(attempt)
        attempt.doubted = True

    def lend_place(self, attempt: LaneAttempt, now: float) -> bool:
        """Let others have the place of a silent attempt; whether it is lent.

        At most as many are lent as the lane has, or had when the attempt was sent, so that a slow
        provider never gets more than twice of what it took. A server of the user's own works off
        one call after another: nothing is gained there by sending it more.
        """
        if attempt.doubted or attempt.lent:
            return True
        if self.is_local or self.state not in FLOWING:
            return False
        # A throttle may have left fewer places than attempts are silent.
        if self._uncounted >= max(self.limit(now), attempt.in_flight_at_send):
            return False
        self._leave_out(attempt)
        attempt.lent = True
        return True

    def pass_on_probe(self, attempt: LaneAttempt, now: float) -> bool:
        """Let another call find out how the lane is, if this one is its probe; whether it was."""
        if self.probe != attempt.permit:
            return False
        self.probe = None
        self._schedule_probe(now)
        return True

    def may_be_silent(self, now: float) -> bool:
        """Whether nothing comes on it just now, by enough calls to be judged as a whole."""
        patience = self._settings.patience
        is_quiet = now - self.received_at >= patience.lane_silence
        return is_quiet and len(self.attempts) >= patience.lane_silence_calls

    def _leave_out(self, attempt: LaneAttempt) -> None:
        self._uncounted += 1
        self._unconfirmed -= not attempt.confirmed

    def _believe(self, attempt: LaneAttempt) -> None:
        if attempt.doubted or attempt.lent:
            attempt.doubted = attempt.lent = False
            self._uncounted -= 1
            self._unconfirmed += not attempt.confirmed

    def _speaks_again(self, now: float) -> None:
        """It was slow, and not dead: all is as before."""
        if self.state is LaneState.DOWN:
            self._move(LaneEvent.ANSWERS_AGAIN, now)
        elif self.state is LaneState.RECOVERING:
            self.window.restart(self._carried, self._carried, now)
            self._move(LaneEvent.RAMPED_UP, now)
        self._silent_since = None
        self._trips = max(0, self._trips - 1)
        self.cause = None
        self.probe = None
        for attempt in self.attempts.values():
            self._believe(attempt)
            attempt.probe = False

    def accepted(self, attempt: LaneAttempt, headers: Mapping[str, str], now: float) -> bool:
        """The first byte: the provider has taken the call. Whether the lane had seemed silent."""
        if attempt.confirmed:
            return False
        self._believe(attempt)
        speaks_again = self.received(attempt, now)
        attempt.confirmed = True
        attempt.confirmed_at = now
        self._unconfirmed -= 1
        if attempt.call.prefix:
            self.caches.begun(attempt.permit, attempt.call, attempt.sent_at)
        # The question is answered; if the lane fails again, the next probe need not wait for the
        # end of this one's stream.
        if self.probe == attempt.permit:
            self.probe = None
        took = now - attempt.sent_at
        self.first_byte += (took - self.first_byte) * (_LATEST_COUNTS if self.first_byte else 1.0)
        self.health.accepted(now)
        self.is_proven = True
        if headers:
            self.allowance.believe(attempt, headers, now)
        if self.episode.refusals:
            self.episode.ended(now)
        if self.state not in FLOWING:
            # An answer to something sent before the announced reset says nothing about after it.
            if attempt.probe and attempt.sent_at >= (self.reset_at or 0.0):
                self._recover(now)
        else:
            self.window.accepted(len(self.attempts) - self._uncounted, now)
        if self.state is _RECOVERING:
            ramped = now - self._up_at >= 0.9 * self._ramp
            if ramped and self.window.size >= 0.9 * min(self._carried, self.window.slow_until):
                self._move(LaneEvent.RAMPED_UP, now)
                self._silent_since = None
                self._trips = 0
        elif (
            self.state is LaneState.THROTTLED
            and now - self.since >= self._settings.breaker.clean_to_open
        ):
            self._move(LaneEvent.CLEAN, now)
        return speaks_again

    def _recover(self, now: float) -> None:
        breaker = self._settings.breaker
        self._ramp = breaker.ramp if self.state is LaneState.DOWN else breaker.ramp_after_parking
        # A reset that came as announced says that the lane was never ill: it bears as many calls
        # at once as before, and only the ramp keeps a herd from it.
        first = 2.0 if self.reset_at is None else self._carried
        self._move(LaneEvent.PROBE_ACCEPTED, now)
        self._up_at = now
        self.cause = None
        self.reset_at = self._doubted = None
        self.health.woke_up()
        self.window.restart(first, self._carried, now)

    def finished(self, attempt: LaneAttempt, usage: TokenUsage, now: float) -> None:
        """The whole answer came."""
        self._close(attempt, now)
        self.received_at = now
        caches = self.caches
        self.allowance.answered(attempt, caches.counted(usage), usage.output_tokens, now)
        caches.answered(attempt.call, attempt.sent_at, attempt.expected_read, usage)
        self.health.answered()
        self.hedges.answered()

    def dropped(self, attempt: LaneAttempt, now: float) -> None:
        """The caller went away; this says nothing about the lane."""
        if self._close(attempt, now) and self.state not in FLOWING:
            self.probe_at = max(now, self.reset_at or now)

    def refused_call(self, attempt: LaneAttempt, now: float) -> None:
        """The provider refused this call for itself alone; this says nothing about the lane.

        Whoever sends calls that no model sees, with a bad key say, takes nothing from the others.
        """
        self.dropped(attempt, now)
        if not attempt.confirmed:
            self.allowance.give_back(attempt, now)

    def let_go(self, attempt: LaneAttempt, now: float) -> None:
        """A silent attempt is hung up on: another was answered first, or nobody hopes any more."""
        was_probe = self._close(attempt, now)
        self.allowance.refund(attempt, now)
        if was_probe and self.state not in FLOWING:
            self.probe_at = max(now, self.reset_at or now)

    def _close(self, attempt: LaneAttempt, now: float) -> bool:
        """Whether it was the probe that was to find out the lane's state."""
        self.window.load_changed(len(self.attempts) - self._uncounted, now)
        del self.attempts[attempt.permit]
        if attempt.call.prefix:
            self.caches.ended(attempt.permit, attempt.call)
        self.allowance.closed(attempt, last=not self.attempts)
        if attempt.doubted or attempt.lent:
            self._uncounted -= 1
        elif not attempt.confirmed:
            self._unconfirmed -= 1
        if self.probe != attempt.permit:
            return False
        self.probe = None
        return True

    # --- failures -------------------------------------------------------------------------

    def throttled(
        self, attempt: LaneAttempt, failure: Failure, headers: Mapping[str, str], now: float
    ) -> None:
        """The provider asked to slow down."""
        was_probe = self._close(attempt, now)
        self.allowance.refund(attempt, now)
        has_limits = self.allowance.believe(attempt, headers, now)
        if self.state not in FLOWING:
            if was_probe:
                # It is there again, and asks to slow down.
                self.cause = failure if self.state is LaneState.DOWN else self.cause
                self._schedule_probe(now)
                if failure.retry_after is not None:
                    asked = now + min(failure.retry_after.total_seconds(), _LONGEST_THROTTLE)
                    self.probe_at = max(self.probe_at, asked)
            return
        episode = self.episode
        episode.refused(now)
        # What the rejection itself says, None where it says nothing.
        wait: float | None = None
        if failure.retry_after is not None:
            wait = min(failure.retry_after.total_seconds(), _LONGEST_THROTTLE)
        elif has_limits:
            at = self.allowance.ready_at(self.cost(attempt.call, now), now)
            wait = at - now if at > now else None
        if wait is None or (wait < _NO_WAIT and episode.refusals > 1):
            if episode.refusals == 1:
                self.window.rejected(attempt.in_flight_at_send, now)
            pause = episode.pause(self.window.size, self.busy) * (1 + 0.2 * self._draw())
        else:
            pause = wait * (episode.stretch() * (1 + 0.1 * self._draw()))
        self.hold_until = max(self.hold_until, now + pause)
        silent_for = now - self.health.accepted_at
        breaker = self._settings.breaker
        never = (
            episode.refusals >= breaker.throttles_to_park_blind
            and silent_for >= breaker.silence_to_park_blind
        )
        if never:
            self.park(failure, None, now, event=LaneEvent.NEVER_CLEARS)
        else:
            self._move(LaneEvent.THROTTLED, now)

    def failed_hard(self, attempt: LaneAttempt, failure: Failure | None, now: float) -> None:
        """No answer, or a server error, before anything was paid for."""
        was_probe = self._close(attempt, now)
        self.allowance.refund(attempt, now)
        if attempt.confirmed:
            self.health.take_back(attempt.confirmed_at)
        flows = self.state in FLOWING
        self.health.failed(now, refused=flows)
        if not flows:
            if was_probe:
                if self.state is LaneState.DOWN and failure is not None:
                    self.cause = failure
                self._schedule_probe(now)
            return
        self._pause_for_budget(now)
        if self.health.gone_down(now, probing=self.state is _RECOVERING):
            self.break_down(failure, now)

    def cut(self, attempt: LaneAttempt, failure: Failure | None, now: float) -> None:
        """An accepted answer broke off: it was paid for, and nobody has it."""
        was_probe = self._close(attempt, now)
        if attempt.confirmed:
            self.health.take_back(attempt.confirmed_at)
        self.health.cut(now, attempt.sent_at)
        if self.state not in FLOWING:
            if was_probe:
                self._schedule_probe(now)
            return
        self._pause_for_budget(now)
        alone = not any(each.confirmed and not each.doubted for each in self.attempts.values())
        if self.health.cuts_everything(now, alone=alone):
            self.break_down(failure, now)
            self._is_cutting = True

    def _pause_for_budget(self, now: float) -> None:
        self.hold_until = max(self.hold_until, self.health.spend_budget(now))

    def break_down(self, failure: Failure | None, now: float) -> None:
        """Leave the lane alone but for single probes."""
        if self.state in FLOWING:
            self._carried = max(2.0, self._carrying())
        self._trips += 1
        self._silent_since = None
        self._is_cutting = False
        self.cause = failure
        self._move(LaneEvent.OUTAGE, now)
        self.health.broke_down()
        self._schedule_probe(now)

    def _carrying(self) -> float:
        return self._carried if self.state is LaneState.RECOVERING else self.window.size

    def follow_clock(self, moved: float, slept: float, now: float) -> None:
        """The wall clock has moved by so much against the time line, `slept` of it in sleep.

        A reset that was given as a date follows it. The vendor's time passes also while this
        machine sleeps, so pauses that were reported as durations end earlier by that much.
        """
        self.hold_until -= slept
        nearer = slept
        if self.reset_at is not None and self.reset_at > now:
            nearer = moved if self._reset_is_date else slept
            self.reset_at -= nearer
        elif self._doubted is not None:
            self._doubted -= moved if self._reset_is_date else slept
        self.probe_at -= nearer

    def doubt(self, now: float) -> None:
        """Somebody knows of an earlier reset: one probe may find out at once."""
        if self.state not in FLOWING:
            self._doubted, self.reset_at = self.reset_at or self._doubted, None
            self.probe_at = now

    def quota_refused(self, attempt: LaneAttempt, now: float) -> None:
        """Close an attempt that met the wall; the controller parks every lane of the account."""
        self._close(attempt, now)
        self.allowance.refund(attempt, now)

    def park(
        self,
        failure: Failure | None,
        reset_at: float | None,
        now: float,
        *,
        is_date: bool = True,
        event: LaneEvent = LaneEvent.QUOTA_SPENT,
    ) -> None:
        """The account's window is used up: nothing goes before the reset.

        Whether that was a date or a duration matters once the wall clock is set.
        """
        if self.state in FLOWING:
            self._carried = max(2.0, self._carrying())
        self._silent_since = None
        since = self.since if self.state is LaneState.PARKED else now
        self._move(event, now)
        self.since = since
        self.cause = failure
        self.episode.refusals = 0  # it was no throttling after all
        self.hold_until = now
        # A later refusal that names no reset does not unsay one that did.
        known = (self.reset_at, self._doubted if reset_at is None else None, reset_at)
        self.reset_at = max((at for at in known if at is not None and at > now), default=None)
        if self.reset_at == reset_at:
            self._reset_is_date = is_date
        self._doubted = None
        self._schedule_probe(now)

    def _schedule_probe(self, now: float) -> None:
        if self._doubted is not None:
            # The probe has found out nothing: what was announced holds again.
            self.reset_at, self._doubted = self._doubted, None
        if self.reset_at is not None and self.reset_at > now:
            self.probe_at = self.reset_at + 1 + 2 * self._draw()
            return
        breaker = self._settings.breaker
        elapsed = 0.1 * (now - self.since)
        if self.state is LaneState.PARKED:
            shortest, longest = breaker.blind_probe_shortest, breaker.blind_probe_longest
        else:
            longest = breaker.probe_longest
            shortest = min(longest, breaker.probe_shortest * max(1, self._trips))
        pause = min(max(elapsed, shortest), longest)
        self.probe_at = now + pause * (0.9 + 0.2 * self._draw())

    def _move(self, event: LaneEvent, now: float) -> None:
        new = after(self.state, event)
        if new is not self.state or event is LaneEvent.THROTTLED:
            self.since = now
        self.state = new

    # --- silence --------------------------------------------------------------------------

    def falls_silent(self, now: float) -> bool:
        """Whether enough calls on the lane are silent for long enough; not while it is closed."""
        if self.state not in FLOWING or not self.may_be_silent(now):
            return False
        witnesses = sum(
            each.call.stream
            and not each.doubted
            and now - each.received_at >= self.patience.proves_silence(each, now)
            for each in self.attempts.values()
        )
        return witnesses >= self._settings.patience.lane_silence_calls

    def leave_alone_as_silent(self, now: float) -> list[LaneAttempt]:
        """Send nothing but probes until something comes; the attempts that are doubted now."""
        self.break_down(None, now)
        self._silent_since = now
        doubted = list(self.attempts.values())
        for attempt in doubted:
            self.doubt_attempt(attempt, now)
        return doubted

    def silence_check_at(self, now: float) -> float:
        """When it is worth looking for silence; infinity while too few calls are in flight."""
        patience, attempts = self._settings.patience, self.attempts
        enough = patience.lane_silence_calls
        if self.state not in FLOWING or len(attempts) < enough:
            return math.inf
        last_needed = next(islice(attempts.values(), enough - 1, None))
        due = max(self.received_at, last_needed.sent_at) + patience.lane_silence
        return due if due > now else now + 1.0
