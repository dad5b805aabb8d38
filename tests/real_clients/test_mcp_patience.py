"""Claude Code's own patience, cancelling and nesting meet the tools as the protocol promises."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jackline import event_loop
from jackline.flows.records import RunState
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply, Say
from tests.agents.process.world import lines_of, until
from tests.real_clients.clients import claude_binary
from tests.real_clients.parent_world import CLAUDES, PATIENCE, ParentWorld, shell, tool

pytestmark = [
    pytest.mark.real_client,
    pytest.mark.skipif(os.name == "nt", reason="the shell's words are POSIX"),
]
ENDLESS = "touch begun; while true; do echo again >> beats; sleep 0.1; done"


def ready(asked: ClientRequest) -> Reply | None:
    """The newer client connects its servers while the model speaks."""
    if "mcp__jackline__agent" not in asked.tools and "WaitForMcpServers" in asked.tools:
        return Say("I wait.", (("WaitForMcpServers", {}),))
    return None


@pytest.mark.parametrize("fetched", CLAUDES)
def test_a_call_that_the_client_interrupts_ends_its_agent_and_all_that_it_runs(
    fetched: Callable[[], Path], tmp_path: Path
) -> None:
    def mind(asked: ClientRequest) -> Reply:
        if "PARENT" in asked.prompt:
            return ready(asked) or tool("agent", prompt="OURS: work without an end.")
        return shell(ENDLESS)

    world = ParentWorld(tmp_path, fetched(), mind)

    async def main() -> None:
        async with world.open():
            parent = await world.converse("PARENT: use Jackline.")
            await until((world.project / "begun").exists)
            request = {"subtype": "interrupt"}
            await world.say(parent, type="control_request", request_id="1", request=request)
            async with asyncio.timeout(PATIENCE):
                while (await world.runs())[0].state is not RunState.CANCELLED:  # noqa: ASYNC110 -- another process's store
                    await asyncio.sleep(0.1)
            assert "cancelled the call" in (await world.runs())[0].why
            # The parent lives; what its agent ran does not.
            assert parent.returncode is None
            beats = lines_of(world.project / "beats")
            await world.jackline("ls")
            assert lines_of(world.project / "beats") == beats

    event_loop.run(main())


@pytest.mark.parametrize("fetched", CLAUDES)
def test_before_a_clients_time_out_an_id_comes_back_and_the_result_is_waited_for(
    fetched: Callable[[], Path], tmp_path: Path
) -> None:
    told: list[str] = []

    def parent(asked: ClientRequest) -> Reply:
        if waits := ready(asked):
            return waits
        told.append(asked.results)
        if "It is done." in asked.results:
            return Say("PARENT-DONE")
        known = re.findall(r'ids=\[\\?"([0-9a-f]+)', told[-1])
        if known:
            (world.project / "go").touch()
            return tool("agent_wait", ids=known[:1])
        return tool("agent", prompt="OURS: work.") if len(told) == 1 else Say("no id was told")

    def mind(asked: ClientRequest) -> Reply:
        if "PARENT" in asked.prompt:
            return parent(asked)
        if asked.turn == 0:
            return shell("while ! test -e go; do sleep 0.1; done; echo once >> steps")
        return Say("It is done.")

    world = ParentWorld(tmp_path, fetched(), mind)

    async def main() -> None:
        async with world.open():
            # By the client's own limit every one of these calls would end after so long.
            parent = await world.start(MCP_TOOL_TIMEOUT="20000")
            assert await world.result_of(parent) == "PARENT-DONE", told
            assert "still at work" in told[1]
            assert not any("timed out" in each for each in told)
            assert lines_of(world.project / "steps") == ["once"]
            assert [run.state for run in await world.runs()] == [RunState.FINISHED]
            assert world.ledger.repeated == 0

    event_loop.run(main())


@pytest.mark.parametrize("fetched", CLAUDES)
def test_agents_in_the_background_work_side_by_side_and_their_ends_are_announced(
    fetched: Callable[[], Path], tmp_path: Path
) -> None:
    told: list[str] = []

    def parent(asked: ClientRequest) -> Reply:
        if waits := ready(asked):
            return waits
        told.append(asked.results)
        if len(told) == 1:
            orders = [{"prompt": f"OURS-{name}", "background": True} for name in ("A", "B")]
            calls = tuple(("mcp__jackline__agent", order) for order in orders)
            return Say("I ask Jackline.", calls)
        announced = any("finished_meanwhile" in each for each in told)
        return Say("PARENT-DONE") if announced else tool("status")

    def mind(asked: ClientRequest) -> Reply:
        if "PARENT" in asked.prompt:
            return parent(asked)
        mine = "a" if "OURS-A" in asked.prompt else "b"
        other = "b" if mine == "a" else "a"
        if asked.turn == 0:
            # Each ends only when the other one has begun.
            return shell(f"touch {mine}; while ! test -e {other}; do sleep 0.1; done")
        return Say("It is done.")

    world = ParentWorld(tmp_path, fetched(), mind)

    async def main() -> None:
        async with world.open():
            assert await world.result_of(await world.start()) == "PARENT-DONE", told
            assert told[1].count("still at work") == 2

    event_loop.run(main())


def test_an_agent_may_start_agents_only_so_deep(tmp_path: Path) -> None:
    told: dict[str, str] = {}

    def nested(asked: ClientRequest, name: str, below: str) -> Reply:
        if waits := ready(asked):
            return waits
        if "mcp__jackline__agent" not in json.dumps(asked.body["messages"]):
            return tool("agent", prompt=below, tools=["mcp__jackline__agent"])
        told[name] = asked.results
        return Say(f"{name} is done.")

    def mind(asked: ClientRequest) -> Reply:
        if "PARENT" in asked.prompt:
            if "FIRST is done." in asked.results:
                return Say("PARENT-DONE")
            given = {"prompt": "FIRST: have it done.", "tools": ["mcp__jackline__agent"]}
            return ready(asked) or tool("agent", **given)
        if "FIRST" in asked.prompt:
            return nested(asked, "FIRST", "SECOND: have it done.")
        if "SECOND" in asked.prompt:
            return nested(asked, "SECOND", "THIRD: have it done.")
        return Say("nobody should be asked this")

    world = ParentWorld(tmp_path, claude_binary(), mind, config="depth = 2\n")

    async def main() -> None:
        async with world.open():
            command = (sys.executable, "-m", "jackline", "mcp")
            await world.client_command("mcp", "add", "-s", "user", "jackline", "--", *command)
            assert await world.result_of(await world.start()) == "PARENT-DONE", told
            assert "agents.depth = 3" in told.get("SECOND", ""), told
            assert "SECOND is done." in told["FIRST"]
            assert not any("THIRD" in asked.prompt[:20] for asked in world.received)

    event_loop.run(main())


@pytest.mark.parametrize("fetched", CLAUDES)
def test_an_agent_of_a_plugin_is_started_by_the_clients_own_name_for_it(
    fetched: Callable[[], Path], tmp_path: Path
) -> None:
    names: list[str] = []

    def mind(asked: ClientRequest) -> Reply:
        text = json.dumps(asked.body)
        if "PARENT" in asked.prompt:
            names.extend(re.findall(r"- (tidying:[a-z:]+): ", text))
            if "It is tidy." in asked.results:
                return Say("PARENT-DONE")
            return ready(asked) or tool("agent", prompt="OURS", subagent_type="tidying:deep:broom")
        return Say("It is tidy." if "You are a broom." in text else "Who am I?")

    world = ParentWorld(tmp_path, fetched(), mind)

    async def main() -> None:
        async with world.open():
            _lay_market(tmp_path / "market")
            await world.client_command("plugin", "marketplace", "add", str(tmp_path / "market"))
            await world.client_command("plugin", "install", "tidying@tools")
            assert await world.result_of(await world.start()) == "PARENT-DONE"
            # What we call it is what the client itself calls it.
            assert "tidying:deep:broom" in names

    event_loop.run(main())


def _lay_market(market: Path) -> None:
    plugin = {"name": "tidying", "source": "./tidying", "description": "d"}
    files = {
        ".claude-plugin/marketplace.json": json.dumps(
            {"name": "tools", "owner": {"name": "x"}, "plugins": [plugin]}
        ),
        "tidying/.claude-plugin/plugin.json": json.dumps(
            {"name": "tidying", "version": "1.0.0", "description": "d", "author": {"name": "x"}}
        ),
        "tidying/agents/deep/broom.md": "---\nname: broom\ndescription: Sweeps.\n---\n"
        "You are a broom.\n",
    }
    for path, text in files.items():
        (market / path).parent.mkdir(parents=True, exist_ok=True)
        (market / path).write_text(text)
