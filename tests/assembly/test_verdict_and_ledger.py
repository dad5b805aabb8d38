"""The verdict about a wall and a failover, beside what the provider's ledger has seen."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path

from jackline.assembly import Service
from jackline.gateway.settings import HoldSettings
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.simulator.ledger import RequestOutcome
from jackline.testing import SimulatedProvider
from tests.assembly.world import ask, config_for, question, request, run, until


def call(agent: str) -> bytes:
    who = ((b"x-claude-code-session-id", b"s"), (b"x-claude-code-agent-id", agent.encode()))
    return request(b"POST", b"/v1/messages", question(), *who)


def verdict(service: Service) -> str:
    return str(service.status()["verdict"])


def completed(provider: SimulatedProvider) -> int:
    return sum(each.outcome is RequestOutcome.COMPLETED for each in provider.ledger)


def test_calls_that_were_refused_at_a_wall_and_survived_are_not_called_failed(
    tmp_path: Path,
) -> None:
    async def main(provider: SimulatedProvider) -> None:
        wall = provider.quota_wall(resets_in=math.inf, announced="no")
        config = config_for(tmp_path, provider.url, hold=HoldSettings(quota=0.0))
        async with Service(config) as service:
            agents = [f"a{number}" for number in range(5)]
            await asyncio.gather(*(ask(service.url, call(each)) for each in agents))
            assert completed(provider) == 0
            assert "0 calls held and delivered, 5 passed on as failed." in verdict(service)
            provider.heal(wall)
            (lane,) = service.carrier.controller.lanes
            service._hand_orders.probe({"lane": lane.label})
            for agent in agents[:4]:
                await ask(service.url, call(agent))
            assert completed(provider) == 4
            # As many as were answered afterwards; the fifth has not come back.
            await until(lambda: "4 refused and survived, 1 passed on as failed" in verdict(service))

    with SimulatedProvider() as provider:
        run(main(provider))


def test_while_the_first_upstream_is_down_the_verdict_names_the_one_that_answers(
    tmp_path: Path,
) -> None:
    async def main(first: SimulatedProvider, second: SimulatedProvider) -> None:
        config = config_for(tmp_path, first.url)
        places = (
            UpstreamSettings(name="first", url=first.url, credential=Credential.NONE),
            UpstreamSettings(name="second", url=second.url, credential=Credential.NONE),
        )
        config = replace(config, gateway=replace(config.gateway, upstreams=places))
        async with Service(config) as service:
            await ask(service.url, call("a"))
            assert (completed(first), completed(second)) == (1, 0)
            assert "answered by" not in verdict(service)
            first.refuse()
            await ask(service.url, call("b"))
            assert (completed(first), completed(second)) == (1, 1)
            # One failure closes no lane, and the call has moved nevertheless.
            words = "Calls are answered by second, because first fails."
            await until(lambda: words in verdict(service))
            (lane,) = (
                lane
                for name, lane in service.carrier.controller.lanes.items()
                if name[0] == "first"
            )
            lane.break_down(None, service.desk.now())
            words = "Calls are answered by second, because first is down."
            await until(lambda: words in verdict(service))
            assert service.status()["answered_instead"] == words
            assert "Nothing needs you." in verdict(service)

    with SimulatedProvider() as first, SimulatedProvider() as second:
        run(main(first, second))
