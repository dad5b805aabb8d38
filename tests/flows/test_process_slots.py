"""Client processes are bounded over all runs of a host, and wait in the order of their coming."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from jackline import agent, flow
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import AgentLog, AgentTask, CallGate, StopAgentError
from jackline.flows.execution.execution import scope_for
from jackline.flows.flow_run import FlowRun
from jackline.flows.host import FlowHost, ProcessSlot, ProcessSlots
from jackline.flows.lifecycle import begin_run
from jackline.flows.records import RunState
from jackline.flows.run_events import AgentWaits
from tests.flows.world import World, played, world

LINE = "client processes of agents run already"


class Programs:
    """A runner of processes; each lives until the test ends it."""

    name = "claude-code"

    def __init__(self) -> None:
        self.alive: dict[str, asyncio.Event] = {}
        self.begun: list[str] = []
        self.most = 0
        self.meanwhile: Callable[[AgentTask, CallGate], Awaitable[None]] | None = None

    async def run(self, task: AgentTask, notebook: AgentLog, leave: CallGate) -> Outcome[object]:
        del notebook
        try:
            await leave.before_call()
            async with leave.process():
                self.begun.append(task.prompt)
                self.alive[task.prompt] = asyncio.Event()
                self.most = max(self.most, len(self.alive))
                await self.alive[task.prompt].wait()
            if self.meanwhile is not None:
                await self.meanwhile(task, leave)
        except StopAgentError as stop:
            return Outcome(stop.ending, evidence=stop.evidence)
        finally:
            self.alive.pop(task.prompt, None)
        return Outcome(Ending.COMPLETION, "done")


@flow
async def one(name: str, deadline: float | None = None, level: int = 1) -> Any:
    """One agent, so many deep."""
    scope_for("one()").run.level = level
    return (await agent(name, runner="claude-code", deadline=deadline).outcome()).terminated_by


def host_of(w: World, programs: Programs, most: int) -> FlowHost:
    runners = {"claude-code": programs}
    return replace(w.host, runners=lambda _run: runners, processes=ProcessSlots(most))


async def begin(host: FlowHost, name: str, more: str = "") -> FlowRun[Any]:
    return await begin_run(host, one, f'{{"name": "{name}"{more}}}'.encode(), run_id=name)


def test_no_more_processes_live_than_the_host_may_have_whatever_runs_they_are_of() -> None:
    async def main() -> None:
        w, programs = world(), Programs()
        host = host_of(w, programs, 3)
        names = [f"r{number:02}" for number in range(12)]
        runs = [await begin(host, name) for name in names]
        tasks = [asyncio.create_task(run.run()) for run in runs]
        for ended, task in zip(names, tasks, strict=True):
            at_least = min(len(names), names.index(ended) + 3)
            await w.until(lambda need=at_least: len(programs.begun) >= need, tasks[-1])  # type: ignore[misc]
            assert len(programs.alive) <= 3
            waits = [event for event in w.of(AgentWaits) if LINE in event.why]
            assert {event.label for event in waits} or ended != names[0]
            programs.alive[ended].set()
            assert (await w.through(asyncio.wait_for(task, 60))).ok
        assert programs.begun == names, "who came first goes first"
        assert programs.most == 3
        waits = [event for event in w.of(AgentWaits) if LINE in event.why]
        assert len(waits) == len(names) - 3
        assert all("3 client processes" in event.why for event in waits)

    played(main)


def test_one_that_waits_for_other_things_holds_no_place() -> None:
    """A run that is parked for hours must not keep those of another account from their work."""

    async def main() -> None:
        w, programs = world(), Programs()
        gone = asyncio.Event()

        async def at_a_wall(task: AgentTask, _leave: CallGate) -> None:
            if task.prompt == "first":
                await gone.wait()

        programs.meanwhile = at_a_wall
        host = host_of(w, programs, 1)
        tasks = [asyncio.create_task((await begin(host, name)).run()) for name in ("first", "b")]
        await w.until(lambda: "first" in programs.alive, tasks[0])
        programs.alive["first"].set()
        await w.until(lambda: "b" in programs.alive, tasks[1])
        programs.alive["b"].set()
        gone.set()
        for task in tasks:
            assert (await w.through(asyncio.wait_for(task, 60))).ok

    played(main)


def test_agents_that_an_agent_has_started_do_not_wait_for_it() -> None:
    async def main() -> None:
        w, programs = world(), Programs()
        host = host_of(w, programs, 1)
        outer, inner = await begin(host, "outer"), await begin(host, "inner", ', "level": 2')
        tasks = [asyncio.create_task(run.run()) for run in (outer, inner)]
        await w.until(lambda: len(programs.alive) == 2, tasks[0])
        for event in list(programs.alive.values()):
            event.set()
        for task in tasks:
            assert (await w.through(asyncio.wait_for(task, 60))).ok

    played(main)


def test_in_line_a_deadline_holds_and_a_stop_is_heard_at_once() -> None:
    async def main() -> None:
        w, programs = world(), Programs()
        host = host_of(w, programs, 1)
        first = asyncio.create_task((await begin(host, "first")).run())
        await w.until(lambda: "first" in programs.alive, first)
        late = await w.through((await begin(host, "late", ', "deadline": 60.0')).run())
        assert late.value == Ending.DEADLINE
        stopped = await begin(host, "stopped")
        stopping = asyncio.create_task(stopped.run())
        await w.until(lambda: LINE in str(w.of(AgentWaits)[-1].why), stopping)
        before = w.clock.monotonic()
        stopped.stop("The test stops it.")
        await w.through(asyncio.wait_for(stopping, 60))
        assert stopped.state is RunState.STOPPED
        assert w.clock.monotonic() - before < host.settings.grace
        programs.alive["first"].set()
        assert (await w.through(asyncio.wait_for(first, 60))).ok
        assert programs.begun == ["first"]

    played(main)


@pytest.mark.parametrize("seed", range(20))
def test_places_are_neither_lost_nor_made_however_they_are_given_back(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 -- no secret
    slots, here = ProcessSlots(3), list[ProcessSlot]()
    for _ in range(300):
        if here and draw.random() < 0.5:
            slots.release(here.pop(draw.randrange(len(here))))
        else:
            here.append(slots.request(draw.randrange(2)))
        for level in range(2):
            asked = [slot for slot in here if slot.level == level]
            granted = [slot for slot in asked if slot.granted.is_set()]
            assert granted == asked[: len(granted)], "in the order in which they came"
            assert len(granted) == min(3, len(asked))
