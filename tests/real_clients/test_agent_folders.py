"""Agents of models keep to their folder with the real Claude Code, whatever tools were named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jackline.agents.outcome import Ending
from jackline.mcp_server.permissions import AgentSettings, offered
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply, Say
from tests.agents.process.doubles import FreeLeave, Pages
from tests.agents.process.world import World
from tests.assembly.world import run
from tests.real_clients.clients import claude_binary
from tests.real_clients.old_client import old_claude_binary

pytestmark = [
    pytest.mark.real_client,
    pytest.mark.skipif(os.name == "nt", reason="links need a right there"),
]
CLAUDES = [pytest.param(old_claude_binary, id="2.1.197"), pytest.param(claude_binary, id="2.1.325")]
SECRET = "a-word-that-stands-in-the-file"  # noqa: S105 -- what the attack would like to read


def carried(
    fetched: Callable[[], Path], folder: Path, tools: list[str] | None, settings: AgentSettings
) -> World:
    """An agent that tries everything once, with what a model's order of these tools comes to."""
    outside, project = folder / "outside", folder / "project"
    outside.mkdir()
    project.mkdir()
    (outside / "secret").write_text(SECRET)
    (project / "own").write_text("what is inside")
    (project / "link").symlink_to(outside)
    writes = ("project/inside", "outside/written", "project/link/linked", "project/.mcp.json")
    reads = ("project/own", "outside/secret", "project/link/secret")
    calls: list[tuple[str, dict[str, object]]] = []
    calls.extend(("Write", {"file_path": str(folder / each), "content": "x"}) for each in writes)
    calls.extend(("Read", {"file_path": str(folder / each)}) for each in reads)
    calls += [
        ("Grep", {"pattern": "word", "path": str(outside), "output_mode": "content"}),
        ("Bash", {"command": f"cp own {outside}/copied", "description": "copy"}),
    ]

    def mind(asked: ClientRequest) -> Reply:
        return Say("next", (calls[asked.turn],)) if asked.turn < len(calls) else Say("All tried.")

    world = World(folder, fetched(), mind)
    names = offered(tools, "claude-code", settings).tools

    async def main() -> None:
        async with world.open():
            given = None if names is None else tuple(names)
            outcome = await world.carry(Pages(), FreeLeave(), tool_names=given)
            assert (outcome.terminated_by, outcome.value) == (Ending.COMPLETION, "All tried.")
            assert len(world.received) == len(calls) + 1

    run(main())
    return world


@pytest.mark.parametrize("fetched", CLAUDES)
@pytest.mark.parametrize(
    ("tools", "settings", "edits"),
    [
        (None, AgentSettings(tools=("Bash(pytest *)",)), True),
        (["Read", "Write", "Grep", "Bash"], AgentSettings(), True),
        (["Read", "Grep"], AgentSettings(), False),
    ],
    ids=["documented", "named", "reading"],
)
def test_files_are_read_and_written_in_the_folder_alone(
    fetched: Callable[[], Path],
    tools: list[str] | None,
    settings: AgentSettings,
    edits: bool,
    tmp_path: Path,
) -> None:
    world = carried(fetched, tmp_path, tools, settings)
    assert (world.project / "inside").exists() is edits
    assert {each.name for each in (tmp_path / "outside").iterdir()} == {"secret"}
    assert not (world.project / ".mcp.json").exists()
    told = str(world.received[-1].body)
    assert "what is inside" in told
    assert SECRET not in told
