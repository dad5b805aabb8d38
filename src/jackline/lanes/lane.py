"""Run one lane: may a call be sent now, and what does each outcome teach.

Laws: (1) a parked or broken lane gets one probe at a time and nothing else; (2) nothing is sent
before an announced reset; (3) one decrease of the window per throttle episode; (4) no clock and no
randomness of its own: `now` and the draw come in.
Not here: which call and which lane (controller.py), computing the window (window.py).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from jackline.failures import Failure
from jackline.lanes.attempt import Attempt
from jackline.lanes.bucket import Bucket
from jackline.lanes.decision import Call, Usage, Waiting
from jackline.lanes.limits_seen import read_limits
from jackline.lanes.settings import KnownLimits, LaneSettings, Settings
from jackline.lanes.states import FLOWING, Event, State, after
from jackline.lanes.window import Window

Draw: TypeAlias = Callable[[], float]

_ERROR_MEMORY = 0.05
_ERRORS_HALVE = 60.0
_OUTPUT_MEMORY = 0.1
_EPISODE_MEMORY = 0.3
_RATE_MEMORY = 60.0
# Looked at for every call: a global is found faster than a member of an Enum.
_OPEN, _PROBING = State.OPEN, State.PROBING


class Lane:
    """One (upstream, account, model): its state, its window, its buckets and its attempts."""

    def __init__(self, given: LaneSettings, settings: Settings, draw: Draw, now: float) -> None:
        self.name = given.name
        self.account = given.account
        self._given = given
        self._parallel = given.limits.parallel
        self._settings = settings
        self._draw = draw
        self.state = State.OPEN
        self.since = now
        self.cause: Failure | None = None
        self.window = Window(settings.window, now)
        self.buckets: dict[str, Bucket] = {}
        self.attempts: dict[int, Attempt] = {}
        self.probe: int | None = None
        self.probe_at = math.inf
        self.reset_at: float | None = None
        self.hold_until = now
        # Closed by hand.
        self.paused = False
        self.throttles = 0
        self._episode_began = now
        self._episode_length = 5.0
        self._unconfirmed = 0
        self._hard_in_a_row = 0
        self._recent: deque[tuple[float, bool]] = deque()
        self._errors = 0.0
        self._errors_at = now
        self._average_output = 500.0
        self._average_service = 10.0
        # When bytes last came, on any attempt.
        self.heard_at = now
        self._accepted_at = now
        self._accept_rate = 0.0
        self._rate_at = now
        self._budget = settings.retry_budget
        self._carried = settings.window.start
        self._up_at = now
        self._ramp = settings.breaker.ramp
        self._trips = 0
        self._sent_requests = 0
        self._sent_input = 0
        # The output that calls in flight are expected to have, and what was written so far.
        self._promised = 0.0
        self._written = 0.0
        self._know_limits(now)

    def __repr__(self) -> str:
        return f"<Lane {self.name}: {self.state}, {len(self.attempts)} in flight>"

    def _know_limits(self, now: float) -> None:
        told = _told(self._given.limits)
        self.buckets = {d: Bucket.per_minute(v, now) for d, v in told.items() if v is not None}

    def take_limits(self, limits: KnownLimits, now: float) -> None:
        """What the user says of the lane's limits has changed; what was learned besides stays."""
        before = _told(self._given.limits)
        self._given = replace(self._given, limits=limits)
        self._parallel = limits.parallel
        for dimension, per_minute in _told(limits).items():
            if per_minute == before[dimension]:
                continue
            if per_minute is None:
                self.buckets.pop(dimension, None)
            else:
                self.buckets[dimension] = Bucket.per_minute(per_minute, now)

    # --- may a call be sent ---------------------------------------------------------------

    def limit(self, now: float) -> int:
        """How many calls may be in flight at `now`."""
        limit = max(1, int(self.window.size))
        if self.state is _PROBING and self._ramp > 0:
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
        if len(self.attempts) >= self.limit(now):
            return self._next_ramp_step(now)
        if self.throttles and self._unconfirmed:
            return math.inf
        return now

    def ready_at(self, call: Call, now: float) -> float:
        """`now` if the call may be sent; else when to ask again; infinity if an event must come."""
        at = self.closed_until(now)
        if at > now:
            return at
        for dimension, bucket in self.buckets.items():
            need = 1.0 if dimension == "requests" else self._need(dimension, bucket, call)
            at = max(at, bucket.ready_at(need, now))
        return at

    def _next_ramp_step(self, now: float) -> float:
        if self.state is not State.PROBING or len(self.attempts) >= self.window.limit():
            return math.inf
        step = self._ramp * len(self.attempts) / max(1.0, self._carried)
        return max(self._up_at + step, now + 0.05)

    def _need(self, dimension: str, bucket: Bucket, call: Call) -> float:
        if dimension == "requests":
            return 1.0
        if dimension == "input":
            return float(call.input_tokens)
        # Output is debited when it is done, and meanwhile the bucket refills. Half of that may be
        # promised (with all of it, calls come in bursts), but only while the bucket itself holds
        # an answer's worth, or the provider refuses the next call.
        coming = bucket.rate * self._average_service / 2
        return self._average_output - min(self._promised, coming)

    def probe_due(self, now: float) -> bool:
        """Whether the lane wants a single call to find out how it stands."""
        if self.paused:
            return False
        return self.state not in FLOWING and self.probe is None and now >= self.probe_at

    def waiting(self, call: Call, now: float) -> Waiting:
        """Why the call waits here, in words for people."""
        if self.paused:
            return Waiting(f"{self.name} is paused by hand")
        if self.state is State.PARKED:
            return Waiting(self._parked_why(), self.reset_at)
        if self.state is State.BROKEN:
            return Waiting(f"{self.name} is down; it is tried again with one call", self.probe_at)
        if now < self.hold_until:
            return Waiting(f"{self.name} asked to slow down", self.hold_until)
        if len(self.attempts) >= self.limit(now):
            return Waiting(f"{self.name} carries {len(self.attempts)} calls, its limit for now")
        if self.throttles and self._unconfirmed:
            return Waiting(f"{self.name} throttles; one call is finding out whether it has ended")
        at = self.ready_at(call, now)
        return Waiting(f"{self.name} has used up this minute's allowance", at if at > now else None)

    def _parked_why(self) -> str:
        told = "" if self.reset_at is not None else "; when it resets is not known"
        return f"{self.name} is parked: its limit is used up{told}"

    # --- what happens to attempts ---------------------------------------------------------

    def send(
        self, permit: int, call: Call, now: float, *, probe: bool, stretch: float = 1.0
    ) -> Attempt:
        """Open an attempt; `stretch` makes it more patient with silence."""
        attempts = self.attempts
        in_flight = len(attempts)
        self.window.load_changed(in_flight, now)
        output = self._average_output
        self._sent_requests += 1
        self._sent_input += call.input_tokens
        for dimension, bucket in self.buckets.items():
            if dimension == "requests":
                bucket.take(1.0, now)
            else:
                bucket.take(call.input_tokens if dimension == "input" else output, now)
        # By position: names would cost as much again, for every call.
        attempts[permit] = attempt = Attempt(
            permit,
            call,
            self.name,
            now,
            in_flight + 1,
            self._sent_requests,
            self._sent_input,
            self._written,
            output,
            probe,
            now,
            stretch,
        )
        self._promised += output
        self._unconfirmed += 1
        if probe:
            self.probe = permit
        return attempt

    def accepted(self, attempt: Attempt, headers: Mapping[str, str], now: float) -> None:
        """The first byte: the provider has taken the call."""
        if attempt.confirmed:
            return
        attempt.confirmed = True
        self._unconfirmed -= 1
        # The question is answered; if the lane fails again, the next probe need not wait for the
        # end of this one's stream.
        if self.probe == attempt.permit:
            self.probe = None
        attempt.heard_at = self.heard_at = now
        self._note(now, good=True)
        self._hard_in_a_row = 0
        self._count_accept(now)
        self._believe(attempt, headers, now)
        if self.throttles:
            length = now - self._episode_began
            self._episode_length += _EPISODE_MEMORY * (length - self._episode_length)
            self.throttles = 0
        if self.state not in FLOWING:
            # An answer to something sent before the announced reset says nothing about after it.
            if attempt.probe and attempt.sent_at >= (self.reset_at or 0.0):
                self._wake_up(now)
        else:
            self.window.accepted(len(self.attempts), now)
        if self.state is not _OPEN:
            self._settle(now)

    def _count_accept(self, now: float) -> None:
        weight = math.exp(-(now - self._rate_at) / _RATE_MEMORY)
        self._accept_rate = self._accept_rate * weight + 1 / _RATE_MEMORY
        self._rate_at = now
        self._accepted_at = now

    def accepts_per_second(self, now: float) -> float:
        """How fast the lane takes calls, over the last minute or so."""
        return self._accept_rate * math.exp(-(now - self._rate_at) / _RATE_MEMORY)

    def _wake_up(self, now: float) -> None:
        breaker = self._settings.breaker
        self._ramp = breaker.ramp if self.state is State.BROKEN else breaker.ramp_after_parking
        self._move(Event.PROBE_ACCEPTED, now)
        self._up_at = now
        self.cause = None
        self.reset_at = None
        self._errors = 0.0
        self.window.restart(2.0, self._carried, now)

    def _settle(self, now: float) -> None:
        if self.state is State.PROBING:
            ramped = now - self._up_at >= 0.9 * self._ramp
            if ramped and self.window.size >= 0.9 * min(self._carried, self.window.slow_until):
                self._move(Event.RAMPED_UP, now)
                self._trips = 0
        elif (
            self.state is State.LIMITED and now - self.since >= self._settings.breaker.clean_to_open
        ):
            self._move(Event.CLEAN, now)

    def finished(self, attempt: Attempt, usage: Usage, now: float) -> None:
        """The whole answer came."""
        self._close(attempt, now)
        self.heard_at = now
        self._written += usage.output_tokens
        self._average_output += _OUTPUT_MEMORY * (usage.output_tokens - self._average_output)
        service = now - attempt.sent_at
        self._average_service += _OUTPUT_MEMORY * (service - self._average_service)
        if "output" in self.buckets:
            self.buckets["output"].take(usage.output_tokens - attempt.expected_output, now)
        if "input" in self.buckets and usage.input_tokens:
            self.buckets["input"].take(usage.input_tokens - attempt.call.input_tokens, now)
        settings = self._settings
        if self._budget < settings.retry_budget:
            self._budget = min(settings.retry_budget, self._budget + settings.retry_refill)

    def dropped(self, attempt: Attempt, now: float) -> None:
        """The caller went away; this says nothing about the lane."""
        self._close(attempt, now)
        if attempt.probe and self.state not in FLOWING:
            self.probe_at = max(now, self.reset_at or now)

    def _close(self, attempt: Attempt, now: float) -> None:
        self.window.load_changed(len(self.attempts), now)
        del self.attempts[attempt.permit]
        self._promised = self._promised - attempt.expected_output if self.attempts else 0.0
        if not attempt.confirmed:
            self._unconfirmed -= 1
        if self.probe == attempt.permit:
            self.probe = None

    # --- failures -------------------------------------------------------------------------

    def throttled(
        self, attempt: Attempt, failure: Failure, headers: Mapping[str, str], now: float
    ) -> None:
        """The provider asked to slow down."""
        self._close(attempt, now)
        self._refund(attempt, now)
        self._believe(attempt, headers, now)
        if self.state not in FLOWING:
            if attempt.probe:
                self._schedule_probe(now)
            return
        self.throttles += 1
        if self.throttles == 1:
            self._episode_began = now
        wait = self._labelled_wait(failure, attempt.call, headers, now)
        if wait is None:
            self._unlabelled(attempt, now)
        else:
            stretch = min(16.0, 1.5 ** (self.throttles - 1)) * (1 + 0.1 * self._draw())
            self.hold_until = max(self.hold_until, now + wait * stretch)
        silent_for = now - self._accepted_at
        breaker = self._settings.breaker
        never = (
            self.throttles >= breaker.throttles_to_park_blind
            and silent_for >= breaker.silence_to_park_blind
        )
        if never:
            self._park(failure, None, now, Event.NEVER_CLEARS)
        else:
            self._move(Event.THROTTLED, now)

    def _labelled_wait(
        self, failure: Failure, call: Call, headers: Mapping[str, str], now: float
    ) -> float | None:
        """How long the rejection itself says to wait, or None when it says nothing."""
        if failure.retry_after is not None:
            return failure.retry_after.total_seconds()
        if not read_limits(headers):
            return None
        at = max(
            (b.ready_at(self._need(d, b, call), now) for d, b in self.buckets.items()), default=now
        )
        return at - now if at > now else None

    def _unlabelled(self, attempt: Attempt, now: float) -> None:
        if self.throttles == 1:
            self.window.rejected(attempt.in_flight_at_send, now)
        if self.window.size < 2:
            pause = max(1.0, 0.4 * self._episode_length) * 1.5 ** min(self.throttles - 1, 12)
            pause = min(60.0, pause)
        else:
            # While calls are in flight their ends make room, so a long pause would leave it unused.
            longest = 8.0 if self.attempts else 30.0
            pause = min(longest, 2.0 ** min(self.throttles - 1, 6))
        self.hold_until = max(self.hold_until, now + pause * (1 + 0.2 * self._draw()))

    def _refund(self, attempt: Attempt, now: float) -> None:
        # A rejected call has used no output; whether it used requests and input is the server's
        # secret, so those stay spent.
        if "output" in self.buckets:
            self.buckets["output"].take(-attempt.expected_output, now)

    def failed_hard(self, attempt: Attempt, failure: Failure | None, now: float) -> None:
        """No answer, or a server error, before anything was accepted."""
        self._close(attempt, now)
        self._refund(attempt, now)
        self._note(now, good=False)
        if self.state not in FLOWING:
            if attempt.probe:
                self._schedule_probe(now)
            return
        self._hard_in_a_row += 1
        self._spend_budget(now)
        breaker = self._settings.breaker
        patience = (
            breaker.in_a_row_while_probing if self.state is State.PROBING else breaker.in_a_row
        )
        # With many calls in flight, failures in a row happen by chance; an outage is quiet too.
        quiet = now - self._accepted_at >= breaker.quiet
        enough = patience if quiet else breaker.in_a_row_unquiet
        if self._hard_in_a_row >= enough or self._mostly_failing(now):
            self.break_down(failure, now)

    def failed_soft(self, attempt: Attempt, now: float) -> None:
        """An accepted answer broke off."""
        self._close(attempt, now)
        self._note(now, good=False)
        self._spend_budget(now)

    def _spend_budget(self, now: float) -> None:
        self._budget = max(0.0, self._budget - 1)
        if self._budget < 1:
            # As long as one call takes to be accepted here, so that a fast lane is not stopped.
            pause = 1 / max(1.0, self.accepts_per_second(now))
            self.hold_until = max(self.hold_until, now + pause)

    def _note(self, now: float, *, good: bool) -> None:
        if self._errors or not good:
            share = self.error_share(now)
            self._errors = share + _ERROR_MEMORY * ((0.0 if good else 1.0) - share)
        self._errors_at = now
        recent = self._recent
        recent.append((now, good))
        too_old = now - self._settings.breaker.share_window
        while recent[0][0] < too_old:
            recent.popleft()

    def error_share(self, now: float) -> float:
        """How much of what was sent lately failed; it fades, or a shunned lane would never heal."""
        return self._errors * math.pow(0.5, (now - self._errors_at) / _ERRORS_HALVE)

    def _mostly_failing(self, now: float) -> bool:
        breaker = self._settings.breaker
        if len(self._recent) < breaker.share_of_at_least:
            return False
        bad = sum(not good for at, good in self._recent if now - at <= breaker.share_window)
        return bad >= breaker.share * len(self._recent)

    def break_down(self, failure: Failure | None, now: float) -> None:
        """Leave the lane alone but for single probes."""
        if self.state in FLOWING:
            self._carried = max(2.0, self._carrying())
        self._trips += 1
        self.cause = failure
        self._move(Event.OUTAGE, now)
        self._recent.clear()
        self._hard_in_a_row = 0
        self._schedule_probe(now)

    def _carrying(self) -> float:
        return self._carried if self.state is State.PROBING else self.window.size

    def park(self, failure: Failure | None, reset_at: float | None, now: float) -> None:
        """The account's window is used up: nothing goes before the reset."""
        self._park(failure, reset_at, now, Event.QUOTA_SPENT)

    def quota_refused(self, attempt: Attempt, now: float) -> None:
        """Close an attempt that met the wall; the controller parks every lane of the account."""
        self._close(attempt, now)
        self._refund(attempt, now)

    def _park(
        self, failure: Failure | None, reset_at: float | None, now: float, event: Event
    ) -> None:
        if self.state in FLOWING:
            self._carried = max(2.0, self._carrying())
        since = self.since if self.state is State.PARKED else now
        self._move(event, now)
        self.since = since
        self.cause = failure
        self.throttles = 0
        self.hold_until = now
        # A later refusal that names no reset does not unsay one that did.
        ahead = [at for at in (self.reset_at, reset_at) if at is not None and at > now]
        self.reset_at = max(ahead, default=None)
        self._schedule_probe(now)

    def _schedule_probe(self, now: float) -> None:
        if self.reset_at is not None and self.reset_at > now:
            self.probe_at = self.reset_at + 1 + 2 * self._draw()
            return
        breaker = self._settings.breaker
        elapsed = 0.1 * (now - self.since)
        if self.state is State.PARKED:
            shortest, longest = breaker.blind_probe_shortest, breaker.blind_probe_longest
        else:
            longest = breaker.probe_longest
            shortest = min(longest, breaker.probe_shortest * max(1, self._trips))
        pause = min(max(elapsed, shortest), longest)
        self.probe_at = now + pause * (0.9 + 0.2 * self._draw())

    def _move(self, event: Event, now: float) -> None:
        new = after(self.state, event)
        if new is not self.state or event is Event.THROTTLED:
            self.since = now
        self.state = new

    # --- headers and silence --------------------------------------------------------------

    def _believe(self, attempt: Attempt, headers: Mapping[str, str], now: float) -> None:
        """Correct the buckets by what the server counted when it took this attempt."""
        for dimension, seen in read_limits(headers).items():
            bucket = self.buckets.get(dimension)
            if bucket is None:
                bucket = self.buckets[dimension] = Bucket.per_minute(seen.limit, now)
            elif seen.limit != bucket.cap:
                bucket.resize(seen.limit, now)
            level = seen.remaining + bucket.refill(now - attempt.sent_at)
            if dimension == "output":
                level -= self._promised + self._written - attempt.written_before
            elif dimension == "input":
                level -= self._sent_input - attempt.input_before
            else:
                level -= self._sent_requests - attempt.requests_before
            bucket.correct(level, now)

    def silent_attempts(self, now: float) -> list[Attempt]:
        """The attempts that prove the lane dead, if there are enough of them."""
        patience = self._settings.patience
        if now - self.heard_at < patience.lane_silence:
            return []
        silent = [
            each
            for each in self.attempts.values()
            if each.call.stream
            and now - each.heard_at >= patience.lane_silence
            and (each.confirmed or now - each.sent_at >= 0.4 * each.patience(patience))
        ]
        return silent if len(silent) >= patience.lane_silence_calls else []

    def silence_check_at(self, now: float) -> float:
        """When it is worth looking for silence; infinity while too few calls are in flight."""
        patience = self._settings.patience
        if len(self.attempts) < patience.lane_silence_calls or self.state not in FLOWING:
            return math.inf
        enough = patience.lane_silence_calls
        last_needed = next(islice(self.attempts.values(), enough - 1, None))
        due = max(self.heard_at, last_needed.sent_at) + patience.lane_silence
        return due if due > now else now + 1.0


def _told(known: KnownLimits) -> dict[str, float | None]:
    return {
        "requests": known.requests_per_minute,
        "input": known.input_tokens_per_minute,
        "output": known.output_tokens_per_minute,
    }
