"""The anthropic Python SDK, which knows nothing of Jackline, is carried through trouble."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from jackline import event_loop
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import open_gateway
from jackline.providers.settings import UpstreamSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.ledger import RequestLedger
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule, long_answer
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import ServiceSettings
from tests.real_clients.anthropic_sdk import Called, call_with_sdk, sdk_folder

pytestmark = pytest.mark.real_client

SPEED = 30.0
ANSWER = long_answer(300)
COUNT = 6
WELL = [Called(ANSWER.text, "end_turn", "")] * COUNT
STEADY = ServiceSettings(first_byte=1.0, first_byte_spread=0.0, tokens_per_second=60)


@dataclass(frozen=True)
class Run:
    calls: list[Called]
    ledger: RequestLedger


def run(fault: Fault | None = None, *, bare: bool = False) -> Run:
    """Six calls at once; the fault begins with the first request, however long the SDK takes."""
    sdk_folder()

    async def main() -> Run:
        def hear(_asked: ClientRequest) -> Reply:
            if faults:
                server.playing.add_fault(faults.pop())
            return ANSWER

        faults = [] if fault is None else [fault]
        mind = ReplyScript((Rule(hear),))
        settings = ProviderSettings(service=STEADY)
        async with SimulatorServer(settings, mind, speed=SPEED, clients_hurry=True) as server:
            if bare:
                calls = await call_with_sdk(server.url, COUNT)
            else:
                upstreams = [UpstreamSettings(url=server.url)]
                async with open_gateway(upstreams, DrillClock(SPEED)) as endpoint:
                    calls = await call_with_sdk(endpoint.url, COUNT)
            return Run(calls, server.playing.provider.ledger)

    return event_loop.run(main())


def test_healthy_calls_pass_as_they_are() -> None:
    done = run()
    assert done.calls == WELL
    assert (done.ledger.useful, done.ledger.wasted) == (COUNT, 0)


@pytest.mark.parametrize("effect", [Effect.THROTTLED, Effect.ENVOY])
def test_a_storm_passes_unseen(effect: Effect) -> None:
    done = run(Fault(effect, until=60))
    assert done.calls == WELL
    assert done.ledger.wasted > 0, "the storm was met, and not by the client"


def test_bare_the_same_storm_is_an_error_for_every_call() -> None:
    done = run(Fault(Effect.THROTTLED), bare=True)
    assert {called.error for called in done.calls} == {"RateLimitError"}


def test_answers_that_are_cut_come_whole() -> None:
    done = run(Fault(Effect.CUT, until=30, at_share=0.5))
    assert done.calls == WELL
    assert done.ledger.reasons["cut"] > 0
