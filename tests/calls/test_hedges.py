"""A second attempt beside a silent one: whichever speaks first is the answer, and the only one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.calls import CallRequest
from jackline.lanes import Call
from jackline.testing import Step
from jackline.testing.scripted_upstream import STREAMED
from jackline.upstream.interface import UpstreamRequest
from tests.calls.test_carrier import BROKEN, GOOD, World, play
from tests.calls.whole_answer import CallRefusedError, complete_call
from tests.lane_ids import lane_id

OTHER = STREAMED.replace(b"Hello", b"Other")
PREAMBLE = STREAMED[: STREAMED.index(b"event: content_block_start")]
SLOW = Step(after=70.0, between=1.0)


def test_a_slow_answer_is_waited_for_and_the_attempt_beside_it_is_hung_up_on() -> None:
    async def scene(world: World) -> None:
        task = world.call()
        await world.until_done([task], longest=200)
        answer = task.result()
        assert answer.body == STREAMED
        assert world.attempts == ["first", "first"]
        assert [told.why for told in answer.attempts] == [
            "silent; the call was answered by another attempt"
        ]
        assert world.upstream.messages[1].fresh, "it goes out on a new connection"
        assert not world.upstream.messages[0].fresh

    play({"first": [SLOW, Step(says=OTHER, after=500.0, between=1.0)]}, scene)


def test_an_answer_from_another_lane_is_taken_if_it_comes_first() -> None:
    async def scene(world: World) -> None:
        task = world.call("first", "second")
        await world.until_done([task], longest=100)
        assert task.result().body == OTHER
        assert task.result().lane == lane_id("second")
        assert world.upstream.open_now == 0

    play({"first": [Step(silent=True)], "second": [Step(says=OTHER)]}, scene)


def test_a_preamble_does_not_overtake_who_has_waited_longer() -> None:
    """Both say at once that they have taken the call, and then think: the first began earlier."""

    async def scene(world: World) -> None:
        task = world.call()
        await world.until_done([task], longest=400)
        assert task.result().body == STREAMED
        assert len(world.upstream.attempts) <= 2

    play(
        {
            "first": [
                Step(after=80.0, between=1.0, first=PREAMBLE),
                Step(after=80.0, between=1.0, first=PREAMBLE),
            ]
        },
        scene,
    )


@pytest.mark.parametrize("first", [b"", PREAMBLE])
def test_an_answer_that_comes_whole_at_once_is_the_only_one(first: bytes) -> None:
    """Its connection ends later, and meanwhile the other attempt begins to speak."""

    async def scene(world: World) -> None:
        task = world.call()
        await world.until_done([task], longest=200)
        assert task.result().body == OTHER

    whole = Step(says=OTHER, after=1.0, cut=len(OTHER), between=10.0, first=first)
    play({"first": [Step(after=64.0, between=1.0), whole]}, scene)


def test_if_the_second_fails_the_first_goes_on() -> None:
    async def scene(world: World) -> None:
        task = world.call()
        await world.until_done([task], longest=200)
        assert task.result().body == STREAMED
        assert world.carrier.under_way == 0

    play({"first": [Step(after=75.0, between=1.0), BROKEN, Step(silent=True)]}, scene)


def test_if_the_first_fails_the_second_goes_on() -> None:
    async def scene(world: World) -> None:
        task = world.call("first", "second")
        await world.until_done([task], longest=200)
        assert task.result().body == OTHER
        assert world.attempts == ["first", "second"]

    failing = Step(after=65.0, between=1.0, breaks=ConnectionResetError("Connection reset by peer"))
    play({"first": [failing], "second": [Step(says=OTHER, after=20.0, between=1.0)]}, scene)


def test_whoever_leaves_leaves_both() -> None:
    async def scene(world: World) -> None:
        task = world.call("first", "second")
        await world.clock.advance(65)
        assert world.upstream.open_now == 2
        task.cancel()
        await world.clock.advance(1)
        assert world.upstream.open_now == 0

    play({"first": [Step(silent=True)], "second": [Step(silent=True)]}, scene)


def test_who_is_refused_with_a_credential_of_its_own_is_not_served_with_ours_beside() -> None:
    body = b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'
    refused = Step(after=65.0, status=401, body=body)

    async def scene(world: World) -> None:
        request = CallRequest(
            "jl_test",
            UpstreamRequest(b"POST", b"/v1/messages", (), b"{}"),
            Call(0, (lane_id("first"), lane_id("second"))),
            own_key=(lane_id("second"),),
        )
        task = asyncio.create_task(complete_call(world.carrier, request))
        await world.clock.advance(62)
        assert world.attempts == ["first", "second"], "it is asked for beside"
        await world.clock.advance(60)
        with pytest.raises(CallRefusedError):
            task.result()
        assert world.upstream.open_now == 0

    play({"first": [refused], "second": [Step(after=20.0, between=1.0)]}, scene)


STEPS = st.sampled_from(
    [
        GOOD,
        BROKEN,
        Step(after=70.0, between=1.0),
        Step(after=130.0, between=1.0, first=PREAMBLE),
        Step(silent=True),
        Step(says=OTHER, after=62.0, between=1.0),
        Step(truncated=True),
        Step(cut=700, after=66.0, between=1.0),
        Step(after=61.0, between=1.0, breaks=ConnectionResetError("Connection reset by peer")),
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    first=st.lists(STEPS, max_size=8),
    second=st.lists(STEPS, max_size=8),
    calls=st.integers(1, 10),
    leavers=st.sets(st.integers(0, 9), max_size=3),
)
def test_every_answer_is_whole_and_of_one_attempt(
    first: list[Step], second: list[Step], calls: int, leavers: set[int]
) -> None:
    async def scene(world: World) -> None:
        tasks = [world.call("first", "second") for _ in range(calls)]
        await world.clock.advance(64)
        for leaver in leavers:
            if leaver < calls:
                tasks[leaver].cancel()
        await world.until_done(tasks, longest=20_000)
        for number, task in enumerate(tasks):
            if number not in leavers:
                assert task.result().body in (STREAMED, OTHER)

    play({"first": [*first, GOOD], "second": [*second, GOOD]}, scene)
