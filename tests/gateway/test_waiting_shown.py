"""Calls that wait are shown in the order in which they go, each with the reason for its place."""

from __future__ import annotations

import json

from jackline.control import GatewayStatus
from jackline.gateway.status_report import picture
from jackline.journal import JournalHealth
from jackline.testing import Step
from tests.gateway.desk_world import MODEL, WHOLE, ClientOnPaper, World, play

PROMPT_TEXT = "a prompt that nobody is shown " * 200


def cached(tokens: int) -> Step:
    answer = json.loads(WHOLE)
    answer["usage"] |= {"cache_creation_input_tokens": tokens, "cache_read_input_tokens": 0}
    return Step(says=json.dumps(answer).encode(), after=0.2)


def turn(world: World, session: str, *, begins: bool = False) -> ClientOnPaper:
    """A call of the session's conversation, its first one or a later one."""
    messages = [{"role": "user", "content": PROMPT_TEXT}]
    if not begins:
        messages += [{"role": "assistant", "content": "?"}, {"role": "user", "content": "go on"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 99}
    headers = {"x-api-key": "sk-ant-one", "X-Claude-Code-Session-Id": session}
    return world.send(json.dumps(body).encode(), headers)


def drawn(world: World) -> GatewayStatus:
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
            first = turn(world, session)
            await world.until_over(first)
            await world.pass_time({"lost": 310.0, "closing": 150.0, "warm": 40.0}[session])
        (lane,) = world.carrier.controller.lanes
        world.carrier.pause_lane(lane, paused=True)
        waiting = [
            turn(world, session, begins=session == "new")
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
