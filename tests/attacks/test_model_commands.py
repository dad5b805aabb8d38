"""A model whose commands are judged by patterns finds no word that means more than that.

Rules: those of this package. Programs are the real ones. Each way was found open by a review; the
marks that they would leave are looked for on the disk, and the secret in the answers.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from jackline.batches import permission
from jackline.batches.permission import permit
from jackline.batches.policy import Denied, Policy
from jackline.batches.shell import ShellTool
from jackline.batches.tool import BatchCall
from jackline.mcp_server.batch_tools import batch_tools
from jackline.mcp_server.model_tool import ToolCaller
from jackline.mcp_server.permissions import BatchSettings, ToolSettings

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX programs and links")

SECRET = "SECRET-4711"  # noqa: S105 -- what the attack would like to read


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with what a stranger may have put there, and a secret two folders above."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text(f"machine x login {SECRET}\n")
    (tmp_path / ".config").mkdir()
    folder = tmp_path / "work" / "project"
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for name in (
        "docs",
        "tools",
        "scripts",
        "src",
        "build",
        "one",
        "two",
        "empty",
        "--from-file=..",
    ):
        (folder / name).mkdir()
    (folder / "docs" / "run.py").write_text("open('mark', 'w')")
    (folder / "src" / "main").write_text("x")
    (folder / "x").write_text("hello\n")
    (folder / "-R").write_text("")
    (folder / "planted.sh").write_text("#!/bin/sh\ntouch mark\ncat\n")
    (folder / "planted.sh").chmod(0o755)
    (folder / "big").write_text("".join(f"{n * 7919 % 100003}\n" for n in range(60000)))
    (folder / "link").symlink_to(tmp_path / ".netrc")
    (folder / "inward").symlink_to(".git")
    (folder / "one" / "l").symlink_to(Path("..") / "two")
    (folder / "two" / "l").symlink_to(tmp_path / ".netrc")
    return folder


def batch(folder: Path, allow: Sequence[str], command: str | list[str]) -> str:
    """What a model is told that runs one command."""
    (tool,) = batch_tools(lambda: ToolSettings(batch=BatchSettings(tuple(allow))))
    given = {"command": command} if isinstance(command, str) else {"argv": command}
    call = {"id": "1", "tool": "shell", "input": given}

    async def main() -> str:
        return (await tool.run({"calls": [call]}, ToolCaller(folder=folder))).text

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        # A builtin of the shell evaluates what it gets.
        ("test *", "test -v 'a[$(touch mark)]'"),
        ("printf *", "printf -v 'a[$(touch mark)]' x"),
        # A star inside a word leads to no other place.
        ("python3 tools/*", "python3 tools/../docs/run.py"),
        ("scripts/* *", "scripts/../../../../../../../../../bin/sh -c 'touch mark'"),
        ("scripts/*", "scripts/../planted.sh"),
        # What is written out gives itself and nothing else.
        ("find -L *", "find -L . -maxdepth 0 -exec touch mark ';'"),
        ("sort -o *", "sort -o out -S 16k --compress-program=./planted.sh big"),
        ("sort -o out *", "sort -o out -S 16k --compress-program=./planted.sh big"),
        # Programs that start others, or read their operands as programs.
        ("env *", "env touch mark"),
        ("nice *", "nice touch mark"),
        ("timeout *", "timeout 5 touch mark"),
        ("xargs *", "xargs touch mark"),
        ("sed *", "sed 1etouch\\ mark x"),
        ("awk *", "awk 'BEGIN{system(\"touch mark\")}'"),
        ("tar *", "tar cIf ./planted.sh out.tar x"),
        ("make *", "make -f Planted"),
        ("make *", "make --eval '$(shell touch mark)'"),
        ("make *", "make 'X=$(shell touch mark)' 'Y:=$(X)'"),
        ("less *", "less '+!touch mark' x"),
        ("sqlite3 *", "sqlite3 a.db '.shell touch mark'"),
    ],
)
def test_no_word_starts_a_program_that_was_not_allowed(
    pattern: str, command: str, project: Path
) -> None:
    assert "not allowed" in batch(project, [pattern], command)
    assert not (project / "mark").exists()


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("cat *", "cat link"),
        ("cat *", "cat lin[k]"),
        ("cat *", "cat lin[^z]"),
        ("cat *", "cat lin[[:alpha:]]"),
        ("cat *", "cat *"),
        ("diff *", "diff --from-file=../../.netrc x"),
        ("diff *", "diff --from-file=.[.]/../../.netrc x"),
        ("grep *", "grep -R login two"),
        ("grep *", "grep -? login two"),
        ("grep -R *", "grep -R login one"),
        ("grep *", "grep -rS login two"),
        ("find *", "find -xL two -name l"),
        ("diff *", "diff -rN two empty"),
        ("diff *", "diff -rN one empty"),
        ("diff -rN *", "diff -rN one empty"),
        ("diff -rN *", "diff -rN -F --no-dereference two empty"),
        ("git *", "git diff --no-index x link"),
        ("jq *", 'jq -n \'import "a" as $a {search: "\\u002fhome"}; $a\''),
        ("gcc *", "gcc @x"),
    ],
)
def test_no_word_reads_what_lies_outside(pattern: str, command: str, project: Path) -> None:
    said = batch(project, [pattern], command)
    assert "not allowed" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("cp *", "cp x inward/config"),
        ("cp *", "cp x inwar[^z]/config"),
        ("cp *", "cp --target-directory=.[.]/../.config x"),
        ("cp *", "cp -rL one out"),
        ("cp -rL *", "cp -rL one out"),
        ("rm -r build/*", "rm -r build/../src"),
        ("uniq *", "uniq x .git/config"),
        ("base64 *", "base64 -o out x"),
    ],
)
def test_no_word_writes_where_it_must_not(pattern: str, command: str, project: Path) -> None:
    before = (project / ".git" / "config").read_text()
    assert "not allowed" in batch(project, [pattern], command)
    assert (project / ".git" / "config").read_text() == before
    assert (project / "src" / "main").exists()
    assert not (project / "out").exists()
    assert not list((project.parent.parent / ".config").iterdir())


def test_a_folder_that_cannot_be_walked_in_its_bounds_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = project / "many"
    many.mkdir()
    for number in range(60):
        (many / str(number)).touch()
    assert "all 1 ok" in batch(project, ["diff -r * *"], "diff -r many many")
    monkeypatch.setattr(permission, "_MOST_ENTRIES", 50)
    assert "too many" in batch(project, ["diff -r * *"], "diff -r many many")
    # What the user has written out may be as large as it is.
    assert "all 1 ok" in batch(project, ["cp -r many copy"], "cp -r many copy")


def test_links_in_circles_end(project: Path) -> None:
    wide = project / "wide"
    wide.mkdir()
    for number in range(30):
        (wide / str(number)).symlink_to(".")
    assert "all 1 ok" in batch(project, ["cp -r wide copy"], "cp -r wide copy")
    assert "not allowed" in batch(project, ["cat *"], "cat wide/*/*/*/*/*/*/*/*/*")


def test_a_walk_ends_in_its_time(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permission, "_PATIENCE_S", -1.0)
    assert "took too long" in batch(project, ["diff -r * *"], "diff -r src src")


@pytest.mark.parametrize(
    "given",
    [
        {"command": "x " + "a=" * 400_000},
        {"command": "x " + "a " * 2_000},
        {"argv": ["x", "a=" * 400_000]},
        {"argv": ["x"] * 2_000},
    ],
)
def test_a_command_of_any_length_is_refused_for_its_length_alone(
    given: dict[str, object], project: Path
) -> None:
    call = BatchCall("1", ShellTool(), given)
    denied = asyncio.run(permit(Policy(project, ("x *",)), call))
    assert isinstance(denied, Denied)
    assert "too long" in denied.why


def test_no_shell_reads_the_words(project: Path) -> None:
    said = batch(project, ["echo *"], ["echo", "$(touch mark)", "`touch mark`", ";touch mark"])
    assert "$(touch mark) `touch mark` ;touch mark" in said
    assert not (project / "mark").exists()


def test_a_program_comes_from_absolute_folders_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = project / "planted-program"
    planted.write_text("#!/bin/sh\ntouch mark\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    (project / "cat").symlink_to("planted-program")
    assert "hello" in batch(project, ["cat *"], "cat x")
    assert "planted-program" in batch(project, ["planted-program *"], "planted-program x")
    assert not (project / "mark").exists()
    assert "all 1 ok" in batch(project, ["./planted-program *"], "./planted-program x")
    assert (project / "mark").exists()
