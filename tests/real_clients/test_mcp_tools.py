"""Claude Code itself uses the tools: nothing its agents had finished is lost, or done twice."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.reply_script import Reply, Say
from tests.agents.process.world import lines_of, until
from tests.real_clients.clients import claude_binary
from tests.real_clients.parent_world import CLAUDES, ParentWorld, shell, tool

pytestmark = [
    pytest.mark.real_client,
    pytest.mark.skipif(os.name == "nt", reason="kill -9 and the shell's words are POSIX"),
]


def split(prompt: str) -> Say:
    """The model starts one of Claude Code's own sub-agents, on a model of its own."""
    given = {"description": "a part", "prompt": prompt, "model": "haiku"}
    usual = {"subagent_type": "general-purpose", "run_in_background": False}
    return Say("I split.", (("Agent", {**given, **usual}),))


@pytest.mark.parametrize("fetched", CLAUDES)
def test_agents_that_were_cut_off_are_gone_on_with_by_task_and_by_session(
    fetched: Callable[[], Path], tmp_path: Path
) -> None:
    told: list[str] = []

    def parent(asked: ClientRequest) -> Reply:
        if "still connecting" in asked.results:
            return Say("I wait.", (("WaitForMcpServers", {}),))
        if asked.turn == 0 or "WaitForMcpServers" not in str(asked.body["messages"][-2:]):
            told.append(asked.results)
        dead = next((each.agent for each in world.received if each.agent), "")
        session = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", asked.results)
        return (
            split("SUB: do the work."),
            tool("agent", continue_from_task_id=dead, label="second"),
            tool("agent", prompt="OURS: do more.", budget={"turns": 1}, label="ours"),
            tool("agent", resume=session[0] if session else "none", prompt="GO ON"),
            Say("PARENT-DONE"),
        )[len(told) - 1]

    def mind(asked: ClientRequest) -> Reply:
        if "PARENT" in asked.prompt:
            return parent(asked)
        if "OURS" in asked.prompt:
            done = "GO ON" in asked.latest
            return Say("Ours went on.") if done else shell("echo ours >> steps")
        if "was cut off" in asked.prompt:
            return Say("The second has done the rest.")
        if asked.turn == 0:
            return shell("echo one >> steps")
        if asked.agent:
            assert world.server is not None
            world.server.playing.add_fault(Fault(Effect.QUOTA_WALL, model="haiku", until=4.0))
        return Say("-")

    world = ParentWorld(tmp_path, fetched(), mind)

    async def main() -> None:
        async with world.open():
            assert await world.result_of(await world.start()) == "PARENT-DONE", told
            assert "The second has done the rest." in told[2]
            assert "did not complete: turns" in told[3]
            assert "Ours went on." in told[4]
            assert lines_of(world.project / "steps") == ["one", "ours"]
            second = next(a.prompt for a in world.received if "was cut off" in a.prompt)
            assert "echo one" in second
            assert "SUB: do the work." in second
            assert world.ledger.repeated == 0

    event_loop.run(main())


def test_when_client_and_service_are_killed_the_agent_goes_on_and_the_next_client_hears_of_it(
    tmp_path: Path,
) -> None:
    def parent(asked: ClientRequest) -> Reply:
        known = re.findall(r"[0-9a-f]{10}", asked.results)
        if "still connecting" in asked.results:
            return Say("I wait.", (("WaitForMcpServers", {}),))
        if "It is all done." in asked.results:
            return Say("NEXT-DONE")
        return tool("agent_wait", ids=known[:1]) if known else tool("agent_status")

    def mind(asked: ClientRequest) -> Reply:
        if "NEXT" in asked.prompt:
            return parent(asked)
        if "PARENT" in asked.prompt:
            return tool("agent", prompt="OURS: do the work.")
        if "may or may not have run" in asked.latest:
            return Say("It is all done.")
        if asked.turn == 0:
            return shell("echo one >> steps")
        return shell("touch begun; while true; do sleep 0.2; done # LOST-CALL")

    world = ParentWorld(tmp_path, claude_binary(), mind)

    async def main() -> None:
        async with world.open():
            parent = await world.start()
            await until((world.project / "begun").exists)
            service = world.state.running()
            assert service is not None
            os.kill(service.pid, signal.SIGKILL)
            parent.kill()
            await parent.communicate()
            await world.jackline("up", "-d")
            assert await world.result_of(await world.start("NEXT: what became of it?")) == (
                "NEXT-DONE"
            )
            assert lines_of(world.project / "steps") == ["one"]
            assert world.ledger.repeated == 0

    event_loop.run(main())
