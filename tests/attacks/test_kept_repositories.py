"""Git folders of submodules and worktrees that an archive brings inside `.git`, used now or not.

Rules: those of this package. Git is the real one; each trap is shown to work with plain git, so
that a test cannot pass because the trap is broken.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks import test_git_in_batches as git_tests
from tests.attacks.test_git_in_batches import (
    Trap,
    Unpacked,
    allow_only,
    batch_in,
    planted_module,
    private,
)

pytestmark = git_tests.pytestmark
unpacked = git_tests.unpacked

UPDATE = "git submodule update --init"
_SHARED = ("config", "objects", "refs", "packed-refs", "info")


def move_common(here: Unpacked, git_folder: str, target: str) -> None:
    """Keep what a git folder shares in the folder `data`, of which `commondir` tells."""
    (here.folder / "data").mkdir()
    for name in _SHARED:
        if (here.folder / git_folder / name).exists():
            shutil.move(here.folder / git_folder / name, here.folder / "data" / name)
    here.write(f"{git_folder}/commondir", f"{target}\n")


def add_filter(here: Unpacked, file: str, kind: str = "smudge") -> None:
    here.git("config", "--file", file, f"filter.x.{kind}", f"{here.program}; cat")


def module_with_common_folder(here: Unpacked) -> None:
    planted_module(here)
    move_common(here, ".git/modules/sub", "../../../data")
    add_filter(here, "data/config")


def module_with_common_folder_and_settings(here: Unpacked) -> None:
    module_with_common_folder(here)
    here.write(".git/modules/sub/config", "[core]\n\tbare = false\n")


def module_with_hook_and_no_settings(here: Unpacked) -> None:
    planted_module(here)
    (here.folder / ".git" / "modules" / "sub" / "config").unlink()
    here.hook("post-checkout", ".git/modules/sub")


def module_beside_a_common_folder(here: Unpacked) -> None:
    """Submodules are kept in the repository's own git folder, not in the one that it shares."""
    planted_module(here)
    move_common(here, ".git", "../data")
    add_filter(here, ".git/modules/sub/config")


def module_in_a_nested_repository(here: Unpacked) -> None:
    (here.root / "other").mkdir()
    nested = Unpacked(here.root / "other")
    planted_module(nested)
    add_filter(nested, ".git/modules/sub/config")
    nested.folder.rename(here.folder / "nested")
    here.git("add", "nested")
    here.write(".gitmodules", '[submodule "nested"]\n\tpath = nested\n\turl = ./nested\n')
    here.git("add", ".gitmodules")
    here.git("commit", "--quiet", "-m", "two")
    here.git("submodule", "--quiet", "init", "nested")


def nested_whose_checkout_brings_hooks(here: Unpacked) -> None:
    """Where its hooks would lie, there is nothing until git has checked them out."""
    here.git("init", "--quiet", "nested")
    here.write("nested/file", "1\n")
    here.commit(cwd="nested")
    first = here.git("rev-parse", "HEAD", cwd="nested")
    (here.folder / "nested" / "brought").mkdir()
    (here.folder / "nested" / "brought" / "post-checkout").symlink_to(here.program)
    here.commit(cwd="nested")
    here.git("add", "nested")
    here.write(".gitmodules", '[submodule "nested"]\n\tpath = nested\n\turl = ./nested\n')
    here.git("add", ".gitmodules")
    here.git("commit", "--quiet", "-m", "two")
    here.git("submodule", "--quiet", "init", "nested")
    here.git("checkout", "--quiet", first, cwd="nested")
    here.config(("core.hooksPath", "brought"), cwd="nested")


def worktree_beside(here: Unpacked) -> None:
    here.git("worktree", "add", "--quiet", "../beside", "-b", "side")
    here.write(".git/info/attributes", "* filter=x\n")
    os.utime(here.root / "beside" / "file", (1, 1))


def worktree_with_common_folder(here: Unpacked) -> None:
    worktree_beside(here)
    shutil.copytree(here.folder / ".git", here.folder / "data", symlinks=True)
    here.write(".git/worktrees/beside/commondir", "../../../data\n")
    add_filter(here, "data/config", "clean")


def linked_worktrees(here: Unpacked) -> None:
    """`../..` is then another folder than it seems."""
    worktree_beside(here)
    shutil.copytree(here.folder / ".git", here.folder / "data", symlinks=True)
    add_filter(here, "data/config", "clean")
    shutil.rmtree(here.folder / ".git" / "worktrees")
    (here.folder / ".git" / "worktrees").symlink_to("../data/worktrees")


@pytest.mark.parametrize(
    ("trap", "command"),
    [
        (module_with_common_folder, UPDATE),
        (module_with_common_folder_and_settings, UPDATE),
        (module_with_hook_and_no_settings, UPDATE),
        (module_beside_a_common_folder, UPDATE),
        (module_in_a_nested_repository, f"{UPDATE} --recursive"),
        (nested_whose_checkout_brings_hooks, "git submodule update"),
        (worktree_with_common_folder, "git worktree remove beside"),
        (linked_worktrees, "git worktree remove beside"),
    ],
)
def test_no_git_folder_inside_another_hides_what_it_starts(
    trap: Trap, command: str, unpacked: Unpacked
) -> None:
    trap(unpacked)
    said = allow_only(unpacked, command)
    assert not any_mark(unpacked), said
    assert "not allowed" in said
    told = unpacked.plainly(command)
    assert any_mark(unpacked), f"the trap does not work: {told}"


def any_mark(here: Unpacked) -> bool:
    return here.mark.exists() or (here.root / "other" / "ran").exists()


def as_link(path: Path) -> None:
    (path.parent / "elsewhere").write_text("../..\n")
    path.symlink_to("elsewhere")


def as_long_text(path: Path) -> None:
    path.write_text("../.." + "\n" * (1 << 20))


Planted = Callable[[Path], None]


@pytest.mark.parametrize("folder", [".git/modules/sub", ".git/worktrees/beside"])
@pytest.mark.parametrize(
    "plant",
    [
        as_link,
        as_long_text,
        os.mkfifo,
        Path.mkdir,
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.write_text(""),
        lambda path: path.write_text("../../"),
        lambda path: path.write_text("../..\0/../x"),
    ],
)
def test_a_common_folder_is_named_as_git_names_it_or_not_at_all(
    plant: Planted, folder: str, unpacked: Unpacked
) -> None:
    planted_module(unpacked)
    unpacked.git("worktree", "add", "--quiet", "../beside", "-b", "side")
    file = unpacked.folder / folder / "commondir"
    file.unlink(missing_ok=True)
    plant(file)
    said = allow_only(unpacked, "git checkout -b new")
    assert "not allowed: the repository is not as git makes one" in said


def borrowed_objects(here: Unpacked, module: Path) -> None:
    other = private(here) / ".git" / "objects"
    (module / "objects" / "info" / "alternates").write_text(f"{other}\n")


def borrowed_by_a_strange_name(here: Unpacked, module: Path) -> None:
    """Git ends a line at `\\n` alone."""
    (here.folder / "a\x0bb").symlink_to(private(here) / ".git" / "objects")
    (module / "objects" / "info" / "alternates").write_text(f"{here.folder}/a\x0bb\n")


def linked_reference(here: Unpacked, module: Path) -> None:
    main = private(here) / ".git" / "refs" / "heads" / "main"
    (module / "refs" / "heads" / "other").symlink_to(main)


Lead = Callable[[Unpacked, Path], None]


@pytest.mark.parametrize("kept", [".git", ".git/modules/sub"])
@pytest.mark.parametrize("lead", [borrowed_objects, borrowed_by_a_strange_name, linked_reference])
def test_no_git_folder_inside_another_leads_to_another_repository_of_the_user(
    lead: Lead, kept: str, unpacked: Unpacked
) -> None:
    planted_module(unpacked)
    lead(unpacked, unpacked.folder / kept)
    said = allow_only(unpacked, UPDATE)
    assert "not allowed: the repository is not as git makes one" in said


def test_a_worktree_that_another_folder_knows_nothing_of_is_refused(unpacked: Unpacked) -> None:
    """`git worktree repair` would write a `.git` there."""
    unpacked.git("worktree", "add", "--quiet", "../beside", "-b", "side")
    (unpacked.root / "home").mkdir()
    unpacked.write(".git/worktrees/beside/gitdir", f"{unpacked.root / 'home' / '.git'}\n")
    said = allow_only(unpacked, "git worktree repair")
    assert "not allowed" in said
    assert not (unpacked.root / "home" / ".git").exists()
    unpacked.plainly("git worktree repair")
    assert (unpacked.root / "home" / ".git").exists(), "the trap does not work"


def test_a_submodule_is_not_checked_out_into_the_git_folder(unpacked: Unpacked) -> None:
    planted_module(unpacked)
    unpacked.git("config", "--file", ".git/modules/sub/config", "core.worktree", "../../hooks")
    assert "core.worktree" in allow_only(unpacked, UPDATE)


def test_worktrees_of_usual_kinds_are_no_obstacle(unpacked: Unpacked) -> None:
    here = unpacked
    planted_module(here)
    assert "all 1 ok" in allow_only(here, UPDATE)
    # A branch may be called like a file of a git folder.
    here.git("update-ref", "refs/remotes/origin/config", "HEAD", cwd="sub")
    # A worktree of the submodule, and one of the project with a submodule of its own.
    here.git("worktree", "add", "--quiet", "../../of-sub", "-b", "side", cwd="sub")
    here.git("worktree", "add", "--quiet", "../beside", "-b", "side")
    file = ("-c", "protocol.file.allow=always")
    here.git(*file, "submodule", "--quiet", "update", "--init", cwd="../beside")
    # One that was removed by hand, and one whose folder was made anew.
    for name in ("gone", "again"):
        here.git("worktree", "add", "--quiet", name, "-b", name)
        shutil.rmtree(here.folder / name)
    (here.folder / "again").mkdir()
    for folder in (here.folder, here.root / "beside", here.folder / "sub"):
        command = f"git checkout -b new-{folder.name}"
        assert "all 1 ok" in batch_in(folder, command, allow=(command,)), folder
