"""Clients without a stream are answered before they leave, and keep their place."""

from __future__ import annotations

import math

import pytest

from jackline.gateway.settings import GatewaySettings
from jackline.lanes import Call, LaneDecision
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.testing import Step
from tests.gateway.desk_world import WHOLE, ClientOnPaper, World, play, wall

WHOLE_ANSWER = Step(says=WHOLE, headers={"content-type": "application/json"})
SDK = "Anthropic/Python 0.120.0"


def _ask(
    world: World, timeout: str = "60.0", tries: int = 0, *, stream: bool = False
) -> ClientOnPaper:
    """As Anthropic's SDK for Python asks; it tells no session."""
    headers = {"x-stainless-read-timeout": timeout, "x-stainless-retry-count": str(tries)}
    return world.ask(session=None, user_agent=SDK, stream=stream, headers=headers)


def _submitted(world: World) -> list[Call]:
    """Every call that the lanes are asked to carry from now on."""
    calls: list[Call] = []
    submit = world.carrier.controller.submit

    def noting(now: float, call: Call) -> LaneDecision:
        calls.append(call)
        return submit(now, call)

    world.carrier.controller.submit = noting  # type: ignore[method-assign]
    return calls


@pytest.mark.parametrize(
    ("name", "told", "held"),
    [
        ("x-stainless-read-timeout", "60.0", 54.0),
        ("x-stainless-read-timeout", "600", 540.0),
        ("x-stainless-timeout", "600", 540.0),
        ("x-stainless-read-timeout", "nan", 252.0),
        ("x-stainless-read-timeout", "1e3", 252.0),
        ("x-stainless-read-timeout", "-1", 252.0),
        ("x-stainless-read-timeout", "9" * 400, 252.0),
        ("user-agent", SDK, 252.0),
    ],
)
def test_a_client_is_held_for_as_long_as_it_says(name: str, told: str, held: float) -> None:
    async def scene(world: World) -> None:
        client = world.ask(session=None, stream=False, user_agent=SDK, headers={name: told})
        began = world.clock.steady()
        await world.until_over(client, longest=700)
        assert client.status == 503
        assert client.headers["retry-after"] == "1"
        assert held <= world.clock.steady() - began < held + 2.0

    play([wall(800)], scene)


def test_a_client_without_a_session_keeps_its_place() -> None:
    async def scene(world: World) -> None:
        calls = _submitted(world)
        first = world.clock.steady()
        asked = _ask(world)
        await world.until_over(asked, longest=60)
        await world.pass_time(1)
        again = _ask(world, tries=1)
        await world.until_over(again)
        assert (asked.status, again.status) == (503, 200)
        assert again.headers["x-jackline-call"] == asked.headers["x-jackline-call"]
        assert [call.since for call in calls] == [None, first]

    play([wall(90), WHOLE_ANSWER], scene)


def test_each_of_those_that_ask_the_same_keeps_a_place_of_its_own() -> None:
    async def scene(world: World) -> None:
        asked = [_ask(world) for _ in range(3)]
        await world.until_over(*asked, longest=60)
        again = [_ask(world, tries=1) for _ in range(4)]
        await world.until_over(*again)
        kept = {client.headers["x-jackline-call"] for client in asked}
        names = [client.headers["x-jackline-call"] for client in again]
        assert len(set(names)) == 4
        assert set(names[:3]) == kept
        assert all(client.status == 200 for client in again)

    play([*[wall(90)] * 3, WHOLE_ANSWER], scene)


def test_other_bytes_or_another_payer_get_no_place_of_somebody_elses() -> None:
    async def scene(world: World) -> None:
        calls = _submitted(world)
        asked = _ask(world)
        await world.until_over(asked, longest=60)
        headers = {"x-api-key": "sk-ant-two"}
        others = [
            world.ask(session=None, user_agent=SDK, stream=False, headers=headers),
            world.ask("else", session=None, user_agent=SDK, stream=False),
        ]
        await world.until_over(*others)
        assert [call.since for call in calls] == [None, None, None]

    play([wall(90), WHOLE_ANSWER], scene)


def test_clients_of_other_dialects_keep_their_place_too() -> None:

    openai = UpstreamSettings(
        "openai",
        "https://api.openai.example",
        kind=UpstreamKind.OPENAI_RESPONSES,
        credential=Credential.NONE,
        models={"none": "gpt-5.5"},
    )

    async def scene(world: World) -> None:
        calls = _submitted(world)
        headers = {"x-stainless-read-timeout": "60"}
        for _ in range(2):
            client = world.send_foreign(
                "/v1/responses", "openai-responses", stream=False, headers=headers
            )
            await world.until_over(client)
        assert [call.since is None for call in calls] == [True, False]

    play({"openai": [wall(90), WHOLE_ANSWER]}, scene, GatewaySettings(upstreams=(openai,)))


def test_the_last_try_of_an_sdk_hurries_from_the_beginning() -> None:
    async def scene(world: World) -> None:
        calls = _submitted(world)
        now = world.clock.steady()
        clients = [_ask(world, tries=tries) for tries in (0, 2)]
        clients.append(_ask(world, stream=True))
        told = [(call.leaves_at - now, call.hurries_at - now) for call in calls]
        assert told == [(54.0, 39.0), (54.0, 0.0), (math.inf, math.inf)]
        await world.until_over(*clients)

    play([], scene)
