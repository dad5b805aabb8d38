"""Decide for all lanes together which call goes where and when.

Laws: (1) pure: driven by events with an explicit `now`, answering with decisions; (2) every permit
is closed exactly once, and late or repeated reports about it are ignored; (3) a retryable failure
is never surfaced: it makes the call wait; (4) time that jumps back is taken to stand still.
Not here: sending, sleeping, reading bytes (calls/); what one lane has learned (lane.py).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence

from jackline.failures import Failure
from jackline.lanes.attempt import Attempt
from jackline.lanes.decision import Abort, Call, Decision, Refuse, Send, Usage, Waiting
from jackline.lanes.lane import Draw, Lane
from jackline.lanes.queue import Entry, Queue
from jackline.lanes.reactions import Reaction, parks_account, reaction_to
from jackline.lanes.settings import LaneSettings, Settings
from jackline.lanes.states import FLOWING

_NO_HEADERS: Mapping[str, str] = {}
# In seconds of cost: below this, two lanes are equally sound.
_NOTICEABLE = 0.5
_DEADLINES_SPARE = 64


class LaneController:
    """One controller for all lanes of a process; see the module's laws."""

    def __init__(
        self,
        lanes: Sequence[LaneSettings],
        draw: Draw,
        *,
        now: float = 0.0,
        settings: Settings | None = None,
    ) -> None:
        self._settings = settings or Settings()
        self._ageing = self._settings.routing.ageing
        self._now = now
        self._draw = draw
        self.lanes: dict[str, Lane] = {}
        self._queues: dict[tuple[str, ...], Queue] = {}
        self._queues_of: dict[str, list[Queue]] = {}
        self._entries: dict[int, Entry] = {}
        self._attempts: dict[int, Attempt] = {}
        self._permit_of: dict[int, int] = {}
        self._permits = itertools.count(1)
        self._deadlines: list[tuple[float, int]] = []
        self._wake: dict[str, float] = {}
        # Lanes that had room left when they were last looked at.
        self._roomy: set[str] = set()
        for each in lanes:
            self.open_lane(now, each)

    def open_lane(self, now: float, given: LaneSettings) -> Lane:
        """The lane of that name, opened if it is not known yet."""
        lane = self.lanes.get(given.name)
        if lane is None:
            lane = self.lanes[given.name] = Lane(given, self._settings, self._draw, now)
            self._queues_of[given.name] = []
            self._wake[given.name] = math.inf
            self._roomy.add(given.name)
        return lane

    # --- events ---------------------------------------------------------------------------

    def submit(self, now: float, call: Call) -> Decision:
        """A call wants to be made."""
        now = self._clock(now)
        if call.id in self._entries:
            raise ValueError(f"call {call.id} is already known")
        queue = self._queues.get(call.lanes)
        if queue is None:
            if not call.lanes or any(name not in self.lanes for name in call.lanes):
                raise ValueError(f"call {call.id} names no lane, or one that does not exist")
            queue = self._queue(call.lanes)
        urgency = self._ageing * now - call.remaining
        entry = Entry(call, call.lanes, urgency)
        lane = self._at_once(call, now)
        self._entries[call.id] = entry
        decision = Decision()
        if lane is not None:
            self._launch(entry, lane, now, decision, probe=False)
            self._note_room(lane, now)
            return self._done(decision)
        queue.push(entry)
        # A lane without room opens by an event of its own, or when it is woken; but one that is
        # parked or broken is woken for its probe only while someone waits for it.
        first = queue.most_urgent() is entry
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
        self, now: float, permit: int, headers: Mapping[str, str] = _NO_HEADERS
    ) -> Decision:
        """The provider has begun to answer."""
        now = self._clock(now)
        attempt = self._attempts.get(permit)
        decision = Decision()
        if attempt is not None:
            lane = self.lanes[attempt.lane]
            lane.accepted(attempt, headers, now)
            self._watch(attempt)
            self._room_changed(lane, now, decision)
        return self._done(decision)

    def heard(self, now: float, permit: int) -> None:
        """Bytes came; nothing is decided by that."""
        attempt = self._attempts.get(permit)
        if attempt is not None:
            self.lanes[attempt.lane].heard_at = attempt.heard_at = self._clock(now)

    def finished(
        self,
        now: float,
        permit: int,
        usage: Usage,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> Decision:
        """The call is answered; with its headers, if it came whole and no first byte was told."""
        now = self._clock(now)
        attempt = self._take(permit)
        decision = Decision()
        if attempt is not None:
            lane = self.lanes[attempt.lane]
            if not attempt.confirmed:
                lane.accepted(attempt, headers, now)
            lane.finished(attempt, usage, now)
            self._entries.pop(attempt.call.id, None)
            self._room_changed(lane, now, decision)
        return self._done(decision)

    def failed(
        self, now: float, permit: int, failure: Failure, headers: Mapping[str, str] = _NO_HEADERS
    ) -> Decision:
        """The attempt failed; the call waits again, or ends when waiting is hopeless."""
        now = self._clock(now)
        attempt = self._take(permit)
        decision = Decision()
        if attempt is not None:
            touched = self._react(attempt, failure, headers, now)
            self._resume_or_refuse(attempt, failure, decision)
            self._dispatch(touched, now, decision)
        return self._done(decision)

    def aborted(self, now: float, call_id: int) -> Decision:
        """The caller no longer wants the answer."""
        now = self._clock(now)
        entry = self._entries.pop(call_id, None)
        decision = Decision()
        if entry is None:
            return self._done(decision)
        permit = self._permit_of.get(call_id)
        if permit is None:
            self._queue(entry.lanes).remove(entry)
            self._dispatch(entry.lanes, now, decision)
            return self._done(decision)
        attempt = self._take(permit)
        if attempt is not None:
            self.lanes[attempt.lane].dropped(attempt, now)
            self._dispatch((attempt.lane,), now, decision)
        return self._done(decision)

    def reroute(self, now: float, call_id: int, lanes: tuple[str, ...]) -> Decision:
        """Other lanes are open to a call from its next attempt on."""
        now = self._clock(now)
        decision = Decision()
        entry = self._entries.get(call_id)
        if entry is None or entry.lanes == lanes:
            return self._done(decision)
        if any(name not in self.lanes for name in lanes) or not lanes:
            raise ValueError(f"call {call_id} is sent to no lane, or to one that does not exist")
        if entry.waiting:
            before = entry.lanes
            self._queue(before).remove(entry)
            entry.lanes = lanes
            self._queue(lanes).push(entry)
            self._dispatch(list(dict.fromkeys((*before, *lanes))), now, decision)
        else:
            entry.lanes = lanes
        return self._done(decision)

    def pause(self, now: float, name: str, *, paused: bool) -> Decision:
        """A lane is closed by hand, or opened again; what is in flight goes on."""
        now = self._clock(now)
        decision = Decision()
        self.lanes[name].paused = paused
        # Whoever waited for it may now go elsewhere, or come back.
        self._dispatch(list(self.lanes), now, decision)
        return self._done(decision)

    def limit_lane(self, now: float, given: LaneSettings) -> Decision:
        """The user says something else of a lane's limits; whoever waits for it may go now."""
        now = self._clock(now)
        decision = Decision()
        self.lanes[given.name].take_limits(given.limits, now)
        self._dispatch((given.name,), now, decision)
        return self._done(decision)

    def tick(self, now: float) -> Decision:
        """Time has passed: give up the silent, probe, and send what has become possible."""
        now = self._clock(now)
        decision = Decision()
        touched = [name for name, at in self._wake.items() if at <= now]
        touched += self._give_up_late(now, decision)
        for name in list(touched):
            touched += self._give_up_silent_lane(self.lanes[name], now, decision)
        self._dispatch(list(dict.fromkeys(touched)), now, decision)
        return self._done(decision)

    def refresh(self, now: float) -> None:
        """Look at every lane anew, after something changed behind the controller's back."""
        now = self._clock(now)
        for name, lane in self.lanes.items():
            self._wake[name] = self._wake_of(lane, now)

    # --- asking ---------------------------------------------------------------------------

    def waiting(self, now: float, call_id: int) -> Waiting | None:
        """Why a call waits, and until when; None when it is in flight or unknown."""
        entry = self._entries.get(call_id)
        if entry is None or not entry.waiting:
            return None
        lanes = [self.lanes[name] for name in entry.lanes]
        told = [lane.waiting(entry.call, max(now, self._now)) for lane in lanes]
        return min(told, key=lambda each: math.inf if each.until is None else each.until)

    @property
    def calls_waiting(self) -> int:
        """How many calls wait for their turn."""
        # Whoever is known and not in flight waits.
        return len(self._entries) - len(self._attempts)

    @property
    def calls_in_flight(self) -> int:
        """How many attempts are under way."""
        return len(self._attempts)

    # --- sending --------------------------------------------------------------------------

    def _at_once(self, call: Call, now: float) -> Lane | None:
        """The call's first lane, if it has room, is sound, and nobody waits: the usual case."""
        name = call.lanes[0]
        anyone_waits = len(self._entries) > len(self._attempts)
        if anyone_waits and self._waited_for(name):
            return None
        lane = self.lanes[name]
        if lane.ready_at(call, now) > now:
            return None
        # One that has failed lately is weighed against the others.
        return lane if len(call.lanes) == 1 or not lane.error_share(now) else None

    def _waited_for(self, name: str) -> bool:
        for queue in self._queues_of[name]:  # noqa: SIM110 -- asked three times for every call
            if queue.waiting:
                return True
        return False

    def _room_changed(self, lane: Lane, now: float, decision: Decision) -> None:
        """Fill the lane if anyone waits for it; else only look when to be woken."""
        anyone_waits = len(self._entries) > len(self._attempts)
        if lane.state in FLOWING and not (anyone_waits and self._waited_for(lane.name)):
            self._note_room(lane, now)
        else:
            self._dispatch((lane.name,), now, decision)

    def _note_room(self, lane: Lane, now: float) -> None:
        # Whether it has room is looked at when someone asks for it.
        self._roomy.add(lane.name)
        self._wake[lane.name] = lane.silence_check_at(now)

    def _dispatch(self, touched: Sequence[str], now: float, decision: Decision) -> None:
        pending = dict.fromkeys(touched)
        while pending:
            name = next(iter(pending))
            del pending[name]
            lane = self.lanes[name]
            sent_before = len(decision.sends)
            if lane.probe_due(now):
                self._send_probe(lane, now, decision)
            if lane.state in FLOWING:
                self._fill(lane, now, decision)
            self._wake[name] = self._wake_of(lane, now)
            # Whoever stands first now may suit a lane that did not suit the one before.
            for send in decision.sends[sent_before:]:
                for other in self._entries[send.call].lanes:
                    if other != name and other in self._roomy:
                        pending[other] = None

    def _fill(self, lane: Lane, now: float, decision: Decision) -> None:
        """Send on this lane until it is full or nobody wants it."""
        blocked: set[int] = set()
        while lane.closed_until(now) <= now:
            entry, queue = self._next_for(lane, blocked)
            if entry is None or queue is None:
                return
            if lane.ready_at(entry.call, now) > now or not self._worth_it(entry, lane, queue, now):
                blocked.add(id(queue))
                continue
            self._send(entry, queue, lane, now, decision, probe=False)

    def _next_for(self, lane: Lane, blocked: set[int]) -> tuple[Entry | None, Queue | None]:
        """The most urgent call that may go here, over all queues that know the lane."""
        best: tuple[Entry | None, Queue | None] = (None, None)
        for queue in self._queues_of[lane.name]:
            if id(queue) in blocked or not queue.waiting:
                continue
            head = queue.most_urgent()
            if head is not None and (best[0] is None or head.urgency < best[0].urgency):
                best = (head, queue)
        return best

    def _worth_it(self, entry: Entry, lane: Lane, queue: Queue, now: float) -> bool:
        """Whether the call should take this lane rather than wait for a preferred one."""
        routing = self._settings.routing
        detour = 0.0 if entry.lanes[0] == lane.name else routing.other_lane_cost
        mine = self._cost(lane, detour, now)
        if mine <= 0:
            return True
        # Only a lane that fails noticeably has to be compared with all others; a sound one is only
        # worse than the preferred one.
        rivals = entry.lanes if mine - detour >= _NOTICEABLE else entry.lanes[:1]
        for position, name in enumerate(rivals):
            other = self.lanes[name]
            if other is lane or other.state not in FLOWING:
                continue
            cost = self._cost(other, routing.other_lane_cost if position else 0.0, now)
            if cost < mine and cost + self._expected_wait(other, entry, queue, now) < mine:
                return False
        return True

    def _expected_wait(self, lane: Lane, entry: Entry, queue: Queue, now: float) -> float:
        """How long the call would wait for a lane; short waits are not worth a detour."""
        if lane.ready_at(entry.call, now) <= now:
            return 0.0
        rate = lane.accepts_per_second(now)
        wait = max(queue.waiting / rate if rate > 0 else math.inf, lane.hold_until - now)
        return 0.0 if wait <= self._settings.routing.spill_after else wait

    def _cost(self, lane: Lane, other_lane: float, now: float) -> float:
        errors = min(lane.error_share(now), 0.95)
        return other_lane + self._settings.routing.error_cost * errors / (1 - errors)

    def _send_probe(self, lane: Lane, now: float, decision: Decision) -> None:
        candidates = [
            (entry.urgency, entry, queue)
            for queue in self._queues_of[lane.name]
            if (entry := queue.least_urgent()) is not None
        ]
        if candidates:
            _, entry, queue = max(candidates, key=lambda each: each[0])
            self._send(entry, queue, lane, now, decision, probe=True)

    def _send(
        self, entry: Entry, queue: Queue, lane: Lane, now: float, decision: Decision, *, probe: bool
    ) -> None:
        queue.remove(entry)
        self._launch(entry, lane, now, decision, probe=probe)

    def _launch(
        self, entry: Entry, lane: Lane, now: float, decision: Decision, *, probe: bool
    ) -> None:
        entry.waiting = False
        entry.attempts += 1
        permit = next(self._permits)
        call = entry.call
        stretch = 1.0
        if entry.silences:
            stretch = min(2.0**entry.silences, self._settings.patience.longest_stretch)
        attempt = lane.send(permit, call, now, probe=probe, stretch=stretch)
        self._attempts[permit] = attempt
        self._permit_of[call.id] = permit
        self._watch(attempt)
        decision.sends.append(Send(permit, call.id, lane.name, probe))

    # --- ending ---------------------------------------------------------------------------

    def _react(
        self, attempt: Attempt, failure: Failure, headers: Mapping[str, str], now: float
    ) -> list[str]:
        """Teach the lane; the names of all lanes that have changed."""
        lane = self.lanes[attempt.lane]
        match reaction_to(failure):
            case Reaction.PARK:
                lane.quota_refused(attempt, now)
                return self._park(lane, failure, now)
            case Reaction.THROTTLE:
                lane.throttled(attempt, failure, headers, now)
            case Reaction.OUTAGE:
                lane.failed_hard(attempt, failure, now)
            case Reaction.BROKEN_ANSWER:
                lane.failed_soft(attempt, now)
            case Reaction.CALL:
                lane.dropped(attempt, now)
        return list(attempt.call.lanes)

    def _park(self, lane: Lane, failure: Failure, now: float) -> list[str]:
        reset_at = None if failure.resets_at is None else failure.resets_at.timestamp()
        parked = [
            each
            for each in self.lanes.values()
            if each is lane or (parks_account(failure) and each.account == lane.account)
        ]
        for each in parked:
            each.park(failure, reset_at, now)
        # Whoever waited for these lanes may now go elsewhere.
        return list(self.lanes)

    def _resume_or_refuse(self, attempt: Attempt, failure: Failure, decision: Decision) -> None:
        entry = self._entries.get(attempt.call.id)
        if entry is None:
            return
        alike = entry.last_failure is not None and (
            (entry.last_failure.kind, entry.last_failure.sub) == (failure.kind, failure.sub)
        )
        entry.alike = entry.alike + 1 if alike else 1
        entry.last_failure = failure
        if self._hopeless(entry, attempt, failure):
            self._entries.pop(entry.call.id, None)
            decision.refusals.append(Refuse(entry.call.id, failure))
        else:
            self._queue(entry.lanes).push(entry)

    def _hopeless(self, entry: Entry, attempt: Attempt, failure: Failure) -> bool:
        reaction = reaction_to(failure)
        if reaction is Reaction.PARK:
            return False
        if reaction is Reaction.CALL:
            entry.lanes = tuple(name for name in entry.lanes if name != attempt.lane)
            return not (failure.failover_helps and entry.lanes)
        return not failure.retry_same and entry.alike >= self._settings.routing.identical_failures

    def _give_up_late(self, now: float, decision: Decision) -> list[str]:
        """Abort attempts that have been silent for longer than they may."""
        patience = self._settings.patience
        touched: list[str] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, permit = heapq.heappop(self._deadlines)
            attempt = self._attempts.get(permit)
            if attempt is None:
                continue
            deadline = attempt.deadline(patience)
            if deadline > now:
                heapq.heappush(self._deadlines, (deadline, permit))
                continue
            self._abort(attempt, "it was silent for too long", now, decision)
            touched += attempt.call.lanes
        return touched

    def _give_up_silent_lane(self, lane: Lane, now: float, decision: Decision) -> list[str]:
        """Abort everything on a lane where nothing is heard; the lanes that may take it over."""
        silent = lane.silent_attempts(now) if lane.state in FLOWING else []
        for attempt in silent:
            self._abort(attempt, f"nothing was heard on {lane.name}", now, decision)
        if silent and lane.state in FLOWING:
            lane.break_down(None, now)
        return [name for attempt in silent for name in attempt.call.lanes]

    def _abort(self, attempt: Attempt, why: str, now: float, decision: Decision) -> None:
        self._take(attempt.permit)
        lane = self.lanes[attempt.lane]
        if attempt.confirmed:
            lane.failed_soft(attempt, now)
        else:
            lane.failed_hard(attempt, None, now)
        entry = self._entries.get(attempt.call.id)
        if entry is not None:
            entry.silences += 1
            self._queue(entry.lanes).push(entry)
        decision.aborts.append(Abort(attempt.permit, attempt.call.id, why))

    # --- keeping books --------------------------------------------------------------------

    def _clock(self, now: float) -> float:
        if now <= self._now:
            return self._now
        self._now = now
        return now

    def _queue(self, lanes: tuple[str, ...]) -> Queue:
        queue = self._queues.get(lanes)
        if queue is None:
            queue = self._queues[lanes] = Queue()
            for name in lanes:
                self._queues_of[name].append(queue)
        return queue

    def _take(self, permit: int) -> Attempt | None:
        attempt = self._attempts.pop(permit, None)
        if attempt is not None:
            self._permit_of.pop(attempt.call.id, None)
        return attempt

    def _watch(self, attempt: Attempt) -> None:
        if len(self._deadlines) > _DEADLINES_SPARE + 4 * len(self._attempts):
            # Most belong to attempts that have ended: keep only what is still under way, so that
            # a busy lane does not remember minutes of finished calls.
            patience = self._settings.patience
            self._deadlines = [(e.deadline(patience), e.permit) for e in self._attempts.values()]
            heapq.heapify(self._deadlines)
        deadline = attempt.heard_at + attempt.patience(self._settings.patience)
        heapq.heappush(self._deadlines, (deadline, attempt.permit))

    def _wake_of(self, lane: Lane, now: float) -> float:
        wake = lane.silence_check_at(now)
        if lane.state not in FLOWING:
            self._roomy.discard(lane.name)
            probes = lane.probe is None and self._waited_for(lane.name)
            return min(wake, lane.probe_at) if probes else wake
        closed = lane.closed_until(now)
        if closed > now:
            self._roomy.discard(lane.name)
            return min(wake, closed)
        self._roomy.add(lane.name)
        entry, _ = self._next_for(lane, set())
        if entry is not None:
            at = lane.ready_at(entry.call, now)
            wake = min(wake, at if at > now else now + self._settings.routing.spill_after)
        return wake

    def _done(self, decision: Decision) -> Decision:
        wake = min(self._wake.values())
        if self._deadlines and self._deadlines[0][0] < wake:
            wake = self._deadlines[0][0]
        if wake != math.inf:
            decision.wake_at = max(self._now, wake)
        return decision
