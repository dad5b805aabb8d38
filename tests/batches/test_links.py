"""No word of a command leads out of the folder, or into `.git`, by a link."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from pathlib import Path

import pytest

from jackline.batches.files import EditTool, WriteTool
from jackline.batches.permission import permit
from jackline.batches.policy import Allowed, Denied, Policy
from jackline.batches.shell import ShellTool
from jackline.batches.tool import BatchCall, Tool

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


ALLOW = (
    *("cat *", "touch *", "grep *", "diff *"),
    *("cat --file=*", "cat -fdoor/secret", "rm -r *", "git *"),
)


def permitted(
    project: Path, command: str, cwd: str = ".", allow: tuple[str, ...] = ALLOW
) -> Allowed | str:
    """The command as it may run, or why it may not."""
    call = BatchCall("1", ShellTool(), {"command": command, "cwd": cwd})
    said = asyncio.run(permit(Policy(project, allow, windows=False), call))
    return said.why if isinstance(said, Denied) else said


def written_out(project: Path, command: str) -> Allowed | str:
    """The same where the user has written the whole command out."""
    return permitted(project, command, allow=(command,))


@pytest.mark.parametrize(
    "command",
    [
        "cat door/secret",
        "cat part/twice/secret",
        "cat file.txt",
        "cat 'door/secret'",
        "cat --file=door/secret",
        "cat -fdoor/secret",
        "grep -e x door/secret",
        "cat a,door/secret",
        "touch door/made",
    ],
)
def test_a_link_that_leads_out_is_found(command: str, project: Path) -> None:
    said = permitted(project, command)
    assert isinstance(said, str)
    assert "by a link" in said


def test_the_folder_in_which_a_command_runs_counts(project: Path) -> None:
    assert "by a link" in str(permitted(project, "cat twice/secret", "part"))
    assert "leads out" in str(permitted(project, "cat secret", "door"))


@pytest.mark.parametrize(
    "command", ["cat notes.txt", "cat within/nothing", "cat 'd*'", "grep a:b notes.txt"]
)
def test_what_stays_inside_runs_as_the_words_that_were_judged(command: str, project: Path) -> None:
    said = permitted(project, command)
    assert isinstance(said, Allowed)
    program, *words = shlex.split(command)
    assert said.argv == (shutil.which(program), *words)


def test_a_folder_that_is_itself_reached_by_a_link_is_the_folder(project: Path) -> None:
    reached = project.parent / "reached"
    reached.symlink_to(project)
    assert isinstance(permitted(reached, f"cat {reached}/notes.txt"), Allowed)
    assert "by a link" in str(permitted(reached, f"cat {reached}/door/secret"))


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
        "tee docs/c",
        "touch docs/g/config",
    ],
)
def test_no_link_leads_a_program_that_may_write_into_git(command: str, repository: Path) -> None:
    assert "inside of .git" in str(written_out(repository, command))


def test_no_program_runs_in_git(repository: Path) -> None:
    assert "inside of .git" in str(permitted(repository, "cat config", "docs/g"))


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
    assert "inside of .git" in str(permitted(repository, "touch other/sub/config"))


def test_reading_through_such_a_link_changes_nothing(repository: Path) -> None:
    assert isinstance(permitted(repository, "cat docs/g/config"), Allowed)


@pytest.mark.parametrize(
    "command",
    ["diff -rN part other", "cp -r part other", "tar -chf x.tar part", "zip -r x.zip part"],
)
@pytest.mark.parametrize("steps", [1, 2])
def test_folders_that_are_read_with_their_links_hold_none_that_leads_out(
    command: str, steps: int, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Judged, never run: it need only be there.
    program = tmp_path / "programs" / command.split(maxsplit=1)[0]
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    (project / "other").mkdir()
    if steps == 2:
        (project / "part" / "twice").rename(project / "other" / "twice")
        (project / "part" / "on").symlink_to(Path("..") / "other")
    assert "by a link" in str(written_out(project, command))
    (project / ("part" if steps == 1 else "other") / "twice").unlink()
    for name in ("door", "file.txt"):  # `tar` names its files itself, and may write there
        (project / name).unlink()
    assert isinstance(written_out(project, command), Allowed)


def test_a_word_that_is_too_long_for_a_name_is_no_folder(project: Path) -> None:
    assert isinstance(permitted(project, f"touch notes.txt {'a' * 300}"), Allowed)


def test_what_reads_no_links_may_meet_them(project: Path) -> None:
    for command in ("grep -rn x part", "rm -r part"):
        assert isinstance(permitted(project, command), Allowed)
