"""A model whose commands may write finds no way into a git folder, whatever it is called.

Rules: those of this package. Repositories are real and cloned plainly, so that they hold only what
a stranger can commit; after each try, the user's own plain git must start nothing.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from jackline.batches.files import EditTool, WriteTool
from jackline.batches.permission import is_in_git, permit
from jackline.batches.policy import Allowed, Denied, Policy
from jackline.batches.tool import BatchCall, Tool
from jackline.flows.cleanup.action_runner import denial
from jackline.mcp_server.batch_tools import batch_tools
from jackline.mcp_server.model_tool import ToolCaller
from jackline.mcp_server.permissions import BatchSettings, ToolSettings

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX programs and links")


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def run(folder: Path, allow: Sequence[str], command: str) -> str:
    """What a model is told that runs one command."""
    (tool,) = batch_tools(lambda: ToolSettings(batch=BatchSettings(tuple(allow))))
    call = {"id": "1", "tool": "shell", "input": {"command": command}}

    async def main() -> str:
        return (await tool.run({"calls": [call]}, ToolCaller(folder=folder))).text

    return asyncio.run(main())


class Stranger:
    """A repository with a payload, which leaves a mark if git ever reads it as settings."""

    def __init__(self, root: Path) -> None:
        self.root, self.mark = root, root / "OWNED"
        self.folder = root / "stranger"
        self.folder.mkdir()
        git(self.folder, "init", "-q", "-b", "main", ".")
        self.settings = f'[core]\n\tbare = false\n\tfsmonitor = "touch {self.mark}; false"\n'
        self.write("payload/config", self.settings)
        self.write("notes.txt", "n\n")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def link(self, name: str, target: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def clone(self, *words: str, to: str = "clone") -> Path:
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "-m", "x")
        git(self.root, "clone", "-q", *words, str(self.folder), to)
        return self.root / to


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stranger:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    return Stranger(tmp_path)


def link_in_folder(here: Stranger) -> None:
    here.link("links/config", "../.git/config")


def link_deeper(here: Stranger) -> None:
    here.link("links/payload/config", "../../.git/config")


def link_in_two_steps(here: Stranger) -> None:
    here.link("links/config", "../other")
    here.link("other", ".git/config")


def folder_link(here: Stranger) -> None:
    here.write("links/readme", "x")
    here.link("links/payload", "../.git")


def link_at_top(here: Stranger) -> None:
    here.link("config", ".git/config")
    here.link("xaa", ".git/config")


@pytest.mark.parametrize(
    ("plant", "pattern", "command"),
    [
        (link_in_folder, "cp *", "cp payload/config links"),
        (link_in_folder, "cp *", "cp payload/config links/"),
        (link_in_folder, "cp payload/config links", "cp payload/config links"),
        (link_in_folder, "cp -t *", "cp -t links payload/config"),
        (link_in_folder, "cp --target-directory=* *", "cp --target-directory=links payload/config"),
        (link_in_folder, "nice cp *", "nice cp payload/config links"),
        (link_in_folder, "install *", "install payload/config links"),
        (link_in_folder, "mv *", "mv payload/config links"),
        (link_in_folder, "ln -f *", "ln -f payload/config links"),
        (link_in_folder, "rsync --inplace *", "rsync --inplace payload/config links"),
        (link_in_folder, "tee *", "tee links/config"),
        (link_in_folder, "touch *", "touch links/config"),
        (link_in_folder, "sort -o * *", "sort -o links/config payload/config"),
        (link_in_two_steps, "cp *", "cp payload/config links"),
        (link_deeper, "cp -r *", "cp -r payload links"),
        (link_deeper, "cp -r payload links", "cp -r payload links"),
        (folder_link, "cp -r *", "cp -r payload links"),
        (folder_link, "cp --parents *", "cp --parents payload/config links"),
        (link_at_top, "cp *", "cp payload/config ."),
        (link_at_top, "split *", "split payload/config"),
        (link_at_top, "split payload/config", "split payload/config"),
    ],
)
def test_no_link_below_a_folder_leads_a_program_into_git(
    plant: Callable[[Stranger], None], pattern: str, command: str, stranger: Stranger
) -> None:
    plant(stranger)
    clone = stranger.clone()
    before = (clone / ".git" / "config").read_text()
    assert "not allowed: " in run(clone, [pattern], command)
    assert (clone / ".git" / "config").read_text() == before
    git(clone, "status", "-s")
    assert not stranger.mark.exists()


def test_a_release_command_is_judged_alike(stranger: Stranger) -> None:
    link_in_folder(stranger)
    clone = stranger.clone()
    into_git, other = "cp payload/config links", "cp payload/config payload/other"
    assert asyncio.run(denial(into_git, clone, ["cp *", into_git])) is not None
    assert asyncio.run(denial(other, clone, ["cp *"])) is not None
    assert asyncio.run(denial(other, clone, [other])) is None


@pytest.mark.parametrize("command", ["cp -r unpacked/. .", "cp -r unpacked/clone ."])
def test_no_copied_folder_is_laid_over_a_git_folder(command: str, stranger: Stranger) -> None:
    """As an archive brings it; a clone cannot hold a folder of that name."""
    clone = stranger.clone()
    (clone / "clone").mkdir()
    git(clone / "clone", "init", "-q", ".")
    for place in ("unpacked", "unpacked/clone"):
        (clone / place / ".git").mkdir(parents=True)
        (clone / place / ".git" / "config").write_text(stranger.settings)
    assert "not allowed: " in run(clone, ["cp -r *"], command)
    assert "fsmonitor" not in (clone / ".git" / "config").read_text()
    assert "fsmonitor" not in (clone / "clone" / ".git" / "config").read_text()


@pytest.fixture
def layout(stranger: Stranger) -> Path:
    """`.bare` holds the repository, a `.git` file names it, work trees lie beside."""
    stranger.write("laid/.bare/config", stranger.settings)
    project = stranger.root / "project"
    project.mkdir()
    stranger.clone("--bare", to="project/.bare")
    (project / ".git").write_text("gitdir: ./.bare\n")
    git(project, "worktree", "add", "-q", "main", "main")
    return project


@pytest.mark.parametrize(
    "command",
    [
        "cp main/payload/config .bare/config",
        "cp main/payload/config .bare",
        "mv main/payload/config .bare/hooks/pre-commit",
        "touch .bare/worktrees/main/config.worktree",
        "cp main/payload/config .bare/worktrees/main/config.worktree",
        "cp -r main/laid/.bare .",
        "cp -r main/laid/. .",
        "rm .bare/HEAD",
    ],
)
def test_a_git_folder_of_another_name_is_one(
    command: str, layout: Path, stranger: Stranger
) -> None:
    allow = ("cp *", "cp -r *", "mv *", "touch *", "rm *")
    assert "not allowed: " in run(layout, allow, command)
    assert "fsmonitor" not in (layout / ".bare" / "config").read_text()
    git(layout / "main", "status", "-s")
    assert not stranger.mark.exists()


@pytest.mark.parametrize("tool", [WriteTool(), EditTool()])
def test_neither_do_tools_write_there(tool: Tool, layout: Path) -> None:
    policy = Policy(layout, ("write:*", "edit:*"))

    def said(path: str) -> object:
        arguments: dict[str, object] = {"path": path, "content": "x"}
        return asyncio.run(permit(policy, BatchCall("1", tool, arguments)))

    for path in (".bare/config", ".bare/hooks/pre-commit", ".bare/worktrees/main/config.worktree"):
        assert isinstance(said(path), Denied)
    assert said("main/notes.txt") == Allowed()


def test_such_a_folder_may_be_read_and_its_work_trees_written(layout: Path) -> None:
    allow = ("cat *", "git log *")
    assert "bare = true" in run(layout, allow, "cat .bare/config")
    for folder, copy in (
        (layout, "cp main/notes.txt main/copy.txt"),
        (layout / "main", "cp notes.txt payload"),
    ):
        assert "all 1 ok" in run(folder, [copy], copy)
    assert (layout / "main" / "payload" / "notes.txt").exists()


def test_work_trees_inside_a_bare_repository_may_be_written(stranger: Stranger) -> None:
    bare = stranger.clone("--bare")
    git(bare, "worktree", "add", "-q", "main", "main")
    assert "not allowed: " in run(bare, ("touch *",), "touch config")
    assert "all 1 ok" in run(bare / "main", ("touch *",), "touch payload/new")
    assert not is_in_git(bare / "main" / "notes.txt", bare.resolve())
    assert is_in_git(bare / "worktrees" / "main" / "new", bare.resolve())


def test_a_folder_that_a_git_file_names_is_one_before_it_is_laid_out(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / ".git").write_text("gitdir: store\n")
    (root / "store").mkdir()
    assert is_in_git(root / "store" / "HEAD", root)
    assert not is_in_git(root / "stored", root)


def test_links_within_git_and_within_the_project_are_no_obstacle(stranger: Stranger) -> None:
    stranger.link("links/notes.txt", "../notes.txt")
    clone = stranger.clone()
    (clone / ".git" / "hooks" / "x").symlink_to("../config")
    for command in ("cp payload/config .", "cp payload/config links", "split payload/config"):
        assert "all 1 ok" in run(clone, [command], command)


@pytest.mark.parametrize("command", ["split notes.txt", "csplit notes.txt 1"])
def test_no_program_that_names_its_files_meets_a_link_that_leads_out(
    command: str, stranger: Stranger
) -> None:
    for name in ("xaa", "xx00"):
        stranger.link(name, "../.profile")
    clone = stranger.clone()
    assert "not allowed: " in run(clone, [command], command)
    assert not (stranger.root / ".profile").exists()
