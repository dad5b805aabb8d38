"""A session that a wall has ended goes on at its reset: with consent, once, never while open."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime

import pytest

from jackline.agents.outcome import Ending, Outcome
from jackline.assembly.session_continuing import SessionContinuing
from jackline.clock import VirtualClock
from jackline.failures import Failure, Observation, Where, classify
from jackline.flows.host import FlowHost
from jackline.flows.orders import begin_resume
from jackline.flows.records import RunState
from jackline.flows.running import FlowRun
from jackline.hooks.asked import HookAsked
from jackline.testing import MemoryEngine
from jackline.testing.scripted_runner import ScriptedRunner
from tests.assembly.world import run

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NOBODY = 4_000_000


def failed(text: str) -> Failure:
    return classify(Observation(Where.CLI_TEXT, text=text), now=NOON)


WALL = failed("You've hit your session limit · resets 3pm (UTC)")
THROTTLE = failed("API Error: Server is temporarily limiting requests (not your usage limit)")
TOLD = HookAsked("StopFailure", "0c6a3b5e-0000-4000-8000-000000000001", cwd="/work")


class World:
    def __init__(self, *, consents: bool = True) -> None:
        self.clock = VirtualClock(NOON)
        self.engine = MemoryEngine(wall=self.clock.wall)
        self.runner = ScriptedRunner(name="claude-code")
        self.host = FlowHost(self.engine, lambda _run: {"claude-code": self.runner}, self.clock)
        self.continuing = SessionContinuing(
            lambda: consents, self._give_host, self.clock, lambda: 0.5
        )

    async def _give_host(self) -> FlowHost:
        return self.host

    async def hear(self, failure: Failure, *processes: int) -> None:
        self.continuing.stopped(TOLD, failure, processes)
        for _ in range(200):
            await asyncio.sleep(0.001)
            if not self.continuing._work:
                return
        raise AssertionError("it never settled")


def test_without_consent_or_for_another_failure_nothing_is_planned() -> None:
    async def main() -> None:
        for consents, failure in ((False, WALL), (True, THROTTLE)):
            world = World(consents=consents)
            await world.hear(failure)
            assert await world.engine.runs() == []

    run(main())


def test_a_session_waits_for_the_reset_as_a_parked_run_and_only_once() -> None:
    async def main() -> None:
        world = World()
        await world.hear(WALL, NOBODY)
        await world.hear(WALL, NOBODY)
        (parked,) = await world.engine.runs()
        assert (parked.state, parked.flow) == (RunState.PARKED, "started_agents")
        assert parked.wake_at == NOON.replace(hour=15).timestamp() + 15
        assert "session limit" in parked.why
        (order,) = json.loads(parked.arguments)["orders"]
        assert (order["resume"], order["runner"]) == (TOLD.session_id, "claude-code")

    run(main())


@pytest.mark.parametrize("is_open", [False, True])
def test_a_session_that_is_still_open_is_left_alone(is_open: bool) -> None:
    async def main() -> Outcome[object]:
        world = World()
        await world.hear(WALL, os.getpid() if is_open else NOBODY)
        (parked,) = await world.engine.runs()
        begun = await begin_resume(world.host, parked.run_id)
        assert isinstance(begun, FlowRun)
        return await begun.carry()

    outcome = run(main())
    if is_open:
        assert outcome.terminated_by is Ending.CRASH
        assert "still open" in outcome.evidence.says
    else:
        assert "still open" not in outcome.evidence.says
