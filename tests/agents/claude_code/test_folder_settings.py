"""An agent of Claude Code takes notes and denying rules from its folder, and obeys nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from jackline.agents.claude_code.runner import ClaudeCodeRunner, denying_rules, notes_of
from jackline.agents.process.child import start_files_root
from jackline.agents.process.program import StartRequest
from jackline.agents.runner import AgentTask
from tests.agents.claude_code.streams import SESSION

HOME = "USERPROFILE" if os.name == "nt" else "HOME"


def words_for(cwd: Path, **more: object) -> tuple[Sequence[str], dict[int, str]]:
    """The command line and, by the place of their names in it, the texts of its files."""
    task = AgentTask("task", SESSION, "THE TASK", cwd=cwd, **more)  # type: ignore[arg-type]
    runner = ClaudeCodeRunner("http://127.0.0.1:1", environment={})
    with runner.start(task, StartRequest(None, None)) as start:
        words = list(start.command)
        root = str(start_files_root())
        files = [number for number, word in enumerate(words) if word.startswith(root)]
        return words, {number: Path(words[number]).read_text() for number in files}


def test_only_the_users_own_settings_are_sources_in_every_folder(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    for cwd in (tmp_path, tmp_path / "not-yet", Path.home()):
        words, _ = words_for(cwd)
        assert "--setting-sources user" in " ".join(words)


def test_the_user_is_told_what_is_not_followed(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    (project / "a").mkdir(parents=True)
    (home / ".claude").mkdir()
    environment = {HOME: str(home)}
    runner = ClaudeCodeRunner("http://127.0.0.1:1", environment=environment)
    assert runner.unfollowed_notice(project) == ""
    (project / ".claude").mkdir()
    (project / "a" / ".mcp.json").write_text("{}")
    said = runner.unfollowed_notice(project / "a")
    assert f"not {project / 'a' / '.mcp.json'} and 1 more" in said
    assert "agents that work there may write them" in said
    assert not runner.unfollowed_notice(home), "the home is the user's own"


def test_files_of_a_start_lie_where_no_agent_writes(tmp_path: Path) -> None:
    """Sandboxes of agents leave the system's temporary folder open, where anybody finds them."""
    servers = {"docs": {"command": "srv", "env": {"TOKEN": "SECRET"}}}
    words, _ = words_for(tmp_path, system="SYSTEM", mcp_servers=servers)
    for option in ("--mcp-config", "--append-system-prompt-file"):
        file = Path(words[words.index(option) + 1])
        assert file.is_relative_to(start_files_root()), option
        assert not file.exists(), "it is gone with the process"
    if os.name != "nt":
        assert start_files_root().stat().st_mode & 0o077 == 0
    assert "SECRET" not in " ".join(words)


def test_notes_from_the_repositorys_top_down_are_text_for_the_model(tmp_path: Path) -> None:
    top, below = tmp_path / "top", tmp_path / "top" / "a"
    (below / ".claude").mkdir(parents=True)
    (top / ".git").mkdir()
    (tmp_path / "CLAUDE.md").write_text("ABOVE")
    (top / "CLAUDE.md").write_text("OF-THE-TOP")
    (below / ".claude" / "CLAUDE.md").write_text("BELOW")
    (below / "CLAUDE.local.md").write_text("LOCAL")
    words, texts = words_for(below, system="SYSTEM")
    text = texts[words.index("--append-system-prompt-file") + 1]
    places = [text.index(each) for each in ("SYSTEM", "OF-THE-TOP", "BELOW", "LOCAL")]
    assert places == sorted(places)
    assert "ABOVE" not in text


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_notes_are_bounded_and_lie_in_the_repository(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secret").write_text("SECRET")
    (project / "CLAUDE.md").symlink_to(tmp_path / "secret")
    assert notes_of(project) == ""
    (project / "CLAUDE.local.md").write_text("x" * 200_000)
    assert notes_of(project) == ""
    (project / "CLAUDE.local.md").unlink()
    os.mkfifo(project / "CLAUDE.local.md")
    assert notes_of(project) == ""
    assert notes_of(tmp_path / "missing") == ""


def test_rules_that_deny_are_handed_on_and_no_others(tmp_path: Path) -> None:
    rules = {"deny": ["Read(./.env)", 1, "x" * 1000], "ask": ["Bash"], "allow": ["Write"]}
    (tmp_path / ".claude").mkdir()
    settings = {"permissions": rules, "hooks": {}, "env": {"X": "1"}}
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(settings))
    local = {"permissions": {"deny": ["WebFetch"]}}
    (tmp_path / ".claude" / "settings.local.json").write_text(json.dumps(local))
    expected = {"deny": ["Read(./.env)", "WebFetch"], "ask": ["Bash"]}
    assert denying_rules(tmp_path) == expected
    words, texts = words_for(tmp_path)
    # In a file: a thousand rules of another agent's must not make the command line too long.
    document = json.loads(texts[words.index("--settings") + 1])
    assert document["permissions"]["ask"] == ["Bash"]
    assert document["permissions"]["deny"][-2:] == ["Read(./.env)", "WebFetch"]


def test_tools_that_reach_other_sessions_are_denied_everywhere(tmp_path: Path) -> None:
    words, texts = words_for(tmp_path)
    document = json.loads(texts[words.index("--settings") + 1])
    assert document["crossSessionInbound"] == "refuse"
    denied = document["permissions"]["deny"]
    assert {"CronCreate", "ListAgents", "SendMessage", "Edit(~/.claude/**)"} <= set(denied)


@pytest.mark.parametrize("text", ["", "[]", '{"permissions": []}', '{"permissions": {"deny": 1}}'])
def test_settings_that_make_no_sense_deny_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(text)
    assert denying_rules(tmp_path) == {}


def test_settings_of_a_folder_that_take_long_to_parse_are_not_parsed(tmp_path: Path) -> None:
    """4 MB of empty lists, which a clone packs into some kilobytes, took seconds to parse."""
    (tmp_path / ".claude").mkdir()
    file = tmp_path / ".claude" / "settings.json"
    rules = {"permissions": {"deny": ["Read(./.env)"] * 100_000}}
    file.write_text(json.dumps(rules))
    assert denying_rules(tmp_path) == {}
    rules["permissions"]["deny"] = ["Read(./.env)"] * 1_000
    file.write_text(json.dumps(rules))
    assert denying_rules(tmp_path) == {"deny": ["Read(./.env)"] * 200}
