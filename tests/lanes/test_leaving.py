"""Calls whose clients leave soon go before those that can wait, and nobody starves by that.

Rules: (1) virtual time; a client that leaves comes back at once, as an SDK does, and keeps its
place; (2) the order is checked against a plain sorted list, one place at a time.
"""

from __future__ import annotations

import heapq
import math
import random

from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects import TokenUsage
from jackline.lanes import Call, LaneController, LaneDecision, LaneSettings
from jackline.lanes.settings import ConcurrencyWindowSettings, ControllerSettings, KnownLimits
from tests.lane_ids import lane_id

NOW = 1_800_000_000.0
ANSWER_TAKES = 20.0
AGEING = ControllerSettings().routing.ageing


def _controller(parallel: int) -> LaneController:
    return LaneController(
        [LaneSettings(lane_id("opus"), KnownLimits(parallel=parallel))],
        random.Random(3).random,  # noqa: S311 -- a seeded draw, so that traces repeat
        now=NOW,
        settings=ControllerSettings(window=ConcurrencyWindowSettings(start=float(parallel))),
    )


class Clients:
    """150 streams and 24 SDKs without a stream that wait for 60 s, on a lane of 16 places.

    An SDK asks three times at most; the gateway answers "Ask again" at 54 s, and a second later the
    SDK is back.
    """

    TRIES = 3

    def __init__(self, streams: int, sdks: int) -> None:
        self.now = NOW
        self.controller = _controller(16)
        self.events: list[tuple[float, int, str, int, int]] = []
        self.order = 0
        self.lost: set[int] = set()
        self.sent_at: dict[int, float] = {}
        self.ids: dict[int, int] = {}
        self.next_id = 0
        for client in range(streams):
            self.later(0.01 * client, "streams", client)
        for client in range(streams, streams + sdks):
            self.later(2.0, "asks", client)

    def later(self, delay: float, what: str, client: int, number: int = 0) -> None:
        self.order += 1
        heapq.heappush(self.events, (self.now + delay, self.order, what, client, number))

    def run(self) -> None:
        while self.events:
            self.now, _, what, client, number = heapq.heappop(self.events)
            if what == "streams":
                self.submit(client, math.inf, math.inf)
            elif what == "asks":
                leaves_at = self.now + 54.0
                last = number == self.TRIES - 1
                self.submit(client, leaves_at, self.now if last else leaves_at - 15.0)
                self.later(54.0, "leaves", client, number)
            elif what == "leaves":
                self.leave(client, number)
            else:
                self.follow(self.controller.finished(self.now, number, TokenUsage(10, 10)))

    def submit(self, client: int, leaves_at: float, hurries_at: float) -> None:
        self.next_id += 1
        self.ids[self.next_id] = client
        call = Call(
            self.next_id,
            (lane_id("opus"),),
            stream=math.isinf(leaves_at),
            since=NOW + 2.0 if math.isfinite(leaves_at) else None,
            leaves_at=leaves_at,
            hurries_at=hurries_at,
        )
        self.follow(self.controller.submit(self.now, call))

    def leave(self, client: int, number: int) -> None:
        if client in self.sent_at:
            return
        mine = max(call for call, owner in self.ids.items() if owner == client)
        self.follow(self.controller.aborted(self.now, mine))
        if number == self.TRIES - 1:
            self.lost.add(client)
        else:
            self.later(1.0, "asks", client, number + 1)

    def follow(self, decision: LaneDecision) -> None:
        for send in decision.sends:
            self.sent_at[self.ids[send.call]] = self.now - NOW
            self.later(ANSWER_TAKES, "answered", 0, send.permit)


def test_no_sdk_gives_up_behind_streams_that_can_wait() -> None:
    clients = Clients(streams=150, sdks=24)
    clients.run()
    assert not clients.lost
    assert len(clients.sent_at) == 174
    assert max(clients.sent_at.values()) < 174 / 16 * ANSWER_TAKES + ANSWER_TAKES


def test_whoever_comes_back_stands_where_it_stood() -> None:
    controller = _controller(1)
    first = controller.submit(NOW, Call(1, (lane_id("opus"),))).sends
    for number in (2, 3):
        controller.submit(NOW + number, Call(number, (lane_id("opus"),)))
    controller.aborted(NOW + 10, 2)
    controller.submit(NOW + 11, Call(4, (lane_id("opus"),), since=NOW + 2))
    decision = controller.finished(NOW + 12, first[0].permit, TokenUsage(1, 1))
    assert [send.call for send in decision.sends] == [4]


_LEAVES = st.one_of(st.just(math.inf), st.floats(1.0, 60.0))
_CALLS = st.lists(
    st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 50.0), _LEAVES, st.floats(0.0, 30.0)),
    min_size=2,
    max_size=40,
)


@given(calls=_CALLS, answer_takes=st.floats(0.1, 5.0))
def test_the_order_is_by_urgency_but_for_every_second_one_that_hurries(
    calls: list[tuple[float, float, float, float]], answer_takes: float
) -> None:
    """And who has no deadline alone is sent exactly by urgency."""
    controller, now = _controller(1), NOW
    permit = controller.submit(now, Call(0, (lane_id("opus"),))).sends[0].permit
    waiting: dict[int, tuple[float, float, float]] = {}
    for number, (later, remaining, leaves, ahead) in enumerate(calls, start=1):
        now += later
        leaves_at = now + leaves
        call = Call(
            number, (lane_id("opus"),), remaining, leaves_at=leaves_at, hurries_at=leaves_at - ahead
        )
        assert not controller.submit(now, call).sends
        waiting[number] = (AGEING * now - remaining, leaves_at, leaves_at - ahead)
    owes = False
    while waiting:
        now += answer_takes
        (send,) = controller.finished(now, permit, TokenUsage(1, 1)).sends
        permit = send.permit
        hurry = [number for number in waiting if waiting[number][2] <= now]
        if hurry and not owes:
            expected = min(hurry, key=lambda number: (waiting[number][1], number))
            owes = True
        else:
            expected = min(waiting, key=lambda number: (waiting[number][0], number))
            owes = False
        assert send.call == expected
        del waiting[send.call]


@given(leaves=st.lists(st.floats(3.0, 40.0), min_size=1, max_size=8), streams=st.integers(0, 30))
def test_all_deadlines_are_met_where_every_second_place_suffices(
    leaves: list[float], streams: int
) -> None:
    """One place, a second for each answer: every other one may go to those that leave."""
    due = sorted(2.0 * position + leave for position, leave in enumerate(leaves))
    controller, now = _controller(1), NOW
    permit = controller.submit(now, Call(0, (lane_id("opus"),))).sends[0].permit
    for number in range(1, streams + 1):
        controller.submit(now, Call(number, (lane_id("opus"),), remaining=1e6))
    for number, leave in enumerate(due, start=1000):
        leaves_at = now + leave
        controller.submit(
            now, Call(number, (lane_id("opus"),), leaves_at=leaves_at, hurries_at=now)
        )
    waiting = streams + len(due)
    while waiting:
        now += 1.0
        (send,) = controller.finished(now, permit, TokenUsage(1, 1)).sends
        permit = send.permit
        waiting -= 1
        if send.call >= 1000:
            assert now <= NOW + due[send.call - 1000]


def test_a_large_call_whose_client_leaves_makes_nobody_wait_until_it_can_be_paid_for() -> None:
    limits = KnownLimits(input_tokens_per_minute=60_000)
    controller = LaneController([LaneSettings(lane_id("opus"), limits)], lambda: 0.5, now=NOW)
    controller.lanes[lane_id("opus")].buckets["input"].correct(0.0, NOW)
    for number in range(1, 6):
        call = Call(number, (lane_id("opus"),), input_tokens=1_000)
        assert not controller.submit(NOW, call).sends
    large = Call(9, (lane_id("opus"),), input_tokens=60_000, leaves_at=NOW + 60, hurries_at=NOW)
    decision = controller.submit(NOW, large)
    sent: list[int] = []
    now = NOW
    while now < NOW + 20:
        assert decision.wake_at is not None
        now = max(now + 0.01, decision.wake_at)
        decision = controller.tick(now)
        sent += [send.call for send in decision.sends]
    assert sent[:5] == [1, 2, 3, 4, 5]
