"""The lane controller: decide for all lanes together which call goes where and when.

Rules: (1) pure: driven by events with an explicit `now`, and answers with decisions; (2) every
permit is closed exactly once; late or repeated reports about it are ignored; (3) a retryable
failure never reaches the caller: the call waits; (4) `now` is on a time line of durations that
nobody sets; vendors' dates are converted to it here, and follow the wall clock when that is set;
(5) if `now` goes back, time is treated as unchanged; (6) a lane other than the preferred one costs
as much as a short wait, and so does a lane that fails often; nobody waits for a lane without
traffic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from jackline.dialects.token_usage import TokenUsage
from jackline.failures import Failure
from jackline.lane_id import LaneId
from jackline.lanes.breaker import FLOWING
from jackline.lanes.call import Call, LaneAttempt, LaneDecision, LaneWait, Refuse, Send
from jackline.lanes.lane import Draw, Lane
from jackline.lanes.prompt_caches import CacheState
from jackline.lanes.queue import (
    AGED_AFTER,
    CallQueues,
    DelayedCalls,
    Queue,
    QueueEntry,
    QueueHead,
    Rank,
)
from jackline.lanes.queue_positions import QueuePosition, turns
from jackline.lanes.reactions import Reaction, apply_failure, hopeless, reaction_to
from jackline.lanes.settings import ControllerSettings, LaneSettings
from jackline.lanes.silent_attempts import AttemptsInFlight, SilentAttempts

# In seconds of cost: below this, two lanes are equally sound.
_NOTICEABLE = 0.5


_NO_HEADERS: Mapping[str, str] = {}
_FOR_PREFIX = "another call that begins alike is just being cached; this one can then read it"
# The part of the input limit that calls may take out of turn because they have waited for long.
_AGED_SHARE = 0.25


class LaneController:
    """One controller for all lanes of a process; see the module's laws."""

    def __init__(
        self,
        lanes: Sequence[LaneSettings],
        draw: Draw,
        *,
        now: float = 0.0,
        settings: ControllerSettings | None = None,
    ) -> None:
        self._settings = settings or ControllerSettings()
        self._ageing = self._settings.routing.ageing
        self._now = now
        # How far the wall clock is ahead of `now`, as last reported.
        self.wall_ahead = 0.0
        self._draw = draw
        self.lanes: dict[LaneId, Lane] = {}
        self._queues = CallQueues()
        self._entries: dict[int, QueueEntry] = {}
        self._under_way = AttemptsInFlight()
        self._attempts = self._under_way.attempts
        self._resting = DelayedCalls()
        self._permits = itertools.count(1)
        self._silent = SilentAttempts(
            self.lanes, self._entries, self._under_way, self._queues, self._launch
        )
        # Whether any lane has ever given an answer that was cached.
        self._caches_seen = False
        self._wake: dict[LaneId, float] = {}
        # Lanes that had room left when they were last looked at.
        self._roomy: set[LaneId] = set()
        for each in lanes:
            self.open_lane(now, each)

    def open_lane(self, now: float, settings: LaneSettings) -> Lane:
        """The lane of that name, opened if it is not known yet."""
        lane = self.lanes.get(settings.id)
        if lane is None:
            lane = self.lanes[settings.id] = Lane(settings, self._settings, self._draw, now)
            self._queues.open_lane(settings.id)
            self._wake[settings.id] = math.inf
            self._roomy.add(settings.id)
        return lane

    def lanes_in_use(self) -> set[LaneId]:
        """The lanes that calls wait for, are under way on, or may still be sent to."""
        entries = self._entries.values()
        return {name for entry in entries for name in (*entry.lanes, *entry.call.lanes)}

    def close_lane(self, name: LaneId) -> None:
        """Forget a lane that is not in use; it is opened anew when somebody asks for it."""
        self._queues.close_lane(name)
        self._roomy.discard(name)
        del self._wake[name]
        del self.lanes[name]

    # --- events ---------------------------------------------------------------------------

    def submit(self, now: float, call: Call) -> LaneDecision:
        """A call wants to be made."""
        now = self._clock(now)
        if call.id in self._entries:
            raise ValueError(f"call {call.id} is already known")
        queue = self._queues.queues.get(call.lanes)
        if queue is None:
            if not call.lanes or any(name not in self.lanes for name in call.lanes):
                raise ValueError(f"call {call.id} names no lane, or one that does not exist")
            queue = self._queues.queue(call.lanes)
        asked = now if call.since is None else min(now, call.since)
        entry = QueueEntry(call, call.lanes, self._ageing * asked - call.remaining, since=asked)
        lane = self._at_once(call, now)
        self._entries[call.id] = entry
        decision = LaneDecision()
        if lane is not None:
            self._launch(entry, lane, now, decision)
            self._note_room(lane, now)
            return self._done(decision)
        entry.line = call.lanes
        self._look_up(entry, now)
        queue.push(entry)
        # A lane without room opens by an event of its own, or when it is woken; but one that is
        # parked or down is woken for its probe only while someone waits for it.
        head = None if entry.cache_state else queue.head(now, aged=False, crowded=False)
        # Where caches are in use, who comes first may be another one on each lane.
        first = head is None or head.entry is entry or call.hurries_at <= now
        self._dispatch(
            [
                name
                for name in call.lanes
                if (first and name in self._roomy) or self.lanes[name].state not in FLOWING
            ],
            now,
            decision,
        )
        return self._done(decision)

    def first_byte(
        self,
        now: float,
        permit: int,
        headers: Mapping[str, str] = _NO_HEADERS,
        *,
        begun: bool = True,
    ) -> LaneDecision:
        """The provider has taken the call; the model has `begun` to speak, or may still think."""
        now = self._clock(now)
        attempt = self._attempts.get(permit)
        decision = LaneDecision()
        if attempt is not None:
            lane = self.lanes[attempt.lane]
            touched = self._silent.accept(attempt, headers, now)
            if begun and not attempt.begun:
                attempt.begun = True
                touched += self._silent.overtake(attempt, now, decision)
                self._silent.watch(attempt, now)
            self._room_changed(lane, now, decision)
            if touched:
                self._dispatch(touched, now, decision)
        return self._done(decision)

    def received(
        self, now: float, permit: int, *, begun: bool = True, committed: bool = False
    ) -> LaneDecision | None:
        """Bytes came: of an answer that has begun, that the caller holds a part of, or not yet.

        Mostly nothing is decided by that.
        """
        attempt = self._attempts.get(permit)
        if attempt is None:
            return None
        now = self._clock(now)
        lane = self.lanes[attempt.lane]
        attempt.committed = committed
        was_doubted = attempt.doubted
        speaks_again = lane.received(attempt, now)
        begins = begun and attempt.confirmed and not attempt.begun
        if not (begins or was_doubted or speaks_again):
            return None
        decision = LaneDecision()
        attempt.begun = attempt.begun or begins
        touched = self._silent.overtake(attempt, now, decision) if attempt.begun else []
        self._silent.watch(attempt, now)
        if speaks_again:
            self._silent.withdraw(lane)
        self._dispatch([lane.id, *touched], now, decision)
        return self._done(decision)

    def finished(
        self,
        now: float,
        permit: int,
        usage: TokenUsage,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> LaneDecision:
        """The call is answered; with headers, if it came whole and no first byte was reported."""
        now = self._clock(now)
        attempt = self._attempts.get(permit)
        decision = LaneDecision()
        if attempt is not None:
            lane = self.lanes[attempt.lane]
            touched = self._silent.overtake(attempt, now, decision)
            if not attempt.confirmed:
                touched += self._silent.accept(attempt, headers, now)
            self._under_way.take(permit)
            knew_caches = lane.caches.in_use
            lane.finished(attempt, usage, now)
            self._entries.pop(attempt.call.id, None)
            if lane.caches.in_use and not knew_caches:
                # Caches were seen for the first time: whoever waits is ranked by them from now.
                self._caches_seen = True
                for entry in self._queues.everyone_for(lane.id):
                    line = entry.line
                    is_beside = entry.call.id in self._queues.beside
                    self._queues.leave(entry)
                    self._look_up(entry, now)
                    self._queues.push(entry, line)
                    if is_beside:
                        self._queues.beside.add(entry.call.id)
            self._room_changed(lane, now, decision)
            if touched:
                self._dispatch(touched, now, decision)
        return self._done(decision)

    def failed(
        self,
        now: float,
        permit: int,
        failure: Failure,
        headers: Mapping[str, str] = _NO_HEADERS,
        *,
        lost: bool | None = None,
        tokens: int = 0,
    ) -> LaneDecision:
        """The attempt failed; the call waits again, or ends when waiting is hopeless.

        It was `lost` if an answer had begun that is paid for, with so many `tokens` as far as is
        known; unless that is said, whatever the provider had taken is lost.
        """
        now = self._clock(now)
        attempt = self._under_way.take(permit)
        decision = LaneDecision()
        if attempt is not None:
            is_lost = attempt.confirmed if lost is None else lost
            touched = apply_failure(
                self.lanes, attempt, failure, headers, now, self.wall_ahead, lost=is_lost
            )
            entry = self._entries.get(attempt.call.id)
            if entry is not None and is_lost:
                entry.count_loss(attempt.lane, tokens)
            if attempt.call.id not in self._under_way:
                self._resume_or_refuse(attempt, failure, now, decision, lost=is_lost)
            elif entry is not None:
                touched = [*touched, *self._silent.other_failed(entry)]
            if entry is not None and entry.lanes != attempt.call.lanes:
                # Others were opened to it while it was under way.
                touched = list(dict.fromkeys((*touched, *entry.lanes)))
            self._dispatch(touched, now, decision)
        return self._done(decision)

    def aborted(self, now: float, call_id: int) -> LaneDecision:
        """The caller no longer wants the answer."""
        now = self._clock(now)
        entry = self._entries.pop(call_id, None)
        if entry is None:
            return self._done(LaneDecision())
        touched = list(entry.lanes)
        self._leave_line(entry)
        while (attempt := self._under_way.first_of(call_id)) is not None:
            self._under_way.take(attempt.permit)
            self.lanes[attempt.lane].dropped(attempt, now)
            touched.append(attempt.lane)
        return self._decide(touched, now)

    def reroute(self, now: float, call_id: int, lanes: tuple[LaneId, ...]) -> LaneDecision:
        """Other lanes are open to a call from its next attempt on, less those that refused it.

        If none is left, it is refused as it was there.
        """
        now = self._clock(now)
        decision = LaneDecision()
        entry = self._entries.get(call_id)
        if any(name not in self.lanes for name in lanes) or not lanes:
            raise ValueError(f"call {call_id} is sent to no lane, or to one that does not exist")
        if entry is None:
            return self._done(decision)
        lanes = tuple(name for name in lanes if name not in entry.refused_by)
        if entry.lanes == lanes:
            return self._done(decision)
        if not lanes:
            attempt = self._under_way.first_of(call_id)
            if attempt is not None:
                self.close_to(call_id, entry.lanes)
                entry.refused_by += entry.lanes  # once this attempt has failed, nothing is left
            elif entry.refusal is not None:
                self._leave_line(entry)
                del self._entries[call_id]
                decision.refusals.append(Refuse(call_id, entry.refusal))
            return self._done(decision)
        if entry.rests_until is not None and entry.lost:
            entry.lanes = lanes
            self._queues.leave(entry)
            self._dispatch(self._line_up_elsewhere(entry), now, decision)
        elif entry.waiting and call_id not in self._under_way:
            before = entry.line
            self._leave_line(entry)
            entry.lanes = lanes
            self._queues.push(entry)
            self._dispatch(list(dict.fromkeys((*before, *lanes))), now, decision)
        else:
            entry.lanes = lanes
            self._dispatch(self._silent.lanes_changed(entry), now, decision)
        return self._done(decision)

    def close_to(self, call_id: int, lanes: Sequence[LaneId]) -> None:
        """A call in flight may not go to these lanes any more, whatever becomes of its attempt."""
        entry = self._entries.get(call_id)
        attempt = self._under_way.first_of(call_id)
        if entry is None or attempt is None:
            return
        left = tuple(name for name in entry.lanes if name not in lanes)
        entry.lanes = left or (attempt.lane,)
        self._queues.leave(entry)
        self._silent.lanes_changed(entry)

    def pause(self, now: float, name: LaneId, *, paused: bool) -> LaneDecision:
        """A lane is closed by hand, or opened again; what is in flight goes on."""
        now = self._clock(now)
        self.lanes[name].paused = paused
        # Whoever waited for it may now go elsewhere, or come back.
        return self._decide(list(self.lanes), now)

    def probe(self, now: float, name: LaneId) -> LaneDecision:
        """Doubt a lane's reported reset: one call finds out at once."""
        now = self._clock(now)
        self.lanes[name].doubt(now)
        return self._decide((name,), now)

    def limit_lane(self, now: float, settings: LaneSettings) -> LaneDecision:
        """The known limits of a lane have changed; who waits for it may go now."""
        now = self._clock(now)
        self.lanes[settings.id].take_settings(settings, now)
        return self._decide((settings.id,), now)

    def tick(self, now: float) -> LaneDecision:
        """Time has passed: doubt the silent, probe, and send what has become possible."""
        now = self._clock(now)
        decision = LaneDecision()
        touched = [name for name, at in self._wake.items() if at <= now]
        for entry in self._resting.rested(now):
            self._queues.leave(entry)
            self._queues.push(entry)
            touched += entry.lanes
        for name in list(touched):
            touched += self._silent.look_at_lane(self.lanes[name], now)
        touched += self._silent.look_at_late(now, decision)
        touched += [name for name, lane in self.lanes.items() if lane.caches.released]
        self._dispatch(list(dict.fromkeys(touched)), now, decision)
        return self._done(decision)

    def stood_still(self, now: float, seconds: float) -> None:
        """This process did not run for so long: what came meanwhile lies unread, and is no silence.

        Nothing is decided by that.
        """
        now = self._clock(now)
        for lane in self.lanes.values():
            lane.received_at = min(now, lane.received_at + seconds)
        for attempt in self._attempts.values():
            attempt.received_at = min(now, attempt.received_at + seconds)

    def follow_clock(self, now: float, wall_ahead: float, slept: float = 0.0) -> LaneDecision:
        """The wall clock was set, or the machine has slept for so long: dates are elsewhere now."""
        now = self._clock(now)
        moved, self.wall_ahead = wall_ahead - self.wall_ahead, wall_ahead
        for lane in self.lanes.values():
            lane.follow_clock(moved, slept, now)
        return self._decide(list(self.lanes), now)

    def refresh(self, now: float) -> None:
        """Look at every lane anew, after something changed behind the controller's back."""
        now = self._clock(now)
        for name, lane in self.lanes.items():
            self._wake[name] = self._wake_of(lane, now)

    # --- reading --------------------------------------------------------------------------

    def date_of(self, at: float | None) -> float | None:
        """What the wall clock will show at a moment of the time line, or has shown."""
        return None if at is None else at + self.wall_ahead

    def waiting(self, now: float, call_id: int) -> LaneWait | None:
        """Why a call waits, and until when; None when it is in flight or unknown."""
        entry = self._entries.get(call_id)
        if entry is None or call_id in self._under_way:
            return None
        if entry.rests_until is not None and entry.rests_until == entry.sibling_until:
            return LaneWait(_FOR_PREFIX, entry.rests_until)
        if entry.rests_until is not None and entry.lost:
            return LaneWait(entry.loss_text(), entry.rests_until)
        if entry.rests_until is not None:
            return LaneWait("it has just failed; it is tried again in a moment", entry.rests_until)
        lanes = [self.lanes[name] for name in entry.lanes]
        waits = [lane.waiting(entry.call, max(now, self._now)) for lane in lanes]
        return min(waits, key=lambda each: math.inf if each.until is None else each.until)

    def turns(self, now: float, most: int) -> list[QueuePosition]:
        """Where those stand who wait in line, in the order in which they would go."""
        return turns(self.lanes, self._queues, max(now, self._now), most)

    def lanes_of(self, call_id: int) -> tuple[LaneId, ...]:
        """The lanes that are left to a call, the preferred first; none if it is unknown."""
        entry = self._entries.get(call_id)
        return () if entry is None else entry.lanes

    def has_lost_enough(self, call_id: int) -> bool:
        """Whether so many answers to a call were lost that any other lane is better."""
        entry = self._entries.get(call_id)
        return entry is not None and entry.has_lost_enough

    @property
    def calls_waiting(self) -> int:
        """How many calls wait for their turn."""
        # Whoever is known and not in flight waits.
        return len(self._entries) - self._under_way.calls

    @property
    def calls_in_flight(self) -> int:
        """How many attempts are under way."""
        return len(self._attempts)

    # --- sending --------------------------------------------------------------------------

    def _at_once(self, call: Call, now: float) -> Lane | None:
        """The call's first lane, if it has room, is sound, and nobody waits: the usual case."""
        name = call.lanes[0]
        if self._anyone_waits and self._queues.anyone_for(name):
            return None
        lane = self.lanes[name]
        if lane.ready_at(call, now) > now:
            return None
        if call.prefix and lane.caches.siblings_wait_until(call, now):
            return None
        # One that has failed lately is weighed against the others.
        return lane if len(call.lanes) == 1 or not lane.health.error_share(now) else None

    def _room_changed(self, lane: Lane, now: float, decision: LaneDecision) -> None:
        """Fill the lane if anyone waits for it; else only look when to be woken."""
        if lane.caches.released:
            self._dispatch((lane.id,), now, decision)
        elif lane.state in FLOWING and not (
            self._anyone_waits and self._queues.anyone_for(lane.id)
        ):
            self._note_room(lane, now)
        else:
            self._dispatch((lane.id,), now, decision)

    def _note_room(self, lane: Lane, now: float) -> None:
        # Whether it has room is looked at when someone asks for it.
        name = lane.id
        self._roomy.add(name)
        # Whoever is woken too early looks again: a time that lies ahead need not be found anew for
        # every call.
        if not now < self._wake[name] < math.inf:
            self._wake[name] = lane.silence_check_at(now)

    def _dispatch(self, touched: Sequence[LaneId], now: float, decision: LaneDecision) -> None:
        pending = dict.fromkeys(touched)
        while pending:
            name = next(iter(pending))
            del pending[name]
            lane = self.lanes[name]
            if lane.caches.released:
                # Whoever waited for these prefixes is queued again.
                released, lane.caches.released = lane.caches.released, []
                for prefix in released:
                    for entry in self._resting.siblings(lane.id, prefix):
                        self._look_up(entry, now)
                        self._queues.push(entry)
                        pending.update(dict.fromkeys(entry.lanes))
            sent_before = len(decision.sends)
            if lane.probe_due(now):
                spared, queue = self._queues.least_urgent(lane.id)
                if spared is not None and queue is not None:
                    queue.remove(spared)
                    self._launch(spared, lane, now, decision, probe=True)
            if lane.state in FLOWING:
                self._fill(lane, now, decision)
            self._wake[name] = self._wake_of(lane, now)
            # Whoever is first now may suit a lane that did not suit the one before.
            for send in decision.sends[sent_before:]:
                for other in self._entries[send.call].lanes:
                    if other != name and other in self._roomy:
                        pending[other] = None

    def _fill(self, lane: Lane, now: float, decision: LaneDecision) -> None:
        """Send on this lane until it is full or nobody wants it."""
        blocked: set[int] = set()
        leaving = True
        while lane.closed_until(now) <= now:
            head, queue = self._queues.first(
                lane.id, now, lane.caches.next_aged, blocked, leaving=leaving
            )
            if head is None or queue is None:
                return
            entry = head.entry
            ready = lane.ready_at(entry.call, now) <= now
            if not ready and head.rank is Rank.LEAVING:
                # Who goes out of turn must not make all others wait until it can be paid for.
                leaving = False
                continue
            if not (ready and self._is_worth_it(entry, lane, queue, now)):
                blocked.add(id(queue))
                continue
            self._queues.admit(head, queue, lane.id)
            # One that is under way has waited in vain for a silent attempt already.
            if entry.call.prefix and entry.call.id not in self._under_way:
                until = lane.caches.siblings_wait_until(entry.call, now)
                if until > now and self._resting.hold_sibling(entry, lane.id, now, until):
                    continue
            if head.rank is Rank.AGED and entry.cache_state is not CacheState.WARM:
                # The next cold call goes out of turn only when the others have had their share.
                rate = lane.allowance.input_rate(now)
                cost = lane.cost(entry.call, now)
                pause = cost / (_AGED_SHARE * rate) if rate > 0 else AGED_AFTER
                lane.caches.next_aged = now + pause
            self._launch(entry, lane, now, decision)

    def _is_worth_it(self, entry: QueueEntry, lane: Lane, queue: Queue, now: float) -> bool:
        """Whether the call should take this lane rather than wait for a preferred one.

        Lanes are compared by the seconds that each would cost it.
        """
        routing = self._settings.routing
        other_lane = routing.other_lane_cost
        detour = 0.0 if entry.line[0] == lane.id else other_lane
        mine = detour + self._cost_of_errors(lane, now)
        if mine <= 0:
            return True
        # Only a lane that fails noticeably has to be compared with all others; a sound one is only
        # worse than the preferred one.
        rivals = entry.line if mine - detour >= _NOTICEABLE else entry.line[:1]
        for position, name in enumerate(rivals):
            other = self.lanes[name]
            if other is lane or other.state not in FLOWING:
                continue
            cost = (other_lane if position else 0.0) + self._cost_of_errors(other, now)
            if cost >= mine:
                continue
            if other.ready_at(entry.call, now) > now:
                rate = other.health.accepts_per_second(now)
                wait = max(queue.waiting / rate if rate > 0 else math.inf, other.hold_until - now)
                cost += wait if wait > routing.spill_after else 0.0
            if cost < mine:
                return False
        return True

    def _cost_of_errors(self, lane: Lane, now: float) -> float:
        errors = min(lane.health.error_share(now), 0.95)
        return self._settings.routing.error_cost * errors / (1 - errors)

    def _look_up(self, entry: QueueEntry, now: float) -> None:
        """Know what is cached of a call that is going to wait, on the first lane that knows it."""
        if not self._caches_seen:
            return
        entry.cache_state = CacheState.PLAIN
        for name in entry.lanes:
            cache_state, until = self.lanes[name].caches.cache_state(entry.call, now)
            if cache_state not in (CacheState.PLAIN, CacheState.NEW):
                entry.cache_state, entry.cached_until = cache_state, until
                return
            if cache_state is CacheState.NEW:
                entry.cache_state = cache_state

    def _launch(
        self,
        entry: QueueEntry,
        lane: Lane,
        now: float,
        decision: LaneDecision,
        probe: bool = False,
    ) -> None:
        entry.waiting = False
        # Who is queued for another lane may not have rested enough for its own.
        entry.rests_until = None
        entry.attempts += 1
        permit = next(self._permits)
        call = entry.call
        stretch = 2.0 ** min(entry.freezes - 1, 16) if entry.freezes > 1 else 1.0
        # Before it is sent: from then on what is cached of it may be another.
        hour = lane.asks_hour(call, now - entry.since, now)
        attempt = lane.send(permit, call, now, probe=probe, stretch=stretch)
        first = self._under_way.first_of(call.id)
        if first is not None:
            self.lanes[first.lane].doubt_attempt(first, now)
            self._queues.beside.discard(call.id)
        self._under_way.add(attempt)
        self._silent.watch(attempt, now)
        decision.sends.append(Send(permit, call.id, lane.id, probe, first is not None, hour))

    # --- ending ---------------------------------------------------------------------------

    def _resume_or_refuse(
        self,
        attempt: LaneAttempt,
        failure: Failure,
        now: float,
        decision: LaneDecision,
        *,
        lost: bool,
    ) -> None:
        entry = self._entries.get(attempt.call.id)
        if entry is None:
            return
        if hopeless(entry, attempt.lane, failure, self._settings.routing.identical_failures):
            self._leave_line(entry)
            self._entries.pop(entry.call.id, None)
            decision.refusals.append(Refuse(entry.call.id, failure))
            return
        if lost:
            entry.outages = 0
            pause = entry.pause_after_loss(self._draw())
            if pause:
                self._leave_line(entry)
                self._resting.rest_for(entry, now, pause)
                if entry.has_lost_enough:
                    self._line_up_elsewhere(entry)
                return
        elif reaction_to(failure) is not Reaction.OUTAGE:
            entry.outages = 0
        else:
            entry.outages += 1
            elsewhere = any(
                name != attempt.lane and self.lanes[name].state in FLOWING for name in entry.lanes
            )
            if entry.outages > 1 and not elsewhere:
                self._leave_line(entry)
                self._resting.rest(entry, now, self._draw())
                return
        self._leave_line(entry)
        self._look_up(entry, now)
        self._queues.push(entry)

    def _line_up_elsewhere(self, entry: QueueEntry) -> tuple[LaneId, ...]:
        """Let a call that rests stand in line for the lanes that have lost no answer to it."""
        line = tuple(name for name in entry.lanes if name not in entry.lost_on)
        if line:
            self._queues.push(entry, line)
        return line

    # --- bookkeeping ----------------------------------------------------------------------

    def _clock(self, now: float) -> float:
        if now <= self._now:
            return self._now
        self._now = now
        return now

    @property
    def _anyone_waits(self) -> bool:
        return len(self._entries) > self._under_way.calls or bool(self._queues.beside)

    def _leave_line(self, entry: QueueEntry) -> None:
        self._queues.leave(entry)
        # Its place among those that rest is cleared when it comes up.
        entry.rests_until = None

    def _wake_of(self, lane: Lane, now: float) -> float:
        wake = lane.silence_check_at(now)
        if lane.state not in FLOWING:
            self._roomy.discard(lane.id)
            probes = lane.probe is None and self._queues.anyone_for(lane.id)
            return min(wake, lane.probe_at) if probes else wake
        closed = lane.closed_until(now)
        if closed > now:
            self._roomy.discard(lane.id)
            return min(wake, closed)
        self._roomy.add(lane.id)
        next_aged = lane.caches.next_aged
        head, _ = self._queues.first(lane.id, now, next_aged)
        if head is not None and head.rank is Rank.LEAVING:
            wake = min(wake, self._looked_at_again(head, lane, now))
            head, _ = self._queues.first(lane.id, now, next_aged, leaving=False)
        if head is not None:
            wake = min(wake, self._looked_at_again(head, lane, now))
            if lane.caches.in_use:
                wake = min(wake, self._queues.changes_at(lane.id, now, next_aged))
        return wake

    def _looked_at_again(self, head: QueueHead, lane: Lane, now: float) -> float:
        at = lane.ready_at(head.entry.call, now)
        return at if at > now else now + self._settings.routing.spill_after

    def _decide(self, touched: Sequence[LaneId], now: float) -> LaneDecision:
        decision = LaneDecision()
        self._dispatch(touched, now, decision)
        return self._done(decision)

    def _done(self, decision: LaneDecision) -> LaneDecision:
        wake = min(*self._wake.values(), self._silent.next_at(), self._resting.next_at())
        if wake != math.inf:
            decision.wake_at = max(self._now, wake)
        return decision
