"""A model that was talked into an attack: whatever its tools take as arguments is a stranger's.

Rules: those of this package. The model has the tools of the MCP server and nothing else; it reads
every answer that they give.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.assembly.world import run
from tests.attacks.listener import listening
from tests.mcp_server.agents_world import AgentsWorld, call, refused

_SECRET = "a-word-that-stands-in-the-file"  # noqa: S105 -- what the attack would like to read


def _orders(tool: str, schema: dict[str, Any]) -> dict[str, Any]:
    order = {"prompt": "x", "schema": schema}
    return order if tool == "agent" else {"orders": [order]}


@pytest.mark.parametrize("tool", ["agent", "agents"])
@pytest.mark.parametrize("kind", ["file", "http", "base"])
def test_a_schema_makes_the_service_read_and_fetch_nothing(
    tmp_path: Path, tool: str, kind: str
) -> None:
    kept = tmp_path / "credentials.json"
    kept.write_text(json.dumps({"type": _SECRET}), encoding="utf-8")
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        with listening() as server:
            schemas: dict[str, dict[str, Any]] = {
                "file": {"$ref": kept.as_uri()},
                "http": {"$ref": f"{server.url}/taken"},
                "base": {"$id": f"{server.url}/", "properties": {"a": {"$ref": "taken"}}},
            }
            async with world.open() as client:
                text, data = await refused(client, tool, **_orders(tool, schemas[kind]))
                listed, _ = await call(client, "agent_status")
            assert not server.received
        assert _SECRET not in text + json.dumps(data)
        assert "none is fetched" in text
        assert listed == "No agent was started here yet."
        assert not world.received

    run(main())


def test_a_value_that_is_wrong_comes_back_cut(tmp_path: Path) -> None:
    async def main() -> None:
        async with AgentsWorld(tmp_path).open() as client:
            text, _ = await refused(client, "agent", prompt=["x" * 100_000])
            assert len(text) < 2000

    run(main())


def test_an_allowed_git_log_runs_no_program_of_the_models_choice(tmp_path: Path) -> None:
    """With `git log *` a model could write the settings of the repository, and so run anything."""
    world, mark = AgentsWorld(tmp_path, allow=("git log *", "git status")), tmp_path / "ran"
    world.project.mkdir()

    def git(*words: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *identity, *words], cwd=world.project, check=True)

    (world.project / "a").write_text("1")
    git("init", "--quiet", ".")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    settings = world.project / ".git" / "config"
    before = settings.read_text()

    async def main() -> None:
        async with world.open() as client:

            async def runs(*words: str) -> str:
                each = {"id": "1", "tool": "shell", "input": {"argv": ["git", *words]}}
                told = await client.call_tool("batch", {"calls": [each]})
                return str(told.content[0])

            assert "one" in await runs("log", "-1", "-p")
            said = await runs("log", "-1", "--format=[x]", "--output=.git/config")
            assert "do more than look" in said
            assert settings.read_text() == before
            # Settings that came with an archive, or by whatever other way.
            (world.project / ".gitattributes").write_text("* diff=x\n")
            git("config", "diff.x.textconv", f"touch {mark}; cat")
            for words in (("log", "-p", "-1"), ("status",)):
                said = await runs(*words)
                assert "diff.x.textconv" in said
            text, _ = await refused(client, "agent", prompt="x", release="git log -p")
            assert "diff.x.textconv" in text
            assert not mark.exists()

    run(main())
