"""Budgets bind Claude Code and Codex while their processes run, and count stopped ones too."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jackline import event_loop
from jackline.agents.outcome import Ending, Evidence
from jackline.agents.runner import NextCall, StopAgentError
from jackline.agents.task_meter import TaskReading, TaskReadings
from jackline.assembly.gateway_process import task_readings
from jackline.clock import SystemClock
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import RequestOutcome
from jackline.simulator.reply_script import Reply, Say, structured
from jackline.simulator.time_model import AT_ONCE
from jackline.state_dir import StateDir
from tests.agents.process.doubles import FreeLeave, Pages
from tests.agents.process.world import World
from tests.real_clients.codex import codex_binary
from tests.real_clients.test_runners import CLAUDES, CLIENTS, SCHEMA, shell, world_of

pytestmark = pytest.mark.real_client

# A program that nothing stops ends by itself, so that a failing test ends too.
ENDLESS = 40
SLOW = replace(AT_ONCE, first_byte=0.5)
FETCHED = Callable[[], Path]


@dataclass
class MeteredLeave(FreeLeave):
    """Leave that reads the real gateway's count, and ends the agent after so many tokens."""

    world: World = field(kw_only=True)
    most_tokens: int = 1_000_000_000
    readings: TaskReadings | None = None

    async def metered(self, *, fresh: bool = False) -> TaskReading | None:
        if self.readings is None:
            self.readings = TaskReadings(
                partial(task_readings, StateDir(self.world.folder / "state"), self.world.url),
                SystemClock(),
            )
        return await self.readings.of("task-1", fresh=fresh)

    async def before_call(
        self, call: NextCall | None = None, *, works_meanwhile: bool = False
    ) -> None:
        await super().before_call(call, works_meanwhile=works_meanwhile)
        if (stop := await self.over_budget()) is not None:
            raise stop

    async def over_budget(self) -> StopAgentError | None:
        used_up = self.usage.total >= self.most_tokens
        says = "It has used all that it may."
        return StopAgentError(Ending.BUDGET, Evidence(says=says)) if used_up else None


def stop(ending: Ending) -> StopAgentError:
    return StopAgentError(ending, Evidence(says="No more."))


def run(main: Coroutine[Any, Any, None]) -> None:
    event_loop.run(main)


def used_at_provider(world: World) -> int:
    """All tokens of the answers that were given to their end."""
    completed = [each for each in world.ledger.entries if each.outcome is RequestOutcome.COMPLETED]
    return sum(each.input_tokens + each.output_tokens for each in completed)


def assert_charged(leave: FreeLeave, world: World) -> None:
    """Everything is charged that was answered; and of one that was cut off, what had come."""
    used = used_at_provider(world)
    largest = max(each.input_tokens + each.output_tokens for each in world.ledger.entries)
    assert used <= leave.usage.total <= used + largest


@pytest.mark.parametrize("fetched", CLIENTS)
def test_tokens_bind_a_program_while_it_runs(fetched: FETCHED, tmp_path: Path) -> None:
    def mind(asked: ClientRequest) -> Reply:
        return shell("true", "word " * 400) if asked.turn < ENDLESS else Say("Done.")

    world = world_of(fetched, tmp_path, mind, service=SLOW)

    async def main() -> None:
        async with world.open():
            leave = MeteredLeave(world=world, most_tokens=1)
            outcome = await world.carry(Pages(), leave)
            assert outcome.terminated_by is Ending.BUDGET
            # One that it has sent meanwhile, and those of a second in which nobody looks.
            assert len(world.ledger) <= 5
            assert_charged(leave, world)

    run(main())


def test_turns_bind_codex_whatever_tools_it_uses(tmp_path: Path) -> None:
    """A plan is no command, and nothing that is printed shows the calls that make one."""
    plan = {"plan": [{"step": "look", "status": "in_progress"}]}

    def mind(asked: ClientRequest) -> Reply:
        return Say("", (("update_plan", plan),)) if asked.turn < ENDLESS else Say("Done.")

    world = World(tmp_path, codex_binary(), mind, codex=True, service=SLOW)

    async def main() -> None:
        async with world.open():
            leave = MeteredLeave(world=world, stop=stop(Ending.TURNS), stop_after=3)
            outcome = await world.carry(Pages(), leave)
            assert outcome.terminated_by is Ending.TURNS
            # It is counted once a second, and does not wait for it.
            assert 3 <= len(world.ledger) <= 10
            assert_charged(leave, world)

    run(main())


@pytest.mark.parametrize("fetched", CLIENTS)
def test_each_call_of_a_program_is_charged_once_with_the_gateway_counting(
    fetched: FETCHED, tmp_path: Path
) -> None:
    def mind(asked: ClientRequest) -> Reply:
        return shell("true", "word " * 300) if asked.turn < 3 else Say("Done.")

    world = world_of(fetched, tmp_path, mind, service=SLOW)

    async def main() -> None:
        async with world.open():
            leave = MeteredLeave(world=world)
            outcome = await world.carry(Pages(), leave)
            assert outcome.ok
            assert leave.usage.total == outcome.usage.total == used_at_provider(world)
            assert leave.asked == 4
            assert outcome.turns == 4

    run(main())


@pytest.mark.parametrize("in_background", [False, True], ids=["waited for", "in the background"])
@pytest.mark.parametrize("fetched", CLAUDES)
def test_tokens_bind_sub_agents_while_they_run(
    fetched: FETCHED, tmp_path: Path, in_background: bool
) -> None:
    """Nobody admits their calls, and while they run the program's own answer is far away."""
    start = {"description": "x", "prompt": "Do it.", "subagent_type": "general-purpose"}

    def mind(asked: ClientRequest) -> Reply:
        if asked.turn == 0 and not asked.agent:
            return Say("", (("Agent", {**start, "run_in_background": in_background}),))
        return shell("sleep 0.2", "word " * 400) if asked.turn < ENDLESS else Say("Done.")

    world = world_of(fetched, tmp_path, mind, service=SLOW)

    async def main() -> None:
        async with world.open():
            leave = MeteredLeave(world=world, most_tokens=20_000)
            outcome = await world.carry(Pages(), leave)
            assert outcome.terminated_by is Ending.BUDGET
            sub_agents = [asked for asked in world.received if asked.agent]
            assert sub_agents
            assert len(world.ledger) < ENDLESS / 2
            assert_charged(leave, world)

    run(main())


@pytest.mark.parametrize("fetched", CLAUDES)
def test_an_invalid_structured_answer_is_a_turn(fetched: FETCHED, tmp_path: Path) -> None:
    """The program itself refuses it, and asks the model again: that call needs leave, too."""

    def mind(asked: ClientRequest) -> Reply:
        return structured({"points": "many"} if asked.turn < ENDLESS else {"points": 1})

    world = world_of(fetched, tmp_path, mind, service=SLOW)

    async def main() -> None:
        async with world.open():
            leave = MeteredLeave(world=world, stop=stop(Ending.TURNS), stop_after=3)
            outcome = await world.carry(Pages(), leave, schema=SCHEMA)
            assert outcome.terminated_by is Ending.TURNS
            assert len(world.ledger) in (3, 4)

    run(main())
