"""A client that only knows stdio reaches the service's tools, also after the service was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from jackline.assembly import StateDir
from tests.assembly.world import run
from tests.mcp_server.agents_world import AgentsWorld, Working, until


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a client; the service that was started in it ends with the test."""
    environ = {
        **os.environ,
        "HOME": str(tmp_path),
        "JACKLINE_STATE": str(tmp_path / "state"),
        "JACKLINE_PORT": "0",
        "JACKLINE_UPSTREAM": "http://127.0.0.1:9",
        "ANTHROPIC_API_KEY": "sk-ant-dummy",
    }
    try:
        yield environ
    finally:
        subprocess.run(
            [sys.executable, "-m", "jackline", "down"],
            env=environ,
            check=False,
            capture_output=True,
        )


@asynccontextmanager
async def bridged(environ: dict[str, str], folder: Path) -> AsyncIterator[ClientSession]:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "jackline", "mcp"], env=environ, cwd=folder
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        yield client


async def ask(client: ClientSession, tool: str, **given: Any) -> tuple[str, dict[str, Any]]:
    told = await client.call_tool(tool, given)
    return told.content[0].text, told.structured_content or {}  # type: ignore[union-attr]


async def in_time(client: ClientSession, tool: str, **given: Any) -> tuple[str, dict[str, Any]]:
    """The answer; a call that met the death of the service is made again."""
    # A connection that the system took just before the death ends in an honest error.
    with suppress(MCPError):
        return await ask(client, tool, **given)
    return await ask(client, tool, **given)


def kill(state: StateDir) -> int:
    running = state.running()
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    return running.pid


def test_the_service_is_started_and_found_again_after_a_kill(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    state = StateDir(tmp_path / "state")

    async def main() -> None:
        async with bridged(environ, tmp_path) as client:
            assert (await ask(client, "status"))[0].startswith("Nothing is under way.")
            first = kill(state)
            assert (await in_time(client, "status"))[0].startswith("Nothing is under way.")
            second = state.running()
            assert second is not None
            assert second.pid != first

    run(main())


def test_an_agent_survives_the_kill_of_its_service_and_repeats_no_finished_turn(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    mind = Working()
    world = AgentsWorld(tmp_path, mind)
    state = StateDir(tmp_path / "state")

    async def main() -> None:
        async with world.provider() as provider:
            (world.project / "notes.txt").write_text("note")
            environ["JACKLINE_UPSTREAM"] = provider.url
            environ["JACKLINE_AGENTS_RUNNER"] = "messages"
            async with bridged(environ, world.project) as client:
                order = {"prompt": "TASK", "tools": ["read"]}
                under_way = asyncio.create_task(ask(client, "agent", **order))
                await until(lambda: len(world.received) > 2)
                kill(state)
                with pytest.raises(MCPError, match="agent_status"):
                    await under_way
                turns = len(world.received)
                # The service that is started for this call goes on with what the other left.
                _, listed = await in_time(client, "agent_status")
                (one,) = listed["runs"]
                await until(lambda: len(world.received) > turns + 1)
                mind.may_end = True
                _, data = await ask(client, "agent_wait", ids=[one["run_id"]])
                assert data["answer"] == "done: TASK"
        # Its answer may have been on its way to the disk.
        assert world.ledger.repeated <= 1, "the turn that was in hand at the kill, and no other"

    run(main())


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="Linux shows environments")
def test_a_service_that_a_bridge_starts_is_no_part_of_the_agent_around_the_bridge(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    around = {"JACKLINE_CALL": "a-mark", "CLAUDE_CODE_SESSION_ID": "a-session", "CLAUDECODE": "1"}

    async def main() -> None:
        async with bridged(environ | around, tmp_path) as client:
            await ask(client, "status")
            running = StateDir(tmp_path / "state").running()
            assert running is not None
            given = _environment_of(running.pid)
            assert given
            assert not around.keys() & given

    run(main())


def _environment_of(pid: int) -> set[str]:
    told = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return {each.partition("=")[0] for each in told.split("\0")}
