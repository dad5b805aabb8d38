"""A provider that is slow and healthy: each client is answered, and nothing is bought twice."""

from __future__ import annotations

import pytest

from jackline.testing import Step
from tests.gateway.desk_world import LANE, World, play


@pytest.mark.parametrize(("seconds", "agents"), [(9, 10), (12, 10), (15, 4), (25, 1), (55, 8)])
def test_everybody_is_answered_by_a_provider_that_needs_long_for_its_first_byte(
    seconds: float, agents: int
) -> None:
    async def scene(world: World) -> None:
        clients = [world.ask(f"agent {number}") for number in range(agents)]
        await world.until_over(*clients, longest=3 * seconds)
        assert [client.status for client in clients] == [200] * agents
        assert all(b"message_stop" in client.body for client in clients)
        assert world.asked() == [LANE] * agents, "nobody is asked for twice"

    play({"anthropic": [Step(after=seconds, between=1.0)]}, scene)


def test_a_call_that_is_lost_on_its_way_is_asked_for_beside_and_answered_once() -> None:
    async def scene(world: World) -> None:
        client = world.ask("one")
        await world.until_over(client, longest=70)
        assert client.status == 200
        assert client.body.count(b"event: message_stop") == 1
        assert world.upstream.open_now == 0
        (ended,) = world.ended
        assert ended.attempts == 2

    play({"anthropic": [Step(silent=True), Step()]}, scene)
