"""A call whose answers are cut pays for few of them, and says what it has paid."""

from __future__ import annotations

import asyncio

import pytest

from jackline.calls import CallRequest, HoldLimits
from jackline.lanes import Call
from jackline.testing import Step
from jackline.testing.scripted_upstream import STREAMED
from jackline.upstream.bounded_answers import LARGEST_ERROR
from jackline.upstream.interface import UpstreamRequest
from tests.calls.test_carrier import GOOD, World, by_lane, play
from tests.calls.whole_answer import CallAnswer, CallRefusedError, complete_call
from tests.lane_ids import lane_id

PROMPT = 100_000
BEGIN = STREAMED.replace(b'"input_tokens":100,', b'"input_tokens":%d,' % PROMPT)
HEAD = BEGIN.index(b"event: content_block_start")
CUT = Step(says=BEGIN, after=0.5, cut=HEAD)
# Its answer is no stream: a whole document that ends too early.
CUT_WHOLE = Step(headers={"content-type": "application/json"}, says=b'{"id":"msg_1"', cut=6)
# Whole answers with status 200 that are none: nobody knows whether they were paid for.
EMPTY = Step(headers={"content-type": "application/json"}, says=b"")
OVERLOADED_AT_ONCE = Step(
    after=0.5,
    says=b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
    b'"message":"Overloaded"}}\n\n',
    cut=110,
)


def ask(
    world: World, *lanes: str, last: tuple[str, ...] = (), hold: float = 1e9, stream: bool = True
) -> asyncio.Task[CallAnswer]:
    request = CallRequest(
        "jl_test",
        UpstreamRequest(b"POST", b"/v1/messages", (), b"{}"),
        Call(
            0,
            tuple(map(lane_id, lanes or ("first",))),
            stream=stream,
            input_tokens=PROMPT,
            max_tokens=100,
        ),
        last_resorts=tuple(map(lane_id, last)),
        hold=HoldLimits(other=hold),
    )
    return asyncio.create_task(complete_call(world.carrier, request))


async def cancel(task: asyncio.Task[CallAnswer]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_answers_that_are_cut_with_a_costly_prompt_are_asked_for_rarely() -> None:
    async def scene(world: World) -> None:
        task = ask(world)
        await world.clock.advance(60)
        assert len(world.upstream.attempts) <= 4
        await world.clock.advance(3540)
        assert len(world.upstream.attempts) <= 20
        await cancel(task)

    play({"first": [CUT]}, scene)


def test_a_document_that_ends_too_early_is_asked_for_rarely_too() -> None:
    async def scene(world: World) -> None:
        task = ask(world, stream=False)
        await world.clock.advance(60)
        assert len(world.upstream.attempts) <= 8
        await world.clock.advance(3540)
        assert len(world.upstream.attempts) <= 22
        await cancel(task)

    play({"first": [CUT_WHOLE]}, scene)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_whole_answer_that_is_none_is_asked_for_rarely_too(stream: bool) -> None:
    async def scene(world: World) -> None:
        task = ask(world, stream=stream)
        await world.clock.advance(60)
        assert len(world.upstream.attempts) <= 8
        await world.clock.advance(3540)
        assert len(world.upstream.attempts) <= 22
        await cancel(task)

    play({"first": [EMPTY]}, scene)


def test_who_waited_for_too_long_hears_how_many_answers_broke_off_and_what_they_cost() -> None:
    async def scene(world: World) -> None:
        task = ask(world, hold=600)
        while not task.done():
            assert world.clock.monotonic() < 1500
            await world.clock.advance(1)
            world.carrier.review()
        with pytest.raises(CallRefusedError) as caught:
            task.result()
        lost = len(world.upstream.attempts)
        assert f"{lost} answers to it began on first and broke off" in caught.value.message
        assert f"{lost * (PROMPT + 1):,} tokens" in caught.value.message
        assert "another upstream" in caught.value.message

    play({"first": [CUT]}, scene)


@pytest.mark.parametrize("last", [(), ("second",)], ids=["lane", "last resort"])
def test_a_call_goes_to_its_other_upstream_before_it_waits_long(last: tuple[str, ...]) -> None:
    async def scene(world: World) -> None:
        lanes = ("first",) if last else ("first", "second")
        task = ask(world, *lanes, last=last)
        await world.until_done([task], longest=30)
        assert task.result().lane == lane_id("second")

    world = play({"first": [CUT]}, scene)
    assert world.attempts == ["first"] * 3 + ["second"]


def test_a_minute_in_which_every_answer_is_cut_is_not_seen_by_anybody() -> None:
    async def scene(world: World) -> None:
        first = [world.call() for _ in range(12)]
        await world.clock.advance(60)
        world.upstream.scripts = by_lane({"first": [GOOD]})
        await world.until_done(first, longest=600)
        assert all(task.result().body == GOOD.says for task in first)

    play({"first": [Step(after=0.5, cut=400)]}, scene)


def test_an_error_that_the_vendor_says_before_it_counts_anything_is_no_lost_answer() -> None:
    async def scene(world: World) -> None:
        task = ask(world)
        await world.until_done([task], longest=120)
        assert task.result().body == GOOD.says
        assert len(task.result().attempts) == 8

    play({"first": [*[OVERLOADED_AT_ONCE] * 8, GOOD]}, scene)


def test_a_call_that_waits_keeps_only_the_beginning_of_an_error() -> None:
    """Also of one that came with status 200, which may be as large as an answer."""
    error = b'{"type":"error","error":{"type":"overloaded_error","message":"%b"}}'
    large = Step(headers={"content-type": "application/json"}, says=error % (b"x" * (1 << 20)))

    async def scene(world: World) -> None:
        task = ask(world, stream=False)
        await world.clock.advance(3)
        (call,) = world.carrier.calls
        assert call.rejection is not None
        assert len(call.rejection.body) == LARGEST_ERROR
        await cancel(task)

    play({"first": [large]}, scene)
