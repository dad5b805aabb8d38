"""A command that the user allowed runs in the folder that the user chose, not in a stranger's.

Rules: those of this package. `./check.sh`, `make lint` and `mypy` mean another program in each
folder: a model chooses the folder of a call, of a batch and of an agent, but trusts none.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from jackline.mcp_server.batch_tools import batch_tools
from jackline.mcp_server.model_tool import ToolCaller
from jackline.mcp_server.permissions import AgentSettings, BatchSettings, ToolSettings

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX programs")

ALLOW = ("./check.sh", "make lint", "cat *", "ls *", "touch *", "make --version")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for place, name in ((folder, "own"), (folder / "vendor" / "x", "strange")):
        place.mkdir(parents=True)
        script = place / "check.sh"
        script.write_text(f"#!/bin/sh\necho {name} script\n")
        script.chmod(0o755)
        (place / "Makefile").write_text(f"lint:\n\t@echo {name} recipe\n")
    (folder / "again").symlink_to(".")
    return folder


def run(
    project: Path,
    command: str,
    *,
    of_call: str = ".",
    of_batch: str = ".",
    trusted: tuple[Path, ...] = (),
) -> str:
    """What a model is told that runs one command and chooses a folder."""
    settings = ToolSettings(batch=BatchSettings(ALLOW), agents=AgentSettings(folders=trusted))
    (tool,) = batch_tools(lambda: settings)
    call = {"id": "1", "tool": "shell", "input": {"command": command, "cwd": of_call}}
    given: dict[str, object] = {"calls": [call], "cwd": of_batch}

    async def main() -> str:
        return (await tool.run(given, ToolCaller(folder=project))).text

    return asyncio.run(main())


@pytest.mark.parametrize("command", ["./check.sh", "make lint", "touch made", "make --version"])
def test_a_command_that_may_do_more_than_look_runs_in_the_projects_own_folder(
    command: str, project: Path
) -> None:
    for said in (
        run(project, command, of_call="vendor/x"),
        run(project, command, of_batch="vendor/x"),
        run(project, command, of_batch="vendor", of_call="x"),
        run(project, command, of_call="again/vendor/x"),
    ):
        assert "not allowed: " in said
        assert "strange" not in said
        assert "own folder" in said
    assert "all 1 ok" in run(project, command)
    assert "all 1 ok" in run(project, command, of_call="again")
    assert not (project / "vendor" / "x" / "made").exists()


def test_what_only_looks_runs_in_any_folder(project: Path) -> None:
    for said in (
        run(project, "cat check.sh", of_call="vendor/x"),
        run(project, "cat check.sh", of_batch="vendor/x"),
    ):
        assert "strange script" in said


def test_a_folder_that_the_user_has_named_is_one_of_their_own(project: Path) -> None:
    inner = project / "vendor" / "x"
    for call, batch in ((".", "vendor/x"), ("vendor/x", ".")):
        advice = run(project, "./check.sh", of_call=call, of_batch=batch)
        assert f'agents.folders = ["{inner.resolve()}"]' in advice
        said = run(project, "./check.sh", of_call=call, of_batch=batch, trusted=(inner,))
        assert "strange script" in said
