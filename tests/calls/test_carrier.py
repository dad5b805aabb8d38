"""A call is carried to its end whatever the upstream does, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.calls import CallManager, CallRequest, Cap, HoldLimits
from jackline.calls.request import CallCompletion
from jackline.clock import VirtualClock
from jackline.lane_id import LaneId
from jackline.lanes import Call, LaneController, LaneDecision, LaneSettings
from jackline.testing import ScriptedUpstream, Step
from jackline.testing.scripted_upstream import ScriptedAttempt
from jackline.upstream.interface import ResponseHandler, UpstreamRequest
from tests.calls.whole_answer import (
    CallAnswer,
    CallRefusedError,
    _Collector,
    complete_call,
    in_words,
)
from tests.lane_ids import lane_id

START = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
OVERLOADED = Step(status=529, body=b'{"type":"error","error":{"type":"overloaded_error"}}')
THROTTLED = Step(
    status=429,
    body=b'{"type":"error","error":{"type":"rate_limit_error","message":"Rate limited"}}',
)
BROKEN = Step(status=500, body=b"{}")
INVALID = Step(
    status=400,
    body=json.dumps(
        {"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}}
    ).encode(),
)
WALL = Step(
    status=429,
    headers={
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-reset": str(int(START.timestamp()) + 3600),
    },
)
GOOD = Step()


def by_lane(scripts: Mapping[str, Sequence[Step]]) -> dict[LaneId, Sequence[Step]]:
    return {lane_id(name): steps for name, steps in scripts.items()}


class World:
    """A carrier on a virtual clock, with three lanes and a scripted upstream."""

    def __init__(self, scripts: dict[str, Sequence[Step]]) -> None:
        self.clock = VirtualClock(START)
        self.upstream = ScriptedUpstream(self.clock, by_lane(scripts))
        lanes = [LaneSettings(lane_id(name)) for name in ("first", "second", "third")]
        draw = random.Random(3).random  # noqa: S311 -- seeded, so that tests repeat
        self.controller = LaneController(lanes, draw, now=START.timestamp())
        self.carrier = CallManager(self.controller, self.upstream, self.clock)

    @property
    def attempts(self) -> list[str]:
        """The lanes of all attempts, by name."""
        return [lane.upstream for lane in self.upstream.attempts]

    def call(self, *lanes: str, hold: HoldLimits | None = None) -> asyncio.Task[CallAnswer]:
        request = CallRequest(
            "jl_test",
            UpstreamRequest(b"POST", b"/v1/messages", (), b"{}"),
            Call(0, tuple(map(lane_id, lanes or ("first",))), input_tokens=100, max_tokens=100),
            hold=hold or HoldLimits(),
        )
        return asyncio.create_task(complete_call(self.carrier, request))

    async def until_done(
        self, tasks: Sequence[asyncio.Task[CallAnswer]], longest: float = 8000
    ) -> None:
        waited = 0.0
        while not all(task.done() for task in tasks):
            assert waited < longest, "it takes too long"
            await self.clock.advance(0.5)
            waited += 0.5


def play(scripts: dict[str, Sequence[Step]], scene: Callable[[World], Awaitable[None]]) -> World:
    """Run a scene, and check that it leaves nothing behind."""

    async def whole() -> World:
        world = World(scripts)
        async with world.carrier:
            await scene(world)
            assert world.carrier.under_way == 0
        assert world.upstream.open_now == 0
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, "tasks were left behind"
        return world

    return asyncio.run(whole())


@pytest.mark.parametrize(
    "trouble",
    [
        [OVERLOADED],
        [THROTTLED] * 3,
        [BROKEN],
        [Step(breaks=ConnectionRefusedError(111, "Connection refused"))],
        [Step(breaks=TimeoutError("timed out"))],
        [Step(truncated=True)],
        [Step(cut=500)],
        [Step(silent=True)],
        [OVERLOADED, BROKEN, THROTTLED, Step(silent=True)],
    ],
    ids=lambda steps: "+".join(str(step.status) for step in steps),
)
def test_trouble_that_passes_is_never_seen_by_the_caller(trouble: list[Step]) -> None:
    async def scene(world: World) -> None:
        task = world.call()
        await world.until_done([task])
        answer = task.result()
        assert answer.body == GOOD.says
        assert len(answer.attempts) == len(trouble)
        assert all(in_words(told, 1) for told in answer.attempts)

    play({"first": [*trouble, GOOD]}, scene)


def test_one_throttled_call_does_not_disturb_its_siblings() -> None:
    async def scene(world: World) -> None:
        tasks = [world.call() for _ in range(30)]
        await world.until_done(tasks)
        assert all(task.result().body == GOOD.says for task in tasks)

    world = play({"first": [THROTTLED, OVERLOADED, *[GOOD] * 100]}, scene)
    assert len(world.upstream.attempts) == 32


def test_a_wall_stops_everything_and_all_goes_on_by_itself_at_the_reset() -> None:
    async def scene(world: World) -> None:
        tasks = [world.call() for _ in range(20)]
        await world.clock.advance(1800)
        sent_into_the_wall = len(world.upstream.attempts)
        assert sent_into_the_wall <= 8, "only what was in flight"
        waiting = world.controller.waiting(world.clock.now().timestamp(), 20)
        assert waiting is not None
        assert waiting.until == START.timestamp() + 3600
        assert "parked" in waiting.why
        await world.until_done(tasks)
        assert world.clock.monotonic() >= 3600
        assert all(task.result().body == GOOD.says for task in tasks)

    play({"first": [*[WALL] * 8, GOOD]}, scene)


def test_an_outage_moves_calls_to_the_other_lane() -> None:
    async def scene(world: World) -> None:
        tasks = [world.call("first", "second") for _ in range(20)]
        await world.until_done(tasks, longest=120)
        assert {task.result().lane for task in tasks} == {lane_id("second")}

    play({"first": [BROKEN]}, scene)


def test_a_hopeless_request_fails_once_with_its_cause_and_its_story() -> None:
    async def scene(world: World) -> None:
        task = world.call()
        await world.until_done([task], longest=60)
        with pytest.raises(CallRefusedError) as caught:
            task.result()
        assert "cannot accept" in caught.value.message
        assert caught.value.attempts == (
            "attempt 1 on first: a request that the API cannot accept, after 1 s",
        )

    world = play({"first": [INVALID]}, scene)
    assert len(world.upstream.attempts) == 1


def test_a_reset_farther_away_than_allowed_is_told_at_once_with_its_hour() -> None:
    async def scene(world: World) -> None:
        task = world.call(hold=HoldLimits(quota=60))
        await world.until_done([task], longest=2)
        with pytest.raises(CallRefusedError) as caught:
            task.result()
        assert "parked" in caught.value.message
        assert caught.value.retry_at is not None
        assert caught.value.retry_at.timestamp() == START.timestamp() + 3600

    play({"first": [WALL]}, scene)


def test_whoever_comes_to_a_known_wall_hears_of_it_without_a_request() -> None:
    async def scene(world: World) -> None:
        first = world.call(hold=HoldLimits(quota=60))
        await world.until_done([first], longest=2)
        late = world.call(hold=HoldLimits(quota=60))
        await world.until_done([late], longest=1)
        assert isinstance(late.exception(), CallRefusedError)
        assert isinstance(first.exception(), CallRefusedError)

    world = play({"first": [WALL]}, scene)
    assert len(world.upstream.attempts) == 1


def test_any_other_wait_ends_when_it_is_longer_than_allowed() -> None:
    async def scene(world: World) -> None:
        task = world.call(hold=HoldLimits(other=60))
        while not task.done():
            assert world.clock.monotonic() < 100
            await world.clock.advance(1)
            world.carrier.review()
        with pytest.raises(CallRefusedError):
            task.result()
        assert world.clock.monotonic() >= 60

    play({"first": [THROTTLED]}, scene)


def test_a_cancelled_caller_frees_its_place_at_once() -> None:
    async def scene(world: World) -> None:
        tasks = [world.call() for _ in range(12)]
        await world.clock.advance(0.1)
        assert world.upstream.open_now == 8
        for task in tasks[:8]:
            task.cancel()
        await world.clock.advance(0)
        assert world.upstream.open_now == 4, "those who waited took the places"
        await world.until_done(tasks)
        assert [task.cancelled() for task in tasks] == [True] * 8 + [False] * 4

    play({}, scene)


def test_a_fault_in_our_own_code_ends_its_call_and_no_other() -> None:
    class Trapped(ScriptedUpstream):
        def start(
            self, message: UpstreamRequest, lane: LaneId, ear: ResponseHandler
        ) -> ScriptedAttempt:
            if lane == lane_id("second"):
                raise ZeroDivisionError
            return super().start(message, lane, ear)

    async def scene(world: World) -> None:
        world.carrier._upstream = Trapped(world.clock)
        good, bad = world.call(), world.call("second")
        await world.until_done([good, bad], longest=10)
        assert good.result().body == GOOD.says
        with pytest.raises(CallRefusedError, match="ZeroDivisionError"):
            bad.result()

    play({}, scene)


def test_a_cap_lets_only_so_many_of_its_key_be_under_way() -> None:
    async def scene(world: World) -> None:
        def capped(key: str) -> asyncio.Task[CallAnswer]:
            message = UpstreamRequest(b"POST", b"/v1/messages", (), b"{}")
            cap = ((("session", key), 2),)
            return asyncio.create_task(
                complete_call(
                    world.carrier,
                    CallRequest("jl_test", message, Call(0, (lane_id("first"),)), caps=cap),
                )
            )

        tasks = [capped("a") for _ in range(5)] + [capped("b")]
        await world.clock.advance(0.1)
        assert world.upstream.open_now == 3
        assert world.carrier.calls_waiting == 3
        tasks[0].cancel()
        tasks[4].cancel()
        await world.until_done(tasks, longest=10)
        assert [task.cancelled() for task in tasks] == [True, False, False, False, True, False]

    play({}, scene)


@settings(max_examples=40)
@given(
    first=st.lists(
        st.sampled_from(
            [
                OVERLOADED,
                THROTTLED,
                BROKEN,
                GOOD,
                Step(silent=True),
                Step(truncated=True),
                Step(cut=700),
            ]
        ),
        max_size=12,
    ),
    calls=st.integers(1, 15),
    leavers=st.sets(st.integers(0, 14), max_size=4),
)
def test_nothing_leaks_and_everyone_is_answered(
    first: list[Step], calls: int, leavers: set[int]
) -> None:
    async def scene(world: World) -> None:
        tasks = [world.call("first", "second") for _ in range(calls)]
        await world.clock.advance(1)
        for leaver in leavers:
            if leaver < calls:
                tasks[leaver].cancel()
        await world.until_done(tasks)
        for number, task in enumerate(tasks):
            if number not in leavers:
                assert task.result().usage.output_tokens > 0

    play({"first": [*first, GOOD]}, scene)


class BreakingController(LaneController):
    """Fails in our own code after a call was registered, once it is told to."""

    breaks = False

    def submit(self, now: float, call: Call) -> LaneDecision:
        decision = super().submit(now, call)
        if self.breaks:
            raise OverflowError("made by this test")
        return decision


@pytest.mark.parametrize("caps", [(), ((("tag", "t"), 1),)], ids=["free", "capped"])
@pytest.mark.parametrize("waits", [False, True], ids=["sent", "waiting"])
def test_a_call_that_cannot_be_taken_on_leaves_nothing_behind(
    caps: tuple[Cap, ...], waits: bool
) -> None:
    async def main() -> None:
        clock = VirtualClock(START)
        upstream = ScriptedUpstream(clock, by_lane({"first": [GOOD] * 9}))
        controller = BreakingController(
            [LaneSettings(lane_id("first"))], lambda: 0.5, now=START.timestamp()
        )
        carrier = CallManager(controller, upstream, clock)
        request = CallRequest(
            "jl_test",
            UpstreamRequest(b"POST", b"/v1/messages", (), b"{}"),
            Call(0, (lane_id("first"),)),
            caps=caps,
        )
        async with carrier:
            carrier.pause_lane(lane_id("first"), paused=waits)
            controller.breaks = True
            for _ in range(3):
                with pytest.raises(OverflowError):
                    await complete_call(carrier, request)
                assert carrier.under_way == 0
            controller.breaks = False
            carrier.pause_lane(lane_id("first"), paused=False)
            task = asyncio.create_task(complete_call(carrier, request))
            for _ in range(100):
                await clock.advance(0.5)
            assert (await task).body == GOOD.says
            assert carrier.under_way == 0

    asyncio.run(main())


def test_a_receiver_that_fails_costs_no_permit() -> None:
    class Failing(_Collector):
        def answer_ended(self, ending: CallCompletion) -> None:
            raise OverflowError(f"made by this test, after {ending.tries}")

    async def scene(world: World) -> None:
        message = UpstreamRequest(b"POST", b"/v1/messages", (), b"{}")
        failing = Failing(asyncio.get_running_loop().create_future())
        world.carrier.submit(CallRequest("jl_test", message, Call(0, (lane_id("first"),))), failing)
        for _ in range(20):
            await world.clock.advance(0.5)
        assert world.carrier.under_way == 0

    play({"first": [GOOD]}, scene)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("tokens", [10**400, -(10**400)], ids=["huge", "negative"])
def test_no_number_of_tokens_breaks_the_deadlines(stream: bool, tokens: int) -> None:
    controller = LaneController([LaneSettings(lane_id("first"))], lambda: 0.5, now=0.0)
    for number in range(200):
        name = "a conversation" if number % 2 else ""
        call = Call(
            number,
            (lane_id("first"),),
            input_tokens=tokens,
            max_tokens=tokens,
            stream=stream,
            conversation=name,
            prefix=name,
            prefix_tokens=tokens,
        )
        controller.submit(0.0, call)
    assert controller.calls_in_flight
    controller.tick(1e6)
