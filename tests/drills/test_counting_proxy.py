"""The counting proxy sees every error that a client sees, and changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from jackline import event_loop
from jackline.drills.builtin_client import (
    AgentEnd,
    AgentPlan,
    AgentRecord,
    BuiltinClient,
    ClientRetryPolicy,
)
from jackline.drills.claude_client import CountingProxy
from jackline.drills.drill_clock import DrillClock
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import ReplyScript, Rule, Say
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import AT_ONCE, seeded_random
from tests.hiccups import steadily

DONE = "All is well."
PLAN = AgentPlan("one", "TASK: look", DONE)
# At this speed so long a pause is minutes for a client.
HICCUP = 0.3


def meet(*rules: Rule, retries: int = 10) -> tuple[AgentRecord, list[str]]:
    async def run() -> tuple[AgentRecord, list[str]]:
        settings = ProviderSettings(service=AT_ONCE)
        async with (
            SimulatorServer(settings, ReplyScript(rules, Say(DONE))) as server,
            CountingProxy(server.url) as proxy,
        ):
            policy = ClientRetryPolicy(retries=retries)
            client = BuiltinClient(PLAN, proxy.url, DrillClock(400), seeded_random(1), policy)
            await client.run()
            return client.record, [error.name for error in proxy.errors]

    return steadily(lambda: event_loop.run(run()), HICCUP)


def test_a_healthy_conversation_shows_no_error() -> None:
    looking = Rule(Say("x" * 5000, (("Bash", {"command": "ls"}),)), turn=0)
    record, errors = meet(looking)
    assert (record.end, record.posts, errors) == (AgentEnd.FINISHED, 2, [])


@pytest.mark.parametrize(
    ("effect", "name"),
    [
        (Effect.THROTTLED, "429"),
        (Effect.BAD_GATEWAY, "502"),
        (Effect.RESET, "reset"),
        (Effect.CUT, "reset"),
        (Effect.ERROR_EVENT, "error event"),
    ],
)
def test_each_error_is_seen_once_and_the_client_sees_the_same(effect: Effect, name: str) -> None:
    record, errors = meet(Rule(Fault(effect, at_share=0.5), call=0))
    assert (record.end, len(record.errors)) == (AgentEnd.FINISHED, 1)
    assert errors == [name]


def test_a_client_that_leaves_by_itself_has_seen_no_error() -> None:
    record, errors = meet(Rule(Fault(Effect.HANG)), retries=0)
    assert (record.end, len(record.errors)) == (AgentEnd.DIED, 1)
    assert errors == []


def test_nobody_behind_it_is_a_refusal() -> None:
    async def run() -> list[str]:
        async with CountingProxy("http://127.0.0.1:1") as proxy:
            client = BuiltinClient(
                PLAN, proxy.url, DrillClock(400), seeded_random(1), ClientRetryPolicy(retries=1)
            )
            await client.run()
            return [error.name for error in proxy.errors]

    assert event_loop.run(asyncio.wait_for(run(), 120)) == ["refused", "refused"]
