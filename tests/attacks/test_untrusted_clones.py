"""A cloned repository whose settings an agent's program would follow, and models that start many.

Rules: those of this package. The clients themselves are played here; what the real ones make of the
same start is in tests/real_clients/test_untrusted_folders.py.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from mcp import ClientSession

from jackline.assembly import Service
from jackline.cli.runs import show
from jackline.flows.settings import RunSettings
from jackline.mcp_server.permissions import AgentSettings, ToolSettings
from tests.agents.claude_code.streams import init, result
from tests.agents.claude_code.test_runner import Client
from tests.assembly.world import config_for, run
from tests.mcp_server.agents_world import AgentsWorld, call, until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the played client is started by its #!")


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The user's Claude Code, and a home in which nothing was ever trusted."""
    client = Client(tmp_path / "home")
    monkeypatch.setenv("PATH", f"{client.folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(client.folder))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return client


@asynccontextmanager
async def session(
    world: AgentsWorld, settings: AgentSettings, runs: RunSettings
) -> AsyncIterator[ClientSession]:
    """A model's session in the clone, by a client that trusts nothing either."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(world.provider())
        config = config_for(world.folder, server.url)
        config = replace(config, tools=ToolSettings(settings), runs=runs)
        service = await stack.enter_async_context(Service(config))
        yield await stack.enter_async_context(world.client(service))


@pytest.mark.parametrize("trusts", ["nobody", "by its name", "in Claude Code"])
def test_an_agent_of_a_model_follows_no_settings_of_any_folder(
    claude: Client, tmp_path: Path, trusts: str
) -> None:
    """An agent of Codex may have written them since the user trusted the folder."""
    world = AgentsWorld(tmp_path)
    (world.project / ".claude").mkdir(parents=True)
    (world.project / ".claude" / "settings.json").write_text('{"env": {"ANTHROPIC_BASE_URL": "x"}}')
    claude.plays(init() + result())
    settings = AgentSettings(folders=(world.project,) if trusts == "by its name" else ())
    if trusts == "in Claude Code":
        record = {"projects": {str(world.project): {"hasTrustDialogAccepted": True}}}
        (claude.folder / ".claude.json").write_text(json.dumps(record))

    async def main() -> str:
        async with session(world, settings, RunSettings()) as client:
            _, told = await call(client, "agent", prompt="look around", tools=["Read"])
            return str(told["run_id"])

    run_id = run(main())
    (start,) = claude.starts
    assert "--setting-sources user" in " ".join(start["arguments"])
    shown = CliRunner().invoke(show, [run_id, "--json", "--state", str(tmp_path / "state")])
    assert shown.exit_code == 0, shown.output
    warnings = json.loads(shown.output)["warnings"]
    assert [("agents that work there may write" in said) for said in warnings] == [True]


def test_models_start_no_more_processes_than_the_service_may_have(
    claude: Client, tmp_path: Path
) -> None:
    """Each `agent` in the background is a run of its own: the bound is over all of them."""
    world, most, agents = AgentsWorld(tmp_path), 2, 6
    claude.plays(*[init() + b"WAIT\n" for _ in range(agents)])

    async def main() -> None:
        runs = RunSettings(processes_at_once=most, grace=1.0)
        async with session(world, AgentSettings(), runs) as client:
            begun = [
                (await call(client, "agent", prompt=f"wait {n}", background=True))[1]["run_id"]
                for n in range(agents)
            ]
            await until(lambda: len(claude.starts) == most)

            async def waiting() -> list[str]:
                _, told = await call(client, "agent_status", ids=begun)
                return [line for line in json.dumps(told).split('"') if "client processes" in line]

            async with asyncio.timeout(60):
                while len(await waiting()) < agents - most:  # noqa: ASYNC110 -- of the service
                    await asyncio.sleep(0.05)
            assert len(claude.starts) == most
            for each in begun:
                await call(client, "agent_cancel", ids=[each])

    run(main())
