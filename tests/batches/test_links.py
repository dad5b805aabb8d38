"""No word of a command leads out of the folder by a link, however it is written."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from jackline.batches.batch import BatchCall
from jackline.batches.files import EditTool, WriteTool
from jackline.batches.links import hidden_option, way_into_git, way_out
from jackline.batches.permission import permit
from jackline.batches.policy import Allowed, Denied, Policy
from jackline.batches.shell import ShellTool
from jackline.batches.tool import Tool

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links need a right of their own there")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    project = tmp_path / "project"
    (project / "part").mkdir(parents=True)
    (project / "notes.txt").write_text("n")
    (project / "door").symlink_to(outside)
    (project / "part" / "twice").symlink_to(Path("..") / "door")
    (project / "file.txt").symlink_to(outside / "secret")
    (project / "round").symlink_to("round")
    (project / "within").symlink_to("part")
    return project


@pytest.mark.parametrize(
    "command",
    [
        "cat door/secret",
        "cat ./part/../door/secret",
        "cat part/twice/secret",
        "cat file.txt",
        "cat f*.txt",
        "cat d*/secret",
        "cat part/*/secret",
        "cat 'door/secret'",
        "cat --file=door/secret",
        "cat -fdoor/secret",
        "cp -ftdoor notes.txt",
        "grep -1cfdoor/secret notes.txt",
        "curl -#sTfile.txt example.org",
        "cat round",
        "touch door/made",
        "cat notes.txt | tee door/made",
    ],
)
def test_a_link_that_leads_out_is_found(command: str, project: Path) -> None:
    found = way_out(project, {"command": command})
    assert found is not None
    assert found in command.replace("'", "")


def test_the_folder_in_which_a_command_runs_counts(project: Path) -> None:
    assert way_out(project, {"command": "cat twice/secret", "cwd": "part"}) == "twice/secret"
    assert way_out(project, {"argv": ["cat", "door/secret"]}) == "door/secret"


@pytest.mark.parametrize(
    "command",
    ["cat notes.txt", "cat within/nothing", "cat n*", "git log main..HEAD", "cat 'd*'", "echo a:b"],
)
def test_what_stays_inside_is_left_alone(command: str, project: Path) -> None:
    assert way_out(project, {"command": command}) is None


def test_a_folder_that_is_itself_reached_by_a_link_is_the_folder(project: Path) -> None:
    reached = project.parent / "reached"
    reached.symlink_to(project)
    assert way_out(reached, {"command": f"cat {reached}/notes.txt"}) is None
    assert way_out(reached, {"command": f"cat {reached}/door/secret"}) is not None


@pytest.fixture
def repository(project: Path) -> Path:
    (project / ".git" / "hooks").mkdir(parents=True)
    (project / ".git" / "config").write_text("")
    (project / "docs").mkdir()
    (project / "inward").symlink_to(".git")
    (project / "docs" / "g").symlink_to(Path("..") / ".git")
    (project / "docs" / "h").symlink_to(Path("..") / "docs" / "g" / "hooks")
    (project / "docs" / "c").symlink_to(Path("..") / ".git" / "config")
    return project


@pytest.mark.parametrize(
    "command",
    [
        "cp notes.txt docs/g/config",
        "mv notes.txt docs/h/pre-commit",
        "ln -f notes.txt docs/h/pre-commit",
        "cp -t docs/h notes.txt",
        "cp -ftinward notes.txt",
        "cp --target-directory=docs/g notes.txt",
        "cp notes.txt docs/*/config",
        "tee docs/c",
    ],
)
def test_no_link_leads_a_program_that_may_write_into_git(command: str, repository: Path) -> None:
    assert way_into_git(repository, {"command": command}) in command.split()
    call = BatchCall("1", ShellTool(), {"command": command})
    allowed = Policy(repository, ("cp *", "mv *", "ln *", "tee *"), windows=False)
    denied = asyncio.run(permit(allowed, call))
    assert isinstance(denied, Denied)
    assert "inside of .git" in denied.why


@pytest.mark.parametrize("tool", [WriteTool(), EditTool()])
@pytest.mark.parametrize("path", ["docs/g/config", "docs/h/pre-commit", "docs/c"])
def test_no_link_leads_writing_into_git(path: str, tool: Tool, repository: Path) -> None:
    allowed = Policy(repository, ("write:*", "edit:*"))
    arguments: dict[str, object] = {"path": path, "content": "x"}
    assert isinstance(asyncio.run(permit(allowed, BatchCall("1", tool, arguments))), Denied)
    plain = BatchCall("1", tool, {**arguments, "path": "docs/new"})
    assert asyncio.run(permit(allowed, plain)) == Allowed()


def test_a_folder_that_the_file_system_takes_for_git_is_git(repository: Path) -> None:
    """As where case does not count: the name differs, the folder is the same."""
    other = repository / "other"
    (other / "sub").mkdir(parents=True)
    (other / ".git").symlink_to("sub")
    assert way_into_git(repository, {"command": "cp notes.txt other/sub/config"}) is not None


def test_reading_through_such_a_link_changes_nothing(repository: Path) -> None:
    assert way_into_git(repository, {"command": "cat docs/g/config"}) is None


def test_a_file_name_does_not_become_an_option(project: Path) -> None:
    (project / "--files0-from=list").write_text("")
    assert hidden_option(project, {"command": "wc -l *"}) == "*"
    assert hidden_option(project, {"command": "wc -l ./*"}) is None
    assert hidden_option(project, {"command": "wc -l n*"}) is None
    (project / "other").mkdir()
    (project / "other" / "-x").write_text("")
    call = BatchCall("1", ShellTool(), {"command": "wc -l *x", "cwd": "other"})
    denied = asyncio.run(permit(Policy(project, ("wc *",), windows=False), call))
    assert isinstance(denied, Denied)
    assert "'./*x'" in denied.next


def test_folders_that_are_compared_hold_no_link_that_leads_out(project: Path) -> None:
    (project / "other").mkdir()
    assert way_out(project, {"command": "diff -rN part other"}) == "part"
    assert way_out(project, {"command": "diff -rN --no-dereference part other"}) is None
    assert way_out(project, {"command": "diff notes.txt notes.txt"}) is None


@pytest.mark.parametrize(
    "command",
    [
        "cp -rL part other",
        "cp -L -r part other",
        "cp -r --dereference part other",
        "cp -r --deref part other",
        "nice cp -arL part other",
        "tar -chf x.tar part",
        "tar chf x.tar part",
        "rsync -rL part other",
        "zip -r x.zip part",
    ],
)
def test_folders_that_are_copied_with_what_links_lead_to_hold_none_that_leads_out(
    command: str, project: Path
) -> None:
    (project / "other").mkdir()
    assert way_out(project, {"command": command}) == "part"
    (project / "part" / "twice").unlink()
    assert way_out(project, {"command": command}) is None


def test_links_may_be_copied_as_links(project: Path) -> None:
    for command in ("cp -r part other", "tar -cf x.tar part", "zip -ry x.zip part"):
        assert way_out(project, {"command": command}) is None
