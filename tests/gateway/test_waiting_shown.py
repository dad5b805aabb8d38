"""Calls that wait are shown in the order in which they go, each with the reason for its place."""

from __future__ import annotations

import json

from jackline.control import Picture
from jackline.gateway.telling import picture
from jackline.journal import JournalHealth
from jackline.testing import Step
from tests.gateway.desk_world import WHOLE, World, play

PROMPT_TEXT = "a prompt that nobody is shown"


def cached(tokens: int) -> Step:
    answer = json.loads(WHOLE)
    answer["usage"] |= {"cache_creation_input_tokens": tokens, "cache_read_input_tokens": 0}
    return Step(says=json.dumps(answer).encode(), after=0.2)


def drawn(world: World) -> Picture:
    return picture(
        world.desk,
        JournalHealth(True, "", 0, 0, None),
        url="",
        started=0.0,
        connections=0,
        at=world.clock.now(),
    )


def test_who_waits_is_listed_as_it_would_go_with_the_reason() -> None:
    async def scene(world: World) -> None:
        for session in ("lost", "closing", "warm"):
            first = world.ask(PROMPT_TEXT, session=session, stream=False)
            await world.until_over(first)
            await world.pass_time({"lost": 310.0, "closing": 150.0, "warm": 40.0}[session])
        (lane,) = world.carrier.controller.lanes
        world.carrier.pause_lane(lane, paused=True)
        waiting = [
            world.ask(PROMPT_TEXT, session=session, stream=False)
            for session in ("new", "lost", "warm", "closing")
        ]
        shown = drawn(world).waiting
        assert [call.session for call in shown] == ["closing", "warm", "lost", "new"]
        turns = [call.turn for call in shown]
        assert [turn and turn.place for turn in turns] == [1, 2, 3, 4]
        assert [turn and turn.rank for turn in turns] == ["closing", "normal", "lapsed", "new"]
        assert [turn and turn.cached_tokens for turn in turns] == [5_000, 5_000, 5_000, 0]
        closing, _, lost, _ = turns
        assert closing is not None
        assert "its cache of 5,000 tokens lapses in 1 min 4" in closing.why
        assert lost is not None
        assert lost.cached_until is not None
        assert lost.cached_until < world.clock.wall()
        assert "it lost its cache of 5,000 tokens" in lost.why
        told = json.dumps(drawn(world).to_json("fine"))
        assert '"rank": "closing"' in told
        assert PROMPT_TEXT not in told
        assert "sk-ant-one" not in told
        world.carrier.pause_lane(lane, paused=False)
        await world.until_over(*waiting)

    play([cached(5_000)] * 7, scene)
