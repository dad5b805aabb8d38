"""A worktree with anything in it that would be lost is never deleted."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from jackline.clock import VirtualClock
from jackline.flows.cleanup.action_runner import ActionRunner, CleanupAction, remove_if_clean
from tests.flows.test_cleanup import git
from tests.flows.world import EPOCH, played


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    made.mkdir()
    git(made, "init", "-q")
    (made / "file").write_text("1")
    git(made, "add", ".")
    git(made, "commit", "-qm", "one")
    return made


def worktree(repository: Path, *how: str) -> Path:
    tree = repository.parent / "tree"
    git(repository, "worktree", "add", "-q", *how, str(tree))
    return tree


def removed(tree: Path) -> str:
    return played(lambda: remove_if_clean(tree))


def commit(tree: Path) -> None:
    (tree / "file").write_text("2")
    git(tree, "commit", "-qam", "two")


def change(tree: Path) -> None:
    (tree / "file").write_text("2")


def stage(tree: Path) -> None:
    change(tree)
    git(tree, "add", ".")


def add(tree: Path) -> None:
    (tree / "folder").mkdir()
    (tree / "folder" / "new").write_text("new")


def delete(tree: Path) -> None:
    (tree / "file").unlink()


@pytest.mark.parametrize("work", [change, stage, add, delete])
def test_uncommitted_work_of_any_kind_keeps_its_worktree(
    work: Callable[[Path], None], repository: Path
) -> None:
    tree = worktree(repository)
    work(tree)
    assert removed(tree) == "kept: 1 changed or new files are not committed"
    assert tree.exists()


def test_commits_on_no_branch_keep_their_worktree_until_they_have_one(repository: Path) -> None:
    tree = worktree(repository, "--detach")
    commit(tree)
    assert removed(tree).startswith("kept: its last commit is on no branch")
    assert (tree / "file").read_text() == "2"
    git(tree, "branch", "saved")
    assert removed(tree) == ""
    assert not tree.exists()
    told = ["git", "show", "saved:file"]
    assert subprocess.run(told, cwd=repository, capture_output=True, check=True).stdout == b"2"


@pytest.mark.parametrize("how", [(), ("--detach",)])
def test_a_worktree_with_nothing_of_its_own_goes(how: tuple[str, ...], repository: Path) -> None:
    tree = worktree(repository, *how)
    assert removed(tree) == ""
    assert not tree.exists()


def test_a_worktree_whose_work_is_on_its_branch_goes(repository: Path) -> None:
    tree = worktree(repository, "-b", "work")
    commit(tree)
    assert removed(tree) == ""
    assert not tree.exists()


def test_new_files_keep_their_worktree_also_where_git_is_told_not_to_show_them(
    repository: Path,
) -> None:
    git(repository, "config", "status.showUntrackedFiles", "no")
    tree = worktree(repository)
    add(tree)
    assert removed(tree) == "kept: 1 changed or new files are not committed"
    assert (tree / "folder" / "new").read_text() == "new"


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_changes_that_git_was_told_to_overlook_keep_their_worktree(
    flag: str, repository: Path
) -> None:
    tree = worktree(repository)
    git(tree, "update-index", flag, "file")
    change(tree)
    assert removed(tree).startswith("kept: git is set to overlook changes")
    assert (tree / "file").read_text() == "2"


def test_the_worktree_itself_is_asked_wherever_the_environment_points_git(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = worktree(repository, "--detach")
    commit(tree)
    # As in a hook of git: there, git would look at the other, clean folder.
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(repository))
    assert removed(tree).startswith("kept: its last commit is on no branch")
    assert (tree / "file").read_text() == "2"


def test_a_worktree_is_looked_for_in_the_runs_own_folder(repository: Path) -> None:
    tree = worktree(repository)
    add(tree)

    async def kept() -> str:
        actor = ActionRunner(VirtualClock(EPOCH), 60.0, str(repository), lambda: None)
        return (await actor.do(CleanupAction("r1", "", "worktree ../tree", b"", "tree"))).brief

    assert played(kept) == "kept: 1 changed or new files are not committed"


def test_unsaved_work_in_a_submodule_keeps_the_worktree(repository: Path) -> None:
    """Submodules are not looked into, so git has to refuse every worktree that has one."""
    tree = worktree(repository, "-b", "work")
    inner = tree / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "file").write_text("1")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "one")
    git(tree, "add", "inner")
    git(tree, "commit", "-qm", "two")
    change(inner)
    assert "submodules" in removed(tree)
    assert (inner / "file").read_text() == "2"


@pytest.mark.skipif(os.name == "nt", reason="needs a pipe with a name")
def test_git_that_never_answers_does_not_hold_up_cleaning(repository: Path) -> None:
    tree = worktree(repository)
    os.mkfifo(repository / ".git" / "packed-refs")

    async def kept() -> str:
        actor = ActionRunner(VirtualClock(EPOCH), 0.5, str(repository), lambda: None)
        async with asyncio.timeout(15):
            act = CleanupAction("r1", "", f"worktree {tree}", b"", "tree")
            return (await actor.do(act)).brief

    assert played(kept) == "kept: git took longer than 0.5 seconds there"
