"""A conversation that had to move stays until its turn is over, then goes home."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from jackline.dialects.request_facts import continues_turn
from jackline.events import LaneChanged
from jackline.states import LaneState
from jackline.testing import Step
from tests.gateway.desk_world import CLAUDE_CODE, MODEL, ClientOnPaper, World, play
from tests.gateway.test_choosing import BROKEN, FIRST, GPT, SECOND, settings

TOOL_RESULT = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}]
HEADERS = {
    "User-Agent": CLAUDE_CODE,
    "x-api-key": "sk-ant-one",
    "X-Claude-Code-Session-Id": "s1",
}


def say(world: World, content: object, agent: str = "") -> ClientOnPaper:
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "stream": True}
    named = {"x-claude-code-agent-id": agent} if agent else {}
    return world.send(json.dumps(body).encode(), {**HEADERS, **named})


@pytest.mark.parametrize(
    ("messages", "middle"),
    [
        ([{"role": "user", "content": "hi"}], False),
        ([{"role": "user", "content": [{"type": "text", "text": "hi"}]}], False),
        ([{"role": "user", "content": TOOL_RESULT}], True),
        ([{"role": "user", "content": TOOL_RESULT}, {"role": "system", "content": "note"}], True),
        ([{"role": "user", "content": TOOL_RESULT}, {"role": "user", "content": "stop"}], False),
        ([], False),
    ],
)
def test_tool_results_at_the_end_mean_the_middle_of_a_turn(
    messages: list[object], middle: bool
) -> None:
    assert continues_turn(json.dumps({"messages": messages}).encode()) is middle


def test_a_body_that_cannot_be_read_is_in_the_middle_of_nothing() -> None:
    assert not continues_turn(b"{")


def test_it_stays_in_the_middle_of_a_turn_and_goes_home_with_the_next() -> None:
    async def scene(world: World) -> None:
        first = say(world, "begin")
        await world.until_over(first, longest=60)
        assert first.headers["x-jackline-lane"] == f"second/{MODEL}"
        # Home has recovered long before the tool is done.
        await world.pass_time(150)
        in_turn = say(world, TOOL_RESULT)
        await world.until_over(in_turn, longest=20)
        assert in_turn.headers["x-jackline-lane"] == f"second/{MODEL}"
        next_turn = say(world, "something else")
        await world.until_over(next_turn, longest=20)
        assert next_turn.headers["x-jackline-lane"] == f"first/{MODEL}"

    play({"first": [*[BROKEN] * 8, Step()]}, scene, settings(FIRST, SECOND, GPT))


def test_one_whose_cache_is_cold_goes_home_even_in_a_turn() -> None:
    async def scene(world: World) -> None:
        first = say(world, "begin")
        await world.until_over(first, longest=60)
        await world.pass_time(400)
        later = say(world, TOOL_RESULT)
        await world.until_over(later, longest=20)
        assert later.headers["x-jackline-lane"] == f"first/{MODEL}"

    play({"first": [*[BROKEN] * 5, Step()]}, scene, settings(FIRST, SECOND))


@pytest.mark.parametrize("seed", range(4))
def test_while_home_recovers_no_conversation_changes_its_place_in_the_middle_of_a_turn(
    seed: int,
) -> None:
    """Twelve agents, five calls to a turn; home is back after a while, and slow to take up work."""
    turns: list[list[str]] = []
    draw = random.Random(seed)  # noqa: S311 -- seeded, so that tests repeat

    async def agent(world: World, name: str) -> None:
        for _ in range(6):
            places = []
            for content in ("begin", *[TOOL_RESULT] * 4):
                client = say(world, content, agent=name)
                while not client.over:
                    await world.clock.sleep(0.25)
                ended = next(each for each in reversed(world.ended) if each.agent == name)
                assert ended.lane is not None
                places.append(ended.lane.upstream)
                await world.clock.sleep(10 * draw.random())
            turns.append(places)

    async def scene(world: World) -> None:
        agents = [asyncio.create_task(agent(world, f"a{n}")) for n in range(12)]
        while not all(each.done() for each in agents):
            await world.clock.advance(0.25)
        await asyncio.gather(*agents)

    slow = Step(after=3.0)
    world = play(
        {"first": [*[BROKEN] * 14, slow], "second": [slow]}, scene, settings(FIRST, SECOND)
    )
    assert [each.state for each in world.events if isinstance(each, LaneChanged)] == [
        "down",
        "recovering",
        "open",
    ]
    assert {frozenset(turn) for turn in turns} == {frozenset({"first"}), frozenset({"second"})}
    assert all(set(turn) == {"first"} for turn in turns[-12:]), "all are back in the end"


def test_whoever_stays_with_what_breaks_again_goes_to_the_same_model_and_no_other() -> None:
    async def scene(world: World) -> None:
        first = say(world, "begin")
        await world.until_over(first)
        lanes = world.carrier.controller.lanes
        home = next(lane for name, lane in lanes.items() if name.upstream == "first")
        # As after an outage.
        home.state = LaneState.RECOVERING
        then = say(world, TOOL_RESULT)
        await world.until_over(then, longest=20)
        assert world.ended[-1].lane is not None
        assert world.ended[-1].lane.upstream == "second"

    world = play({"first": [Step(), BROKEN]}, scene, settings(FIRST, SECOND, GPT))
    assert world.asked().count(f"first/{MODEL}") > 1, "it was tried where it was"


def test_whoever_waits_too_long_where_its_conversation_is_may_go_elsewhere() -> None:
    async def scene(world: World) -> None:
        first = say(world, "begin")
        await world.until_over(first)
        assert first.headers["x-jackline-lane"] == f"first/{MODEL}"
        lanes = world.carrier.controller.lanes
        home = next(lane for name, lane in lanes.items() if name.upstream == "first")
        # As after an outage, with a throttle that holds everybody up.
        home.state = LaneState.RECOVERING
        home.hold_until = world.clock.wall() + 300
        then = say(world, TOOL_RESULT)
        await world.pass_time(15)
        assert not then.over
        await world.until_over(then, longest=20)
        assert world.ended[-1].lane is not None
        assert world.ended[-1].lane.upstream == "second"

    play({}, scene, settings(FIRST, SECOND))
