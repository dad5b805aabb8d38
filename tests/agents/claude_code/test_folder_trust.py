"""Claude Code follows the settings of a folder only where the user has said so before."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from jackline.agents.claude_code.folder_trust import folder_trust
from jackline.agents.claude_code.runner import ClaudeCodeSetup, start_for
from jackline.agents.process.program import FolderTrust, StartRequest
from jackline.agents.runner import AgentTask
from tests.agents.claude_code.streams import SESSION, init, result
from tests.agents.claude_code.test_runner import Client
from tests.agents.process.doubles import FreeLeave


@dataclass
class Disk:
    """A home, and a repository in it with a folder of its own settings."""

    folder: Path

    def __post_init__(self) -> None:
        (self.below / ".claude").mkdir(parents=True)
        (self.repository / ".claude").mkdir()
        (self.home / ".claude").mkdir()

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def repository(self) -> Path:
        return self.home / "src" / "clone"

    @property
    def below(self) -> Path:
        return self.repository / "a" / "b"

    def accept(self, *folders: Path | str, at: Path | None = None, word: object = True) -> None:
        projects = {str(each): {"hasTrustDialogAccepted": word} for each in folders}
        file = (at or self.home) / ".claude.json"
        file.write_text(json.dumps({"projects": projects}))

    def trust(
        self, cwd: Path, *folders: Path, environment: Mapping[str, str] | None = None
    ) -> FolderTrust:
        home = {"USERPROFILE" if os.name == "nt" else "HOME": str(self.home)}
        return folder_trust(cwd, {**home, **(environment or {})}, folders)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path.resolve())


def test_a_folder_is_trusted_by_nobody_at_first_and_the_user_is_told_what_to_do(disk: Disk) -> None:
    for cwd in (disk.repository, disk.below):
        said = disk.trust(cwd)
        assert not said.trusted
        assert str(cwd / ".claude") in said.notice
        assert "run `claude` once there and accept" in said.notice
        assert "agents.folders" in said.notice


def test_where_nothing_is_lost_nothing_is_said(disk: Disk) -> None:
    plain = disk.home / "plain"
    plain.mkdir()
    assert disk.trust(plain) == FolderTrust(trusted=False)
    (plain / "CLAUDE.md").write_text("x")
    assert "CLAUDE.md" in disk.trust(plain).notice


def test_claude_codes_own_record_trusts_a_folder_and_all_below(disk: Disk) -> None:
    disk.accept(disk.repository)
    assert disk.trust(disk.repository).trusted
    assert disk.trust(disk.below).trusted
    disk.accept(disk.below)
    assert not disk.trust(disk.repository).trusted


def test_settings_above_the_accepted_folder_are_not_trusted_with_it(disk: Disk) -> None:
    """`claude -p` starts the servers of every `.mcp.json` above, without a question."""
    disk.accept(disk.below)
    said = disk.trust(disk.below)
    assert not said.trusted
    assert f"you have not trusted {disk.repository}." in said.notice
    disk.accept(disk.below, disk.repository)
    assert disk.trust(disk.below).trusted
    (disk.folder / ".mcp.json").write_text("{}")
    assert not disk.trust(disk.below).trusted


def test_what_stands_in_the_users_home_is_the_users(disk: Disk) -> None:
    (disk.home / ".mcp.json").write_text("{}")
    disk.accept(disk.repository)
    assert disk.trust(disk.repository).trusted


def test_the_users_setting_trusts_the_folders_that_it_names(disk: Disk) -> None:
    assert disk.trust(disk.repository, disk.repository).trusted
    # Below it, one that brings settings of its own has to be named itself.
    assert not disk.trust(disk.below, disk.repository).trusted
    assert disk.trust(disk.below, disk.repository, disk.below).trusted
    assert disk.trust(disk.below.parent, disk.repository).trusted
    assert not disk.trust(disk.repository, disk.home / "src").trusted


@pytest.mark.parametrize("word", [False, 1, "true", None])
def test_only_a_plain_yes_in_the_record_is_one(disk: Disk, word: object) -> None:
    disk.accept(disk.repository, word=word)
    assert not disk.trust(disk.repository).trusted


@pytest.mark.parametrize("text", ["", "[]", '{"projects": []}', '{"projects": {"/": 1}}', "\0"])
def test_a_record_that_cannot_be_read_trusts_nothing(disk: Disk, text: str) -> None:
    (disk.home / ".claude.json").write_text(text)
    assert not disk.trust(disk.repository).trusted


def test_a_record_that_the_agent_could_write_counts_for_nothing(disk: Disk) -> None:
    disk.accept("/", disk.repository, at=disk.repository)
    where = {"CLAUDE_CONFIG_DIR": str(disk.repository)}
    assert not disk.trust(disk.repository, environment=where).trusted
    disk.accept("/", at=disk.home)
    assert not disk.trust(disk.home).trusted


def test_the_record_is_where_claude_code_keeps_it(disk: Disk) -> None:
    own = disk.folder / "own"
    own.mkdir()
    disk.accept(disk.repository, at=own)
    assert not disk.trust(disk.repository).trusted
    assert disk.trust(disk.repository, environment={"CLAUDE_CONFIG_DIR": str(own)}).trusted


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_a_link_in_a_trusted_folder_trusts_nothing_elsewhere(disk: Disk) -> None:
    mine = disk.home / "mine"
    mine.mkdir()
    (mine / "link").symlink_to(disk.repository)
    disk.accept(mine, mine / "link")
    assert not disk.trust(mine / "link").trusted
    assert disk.trust(mine).trusted


def test_a_worktree_is_trusted_with_the_repository_that_knows_it(disk: Disk) -> None:
    tree, claims = disk.folder / "tree", disk.folder / "claims"
    kept = disk.repository / ".git" / "worktrees" / "tree"
    for folder in (kept, tree / "a" / "b" / ".claude", claims / ".claude"):
        folder.mkdir(parents=True)
    (kept / "gitdir").write_text(f"{tree / '.git'}\n")
    for folder in (tree, claims):
        (folder / ".git").write_text(f"gitdir: {kept}\n")
    assert not disk.trust(tree).trusted
    disk.accept(disk.repository)
    assert disk.trust(tree).trusted
    assert disk.trust(tree / "a" / "b").trusted
    assert not disk.trust(claims).trusted, "it only says so itself"
    disk.accept()
    assert disk.trust(tree, disk.repository).trusted
    assert not disk.trust(tree / "a" / "b", disk.repository).trusted


def test_without_trust_only_the_users_own_settings_are_sources() -> None:
    place = ClaudeCodeSetup("http://127.0.0.1:1", "claude", {})
    task = AgentTask("task", SESSION, "THE TASK")
    for trusted in (False, True):
        with start_for(place, task, StartRequest(None, None), SESSION, trusted=trusted) as start:
            words = " ".join(start.command)
            assert ("--setting-sources user" in words) is not trusted


@pytest.mark.skipif(os.name == "nt", reason="the played client is started by its #!")
def test_it_is_decided_anew_for_each_process_of_an_agent(tmp_path: Path) -> None:
    """A resumed session may stand in a folder that the user has trusted, or no more, since."""
    client, project = Client(tmp_path / "client"), tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    owed = init() + result()

    class Accepting(FreeLeave):
        async def before_call(self, *args: object, **more: object) -> None:
            if self.asked == 1:
                record = {"projects": {str(project.resolve()): {"hasTrustDialogAccepted": True}}}
                (client.folder / ".claude.json").write_text(json.dumps(record))
            await super().before_call(*args, **more)  # type: ignore[arg-type]

    client.plays(owed, owed, owed)
    leave = Accepting()
    client.carry(leave=leave, cwd=project, schema={"type": "object"})
    given = ["--setting-sources" in start["arguments"] for start in client.starts]
    assert given == [True, False, False]
    assert len(leave.warnings) == 1
