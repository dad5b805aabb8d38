"""Manage all calls of a process: queue, send, classify, retry or reroute, and deliver.

Rules: (1) decisions of the controller are carried out at once, in their order; (2) a caller that
leaves frees its permit at once; (3) a retryable failure reaches the caller only if it has waited
longer than it allows; (4) one timer for all calls, no task per call; (5) a client whose credential
was refused is not served with ours; (6) waits are measured on the steady clock, reported as dates.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable
from math import inf
from types import TracebackType
from typing import Self

from jackline.calls.admission import CapGate, LaneChanges, QuotaWalls
from jackline.calls.continuation import prefilled
from jackline.calls.pending_call import InFlightAttempt, PendingCall
from jackline.calls.request import (
    CallRefusal,
    CallRequest,
    FailedAttempt,
    Outages,
    Receiver,
    VendorRejection,
)
from jackline.calls.stitch import BreakOff, Close, Continue, Repair
from jackline.clock import Clock, ClockWatch
from jackline.events import Announce, AttemptFailed, ClockMoved, WindowsReported, to_nobody
from jackline.failures import Failure, Kind, Observation, classify
from jackline.failures.sentences import explain, name_of
from jackline.lane_id import LaneId
from jackline.lanes import (
    LaneController,
    LaneDecision,
    LaneSettings,
    LaneWait,
    Send,
)
from jackline.lanes.breaker import FLOWING
from jackline.lanes.lane import OUTDATED_AFTER, Lane
from jackline.lanes.rate_limits import has_windows, parse_windows
from jackline.lanes.reactions import Reaction, reaction_to
from jackline.upstream.interface import Upstream, UpstreamRequest

_log = logging.getLogger(__name__)
_REJECTING = (401, 403)
_SPENT = (402, 429)
# Of a call that is held for hours, the first attempts are reported and the last.
_LONGEST_STORY = 200
_SILENT = "the upstream was silent for too long"
_OVERTAKEN = "silent; the call was answered by another attempt"
# Seconds that a timer comes late after which this process, and not the upstream, was silent.
_STANDSTILL = 1.0
# While a call waits, the wall clock is looked at this often.
_LOOK_AT_CLOCK = 15.0
# So many seconds after an error of our own, those who wait are looked after again.
_AFTER_BUG = 1.0


class CallManager:
    """All calls of one process, on one controller; use it as an async context manager."""

    def __init__(
        self,
        controller: LaneController,
        upstream: Upstream,
        clock: Clock,
        announce: Announce = to_nobody,
    ) -> None:
        self.controller = controller
        self.walls = QuotaWalls(controller)
        self.lane_news = LaneChanges(controller, announce, clock.wall)
        # Without it, no upstream counts as down.
        self.outages: Outages | None = None
        self._upstream = upstream
        self._clock = clock
        self._announce = announce
        self._numbers = itertools.count(1)
        self._calls: dict[int, PendingCall] = {}
        self._attempts: dict[int, InFlightAttempt] = {}
        self._gate = CapGate()
        self._waker: asyncio.Task[None] | None = None
        self._wake_at: float | None = None
        self._clock_watch = ClockWatch(clock)
        # How many times attempts taught the lanes something.
        self.reports = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hang up on everything that is still under way."""
        for call in list(self._calls.values()):
            self.leave(call)
        if self._waker is not None:
            self._waker.cancel()
            await asyncio.gather(self._waker, return_exceptions=True)
            self._waker = self._wake_at = None

    # --- for callers ----------------------------------------------------------------------------

    def submit(self, request: CallRequest, receiver: Receiver) -> PendingCall:
        """Take a call on; the receiver is called with the rest, possibly before this returns."""
        now = self._clock.steady()
        call = PendingCall(next(self._numbers), request, receiver, now)
        self._calls[call.number] = call
        try:
            if call.unproven:
                call.withhold_own_key_lanes()
            if not request.caps or self._gate.enter(call):
                self._line_up(call, now)
        except BaseException:
            # Nothing of it may stay: not its permit, not its place, not its share of a cap.
            call.leave()
            self._drop_after_bug(call)
            raise
        return call

    def leave(self, call: PendingCall) -> None:
        """The caller no longer wants the answer."""
        call.leave()
        self._forget(call)

    def pause(self, call: PendingCall) -> None:
        """Whoever takes the answer is slow: stop reading it."""
        call.paused = True
        for attempt in (call.attempt, call.beside):
            if attempt is not None and attempt.handle is not None:
                attempt.handle.pause()

    def resume(self, call: PendingCall) -> None:
        """Go on reading."""
        call.paused = False
        for attempt in (call.attempt, call.beside):
            if attempt is not None and attempt.handle is not None:
                attempt.handle.resume()

    def waiting(self, call: PendingCall) -> LaneWait | None:
        """Why a call waits, and until which date; None when it is in flight or over."""
        if call.number in self._gate:
            named = ", ".join(f"{kind} {name}" for (kind, name), _ in call.request.caps)
            return LaneWait(f"as many calls as you allow are under way for {named}")
        wait = self.controller.waiting(self._clock.steady(), call.number)
        return None if wait is None else LaneWait(wait.why, self.controller.date_of(wait.until))

    @property
    def calls(self) -> Iterable[PendingCall]:
        """Everything under way."""
        return self._calls.values()

    @property
    def calls_waiting(self) -> int:
        """How many calls wait for their turn."""
        return self.controller.calls_waiting + len(self._gate)

    @property
    def under_way(self) -> int:
        """How many calls, attempts and permits are held; 0 when all is done."""
        held = self.controller.calls_in_flight + self.controller.calls_waiting
        return len(self._calls) + len(self._attempts) + held

    def review(self) -> None:
        """Refuse the calls that have waited for longer than they allow; help the stranded."""
        now = self._clock.steady()
        for call in [c for c in self._calls.values() if self._needs_help(c)]:
            self._review(call, now)

    def _needs_help(self, call: PendingCall) -> bool:
        """Whether nothing is under way for it, or nothing but an attempt on a silent lane."""
        if call.attempt is None:
            return True
        if call.beside is not None or call.delivered:
            return False
        return self.controller.lanes[call.attempt.lane].is_silent

    def follow_clock(self) -> None:
        """Look whether the wall clock was set or the machine has slept; vendors' dates follow."""
        moved = self._clock_watch.look()
        if moved is not None:
            now = self._clock.steady()
            self._announce(ClockMoved(self._clock.wall(), moved.by, moved.slept))
            self._obey(self.controller.follow_clock(now, moved.ahead, moved.slept))
            self.review()

    # --- carrying out decisions -----------------------------------------------------------------

    def _line_up(self, call: PendingCall, now: float) -> None:
        entry = call.request.call
        entry.id, entry.lanes = call.number, call.lanes
        self._obey(self.controller.submit(now, entry))
        if call.attempt is None and not call.over:
            self.follow_clock()
            self._review(call, now)

    def _review(self, call: PendingCall, now: float) -> None:
        if call.over or not self._needs_help(call):
            return
        if self._may_have_withheld(call, now):
            self._give_withheld(call, now)
        if call.last_resorts and not call.delivered:
            self._widen(call, now)
        if call.in_flight:
            return
        refusal = self.walls.refusal(call, self.lanes_of(call), now)
        if refusal is not None:
            self._forget(call)
            call.refuse(refusal)

    def _widen(self, call: PendingCall, now: float) -> None:
        """Let a call take its last resorts, once none of its lanes takes calls, or all lose it."""
        losing = self.controller.has_lost_enough(call.number)
        lanes = self.lanes_of(call)
        if not losing and any(self.controller.lanes[name].state in FLOWING for name in lanes):
            return
        lanes += call.last_resorts
        call.last_resorts = ()
        self._send_to(call, lanes, now)

    def _may_have_withheld(self, call: PendingCall, now: float) -> bool:
        """Whether what was withheld is open now: its client's own upstreams are down for others.

        What this client has met there is the reason to ask, and never the evidence.
        """
        if call.withheld is None:
            return False
        lanes, outages = [self.controller.lanes[name] for name in self.lanes_of(call)], self.outages
        if not call.story and any(lane.state in FLOWING and not lane.paused for lane in lanes):
            return False
        return all(
            lane.paused or (outages is not None and outages.is_down(lane.id, now)) for lane in lanes
        )

    def _give_withheld(self, call: PendingCall, now: float) -> None:
        """The client's own upstream is down, or knows it: lanes with a key of ours are open."""
        if call.withheld is not None:
            lanes, call.last_resorts = call.withheld
            call.withheld = None
            self._send_to(call, lanes, now)

    def reroute(
        self,
        call: PendingCall,
        lanes: tuple[LaneId, ...],
        last: tuple[LaneId, ...],
        own_key: tuple[LaneId, ...] = (),
        *,
        unproven: bool = False,
    ) -> None:
        """Somebody has chosen other lanes for a call: they count from its next attempt on."""
        if call.over or call.delivered:
            return
        call.lanes, call.last_resorts, call.own_key = lanes, last, own_key
        if call.rejected_on is not None or call.doubted_on is not None:
            call.close_own_key_lanes()
        elif call.withheld is not None or (unproven and not call.unproven):
            call.unproven = True
            call.withhold_own_key_lanes()
        now = self._clock.steady()
        self._send_to(call, call.lanes, now)
        # What is left to it may be hopeless.
        self._review(call, now)

    def _send_to(self, call: PendingCall, lanes: tuple[LaneId, ...], now: float) -> None:
        """Open other lanes to a call; one that waits for a cap is submitted with them."""
        call.lanes = lanes
        self._obey(self.controller.reroute(now, call.number, lanes))

    def lanes_of(self, call: PendingCall) -> tuple[LaneId, ...]:
        """The lanes that are left to a call: the controller's word, once it knows the call."""
        return self.controller.lanes_of(call.number) or call.lanes

    def pause_lane(self, name: LaneId, *, paused: bool) -> None:
        """Somebody wants nothing, or something again, to be sent on a lane."""
        now = self._clock.steady()
        self._obey(self.controller.pause(now, name, paused=paused))
        self.review()

    def probe_lane(self, name: LaneId) -> None:
        """Send a call on a parked lane at once, to find out whether its limit is still used up."""
        self._obey(self.controller.probe(self._clock.steady(), name))

    def limit_lane(self, settings: LaneSettings) -> None:
        """The configured or reported limits of a lane have changed."""
        self._obey(self.controller.limit_lane(self._clock.steady(), settings))

    def close_idle_lanes(self, now: float, most: int) -> None:
        """Forget lanes that nobody uses and that know nothing that counts.

        Those that were not used for long go; of the others those that were used longest ago, until
        there are no more than `most`.
        """
        idle = [e for e in self.controller.lanes.values() if e.may_be_forgotten(now)]
        self._close_lanes(idle, most, older_than=now - OUTDATED_AFTER)

    def close_unproven_lanes(self, now: float, most: int) -> None:
        """Forget shut lanes that nobody was ever answered on, until there are no more than `most`.

        Whoever invents accounts leaves such lanes behind, and they would keep others out until
        their resets. Those that were used longest ago go first.
        """
        self._close_lanes([e for e in self.controller.lanes.values() if e.is_unproven(now)], most)

    def _close_lanes(self, lanes: list[Lane], most: int, older_than: float = -inf) -> None:
        """Close those that are not in use, the longest unused first: the old, and all too many."""
        used = self.controller.lanes_in_use()
        for call in self._calls.values():
            used.update(call.lanes, call.last_resorts, *(call.withheld or ()))
        for lane in sorted(lanes, key=lambda lane: lane.used_at):
            if len(self.controller.lanes) <= most and lane.used_at > older_than:
                break
            if lane.id not in used:
                self.controller.close_lane(lane.id)

    def _forget(self, call: PendingCall) -> None:
        """Drop a call, whatever state it is in."""
        if self._calls.pop(call.number, None) is not None:
            self._give_back(call)

    def _give_back(self, call: PendingCall) -> None:
        """Give back all that a call holds; what it holds no more is passed over."""
        try:
            for attempt in (call.beside, call.attempt):
                if attempt is not None:
                    self._hang_up(attempt.permit)
        finally:
            try:
                self._obey(self.controller.aborted(self._clock.steady(), call.number))
            finally:
                self._free(call)

    def _drop_after_bug(self, call: PendingCall) -> None:
        """Drop a call whose carrying has failed anywhere; a further error goes into the log."""
        self._calls.pop(call.number, None)
        try:
            self._give_back(call)
        except Exception:  # noqa: BLE001 -- the border of one call: siblings go on
            _log.exception("a bug in Jackline while dropping a call")

    def _free(self, call: PendingCall) -> None:
        if call.request.caps:
            for admitted in self._gate.leave(call):
                try:
                    self._line_up(admitted, self._clock.steady())
                except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
                    self.crashed(admitted, error)

    def _obey(self, decision: LaneDecision) -> None:
        for abort in decision.aborts:
            attempt = self._hang_up(abort.permit)
            if attempt is None:
                continue
            try:
                # The controller has put the call back in line already.
                self._report_attempt(attempt, None, abort.why)
                if not attempt.call.in_flight:
                    self._go_on_after_silence(attempt)
            except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
                self.crashed(attempt.call, error)
        for permit in decision.hang_ups:
            attempt = self._hang_up(permit)
            if attempt is not None:
                self._report_attempt(attempt, None, _OVERTAKEN, sub="overtaken")
        for refusal in decision.refusals:
            call = self._calls.pop(refusal.call, None)
            if call is not None:
                self._free(call)
                self._refuse(call, self._hopeless(call, refusal.failure))
        for send in decision.sends:
            self._start(send)
        wake_at = decision.wake_at
        if wake_at is not None and (self._wake_at is None or wake_at < self._wake_at):
            self._set_timer(wake_at)

    def _start(self, send: Send) -> None:
        call = self._calls.get(send.call)
        if call is None or call.over:
            return
        now = self._clock.steady()
        attempt = InFlightAttempt(self, call, send.permit, send.lane, now)
        message = call.request.message
        if call.attempt is None:
            call.attempt = attempt
        else:
            call.beside = attempt
            message = message._replace(fresh=True)
        if send.hour_marks:
            message = message._replace(hour_marks=True)
        call.sent = True
        call.tries += 1
        call.waited = max(0.0, now - call.submitted)
        self._attempts[send.permit] = attempt
        try:
            attempt.handle = self._upstream.start(message, send.lane, attempt)
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self.crashed(call, error)
            return
        if call.paused:
            attempt.handle.pause()

    def _hang_up(self, permit: int) -> InFlightAttempt | None:
        attempt = self._attempts.get(permit)
        if attempt is not None:
            self._close(attempt)
        return attempt

    def _set_timer(self, wake_at: float) -> None:
        if self._waker is not None:
            self._waker.cancel()
        self._wake_at = wake_at
        self._waker = asyncio.get_running_loop().create_task(self._wake(wake_at))

    async def _wake(self, at: float) -> None:
        began = self._clock.steady()
        pause = min(max(0.0, at - began), _LOOK_AT_CLOCK)
        await self._clock.sleep(pause)
        self._wake_at = self._waker = None
        try:
            self.follow_clock()
            now = self._clock.steady()
            stood_still = now - began - pause
            if stood_still >= _STANDSTILL:
                self.controller.stood_still(now, stood_still)
            self._obey(self.controller.tick(now))
            if self.lane_news.look(now):
                self.review()
        except Exception:  # noqa: BLE001 -- the border of one call: siblings go on
            # Without a timer nobody who waits would be sent again.
            _log.exception("a bug in Jackline while looking after waiting calls")
            if self._waker is None:
                self._set_timer(self._clock.steady() + _AFTER_BUG)

    # --- what attempts amount to ------------------------------------------------------------------

    def accepted(self, attempt: InFlightAttempt) -> None:
        """The vendor has taken the call, and more will come."""
        self.reports += 1
        now = self._clock.steady()
        decision = self.controller.first_byte(
            now, attempt.permit, attempt.lowered, begun=attempt.begun
        )
        self._obey(decision)
        self.lane_news.look_at(attempt.lane, now)

    def alive(self, attempt: InFlightAttempt) -> None:
        """Bytes came."""
        now = self._clock.steady()
        decision = self.controller.received(
            now, attempt.permit, begun=attempt.begun, committed=attempt.call.delivered
        )
        if decision is not None:
            self._obey(decision)
            self.lane_news.look_at(attempt.lane, now)

    def answered(self, attempt: InFlightAttempt) -> None:
        """The answer is whole and passed on."""
        call = attempt.call
        self._close(attempt)
        self._calls.pop(call.number, None)
        usage = call.end(attempt.lane, shortened=False)
        self.reports += 1
        now = self._clock.steady()
        self._obey(self.controller.finished(now, attempt.permit, usage, attempt.lowered))
        self.lane_news.look_at(attempt.lane, now)
        if has_windows(attempt.lowered):
            windows = parse_windows(attempt.lowered)
            self._announce(WindowsReported(self._clock.wall(), attempt.lane, windows))
        if call.request.caps:
            self._free(call)

    def judge(self, seen: Observation) -> Failure:
        """What went wrong."""
        return classify(seen, now=self._clock.now())

    def failed(
        self, attempt: InFlightAttempt, failure: Failure, rejection: VendorRejection | None = None
    ) -> None:
        """The attempt has failed: mend, wait again, or end."""
        # The vendor may have named a date, which was parsed by the wall clock of this moment.
        self.follow_clock()
        self.reports += 1
        call = attempt.call
        self._close(attempt)
        if rejection is not None:
            call.rejection = rejection
        self._report_attempt(attempt, failure, name_of(failure))
        now = self._clock.steady()
        may_use_our_key = self._opens_withheld(attempt, failure)
        other = call.attempt
        if other is not None and call.rejected_on is not None and other.lane in call.own_key:
            # Who was refused with a credential of its own is not served with ours elsewhere.
            self._hang_up(other.permit)
            self._obey(self.controller.failed(now, other.permit, failure))
        # An error before the model has spoken costs nothing; some vendors count only at the end.
        tokens = attempt.reported.total if attempt.has_begun else 0
        lost = attempt.has_begun and (tokens > 0 or not attempt.refused)
        repair, mended = None, True
        if not call.in_flight:
            # Else the other attempt goes on, from its own beginning.
            repair = call.stitch.broke() if call.request.call.stream else None
            mended = self._mend(call, repair)
        last_resorts = call.last_resorts
        if (
            failure.kind is Kind.MODEL_NOT_FOUND
            and last_resorts
            and not call.delivered
            and self.lanes_of(call) == (attempt.lane,)
        ):
            # No other lane is left that may know the model.
            call.last_resorts = ()
            self._send_to(call, (attempt.lane, *last_resorts), now)
        decision = self.controller.failed(
            now, attempt.permit, failure, attempt.lowered, lost=lost, tokens=tokens
        )
        if not mended:
            self._settle(attempt, repair, failure)
        self._obey(decision)
        if may_use_our_key:
            self._give_withheld(call, now)
        if lost and call.last_resorts and not (call.over or call.delivered):
            self._widen(call, now)
        parked = reaction_to(failure) is Reaction.PARK
        if parked:
            self.walls.remember(attempt.lane, failure, rejection)
        if self.lane_news.look(now) or parked:
            self.review()
        else:
            # What is left to it may be hopeless, though no lane has changed.
            self._review(call, now)

    def _opens_withheld(self, attempt: InFlightAttempt, failure: Failure) -> bool:
        """Whether this answer opens what was withheld: not if the client's credential was refused.

        Nor if a vendor that works has not accepted a client whom nobody knows: whatever such a
        client does to be answered so, it is not served with our key for it.
        """
        call, lane, status = attempt.call, attempt.lane, attempt.status
        if lane in call.own_key:
            return False
        # Whatever else the answer says: a border that answers for the vendor has not let the client
        # in either, and an error inside a stream has no status of its own.
        if status in _REJECTING or failure.kind is Kind.AUTH:
            call.rejected_on = lane
            call.withheld = None
            if call.own_key:
                call.close_own_key_lanes()
                self.controller.close_to(call.number, call.own_key)
        # An answer that begins well and breaks off is one that the client was let in for.
        elif status is None or status >= 500 or status < 300:
            now = self._clock.steady()
            # Silence and breaks show no outage: they may come of this process, which stood still,
            # or of what this machine lacks.
            if self.outages is not None and status is not None and status >= 500:
                self.outages.failed(call.request, lane, now)
            return self._may_have_withheld(call, now)
        elif call.withheld is not None:
            # Only with these: a vendor may repeat a client's words in an error of another status.
            if status in _SPENT and failure.kind in (Kind.ACCOUNT_QUOTA, Kind.BILLING):
                call.accepted_on = lane
                return True
            call.doubted_on = lane
            call.withheld = None
        return False

    def crashed(self, call: PendingCall, error: Exception) -> None:
        """Our own code has failed: this call ends, the others go on."""
        _log.error("a bug in Jackline while carrying a call", exc_info=error)
        self._drop_after_bug(call)
        why = f"a bug in Jackline: {type(error).__name__}"
        self._refuse(call, CallRefusal(why, None, None, None, call.story))

    def _refuse(self, call: PendingCall, refusal: CallRefusal) -> None:
        """Report it to the receiver; whatever that does, the decisions about others are obeyed."""
        try:
            call.refuse(refusal)
        except Exception:  # noqa: BLE001 -- the border of one call: siblings go on
            _log.exception("a bug in Jackline while refusing a call")

    def _go_on_after_silence(self, attempt: InFlightAttempt) -> None:
        call, now = attempt.call, self._clock.steady()
        if self._may_have_withheld(call, now):
            self._give_withheld(call, now)
        if call.stitch.complete:
            self._calls.pop(call.number, None)
            call.end(attempt.lane, shortened=False)
            self._obey(self.controller.aborted(self._clock.steady(), call.number))
            self._free(call)
            return
        repair = call.stitch.broke() if call.request.call.stream else None
        if not self._mend(call, repair):
            self._settle(attempt, repair, None)

    def _mend(self, call: PendingCall, repair: Repair | None) -> bool:
        """Whether the call can go on with another attempt that the receiver does not notice."""
        if isinstance(repair, Close | BreakOff):
            return False
        if isinstance(repair, Continue):
            message = call.original
            body = prefilled(message.body, repair.text)
            if body is None:
                return False
            call.request.message = UpstreamRequest(
                message.method, message.target, message.headers, body
            )
            call.stitch.continue_with(repair.text.rstrip())
        return True

    def _settle(
        self, attempt: InFlightAttempt, repair: Repair | None, failure: Failure | None
    ) -> None:
        """End a call whose answer was delivered in part."""
        call = attempt.call
        self._calls.pop(call.number, None)
        if isinstance(repair, Close):
            attempt.pass_on(repair.data)
            call.end(attempt.lane, shortened=repair.shortened)
        else:
            call.refuse(self._hopeless(call, failure))
        self._obey(self.controller.aborted(self._clock.steady(), call.number))
        self._free(call)

    def _close(self, attempt: InFlightAttempt) -> None:
        attempt.over = True
        self._attempts.pop(attempt.permit, None)
        attempt.call.attempt_ended(attempt)
        if attempt.handle is not None:
            attempt.handle.hang_up()

    def _report_attempt(
        self, attempt: InFlightAttempt, failure: Failure | None, why: str, *, sub: str = "silent"
    ) -> None:
        now = self._clock.steady()
        call = attempt.call
        if len(call.story) >= _LONGEST_STORY:
            del call.story[_LONGEST_STORY // 2]
        call.story.append(FailedAttempt(attempt.lane, attempt.began_at, now, failure, why))
        resets_at = None if failure is None or failure.resets_at is None else failure.resets_at
        self._announce(
            AttemptFailed(
                at=self._clock.wall(),
                call=call.request.id,
                lane=attempt.lane,
                kind="timeout" if failure is None else failure.kind.value,
                sub=sub if failure is None else failure.sub,
                status=attempt.status,
                request_id=attempt.request_id,
                took=now - attempt.began_at,
                resets_at=None if resets_at is None else resets_at.timestamp(),
                why=why,
            )
        )

    def _hopeless(self, call: PendingCall, failure: Failure | None) -> CallRefusal:
        now = self._clock.now()
        why = _SILENT if failure is None else " ".join(explain(failure, now))
        resets = None if failure is None or failure.resets_at is None else failure.resets_at
        retry_at = None if resets is None else resets.timestamp()
        return CallRefusal(why, failure, call.rejection, retry_at, call.story)
