"""A session that a wall has ended goes on at its reset: with consent, once, never while open."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jackline.agents.outcome import Ending, Outcome
from jackline.clock import VirtualClock
from jackline.failures import Observation, Where, classify
from jackline.flows.flow_run import FlowRun
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_resume, cancel_run
from jackline.flows.records import RunRecord, RunState
from jackline.flows.settings import RunSettings, WakeSettings, decode_settings, may_wake
from jackline.flows.store import open_run_store
from jackline.hooks.agent_deaths import DeathCause
from jackline.mcp_server.session_resume import CutOffSession, SessionResumer
from jackline.testing.scripted_agents import ScriptedRunner
from tests.assembly.world import run
from tests.hooks.hook_requests import ended

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NOBODY = 4_000_000


SESSION = "0c6a3b5e-0000-4000-8000-000000000001"


def failed(text: str) -> DeathCause:
    return DeathCause.of(classify(Observation(Where.CLI_TEXT, text=text), now=NOON))


WALL = failed("You've hit your session limit · resets 3pm (UTC)")
THROTTLE = failed("API Error: Server is temporarily limiting requests (not your usage limit)")


class World:
    def __init__(self, *, consents: bool = True, settings: RunSettings | None = None) -> None:
        self.clock = VirtualClock(NOON)
        self.engine = open_run_store("sqlite:///:memory:", wall=self.clock.wall)
        self.runner = ScriptedRunner(name="claude-code")
        self.host = FlowHost(
            self.engine,
            lambda _run: {"claude-code": self.runner},
            self.clock,
            settings=settings or RunSettings(),
        )
        self.consents = consents
        self.continuing = self.service()

    def service(self) -> SessionResumer:
        return SessionResumer(lambda: self.consents, self._give_host, self.clock, lambda: 0.5)

    async def _give_host(self) -> FlowHost:
        return self.host

    def stop(
        self,
        cause: DeathCause,
        *processes: int,
        session: str = SESSION,
        run: str | None = None,
        transcript: str = "",
    ) -> None:
        where = (session, "/work", transcript, processes)
        why = (cause.kind, cause.name, cause.resets_at)
        self.continuing.stopped(CutOffSession(*where, *why, "opus", run))

    async def hear(self, cause: DeathCause, *processes: int) -> None:
        self.stop(cause, *processes)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(200):
            await asyncio.sleep(0.001)
            if not self.continuing._work:
                return
        raise AssertionError("it never settled")

    async def only(self) -> RunRecord:
        (record,) = await self.engine.runs()
        return record


def test_without_consent_or_for_another_failure_nothing_is_planned() -> None:
    async def main() -> None:
        for consents, cause in ((False, WALL), (True, THROTTLE)):
            world = World(consents=consents)
            await world.hear(cause)
            assert await world.engine.runs() == []

    run(main())


def test_a_session_waits_for_the_reset_as_a_parked_run_and_only_once() -> None:
    async def main() -> None:
        world = World()
        await world.hear(WALL, NOBODY)
        await world.hear(WALL, NOBODY)
        parked = await world.only()
        assert (parked.state, parked.flow) == (RunState.PARKED, "started_agents")
        assert parked.wake_at == NOON.replace(hour=15).timestamp() + 15
        assert "session limit" in parked.why
        (order,) = json.loads(parked.arguments)["orders"]
        assert (order["resume"], order["runner"]) == (SESSION, "claude-code")

    run(main())


@pytest.mark.parametrize("is_open", [False, True])
def test_a_session_that_is_still_open_is_left_alone(is_open: bool) -> None:
    async def main() -> Outcome[object]:
        world = World()
        await world.hear(WALL, os.getpid() if is_open else NOBODY)
        (parked,) = await world.engine.runs()
        begun = await begin_resume(world.host, parked.run_id)
        assert isinstance(begun, FlowRun)
        return await begun.run()

    outcome = run(main())
    if is_open:
        assert outcome.terminated_by is Ending.CRASH
        assert "still open" in outcome.evidence.says
    else:
        assert "still open" not in outcome.evidence.says


def test_who_hears_of_one_end_from_two_sides_at_once_plans_once() -> None:
    async def main() -> None:
        world = World()
        world.stop(WALL, NOBODY)
        world.stop(WALL, NOBODY)
        await world.settle()
        assert (await world.only()).state is RunState.PARKED

    run(main())


def test_a_service_that_was_started_again_plans_no_second_time() -> None:
    async def main() -> None:
        world = World()
        await world.hear(WALL, NOBODY)
        world.continuing = world.service()
        await world.hear(WALL, NOBODY)
        await world.only()

    run(main())


def test_a_session_that_a_run_carries_is_left_to_the_run() -> None:
    async def main() -> None:
        world = World()
        await world.hear(WALL, NOBODY)
        own = await world.only()
        world.stop(WALL, NOBODY, session="another session", run=own.run_id)
        await world.settle()
        assert (await world.only()).run_id == own.run_id
        world.stop(WALL, NOBODY, session="another session", run="a tag of the user's own")
        await world.settle()
        assert len(await world.engine.runs()) == 2

    run(main())


@pytest.mark.parametrize(
    ("wake", "held"),
    [
        (WakeSettings(), ""),
        (WakeSettings(hours="20:00-22:00 UTC"), "only during"),
        (WakeSettings(confirm=True), "after a person confirms"),
        (WakeSettings(spend=0.0), "has cost"),
    ],
    ids=["no brake", "hours", "confirm", "spend"],
)
def test_the_brakes_of_flows_hold_it(wake: WakeSettings, held: str) -> None:
    async def main() -> None:
        world = World(settings=replace(RunSettings(), wake=wake))
        await world.hear(WALL, NOBODY)
        parked = await world.only()
        settings = decode_settings(parked.settings).wake
        assert not may_wake(NOON.replace(hour=14), parked, settings).now
        after = may_wake(NOON.replace(hour=15, minute=1), parked, settings)
        assert after.now == (not held)
        assert held in after.why

    run(main())


def test_one_command_cancels_it_and_then_nothing_wakes() -> None:
    async def main() -> None:
        world = World()
        await world.hear(WALL, NOBODY)
        assert await cancel_run(world.host, (await world.only()).run_id) is RunState.CANCELLED
        assert world.runner.tasks == []

    run(main())


def test_a_session_that_is_answered_again_has_gone_on_by_itself() -> None:
    async def main() -> None:
        world = World()
        await world.hear(WALL, NOBODY)
        now = world.clock.wall()
        on_the_side = ended("answered", at=now, agent=None, session=SESSION, model="haiku")
        world.continuing.answered(on_the_side)
        await world.settle()
        assert (await world.only()).state is RunState.PARKED, "a call on the side of the dying"
        woken = ended("answered", at=now + 99, agent=None, session=SESSION, tag=None)
        own = woken._replace(tag=(await world.only()).run_id)
        world.continuing.answered(own)
        await world.settle()
        assert (await world.only()).state is RunState.PARKED, "the run itself, which goes on"
        world.continuing.answered(woken)
        await world.settle()
        assert (await world.only()).state is RunState.CANCELLED

    run(main())


@pytest.mark.parametrize("after_restart", [False, True])
def test_a_session_that_is_written_on_elsewhere_has_gone_on_by_itself(
    after_restart: bool, tmp_path: Path
) -> None:
    async def main() -> None:
        world = World()
        transcript = tmp_path / "session.jsonl"
        transcript.write_text("{}\n")
        world.stop(WALL, NOBODY, transcript=str(transcript))
        await world.settle()
        if after_restart:
            world.continuing = world.service()
        watching = asyncio.create_task(world.continuing.watch(lambda: True))

        async def pass_time() -> None:
            for _ in range(6):
                await world.clock.advance(15)
                await asyncio.sleep(0.02)

        await pass_time()
        assert (await world.only()).state is RunState.PARKED, "nobody has written"
        os.utime(transcript, (1, 1))
        await pass_time()
        assert (await world.only()).state is RunState.CANCELLED
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    run(main())
