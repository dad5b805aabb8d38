"""Manage all calls of a process: queue, send, classify, retry or reroute, and deliver.

Rules: (1) decisions of the controller are carried out at once, in their order; (2) a caller that
leaves frees its permit at once; (3) a retryable failure reaches the caller only if it has waited
longer than it allows; (4) one timer for all calls, no task per call; (5) a client whose credential
was refused is not served with ours; (6) waits are measured on the steady clock, reported as dates.
Not here: decisions (lanes/), bytes on the wire (upstream/), parsing answers (pending_call.py).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from jackline.calls.admission import CapGate, LaneChanges, QuotaWalls
from jackline.calls.continuation import prefill_of, prefilled
from jackline.calls.pending_call import InFlightAttempt, PendingCall
from jackline.calls.request import (
    CallRefusal,
    CallRequest,
    FailedAttempt,
    NoEvidence,
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
    Call,
    CallUsage,
    LaneController,
    LaneDecision,
    LaneSettings,
    LaneWait,
    Send,
)
from jackline.lanes.breaker import FLOWING
from jackline.lanes.lane import OUTDATED_AFTER
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
        self.outages: Outages = NoEvidence()
        self._upstream = upstream
        self._clock = clock
        self._announce = announce
        self._numbers = itertools.count(1)
        self._carried: dict[int, PendingCall] = {}
        self._hearings: dict[int, InFlightAttempt] = {}
        self._gate: CapGate[PendingCall] = CapGate()
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
        for carried in list(self._carried.values()):
            self.leave(carried)
        if self._waker is not None:
            self._waker.cancel()
            await asyncio.gather(self._waker, return_exceptions=True)
            self._waker = self._wake_at = None

    # --- for callers ----------------------------------------------------------------------------

    def submit(self, request: CallRequest, receiver: Receiver) -> PendingCall:
        """Take a call on; the receiver hears the rest, possibly before this returns."""
        now = self._clock.steady()
        carried = PendingCall(next(self._numbers), request, receiver, now)
        self._carried[carried.number] = carried
        try:
            if request.unproven:
                _withhold_own_key_lanes(carried)
            if not request.caps or self._gate.enter(carried.number, carried, request.caps):
                self._line_up(carried, now)
        except BaseException:
            # Nothing of it may stay: not its permit, not its place, not its share of a cap.
            carried.leave()
            self._drop_after_bug(carried)
            raise
        return carried

    def leave(self, carried: PendingCall) -> None:
        """The caller no longer wants the answer."""
        carried.leave()
        self._forget(carried)

    def pause(self, carried: PendingCall) -> None:
        """Whoever takes the answer is slow: stop reading it."""
        carried.paused = True
        for attempt in (carried.hearing, carried.beside):
            if attempt is not None and attempt.handle is not None:
                attempt.handle.pause()

    def resume(self, carried: PendingCall) -> None:
        """Go on reading."""
        carried.paused = False
        for attempt in (carried.hearing, carried.beside):
            if attempt is not None and attempt.handle is not None:
                attempt.handle.resume()

    def waiting(self, carried: PendingCall) -> LaneWait | None:
        """Why a call waits, and until which date; None when it is in flight or over."""
        if self._gate.stands_in_line(carried.number):
            named = ", ".join(f"{kind} {name}" for (kind, name), _ in carried.request.caps)
            return LaneWait(f"as many calls as you allow are under way for {named}")
        wait = self.controller.waiting(self._clock.steady(), carried.number)
        return None if wait is None else LaneWait(wait.why, self.controller.date_of(wait.until))

    @property
    def calls(self) -> Iterable[PendingCall]:
        """Everything under way."""
        return self._carried.values()

    @property
    def calls_waiting(self) -> int:
        """How many calls wait for their turn."""
        return self.controller.calls_waiting + len(self._gate)

    @property
    def under_way(self) -> int:
        """How many calls, attempts and permits are held; 0 when all is done."""
        held = self.controller.calls_in_flight + self.controller.calls_waiting
        return len(self._carried) + len(self._hearings) + held

    def review(self) -> None:
        """Refuse the calls that have waited for longer than they allow; help the stranded."""
        now = self._clock.steady()
        for carried in [c for c in self._carried.values() if self._needs_help(c)]:
            self._review(carried, now)

    def _needs_help(self, carried: PendingCall) -> bool:
        """Whether nothing is under way for it, or nothing but an attempt on a silent lane."""
        if carried.hearing is None:
            return True
        if carried.beside is not None or carried.delivered:
            return False
        return self.controller.lanes[carried.hearing.lane].is_silent

    def follow_clock(self) -> None:
        """Look whether the wall clock was set or the machine has slept; vendors' dates follow."""
        moved = self._clock_watch.look()
        if moved is not None:
            now = self._clock.steady()
            self._announce(ClockMoved(self._clock.wall(), moved.by, moved.slept))
            self._obey(self.controller.follow_clock(now, moved.ahead, moved.slept))
            self.review()

    # --- carrying out decisions -----------------------------------------------------------------

    def _line_up(self, carried: PendingCall, now: float) -> None:
        request = carried.request
        call = Call(
            carried.number,
            request.lanes,
            request.remaining,
            request.input_tokens,
            request.max_tokens,
            request.stream,
            request.since,
            request.leaves_at,
            request.hurries_at,
            request.conversation,
            request.prefix,
            request.prefix_tokens,
            request.begins,
            request.cache_ttl,
            request.login,
        )
        self._obey(self.controller.submit(now, call))
        if carried.hearing is None and not carried.over:
            self.follow_clock()
            self._review(carried, now)

    def _review(self, carried: PendingCall, now: float) -> None:
        if carried.over or not self._needs_help(carried):
            return
        if self._may_have_withheld(carried, now):
            self._give_withheld(carried, now)
        if carried.request.last_resorts and not carried.delivered:
            self._widen(carried, now)
        if carried.in_flight:
            return
        hopeless = self.walls.hopeless(carried, self.lanes_of(carried), now)
        if hopeless is None:
            return
        self._forget(carried)
        last = carried.story[-1].failure if carried.story else None
        met_it_itself = last is not None and reaction_to(last) is Reaction.PARK
        own_words = carried.rejection if met_it_itself or hopeless.rejection is None else None
        rejection = own_words or hopeless.rejection
        failure = hopeless.failure or last
        until = self.controller.date_of(hopeless.until)
        refusal = CallRefusal(hopeless.why, failure, rejection, until, carried.story)
        carried.refuse(refusal)

    def _widen(self, carried: PendingCall, now: float) -> None:
        """Let a call take its last resorts, once none of its lanes takes calls, or all lose it."""
        request = carried.request
        losing = self.controller.has_lost_enough(carried.number)
        lanes = self.lanes_of(carried)
        if not losing and any(self.controller.lanes[name].state in FLOWING for name in lanes):
            return
        lanes += request.last_resorts
        request.last_resorts = ()
        self._send_to(carried, lanes, now)

    def _any_open(self, names: tuple[LaneId, ...]) -> bool:
        """Whether one of them takes calls, and nobody has paused it by hand."""
        lanes = [self.controller.lanes[name] for name in names]
        return any(lane.state in FLOWING and not lane.paused for lane in lanes)

    def _may_have_withheld(self, carried: PendingCall, now: float) -> bool:
        """Whether what was withheld is open now: its client's own upstreams are down for others.

        What this client has met there is the reason to ask, and never the evidence.
        """
        names = self.lanes_of(carried)
        if carried.withheld is None or (not carried.story and self._any_open(names)):
            return False
        lanes = self.controller.lanes
        return all(lanes[name].paused or self.outages.is_down(name, now) for name in names)

    def _give_withheld(self, carried: PendingCall, now: float) -> None:
        """The client's own upstream is down, or knows it: lanes with a key of ours are open."""
        if carried.withheld is not None:
            lanes, carried.request.last_resorts = carried.withheld
            carried.withheld = None
            self._send_to(carried, lanes, now)

    def reroute(
        self,
        carried: PendingCall,
        lanes: tuple[LaneId, ...],
        last: tuple[LaneId, ...],
        own_key: tuple[LaneId, ...] = (),
        *,
        unproven: bool = False,
    ) -> None:
        """Somebody has chosen other lanes for a call: they count from its next attempt on."""
        if carried.over or carried.delivered:
            return
        request = carried.request
        request.lanes, request.last_resorts, request.own_key = lanes, last, own_key
        if carried.rejected_on is not None or carried.doubted_on is not None:
            _close_own_key_lanes(request)
        elif carried.withheld is not None or (unproven and not request.unproven):
            request.unproven = True
            _withhold_own_key_lanes(carried)
        now = self._clock.steady()
        self._send_to(carried, request.lanes, now)
        # What is left to it may be hopeless.
        self._review(carried, now)

    def _send_to(self, carried: PendingCall, lanes: tuple[LaneId, ...], now: float) -> None:
        """Open other lanes to a call; before it is submitted, only its request names them."""
        carried.request.lanes = lanes
        self._obey(self.controller.reroute(now, carried.number, lanes))

    def lanes_of(self, carried: PendingCall) -> tuple[LaneId, ...]:
        """The lanes that are left to a call: the controller's word, once it knows the call."""
        return self.controller.lanes_of(carried.number) or carried.request.lanes

    def pause_lane(self, name: LaneId, *, paused: bool) -> None:
        """Somebody wants nothing, or something again, to be sent on a lane."""
        now = self._clock.steady()
        self._obey(self.controller.pause(now, name, paused=paused))
        self.review()

    def probe_lane(self, name: LaneId) -> None:
        """Somebody wants to know at once whether a lane still stands before its wall."""
        self._obey(self.controller.probe(self._clock.steady(), name))

    def limit_lane(self, given: LaneSettings) -> None:
        """Somebody says something else of a lane's limits."""
        self._obey(self.controller.limit_lane(self._clock.steady(), given))

    def close_idle_lanes(self, now: float, most: int) -> None:
        """Forget lanes that nobody uses and that know nothing that counts.

        Those that were not used for long go; of the others those that were used longest ago, until
        there are no more than `most`.
        """
        lanes = self.controller.lanes
        used = self._lanes_in_use()
        idle = [lane for lane in lanes.values() if lane.may_be_forgotten(now)]
        idle.sort(key=lambda lane: lane.used_at)
        for lane in idle:
            if len(lanes) <= most and now - lane.used_at < OUTDATED_AFTER:
                break
            if lane.id not in used:
                self.controller.close_lane(lane.id)

    def close_unproven_lanes(self, now: float, most: int) -> None:
        """Forget shut lanes that nobody was ever answered on, until there are no more than `most`.

        Whoever invents accounts leaves such lanes behind, and they would keep others out until
        their resets. Those that were used longest ago go first.
        """
        lanes = self.controller.lanes
        used = self._lanes_in_use()
        unproven = [lane for lane in lanes.values() if lane.is_unproven(now)]
        unproven.sort(key=lambda lane: lane.used_at)
        for lane in unproven:
            if len(lanes) <= most:
                break
            if lane.id not in used:
                self.controller.close_lane(lane.id)

    def _lanes_in_use(self) -> set[LaneId]:
        used = self.controller.lanes_in_use()
        for carried in self._carried.values():
            used.update(carried.request.lanes, carried.request.last_resorts)
        return used

    def _forget(self, carried: PendingCall) -> None:
        """Drop a call, whatever state it is in."""
        if self._carried.pop(carried.number, None) is not None:
            self._give_back(carried)

    def _give_back(self, carried: PendingCall) -> None:
        """Give back all that a call holds; what it holds no more is passed over."""
        try:
            for attempt in (carried.beside, carried.hearing):
                if attempt is not None:
                    self._hang_up(attempt.permit)
        finally:
            try:
                self._obey(self.controller.aborted(self._clock.steady(), carried.number))
            finally:
                self._free(carried)

    def _drop_after_bug(self, carried: PendingCall) -> None:
        """Drop a call whose carrying has failed anywhere; a further error goes into the log."""
        self._carried.pop(carried.number, None)
        try:
            self._give_back(carried)
        except Exception:  # noqa: BLE001 -- the border of one call: siblings go on
            _log.exception("a bug in Jackline while dropping a call")

    def _free(self, carried: PendingCall) -> None:
        if carried.request.caps:
            for admitted in self._gate.leave(carried.number, carried.request.caps):
                try:
                    self._line_up(admitted, self._clock.steady())
                except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
                    self._crash(admitted, error)

    def _obey(self, decision: LaneDecision) -> None:
        for abort in decision.aborts:
            hearing = self._hang_up(abort.permit)
            if hearing is None:
                continue
            try:
                self._gone_silent(hearing, abort.why)
            except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
                self._crash(hearing.carried, error)
        for hang_up in decision.hang_ups:
            hearing = self._hang_up(hang_up.permit)
            if hearing is not None:
                self._tell(hearing, None, _OVERTAKEN, sub="overtaken")
        for refusal in decision.refusals:
            carried = self._carried.pop(refusal.call, None)
            if carried is not None:
                self._free(carried)
                self._refuse(carried, self._hopeless(carried, refusal.failure))
        for send in decision.sends:
            self._start(send)
        wake_at = decision.wake_at
        if wake_at is not None and (self._wake_at is None or wake_at < self._wake_at):
            self._set_timer(wake_at)

    def _start(self, send: Send) -> None:
        carried = self._carried.get(send.call)
        if carried is None or carried.over:
            return
        now = self._clock.steady()
        hearing = InFlightAttempt(self, carried, send.permit, send.lane, now)
        message = carried.request.message
        if carried.hearing is None:
            carried.hearing = hearing
        else:
            carried.beside = hearing
            message = message._replace(fresh=True)
        if send.hour_marks:
            message = message._replace(hour_marks=True)
        carried.sent = True
        carried.tries += 1
        carried.waited = max(0.0, now - carried.submitted)
        self._hearings[send.permit] = hearing
        try:
            hearing.handle = self._upstream.start(message, send.lane, hearing)
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self.crashed(hearing, error)
            return
        if carried.paused:
            hearing.handle.pause()

    def _hang_up(self, permit: int) -> InFlightAttempt | None:
        hearing = self._hearings.pop(permit, None)
        if hearing is not None:
            hearing.drop()
            hearing.carried.attempt_ended(hearing)
        return hearing

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

    def accepted(self, hearing: InFlightAttempt) -> None:
        """The vendor has taken the call, and more will come."""
        self.reports += 1
        now = self._clock.steady()
        decision = self.controller.first_byte(
            now, hearing.permit, hearing.lowered, begun=hearing.begun
        )
        self._obey(decision)
        self.lane_news.look_at(hearing.lane, now)

    def alive(self, hearing: InFlightAttempt) -> None:
        """Bytes came."""
        now = self._clock.steady()
        decision = self.controller.heard(
            now, hearing.permit, begun=hearing.begun, committed=hearing.carried.began
        )
        if decision is not None:
            self._obey(decision)
            self.lane_news.look_at(hearing.lane, now)

    def answered(self, hearing: InFlightAttempt) -> None:
        """The answer is whole and passed on."""
        carried = hearing.carried
        self._close(hearing)
        self._carried.pop(carried.number, None)
        used = carried.end(hearing.lane, shortened=False)
        usage = CallUsage(
            used.input,
            used.output,
            used.cache_read,
            used.cache_creation,
            used.cache_creation_1h,
        )
        self.reports += 1
        now = self._clock.steady()
        self._obey(self.controller.finished(now, hearing.permit, usage, hearing.lowered))
        self.lane_news.look_at(hearing.lane, now)
        if has_windows(hearing.lowered):
            windows = parse_windows(hearing.lowered)
            self._announce(WindowsReported(self._clock.wall(), hearing.lane, windows))
        if carried.request.caps:
            self._free(carried)

    def judge(self, seen: Observation) -> Failure:
        """What went wrong."""
        return classify(seen, now=self._clock.now())

    def failed(
        self, hearing: InFlightAttempt, failure: Failure, rejection: VendorRejection | None = None
    ) -> None:
        """The attempt has failed: mend, wait again, or end."""
        # The vendor may have given a date, which was read by the wall clock of this moment.
        self.follow_clock()
        self.reports += 1
        carried = hearing.carried
        self._close(hearing)
        if rejection is not None:
            carried.rejection = rejection
        self._tell(hearing, failure, name_of(failure))
        now = self._clock.steady()
        may_use_our_key = self._judge_client(hearing, failure)
        self._drop_unwarranted(carried, failure, now)
        tokens = _tokens_of(hearing)
        lost = rejection is None and _is_paid(hearing, tokens)
        repair, mended = None, True
        if not carried.in_flight:
            # Else the other attempt goes on, from its own beginning.
            repair = carried.stitch.broke() if carried.request.stream else None
            mended = self._mend(carried, repair)
        last_resorts = carried.request.last_resorts
        if (
            failure.kind is Kind.MODEL_NOT_FOUND
            and last_resorts
            and not carried.delivered
            and self.lanes_of(carried) == (hearing.lane,)
        ):
            # No other lane is left that may know the model.
            carried.request.last_resorts = ()
            self._send_to(carried, (hearing.lane, *last_resorts), now)
        decision = self.controller.failed(
            now, hearing.permit, failure, hearing.lowered, lost=lost, tokens=tokens
        )
        if not mended:
            self._settle(hearing, repair, failure)
        self._obey(decision)
        if may_use_our_key:
            self._give_withheld(carried, now)
        if lost and carried.request.last_resorts and not (carried.over or carried.delivered):
            self._widen(carried, now)
        parked = reaction_to(failure) is Reaction.PARK
        if parked:
            self.walls.remember(hearing.lane, failure, rejection)
        if self.lane_news.look(now) or parked:
            self.review()
        else:
            # What is left to it may be hopeless, though no lane has changed.
            self._review(carried, now)

    def _judge_client(self, hearing: InFlightAttempt, failure: Failure) -> bool:
        """Whether this answer opens what was withheld: not if the client's credential was refused.

        Nor if a vendor that works has not accepted a client whom nobody knows: whatever such a
        client does to be answered so, it is not served with our key for it.
        """
        carried, lane = hearing.carried, hearing.lane
        request = carried.request
        if lane in request.own_key:
            return False
        if _is_credential_rejected(hearing, failure):
            carried.rejected_on = lane
            carried.withheld = None
            if request.own_key:
                _close_own_key_lanes(request)
                self.controller.close_to(carried.number, request.own_key)
        elif _is_upstream_down(hearing):
            now = self._clock.steady()
            if _shows_outage(hearing):
                self.outages.failed(request, lane, now)
            return self._may_have_withheld(carried, now)
        elif carried.withheld is not None:
            if _is_account_known(hearing, failure):
                carried.accepted_on = lane
                return True
            carried.doubted_on = lane
            carried.withheld = None
        return False

    def _drop_unwarranted(self, carried: PendingCall, failure: Failure, now: float) -> None:
        """Who was refused with a credential of its own is not served with ours on another lane."""
        other = carried.hearing
        if (
            other is not None
            and carried.rejected_on is not None
            and other.lane in carried.request.own_key
        ):
            self._hang_up(other.permit)
            self._obey(self.controller.failed(now, other.permit, failure))

    def crashed(self, hearing: InFlightAttempt, error: Exception) -> None:
        """Our own code has failed: this call ends, the others go on."""
        self._crash(hearing.carried, error)

    def _crash(self, carried: PendingCall, error: Exception) -> None:
        _log.error("a bug in Jackline while carrying a call", exc_info=error)
        self._drop_after_bug(carried)
        why = f"a bug in Jackline: {type(error).__name__}"
        self._refuse(carried, CallRefusal(why, None, None, None, carried.story))

    def _refuse(self, carried: PendingCall, refusal: CallRefusal) -> None:
        """Tell the receiver; whatever it does with that, the decisions about others are obeyed."""
        try:
            carried.refuse(refusal)
        except Exception:  # noqa: BLE001 -- the border of one call: siblings go on
            _log.exception("a bug in Jackline while refusing a call")

    def _gone_silent(self, hearing: InFlightAttempt, why: str) -> None:
        """The controller gave the attempt up; it has put the call back in line already."""
        carried = hearing.carried
        self._tell(hearing, None, why)
        if carried.in_flight:
            return
        now = self._clock.steady()
        if self._may_have_withheld(carried, now):
            self._give_withheld(carried, now)
        if carried.stitch.complete:
            self._carried.pop(carried.number, None)
            carried.end(hearing.lane, shortened=False)
            self._obey(self.controller.aborted(self._clock.steady(), carried.number))
            self._free(carried)
            return
        repair = carried.stitch.broke() if carried.request.stream else None
        if not self._mend(carried, repair):
            self._settle(hearing, repair, None)

    def _mend(self, carried: PendingCall, repair: Repair | None) -> bool:
        """Whether the call can go on with another attempt that the receiver does not notice."""
        if isinstance(repair, Close | BreakOff):
            return False
        if isinstance(repair, Continue):
            message = carried.original
            body = prefilled(message.body, repair.text)
            if body is None:
                return False
            carried.request.message = UpstreamRequest(
                message.method, message.target, message.headers, body
            )
            carried.stitch.continue_with(prefill_of(repair.text))
        return True

    def _settle(
        self, hearing: InFlightAttempt, repair: Repair | None, failure: Failure | None
    ) -> None:
        """End a call whose answer was delivered in part."""
        carried = hearing.carried
        self._carried.pop(carried.number, None)
        if isinstance(repair, Close):
            hearing.pass_on(repair.data)
            carried.end(hearing.lane, shortened=repair.shortened)
        else:
            carried.refuse(self._hopeless(carried, failure))
        self._obey(self.controller.aborted(self._clock.steady(), carried.number))
        self._free(carried)

    def _close(self, hearing: InFlightAttempt) -> None:
        hearing.over = True
        self._hearings.pop(hearing.permit, None)
        hearing.carried.attempt_ended(hearing)
        if hearing.handle is not None:
            hearing.handle.hang_up()

    def _tell(
        self, hearing: InFlightAttempt, failure: Failure | None, why: str, *, sub: str = "silent"
    ) -> None:
        now = self._clock.steady()
        carried = hearing.carried
        if len(carried.story) >= _LONGEST_STORY:
            del carried.story[_LONGEST_STORY // 2]
        carried.story.append(FailedAttempt(hearing.lane, hearing.began_at, now, failure, why))
        resets_at = None if failure is None or failure.resets_at is None else failure.resets_at
        self._announce(
            AttemptFailed(
                at=self._clock.wall(),
                call=carried.request.id,
                lane=hearing.lane,
                kind="timeout" if failure is None else failure.kind.value,
                sub=sub if failure is None else failure.sub,
                status=hearing.status,
                request_id=hearing.request_id,
                took=now - hearing.began_at,
                resets_at=None if resets_at is None else resets_at.timestamp(),
                why=why,
            )
        )

    def _hopeless(self, carried: PendingCall, failure: Failure | None) -> CallRefusal:
        now = self._clock.now()
        why = _SILENT if failure is None else " ".join(explain(failure, now))
        resets = None if failure is None or failure.resets_at is None else failure.resets_at
        retry_at = None if resets is None else resets.timestamp()
        return CallRefusal(why, failure, carried.rejection, retry_at, carried.story)


def _is_credential_rejected(hearing: InFlightAttempt, failure: Failure) -> bool:
    # Whatever else the answer says: a border that answers for the vendor has not let the client in
    # either, and an error inside a stream has no status of its own.
    return hearing.status in _REJECTING or failure.kind is Kind.AUTH


def _has_begun(hearing: InFlightAttempt) -> bool:
    return hearing.status is not None and 200 <= hearing.status < 300


def _is_paid(hearing: InFlightAttempt, tokens: int) -> bool:
    # An error that the vendor reports before the model has spoken costs nothing; some vendors
    # count tokens only at the end.
    says_error = hearing.carried.request.stream and hearing.stitch.error_event is not None
    return _has_begun(hearing) and bool(tokens or hearing.begun or not says_error)


def _tokens_of(hearing: InFlightAttempt) -> int:
    """What the vendor has counted for an attempt so far."""
    if not (hearing.carried.request.stream and _has_begun(hearing)):
        return 0
    used = hearing.stitch.usage
    return used.input + used.output + used.cache_read + used.cache_creation


def _is_account_known(hearing: InFlightAttempt, failure: Failure) -> bool:
    # Only with these: a vendor may repeat a client's words in an error of another status.
    return hearing.status in _SPENT and failure.kind in (Kind.ACCOUNT_QUOTA, Kind.BILLING)


def _is_upstream_down(hearing: InFlightAttempt) -> bool:
    # An answer that begins well and breaks off is one that the client was let in for.
    status = hearing.status
    return status is None or status >= 500 or status < 300


def _shows_outage(hearing: InFlightAttempt) -> bool:
    # Silence and breaks do not: they may come of this process, which stood still, or of what this
    # machine lacks.
    return hearing.status is not None and hearing.status >= 500


def _withhold_own_key_lanes(carried: PendingCall) -> None:
    carried.withheld = carried.request.lanes, carried.request.last_resorts
    _close_own_key_lanes(carried.request)


def _close_own_key_lanes(request: CallRequest) -> None:
    closed = request.own_key
    request.lanes = tuple(name for name in request.lanes if name not in closed)
    request.last_resorts = tuple(name for name in request.last_resorts if name not in closed)
