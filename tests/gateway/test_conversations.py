"""A conversation that had to move stays until its turn is over, then goes home."""

from __future__ import annotations

import json

import pytest

from jackline.dialects.anthropic_turns import in_the_middle_of_a_turn
from jackline.testing import Step
from tests.gateway.desk_world import CLAUDE_CODE, MODEL, ClientOnPaper, World, play
from tests.gateway.test_choosing import BROKEN, FIRST, GPT, SECOND, settings

TOOL_RESULT = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}]
HEADERS = {
    "User-Agent": CLAUDE_CODE,
    "x-api-key": "sk-ant-one",
    "X-Claude-Code-Session-Id": "s1",
}


def say(world: World, content: object) -> ClientOnPaper:
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "stream": True}
    return world.send(json.dumps(body).encode(), HEADERS)


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
    assert in_the_middle_of_a_turn(json.dumps({"messages": messages}).encode()) is middle


def test_a_body_that_cannot_be_read_is_in_the_middle_of_nothing() -> None:
    assert not in_the_middle_of_a_turn(b"{")


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
