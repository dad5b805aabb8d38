"""What holds for the controller whatever happens: its invariants, under any sequence of events."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jackline.dialects import TokenUsage
from jackline.failures import Failure, Kind
from jackline.lane_id import LaneId
from jackline.lanes import Call, LaneController, LaneDecision, LaneSettings
from jackline.lanes.breaker import FLOWING
from jackline.lanes.lane import Lane
from jackline.states import LaneState
from tests.lanes import failures_made as made

LANES = (
    LaneId("up", "opus", "a"),
    LaneId("elsewhere", "opus", "b"),
    LaneId("up", "haiku", "a"),
)
FAILURES: dict[str, Callable[[float], Failure]] = {
    "throttled": lambda _: made.throttled(),
    "throttled for a while": lambda _: made.throttled(20),
    "overloaded": lambda _: made.overloaded(),
    "server error": lambda _: made.server_error(),
    "declined": lambda _: made.declined(),
    "broken stream": lambda _: made.broken_stream(),
    "invalid": lambda _: made.invalid(),
    "bad key": lambda _: made.bad_key(),
    "wall": lambda now: made.wall(now, 3600),
    "blind wall": lambda now: made.wall(now, None),
}
LYING_HEADERS: tuple[dict[str, str], ...] = (
    {},
    {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "0",
    },
    {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "9999999",
        "anthropic-ratelimit-input-tokens-limit": "10",
        "anthropic-ratelimit-input-tokens-remaining": "junk",
    },
    {
        "anthropic-ratelimit-input-tokens-limit": "1000",
        "anthropic-ratelimit-input-tokens-remaining": "1000",
    },
)


class Lanes(RuleBasedStateMachine):
    """A world that does to the controller whatever it likes, and watches what it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = made.START
        self.controller = LaneController(
            [LaneSettings(lane) for lane in LANES],
            random.Random(7).random,  # noqa: S311 -- a seeded draw, so that traces repeat
            now=self.now,
        )
        self.next_call = 0
        self.alive: set[int] = set()
        self.ended: set[int] = set()
        self.flying: dict[int, tuple[int, LaneId]] = {}
        self.closed: list[int] = []
        self.resets: dict[LaneId, float] = {}
        self.decreases: dict[str, int] = {}

    def follow(self, decision: LaneDecision) -> None:
        """Carry out a decision and hold it to the laws."""
        for abort in decision.aborts:
            assert self.flying.pop(abort.permit)[0] == abort.call
            self.closed.append(abort.permit)
            assert abort.why
        for permit in decision.hang_ups:
            call, _ = self.flying.pop(permit)
            self.closed.append(permit)
            others = [p for p, (c, _) in self.flying.items() if c == call]
            assert others or call in self.ended or call in {send.call for send in decision.sends}, (
                "hung up on the only attempt of a call"
            )
        for refusal in decision.refusals:
            assert refusal.call in self.alive
            assert not refusal.failure.retry_same, "a retryable failure was surfaced"
            assert refusal.failure.kind is not Kind.ACCOUNT_QUOTA
            self.alive.discard(refusal.call)
            self.ended.add(refusal.call)
        for send in decision.sends:
            lane = self.controller.lanes[send.lane]
            assert send.call in self.alive, "a finished call was sent again"
            copies = sum(call == send.call for call, _ in self.flying.values())
            assert copies == send.beside, "at most two attempts, and the second is said to be one"
            assert send.probe or lane.state in FLOWING, "traffic on a lane that is not open"
            assert self.now >= self.resets.get(send.lane, 0.0), "sent before an announced reset"
            self.flying[send.permit] = (send.call, send.lane)
            if not send.probe:
                self.check_admission(lane)
        assert decision.wake_at is None or decision.wake_at >= self.controller._now

    def check_admission(self, lane: Lane) -> None:
        """What must hold of a lane that has just been sent something other than a probe."""
        now = self.controller._now
        assert now >= lane.hold_until, "sent inside a hold"
        assert lane.busy <= lane.limit(now), "more in flight than the window allows"
        if lane.episode.refusals:
            just_sent = [
                each
                for each in lane.attempts.values()
                if not each.confirmed and not each.doubted and now - each.sent_at < 5
            ]
            assert len(just_sent) <= 1, "two sends at once in a throttle episode"

    @rule(
        count=st.integers(1, 12),
        lanes=st.sampled_from([LANES[:1], LANES[:2], LANES[2:], LANES]),
        remaining=st.floats(0, 1000),
        tokens=st.sampled_from([0, 500, 5_000, 150_000]),
        stream=st.booleans(),
        leaves=st.sampled_from([math.inf, 5.0, 60.0, 250.0]),
        hurries=st.sampled_from([0.0, 15.0, 250.0]),
    )
    def submit(
        self,
        count: int,
        lanes: tuple[LaneId, ...],
        remaining: float,
        tokens: int,
        leaves: float,
        hurries: float,
        *,
        stream: bool,
    ) -> None:
        for _ in range(count):
            self.next_call += 1
            self.alive.add(self.next_call)
            leaves_at = self.now + leaves
            call = Call(
                self.next_call,
                lanes,
                remaining,
                tokens,
                1000,
                stream,
                leaves_at=leaves_at,
                hurries_at=leaves_at - hurries,
            )
            self.follow(self.controller.submit(self.now, call))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), headers=st.sampled_from(LYING_HEADERS))
    def first_byte(self, data: st.DataObject, headers: dict[str, str]) -> None:
        permit = data.draw(st.sampled_from(sorted(self.flying)))
        self.follow(self.controller.first_byte(self.now, permit, headers))

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def received(self, data: st.DataObject) -> None:
        permit = data.draw(st.sampled_from(sorted(self.flying)))
        begun, committed = data.draw(st.sampled_from([(False, False), (True, False), (True, True)]))
        decision = self.controller.received(self.now, permit, begun=begun, committed=committed)
        if decision is not None:
            self.follow(decision)

    @rule(seconds=st.sampled_from([0.5, 3.0, 100.0]))
    def process_stands_still(self, seconds: float) -> None:
        self.now += seconds
        self.controller.stood_still(self.now, seconds)
        self.follow(self.controller.tick(self.now))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), output=st.integers(0, 100_000))
    def finished(self, data: st.DataObject, output: int) -> None:
        permit = data.draw(st.sampled_from(sorted(self.flying)))
        call, _ = self.flying.pop(permit)
        self.closed.append(permit)
        self.alive.discard(call)
        self.ended.add(call)
        self.follow(self.controller.finished(self.now, permit, TokenUsage(1000, output)))

    @precondition(lambda self: self.flying)
    @rule(
        data=st.data(),
        name=st.sampled_from(sorted(FAILURES)),
        headers=st.sampled_from(LYING_HEADERS),
    )
    def failed(self, data: st.DataObject, name: str, headers: dict[str, str]) -> None:
        permit = data.draw(st.sampled_from(sorted(self.flying)))
        _, lane = self.flying.pop(permit)
        self.closed.append(permit)
        failure = FAILURES[name](self.now)
        if failure.resets_at is not None:
            account = lane.account
            for each in self.controller.lanes.values():
                if each.id.account == account:
                    self.resets[each.id] = failure.resets_at.timestamp()
        known = self.controller.lanes[lane]
        in_episode, size = known.episode.refusals > 0, known.window.size
        decision = self.controller.failed(self.now, permit, failure, headers)
        if in_episode and known.episode.refusals > 1:
            assert known.window.size == size, "the window shrank twice in one episode"
        self.follow(decision)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def caller_leaves(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(sorted(self.alive)))
        self.alive.discard(call)
        self.ended.add(call)
        for permit in [p for p, (c, _) in self.flying.items() if c == call]:
            del self.flying[permit]
            self.closed.append(permit)
        self.follow(self.controller.aborted(self.now, call))

    @precondition(lambda self: self.closed)
    @rule(data=st.data(), name=st.sampled_from(sorted(FAILURES)))
    def late_and_repeated_reports(self, data: st.DataObject, name: str) -> None:
        permit = data.draw(st.sampled_from(self.closed))
        before = (self.controller.calls_waiting, self.controller.calls_in_flight)
        self.controller.received(self.now, permit)
        for decision in (
            self.controller.first_byte(self.now, permit),
            self.controller.finished(self.now, permit, TokenUsage()),
            self.controller.failed(self.now, permit, FAILURES[name](self.now)),
        ):
            assert not decision.sends
            assert not decision.refusals
            assert not decision.hang_ups
        assert before == (self.controller.calls_waiting, self.controller.calls_in_flight)

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 5.0, 9.0, 30.0, 400.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.follow(self.controller.tick(self.now))

    @rule(back=st.floats(0.1, 10_000))
    def clock_jumps_back(self, back: float) -> None:
        self.follow(self.controller.tick(self.now - back))

    @invariant()
    def every_call_is_waiting_or_flying(self) -> None:
        assert self.controller.calls_in_flight == len(self.flying)
        flying = {call for call, _ in self.flying.values()}
        assert self.controller.calls_waiting == len(self.alive) - len(flying)
        room, entries = self.controller._queues, self.controller._entries.values()
        queued = sum(queue.waiting for queue in room.queues.values())
        resting = sum(entry.rests_until is not None for entry in entries)
        assert room.beside <= flying, "only who is in flight stands in line beside"
        assert self.controller.calls_waiting == queued + resting - len(room.beside), (
            "whoever is not in flight stands in a queue or rests"
        )

    @invariant()
    def lanes_keep_within_their_limits(self) -> None:
        for lane in self.controller.lanes.values():
            assert lane.window.size >= 1
            counted = [a for a in lane.attempts.values() if not (a.doubted or a.lent)]
            unheard = [a for a in counted if not a.confirmed]
            asking = [a for a in unheard if a.probe]
            assert len(asking) <= 1, "two probes at once"
            assert lane.probe == (asking[0].permit if asking else None)
            assert lane._unconfirmed == len(unheard)
            assert lane.busy == len(counted)
            if lane.state is LaneState.PARKED and lane.reset_at is not None:
                assert lane.probe_at >= lane.reset_at, "a probe is planned before the reset"

    @invariant()
    def whoever_waits_is_told_why(self) -> None:
        for call in list(self.alive)[:3]:
            told = self.controller.waiting(self.now, call)
            flying = call in {c for c, _ in self.flying.values()}
            assert (told is None) == flying
            assert told is None or told.why

    def teardown(self) -> None:
        """Once the world heals, everything gets done: nothing starves, leaks or hangs."""
        for _ in range(4 * (len(self.alive) + 100)):
            if not self.alive:
                break
            for permit, (call, _) in list(self.flying.items()):
                if permit not in self.flying:
                    continue  # the other attempt was heard first
                self.follow(self.controller.first_byte(self.now, permit))
                self.flying.pop(permit)
                self.alive.discard(call)
                self.ended.add(call)
                self.follow(self.controller.finished(self.now, permit, TokenUsage(10, 10)))
            decision = self.controller.tick(self.now)
            self.follow(decision)
            if not self.flying and self.alive:
                assert decision.wake_at is not None, "calls wait and nothing will ever wake them"
                self.now = max(self.now + 0.001, decision.wake_at)
        assert not self.alive
        assert self.controller.calls_waiting == 0
        assert self.controller.calls_in_flight == 0
        assert all(not lane.attempts for lane in self.controller.lanes.values())


Lanes.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestLanes = Lanes.TestCase
