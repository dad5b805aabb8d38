"""Agents end by the word of who knows it, and by no silence."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from jackline import event_loop
from jackline.clock import VirtualClock
from jackline.control.fleet import Fleet
from jackline.control.status import AgentCounts
from jackline.events import CallEnded
from jackline.hooks.agent_ends import AgentEndTracker
from jackline.hooks.hook_input import HookInput
from jackline.lane_id import LaneId
from jackline.states import AgentState
from jackline.telemetry.client_telemetry import SUB_AGENT, ClientEvent, ClientReports

START = datetime(2026, 11, 15, 12, tzinfo=UTC)
AGENTS = ("", "a1", "a2")


def called(fleet: Fleet, at: float, agent: str, session: str = "s") -> None:
    who = (session, agent or None, None, None, True, 200, 1, 0.0, 1.0, None, 1, 1, 0, 0)
    fleet.call_ended(
        CallEnded(at, f"c{at}{agent}", "answered", LaneId("anthropic", "m", "1"), "m", *who)
    )


def states(fleet: Fleet, clock: VirtualClock, session: str = "s") -> list[AgentState]:
    members = [fleet.member((session, agent)) for agent in AGENTS]
    return [member.resting_state(clock.wall()) for member in members if member is not None]


@contextmanager
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Some process that runs until it is ended."""
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


async def met(ends: AgentEndTracker, told: HookInput, *processes: int) -> None:
    """A hook has come, and its processes are known."""
    ends.on_hook(told, processes)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others)


def with_fleet(
    play: Callable[[AgentEndTracker, Fleet, VirtualClock], Awaitable[None]],
    names: Sequence[str] = (),
) -> None:
    """`names` are those of the processes above the hook; nobody knows them where there are none."""

    async def main() -> None:
        fleet, clock = Fleet(), VirtualClock(START)
        for agent in AGENTS:
            called(fleet, clock.wall(), agent)
        called(fleet, clock.wall(), "", "other")
        left = list(names)
        ends = AgentEndTracker(lambda: fleet, clock, lambda _pid: left.pop(0) if left else "")
        await play(ends, fleet, clock)

    event_loop.run(main())


PROMPT = HookInput("UserPromptSubmit", "s", cwd="/x")


def test_a_session_whose_client_is_gone_is_finished_at_once_with_all_its_agents() -> None:
    async def play(ends: AgentEndTracker, fleet: Fleet, clock: VirtualClock) -> None:
        with process() as client, process() as shell:
            await met(ends, PROMPT, client.pid, shell.pid)
            await clock.advance(10)
            await ends.look()
            assert states(fleet, clock) == [AgentState.BETWEEN] * 3
            end(client)
            await ends.look()
            assert states(fleet, clock) == [AgentState.FINISHED] * 3
            assert AgentCounts.of([], fleet, {}, clock.wall()).total == 1, (
                "the other session is none's"
            )
            called(fleet, clock.wall() + 1, "")
            assert states(fleet, clock)[0] is AgentState.BETWEEN, "it was resumed"

    with_fleet(play)


def test_the_shell_that_called_a_hook_is_not_its_client() -> None:
    async def play(ends: AgentEndTracker, fleet: Fleet, clock: VirtualClock) -> None:
        with process() as shell, process() as client:
            await met(ends, PROMPT, shell.pid, client.pid)
            end(shell)
            for _ in range(3):
                await clock.advance(10)
                await ends.look()
            assert states(fleet, clock) == [AgentState.BETWEEN] * 3
            end(client)
            await ends.look()
            assert states(fleet, clock) == [AgentState.FINISHED] * 3

    with_fleet(play)


def test_a_client_that_is_gone_before_it_is_known_is_missed_only_with_all_above_its_hook() -> None:
    async def play(ends: AgentEndTracker, fleet: Fleet, clock: VirtualClock) -> None:
        with process() as client, process() as starter:
            await met(ends, PROMPT, client.pid, starter.pid)
            end(client)
            await ends.look()
            assert states(fleet, clock) == [AgentState.BETWEEN] * 3, "it may have been a shell"
            end(starter)
            await ends.look()
            assert states(fleet, clock) == [AgentState.FINISHED] * 3

    with_fleet(play)


@pytest.mark.parametrize(
    ("names", "client"), [(["claude", "zsh"], 0), (["sh", "claude"], 1), (["dash", "node"], 1)]
)
def test_a_client_that_is_known_by_its_name_may_be_gone_at_once(
    names: list[str], client: int
) -> None:
    async def play(ends: AgentEndTracker, fleet: Fleet, clock: VirtualClock) -> None:
        with process() as nearest, process() as above:
            both = (nearest, above)
            await met(ends, PROMPT, nearest.pid, above.pid)
            if client:
                end(both[0])
                await ends.look()
                assert states(fleet, clock) == [AgentState.BETWEEN] * 3
            end(both[client])
            await ends.look()
            assert states(fleet, clock) == [AgentState.FINISHED] * 3

    with_fleet(play, names)


def test_shells_alone_are_nobodys_client() -> None:
    async def play(ends: AgentEndTracker, fleet: Fleet, clock: VirtualClock) -> None:
        with process() as nearest, process() as above:
            await met(ends, PROMPT, nearest.pid, above.pid)
            end(nearest)
            end(above)
            await ends.look()
            assert states(fleet, clock) == [AgentState.BETWEEN] * 3

    with_fleet(play, ["sh", "bash"])


def test_processes_that_were_never_seen_alive_prove_nothing() -> None:
    async def play(ends: AgentEndTracker, fleet: Fleet, clock: VirtualClock) -> None:
        with process() as gone:
            end(gone)
            await met(ends, PROMPT, gone.pid)
        await ends.look()
        assert states(fleet, clock) == [AgentState.BETWEEN] * 3

    with_fleet(play)


def test_a_sub_agent_ends_when_its_parent_has_its_result_and_its_siblings_do_not() -> None:
    result = {"agentId": "a1", "status": "completed", "content": []}
    note = "<task-notification><task-id>a2</task-id><status>completed</status></task-notification>"

    async def play(ends: AgentEndTracker, fleet: Fleet, clock: VirtualClock) -> None:
        started = {"agentId": "a1", "status": "async_launched"}
        await met(ends, HookInput("PostToolUse", "s", tool_response=started), os.getpid())
        assert states(fleet, clock) == [AgentState.BETWEEN] * 3, "started is not ended"
        await met(ends, HookInput("PostToolUse", "s", tool_response=result), os.getpid())
        assert states(fleet, clock) == [AgentState.BETWEEN, AgentState.FINISHED, AgentState.BETWEEN]
        await met(ends, HookInput("UserPromptSubmit", "s", prompt=note), os.getpid())
        assert states(fleet, clock) == [
            AgentState.BETWEEN,
            AgentState.FINISHED,
            AgentState.FINISHED,
        ]

    with_fleet(play)


def test_a_sub_agent_ends_by_the_telemetry_of_its_client() -> None:
    async def play(ends: AgentEndTracker, fleet: Fleet, clock: VirtualClock) -> None:
        book = ClientReports(ends.agent_ended)
        book.add(ClientEvent(clock.wall(), SUB_AGENT, "s", "a2", {}, traced=False))
        assert states(fleet, clock) == [AgentState.BETWEEN, AgentState.BETWEEN, AgentState.FINISHED]
        told = book.of_agent("s", "a2")
        assert told is not None
        assert told.ended

    with_fleet(play)
