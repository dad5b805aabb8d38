"""The controller knows which lanes are left to a call; a call that none can serve is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jackline.calls import CallRequest, HoldLimits
from jackline.errors import GaveUpError
from jackline.lanes import Call
from jackline.testing import Step
from jackline.upstream.interface import UpstreamRequest
from tests.calls.test_carrier import BROKEN, GOOD, START, WALL, World, play
from tests.calls.whole_answer import CallAnswer, complete_call
from tests.lane_ids import lane_id

NO_SUCH_MODEL = Step(
    status=404,
    body=json.dumps(
        {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-x"}}
    ).encode(),
)
NEAR_WALL = replace(
    WALL,
    headers={
        **WALL.headers,
        "anthropic-ratelimit-unified-reset": str(int(START.timestamp()) + 60),
    },
)
HOLD = HoldLimits(quota=600, other=300)
LANES = ("first", "second", "third")


def _call(
    world: World, lanes: Sequence[str], last_resorts: Sequence[str] = ()
) -> asyncio.Task[CallAnswer]:
    request = CallRequest(
        "jl_lanes",
        UpstreamRequest(b"POST", b"/v1/messages", (), b"{}"),
        Call(0, tuple(map(lane_id, lanes))),
        tuple(map(lane_id, last_resorts)),
        hold=HOLD,
    )
    return asyncio.create_task(complete_call(world.carrier, request))


def _attempts(world: World, lane: str) -> int:
    return world.attempts.count(lane)


@pytest.mark.parametrize("known_before", [False, True])
def test_a_wall_behind_a_lane_without_the_model_is_reported_at_once(known_before: bool) -> None:
    async def scene(world: World) -> None:
        if known_before:
            before = _call(world, ["second"])
            await world.clock.advance(2)
            assert isinstance(before.exception(), GaveUpError)
        task = _call(world, ["first", "second"])
        await world.clock.advance(2)
        assert task.done(), "it waits for a lane that is beyond its limit"
        with pytest.raises(GaveUpError) as refused:
            task.result()
        assert "second is parked: its limit is used up" in str(refused.value)
        assert refused.value.retry_at == START + timedelta(hours=1)

    world = play({"first": [NO_SUCH_MODEL] * 9, "second": [WALL] * 9}, scene)
    assert _attempts(world, "first") == 1


def test_a_lane_that_refused_a_call_is_not_tried_again_when_others_are_opened_to_it() -> None:
    async def scene(world: World) -> None:
        task = _call(world, ["first", "second"], ["third"])
        await world.until_done([task])
        assert task.result().lane == lane_id("third")

    world = play(
        {"first": [NO_SUCH_MODEL] * 9, "second": [BROKEN] * 99, "third": [GOOD] * 9}, scene
    )
    assert _attempts(world, "first") == 1


def test_a_call_that_is_moved_to_lanes_that_all_refused_it_ends_with_their_refusal() -> None:
    async def scene(world: World) -> None:
        task = _call(world, ["first", "second"])
        await world.clock.advance(2)
        (call,) = world.carrier.calls
        world.carrier.reroute(call, (lane_id("first"),), ())
        await world.clock.advance(2)
        assert task.done()
        with pytest.raises(GaveUpError) as refused:
            task.result()
        assert "model" in str(refused.value)
        assert refused.value.retry_at is None

    world = play({"first": [NO_SUCH_MODEL] * 9, "second": [NEAR_WALL, *[GOOD] * 9]}, scene)
    assert _attempts(world, "first") == 1


_SERVES = st.sampled_from(["good", "no model", "near wall", "far wall", "down"])
_STEPS = {"good": GOOD, "no model": NO_SUCH_MODEL, "far wall": WALL, "down": BROKEN}
_CHOICE = st.lists(st.sampled_from(LANES), min_size=1, max_size=3, unique=True)
_LAST = st.lists(st.sampled_from(LANES), max_size=1)
_ORDERS = st.lists(
    st.tuples(
        st.sampled_from((0.0, 1.0, 20.0, 90.0)),
        st.one_of(
            st.tuples(st.just("reroute"), _CHOICE, _CHOICE),
            st.tuples(st.just("pause"), st.sampled_from(LANES)),
            st.tuples(st.just("open"), st.sampled_from(LANES)),
            st.tuples(st.just("probe"), st.sampled_from(LANES)),
        ),
    ),
    max_size=6,
)


@settings(max_examples=120, deadline=None)
@example(("good", "no model", "good"), ["second"], ["first"], [])
@example(
    ("far wall", "near wall", "good"),
    ["first"],
    [],
    [
        (20.0, ("reroute", ["first"], ["first", "second"])),
        (0.0, ("reroute", ["first"], ["first"])),
    ],
)
@example(
    ("no model", "no model", "near wall"),
    ["first"],
    [],
    [
        (1.0, ("reroute", ["first"], ["first", "second", "third"])),
        (1.0, ("open", "first")),
        (0.0, ("reroute", ["first"], ["first"])),
    ],
)
@given(st.tuples(_SERVES, _SERVES, _SERVES), _CHOICE, _LAST, _ORDERS)
def test_a_call_that_no_lane_can_serve_within_its_limits_is_refused_and_says_why(
    serves: tuple[str, str, str],
    lanes: list[str],
    last: list[str],
    orders: list[tuple[float, tuple[object, ...]]],
) -> None:
    def script(kind: str) -> list[Step]:
        return [NEAR_WALL, *[GOOD] * 99] if kind == "near wall" else [_STEPS[kind]] * 999

    behaviour = dict(zip(LANES, serves, strict=True))

    async def scene(world: World) -> None:
        left = {*lanes, *last}
        paused: set[str] = set()
        task = _call(world, lanes, [name for name in last if name not in lanes])
        await world.clock.advance(0.1)
        for pause, order in orders:
            if not (calls := list(world.carrier.calls)):
                break
            match order:
                case ("reroute", [*chosen], [*others]):
                    behind = [str(name) for name in others if name not in chosen]
                    first = tuple(lane_id(str(name)) for name in chosen)
                    world.carrier.reroute(calls[0], first, tuple(map(lane_id, behind)))
                    left = {*map(str, chosen), *behind}
                case ("pause" | "open" as how, str(lane)):
                    world.carrier.pause_lane(lane_id(lane), paused=how == "pause")
                    (paused.add if how == "pause" else paused.discard)(lane)
                case ("probe", str(lane)):
                    world.carrier.probe_lane(lane_id(lane))
            await world.clock.advance(pause)
        was_open = not task.done()
        met = {behaviour[name] for name in left}
        if not paused and met <= {"no model", "far wall"}:
            await world.clock.advance(5)
            assert task.done(), "no lane can serve it, and it waits"
        for _ in range(100):
            await world.clock.advance(10)
            world.carrier.review()  # as the gateway does for calls that it holds
        assert task.done(), "it still waits, longer than its limits allow"
        refused = task.exception()
        if was_open and not paused and "good" in met:
            assert refused is None
        if refused is not None:
            assert isinstance(refused, GaveUpError)
            assert str(refused)

    play({name: script(kind) for name, kind in behaviour.items()}, scene)


def test_lanes_that_are_withheld_from_a_call_are_not_closed_meanwhile() -> None:
    """They were closed after an hour, and could not be opened to the call any more."""

    async def scene(world: World) -> None:
        message = UpstreamRequest(b"POST", b"/v1/messages", (), b"{}")
        first, second = lane_id("first"), lane_id("second")
        request = CallRequest(
            "jl_lanes", message, Call(0, (first, second)), own_key=(second,), unproven=True
        )
        task = asyncio.create_task(complete_call(world.carrier, request))
        await world.clock.advance(2)
        world.carrier.close_idle_lanes(world.clock.steady() + 2 * 3600, 0)
        assert set(world.controller.lanes) == {first, second}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play({"first": [Step(after=1e6)]}, scene)
