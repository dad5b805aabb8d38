"""Whatever is done to the clock: no lane opens early or late, nobody is refused, nothing is odd."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.dialects import TokenUsage
from jackline.events import AttemptFailed, CallEnded
from jackline.failures import Failure, Observation, classify
from jackline.gateway.settings import GatewaySettings, HoldSettings
from jackline.lanes import Call, LaneController, LaneDecision, LaneSettings
from jackline.lanes.settings import KnownLimits
from jackline.testing import Step
from jackline.testing.scripted_upstream import STREAMED
from tests.attacks.test_clock import GOOD, numbers_in, status, throttle
from tests.gateway.desk_world import THROTTLED, World, play
from tests.lane_ids import lane_id

TEN_YEARS = 10 * 365 * 86_400.0
START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC).timestamp()
# A probe keeps one to three seconds from a reset.
MARGIN = 3.5
LIMIT_WORDS = (
    b'{"type":"error","error":{"type":"rate_limit_error",'
    b'"message":"You\'ve hit your session limit"}}'
)

jumps = st.one_of(
    st.floats(-TEN_YEARS, TEN_YEARS),
    st.floats(-7200, 7200),
    st.sampled_from([-86_400.0, -3600.0, -1.0, 1.0, 3600.0, 86_400.0]),
)
sleeps = st.one_of(st.floats(1, 40_000), st.sampled_from([60.0, 3600.0, 30_000.0]))


class Oracle:
    """One lane that carries one call at a time, and what its vendor has said last."""

    def __init__(self) -> None:
        self.line, self.ahead, self.slept = START, 0.0, 0.0
        given = LaneSettings(lane_id("lane"), KnownLimits(parallel=1))
        self.controller = LaneController([given], lambda: 0.5, now=self.line)
        self.calls = 0
        self.permit: int | None = None
        # By the vendor nothing may be sent before this: a date, or a moment of real time.
        self.date: float | None = None
        self.real: float | None = None
        self.free_since: float | None = None
        self.longest_pause = MARGIN

    @property
    def wall(self) -> float:
        return self.line + self.ahead

    @property
    def elapsed(self) -> float:
        """Real seconds, in sleep too."""
        return self.line + self.slept

    def note(self) -> None:
        """Whether what the vendor has said is over by now."""
        if self.date is not None and self.wall >= self.date:
            self.date = None
        if self.real is not None and self.elapsed >= self.real:
            self.real = None
        if self.date is None and self.real is None:
            self.free_since = self.line if self.free_since is None else self.free_since
        else:
            self.free_since = None

    def heed(self, decision: LaneDecision) -> None:
        assert not decision.refusals, "nobody is refused because of time"
        assert not decision.aborts
        for send in decision.sends:
            assert self.permit is None
            assert self.date is None or self.wall >= self.date - 0.001, "sent before the date"
            assert self.real is None or self.elapsed >= self.real - 0.001, "sent before its time"
            self.permit = send.permit
        if decision.wake_at is not None:
            assert math.isfinite(decision.wake_at)

    def ask(self) -> None:
        self.calls += 1
        self.heed(self.controller.submit(self.line, Call(self.calls, (lane_id("lane"),))))

    def answer(self, how: str, seconds: float) -> None:
        """The call in flight is answered in some way."""
        if self.permit is None:
            return
        permit, self.permit = self.permit, None
        if how == "good":
            self.heed(self.controller.finished(self.line, permit, TokenUsage(10, 10)))
            return
        failure = self.failure(how, seconds)
        self.free_since = None
        if how == "date" and failure.resets_at is not None:
            self.date = failure.resets_at.timestamp()
            self.longest_pause = MARGIN
        else:
            self.real = self.elapsed + seconds
            # A probe that is throttled is followed by another after five minutes at most.
            self.longest_pause = MARGIN if how == "wait" else max(340.0, 16 * 1.1 * seconds)
        if how == "date":
            self.note()  # a date may have passed already by this clock: then blind probes follow
            if self.date is None:
                self.longest_pause = 400.0
        self.heed(self.controller.failed(self.line, permit, failure))

    def failure(self, how: str, seconds: float) -> Failure:
        headers = {"retry-after": f"{seconds:.0f}"}
        body = LIMIT_WORDS
        if how == "throttle":
            body = THROTTLED.body
        elif how == "date":
            resets = math.ceil(self.wall + seconds)
            headers = {
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-representative-claim": "five_hour",
                "anthropic-ratelimit-unified-reset": str(resets),
            }
        now = datetime.fromtimestamp(self.wall, UTC)
        return classify(Observation.of_response(429, headers, body), now=now)

    def pass_time(self, seconds: float) -> None:
        """In small steps: whoever waits is sent at the latest when the vendor allows it.

        Whatever is in flight is answered at once: an attempt that is silent would be given up.
        """
        steps = min(60, max(1, math.ceil(seconds)))
        for _ in range(steps):
            while self.permit is not None:
                self.answer("good", 0.0)
            self.line += seconds / steps
            self.note()
            self.heed(self.controller.tick(self.line))
            waits = self.controller.calls_waiting and not self.controller.calls_in_flight
            if waits and self.free_since:
                late = self.line - self.free_since - seconds / steps
                assert late <= self.longest_pause, "closed for longer than asked"

    def jump(self, seconds: float) -> None:
        self.ahead += seconds
        self.note()
        self.heed(self.controller.follow_clock(self.line, self.ahead))

    def sleep(self, seconds: float) -> None:
        self.ahead += seconds
        self.slept += seconds
        self.note()
        self.heed(self.controller.follow_clock(self.line, self.ahead, seconds))


acts = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.just(0.0)),
        st.tuples(st.just("good"), st.just(0.0)),
        st.tuples(st.sampled_from(["date", "wait"]), st.integers(130, 20_000).map(float)),
        st.tuples(st.just("throttle"), st.integers(1, 100).map(float)),
        st.tuples(st.just("pass"), st.floats(0.1, 30_000)),
        st.tuples(st.just("jump"), jumps),
        st.tuples(st.just("sleep"), sleeps),
    ),
    max_size=40,
)


@given(acts)
@settings(max_examples=300)
def test_a_lane_is_closed_for_as_long_as_its_vendor_asked_and_no_longer(
    played: list[tuple[str, float]],
) -> None:
    oracle = Oracle()
    oracle.ask()
    for what, number in played:
        if what == "ask":
            oracle.ask()
        elif what == "pass":
            oracle.pass_time(number)
        elif what == "jump":
            oracle.jump(number)
        elif what == "sleep":
            oracle.sleep(number)
        else:
            oracle.answer(what, number)
    lane = oracle.controller.lanes[lane_id("lane")]
    if lane.reset_at is not None and oracle.date is not None:
        date = oracle.controller.date_of(lane.reset_at)
        assert date is not None
        assert abs(date - oracle.date) < 1e-3, "the date is the vendor's, whatever was done"


def _step(kind: str) -> Step:
    if kind == "good":
        return GOOD
    if kind == "throttle":
        return throttle(5)
    return Step(status=429, headers={"retry-after": "300"}, body=LIMIT_WORDS, after=0.2)


@given(
    st.lists(st.sampled_from(["good", "throttle", "wall"]), max_size=6),
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.just(0.0)),
            st.tuples(st.just("pass"), st.floats(0.5, 40)),
            st.tuples(st.just("jump"), jumps),
            st.tuples(st.just("sleep"), sleeps),
        ),
        min_size=1,
        max_size=10,
    ),
)
@settings(max_examples=40, deadline=None)
def test_every_call_is_answered_and_all_that_is_told_makes_sense(
    script: list[str], played: list[tuple[str, float]]
) -> None:
    told: list[Any] = []

    async def scene(world: World) -> None:
        clients = [world.ask(agent="first")]
        for number, (what, seconds) in enumerate(played):
            if what == "ask":
                clients.append(world.ask(agent=f"a{number}"))
            elif what == "pass":
                await world.pass_time(seconds)
            elif what == "jump":
                world.clock.jump_wall(seconds)
            else:
                world.clock.suspend(seconds)
            told.append((world.clock.wall(), status(world)))
        await world.until_over(*clients, longest=4000)
        assert {client.status for client in clients} == {200}
        assert all(client.body.endswith(STREAMED) for client in clients)

    hold = GatewaySettings(hold=HoldSettings(until_reset=True))
    world = play([*map(_step, script), GOOD], scene, hold)
    # However long it lasted in all, that is how long nobody can have waited for more.
    longest = world.clock.monotonic()
    for event in world.events:
        assert all(map(math.isfinite, numbers_in(event)))
        if isinstance(event, CallEnded):
            assert 0 <= event.waited <= event.took + 0.001
            assert event.took <= longest + 0.001
        elif isinstance(event, AttemptFailed):
            assert 0 <= event.took <= longest + 0.001
    for wall, shown in told:
        assert all(map(math.isfinite, numbers_in(shown)))
        assert abs(shown["at"] - wall) < 0.001  # told in microseconds
        for call in shown["waiting"]:
            assert -0.001 <= wall - call["since"] <= longest + 0.001


@given(st.lists(jumps, max_size=8), st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_the_order_of_the_line_stays_what_it_was(moves: list[float], size: int) -> None:
    """Those who wait for a lane that is closed are sent in the order in which they came."""

    async def scene(world: World) -> None:
        first = world.ask("first", session="s0")
        await world.pass_time(1)
        clients = []
        for number in range(size):
            clients.append(world.ask(f"n{number}", session=f"s{number + 1}"))
            await world.pass_time(2)
            for move in moves[number::size]:
                world.clock.jump_wall(move)
        await world.until_over(first, *clients, longest=600)
        bodies = [bytes(message.body) for message in world.upstream.messages]
        asked = [next(i for i, b in enumerate(bodies) if b'"n%d"' % n in b) for n in range(size)]
        assert asked == sorted(asked)

    limits = KnownLimits(parallel=1)
    assert limits.parallel == 1
    play([throttle(60), GOOD], scene)


def test_the_oracle_notices_a_lane_that_opens_too_early() -> None:
    """The test of the test: dates that do not follow the clock are found out."""
    oracle = Oracle()
    oracle.ask()
    oracle.answer("date", 600.0)
    oracle.ahead -= 3600.0  # nobody tells the controller
    noticed = False
    try:
        oracle.pass_time(700.0)
    except AssertionError:
        noticed = True
    assert noticed
    assert timedelta(seconds=oracle.line - START) >= timedelta(seconds=600)
