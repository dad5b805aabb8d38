"""Many open calls of one session cost each further call no more than a few do.

Work is counted, not timed: executed operations of the gateway's own code, bodies that are compared
and bodies that are hashed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from jackline.gateway import client_retries
from jackline.gateway.settings import GatewaySettings
from jackline.testing import Step
from jackline.testing.scripted_upstream import STREAMED
from tests.gateway.desk_world import CLAUDE_CODE, MODEL, ClientOnPaper, World, play, wall

WAITING = 400
HEADERS = {
    "User-Agent": CLAUDE_CODE,
    "x-api-key": "sk-ant-one",
    "X-Claude-Code-Session-Id": "s1",
}


class Body(bytes):
    """A body that counts how often bodies are compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Body.compared += 1
        return super().__eq__(other)

    __hash__ = bytes.__hash__


def body(number: int, filler: int = 0) -> Body:
    """Bodies of one length, alike up to their last bytes."""
    content = "x" * filler + f"{number:06d}"
    asked = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": content}]}
    return Body(json.dumps(asked).encode())


def operations(act: Callable[[], object]) -> int:
    """How many operations of the gateway's code this takes."""
    count = 0

    def step(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "opcode"
        return step

    def enter(frame: FrameType, _event: str, _argument: object) -> Any:
        if "/gateway/" not in frame.f_code.co_filename.replace("\\", "/"):
            return None
        frame.f_trace_opcodes = True
        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


async def at_wall(world: World) -> list[ClientOnPaper]:
    """The first client of the session, which has met the quota wall; whoever comes now waits."""
    first = world.send(body(0), HEADERS)
    await world.pass_time(5)
    return [first]


def leave(clients: list[ClientOnPaper]) -> None:
    for client in clients:
        client.exchange.left()


@pytest.mark.parametrize("filler", [0, 1], ids=["same length", "other lengths"])
def test_a_further_call_of_a_session_costs_the_same_however_many_wait(filler: int) -> None:
    async def scene(world: World) -> None:
        clients = await at_wall(world)

        def ask(number: int) -> None:
            clients.append(world.send(body(number, filler * number), HEADERS))

        for number in range(1, 10):
            ask(number)
        few = operations(lambda: ask(10))
        for number in range(11, WAITING):
            ask(number)
        many = operations(lambda: ask(WAITING))
        leave(clients)
        assert few > 100, "the gateway's code is counted"
        assert many < 1.2 * few

    play([wall(60)], scene)


def test_the_end_of_a_call_costs_the_same_however_many_of_its_session_are_open() -> None:
    async def scene(world: World) -> None:
        clients = await at_wall(world)
        clients += [world.send(body(number), HEADERS) for number in range(1, WAITING)]
        many = operations(clients.pop(WAITING // 2).exchange.left)
        leave(clients[10:])
        few = operations(clients.pop(5).exchange.left)
        leave(clients[:9])
        assert few > 100, "the gateway's code is counted"
        assert many < 1.2 * few

    play([wall(60)], scene)


def test_bodies_that_differ_at_their_end_are_compared_and_hashed_a_few_times_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed = 0
    digest = client_retries.digest

    def counting(data: bytes | bytearray) -> bytes:
        nonlocal hashed
        hashed += 1
        return digest(data)

    monkeypatch.setattr(client_retries, "digest", counting)

    async def scene(world: World) -> None:
        clients = await at_wall(world)
        Body.compared = 0
        clients += [world.send(body(number, 10_000), HEADERS) for number in range(1, WAITING)]
        assert Body.compared <= 2 * WAITING
        assert hashed <= 2 * WAITING
        leave(clients)

    play([wall(60)], scene)


def test_a_body_is_not_hashed_where_its_length_or_one_comparison_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_retries, "digest", _never)

    async def scene(world: World) -> None:
        clients = await at_wall(world)
        clients += [world.send(body(1, filler), HEADERS) for filler in range(1, 20)]
        clients.append(world.send(body(1, 7), HEADERS))
        assert world.desk.counts.joined == 1
        leave(clients)

    play([wall(60)], scene)


def _never(_data: bytes | bytearray) -> bytes:
    raise AssertionError("a body was hashed")


@pytest.mark.parametrize("again", [0, 1, 30, 59])
def test_a_turn_asked_again_joins_its_call_among_many_alike(again: int) -> None:
    async def scene(world: World) -> None:
        clients = await at_wall(world)
        clients += [world.send(body(number), HEADERS) for number in range(1, 60)]
        open_before = len(world.desk.calls)
        second = world.send(body(again), HEADERS)
        assert world.desk.counts.joined == 1
        assert len(world.desk.calls) == open_before
        await world.until_over(*clients, second)
        assert second.body.endswith(STREAMED)
        assert second.headers["x-jackline-call"] == clients[again].headers["x-jackline-call"]

    play([wall(60), Step()], scene)


def test_a_turn_asked_again_joins_even_when_as_many_wait_as_may() -> None:
    async def scene(world: World) -> None:
        clients = await at_wall(world)
        clients += [world.send(body(number), HEADERS) for number in range(1, 4)]
        turned_away = world.send(body(4), HEADERS)
        assert turned_away.status == 503
        again = world.send(body(2), HEADERS)
        assert world.desk.counts.joined == 1
        leave([*clients, again])

    limits = replace(GatewaySettings().limits, waiting_calls=4)
    play([wall(60)], scene, replace(GatewaySettings(), limits=limits))


def test_a_call_that_is_over_is_joined_by_nobody() -> None:
    async def scene(world: World) -> None:
        clients = await at_wall(world)
        clients += [world.send(body(number), HEADERS) for number in range(1, 9)]
        for number in (3, 0, 8):
            clients[number].exchange.left()
        again = [world.send(body(number), HEADERS) for number in (3, 0, 8)]
        assert world.desk.counts.joined == 0
        leave([each for each in (*clients, *again) if not each.exchange.gone])

    play([wall(60)], scene)


def test_equal_bodies_have_equal_digests_whatever_kind_of_bytes_they_are() -> None:
    assert client_retries.digest(b"abc") == client_retries.digest(bytearray(b"abc"))
    assert client_retries.digest(b"abc") != client_retries.digest(b"abd")
