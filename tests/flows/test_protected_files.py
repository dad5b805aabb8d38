"""The tools that an agent is given by name write nothing that makes a program start."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from jackline.batches.tool import ToolContext, ToolFailedError
from jackline.flows.agent_spec import toolbox, tools_for


def _call(folder: Path, name: str, **arguments: object) -> str:
    (tool,), names = tools_for(toolbox([name]), "messages")
    assert names is None
    assert tool.name == name
    assert not tool.read_only(dict(arguments))
    assert tool.description
    assert tool.input_schema["required"]
    return asyncio.run(tool.run(dict(arguments), ToolContext(folder))).text


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a link into its git folder, a bare one, and one whose folder is beside."""
    made = tmp_path / "project"
    (made / "src").mkdir(parents=True)
    _git(made, "init", "--quiet", ".")
    (made / "link").symlink_to(made / ".git")
    _git(made, "init", "--quiet", "--bare", "kept")
    _git(made, "init", "--quiet", "--separate-git-dir", str(made / "apart"), "tree")
    (made / "half" / "objects").mkdir(parents=True)
    (made / "other" / "HEAD").mkdir(parents=True)
    (made / ".claude").mkdir()
    (made / ".claude" / "settings.json").write_text("{}")
    return made


_CLOSED = [
    *(".git/config", ".GIT/config", "src/../.git/hooks/pre-commit", "link/config", "git~1/config"),
    *("src/.git", "new/.git/config", "kept/config", "kept/hooks/x", "apart/config", "tree/.git"),
    # The last file that makes a repository of a folder.
    *("half/HEAD", "half/head", "other/objects/a", "other/commondir"),
    *(".claude/settings.json", "src/.claude/agents/a.md", ".mcp.json", "src/.MCP.json"),
    *(".mcp.json::$DATA", ".claude./settings.json", "half/HEAD ."),
    *(".codex/config.toml", ".agents/skills/a.md", "jackline.toml", "src/jackline.toml"),
]


@pytest.mark.parametrize("path", _CLOSED)
def test_nothing_is_written_that_makes_a_program_start(project: Path, path: str) -> None:
    before = {each: each.read_bytes() for each in project.rglob("*") if each.is_file()}
    with pytest.raises(ToolFailedError) as refusal:
        _call(project, "write", path=path, content="[core]\n\tfsmonitor = touch ran\n")
    assert refusal.value.ended_by == "protected"
    with pytest.raises(ToolFailedError) as refusal:
        _call(project, "edit", path=path, old="e", new="f", every=True)
    assert refusal.value.ended_by == "protected"
    assert {each: each.read_bytes() for each in project.rglob("*") if each.is_file()} == before


def test_all_other_files_are_open(project: Path) -> None:
    for path in ("a.py", "src/b.py", "new/objects/x", ".gitignore", ".github/ci.yml", "HEAD"):
        assert path in _call(project, "write", path=path, content="one")
        assert path in _call(project, "edit", path=path, old="one", new="two")
        assert (project / path).read_text() == "two"


def test_a_project_that_lies_in_a_folder_of_such_a_name_can_be_worked_in(tmp_path: Path) -> None:
    worktree = tmp_path / ".claude" / "worktrees" / "one"
    worktree.mkdir(parents=True)
    assert "a.py" in _call(worktree, "write", path="a.py", content="one")
    with pytest.raises(ToolFailedError):
        _call(worktree, "write", path=".claude/settings.json", content="{}")


def test_what_leads_outside_or_nowhere_is_refused_as_ever(project: Path) -> None:
    for path in ("../x", "/etc/x", "a\0b", ""):
        with pytest.raises(ToolFailedError):
            _call(project, "write", path=path, content="x")
    with pytest.raises(ToolFailedError):
        _call(project, "write", path=7, content="x")
