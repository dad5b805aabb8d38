"""Adversary: a model whose commands may move files, and what it names for the time after its end.

It makes no settings that the next agent would follow, and no text of its own becomes the input of a
program.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jackline.batches.files import EditTool, ProtectedFilesTool, WriteTool
from jackline.batches.permission import permit
from jackline.batches.policy import Denied, Policy
from jackline.batches.shell import ShellTool
from jackline.batches.tool import BatchCall, Tool, ToolContext, ToolFailedError
from jackline.flows.records import render_allowed_command
from tests.flows.test_allowed_commands import reaped

ALLOW = ("mv *", "cp *", "cp -r *", "touch *", "ln *", "tee *", "install *", "write:*", "edit:*")
SETTINGS = (".claude", ".mcp.json", ".codex", ".agents", "jackline.toml")


def judge(folder: Path, tool: Tool, **arguments: str) -> object:
    call = BatchCall("c", tool, dict(arguments))
    return asyncio.run(permit(Policy(folder, ALLOW), call))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "settings.json").write_text("{}")
    (tmp_path / "x" / ".claude").mkdir()
    (tmp_path / "x" / ".claude" / "settings.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / ".claude").mkdir()
    (tmp_path / "link").symlink_to(".claude")
    return tmp_path


@pytest.mark.parametrize("name", [*SETTINGS, ".Claude", "sub/.claude", ".claude./settings.json"])
@pytest.mark.parametrize("verb", ["mv x", "cp -r x", "ln -s x", "touch", "tee"])
def test_no_command_makes_settings_of_agents(verb: str, name: str, project: Path) -> None:
    assert isinstance(judge(project, ShellTool(), command=f"{verb} {name}"), Denied)


@pytest.mark.parametrize(
    "command", ["cp notes.txt link", "mv x link", "cp -r x/. .", "mv x link/y"]
)
def test_neither_by_a_link_nor_in_a_folder(command: str, project: Path) -> None:
    said = judge(project, ShellTool(), command=command)
    assert isinstance(said, Denied)


@pytest.mark.parametrize("tool", [WriteTool(), EditTool()])
@pytest.mark.parametrize("path", [".claude/settings.json", "link/settings.json", "jackline.toml"])
def test_neither_do_tools_write_there(tool: Tool, path: str, project: Path) -> None:
    assert isinstance(judge(project, tool, path=path), Denied)


@pytest.mark.parametrize(
    "command", ["cp notes.txt y", "cp -r y z", "mv notes.txt kept.txt", "cp notes.txt ."]
)
def test_other_files_are_moved_by_commands_that_are_written_out(
    command: str, project: Path
) -> None:
    (project / "link").unlink()
    (project / "y").mkdir()
    call = BatchCall("c", ShellTool(), {"command": command})
    assert not isinstance(asyncio.run(permit(Policy(project, (command,)), call)), Denied)
    assert isinstance(judge(project, ShellTool(), command=command), Denied)


def test_the_input_of_a_models_release_command_is_empty(tmp_path: Path) -> None:
    script = tmp_path / "read.sh"
    script.write_text("cat > seen\n")
    [done] = reaped(
        tmp_path, [render_allowed_command("sh read.sh", str(tmp_path), ("sh read.sh",))]
    )
    assert done.trouble == ""
    assert (tmp_path / "seen").read_bytes() == b""


def test_a_link_by_the_name_of_settings_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "part" / ".claude").symlink_to("../other")
    assert isinstance(judge(tmp_path, ShellTool(), command="cp -r part/. ."), Denied)


@pytest.mark.parametrize("path", [".claude/settings.json", "real/settings.json"])
def test_what_a_link_by_that_name_leads_to_is_protected(path: str, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / ".claude").symlink_to("real")
    assert isinstance(judge(tmp_path, WriteTool(), path=path), Denied)
    tool = ProtectedFilesTool(WriteTool())
    with pytest.raises(ToolFailedError):
        asyncio.run(tool.run({"path": path, "content": "{}"}, ToolContext(tmp_path)))
    assert not (tmp_path / "real" / "settings.json").exists()
