"""Agent definitions are read as Claude Code reads them."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.errors import BadArgumentError
from jackline.foreign_files import read_beginning
from jackline.mcp_server import agent_definitions
from jackline.mcp_server.agent_definitions import (
    AgentDefinition,
    definition_folders,
    definition_of,
    definitions_of_plugins,
)

WHOLE = """---
name: reviewer
description: "Reviews: all of it"
tools: Read, Bash(git log, git show), Grep
model: sonnet
color: blue
---

You review.

---
And more.
"""


def test_a_definition_is_its_front_matter_and_its_words() -> None:
    assert AgentDefinition.parse(WHOLE) == AgentDefinition(
        "reviewer",
        "Reviews: all of it",
        "You review.\n\n---\nAnd more.",
        "sonnet",
        ("Read", "Bash(git log, git show)", "Grep"),
    )


@pytest.mark.parametrize(
    "tools",
    [
        "tools: Read, Grep",
        "tools:\n  - Read\n  - Grep",
        "tools:\n- Read\n- Grep",
        "tools: [Read, Grep]",
    ],
)
def test_tools_are_read_however_they_are_listed(tools: str) -> None:
    found = AgentDefinition.parse(f"---\nname: x\n{tools}\n---\n")
    assert found is not None
    assert found.tools == ("Read", "Grep")
    assert found.system is None


def test_a_description_may_follow_on_lines_of_its_own() -> None:
    found = AgentDefinition.parse(
        "---\nname: x\ndescription: >\n  one\n  two\nmodel: inherit\n---\nHi."
    )
    assert found == AgentDefinition("x", "one two", "Hi.")


@pytest.mark.parametrize("text", ["", "no front matter", "---\nname: x\n", "---\nmodel: y\n---\n"])
def test_what_is_no_definition_is_none(text: str) -> None:
    assert AgentDefinition.parse(text) is None


@given(st.text())
def test_any_text_is_read_without_a_fault(text: str) -> None:
    AgentDefinition.parse(text)
    AgentDefinition.parse(f"---\n{text}\n---\n{text}")


def test_the_projects_definition_goes_before_the_users(tmp_path: Path) -> None:
    project, claude = tmp_path / "work" / "project", tmp_path / "home"
    places = {
        project / ".claude" / "agents": "near",
        tmp_path / "work" / ".claude" / "agents": "above",
        claude / "agents": "mine",
    }
    for folder, words in places.items():
        folder.mkdir(parents=True)
        (folder / "a.md").write_text(f"---\nname: a\n---\n{words}")
    (claude / "agents" / "b.md").write_text("---\nname: b\n---\nb")
    (claude / "agents" / "broken.md").write_bytes(b"---\nname: \xff\xfe")
    folders = definition_folders(project, claude)
    assert definition_of("a", folders).system == "near"
    (project / ".claude" / "agents" / "a.md").unlink()
    assert definition_of("a", folders).system == "mine"
    (tmp_path / "work" / ".git").mkdir()
    folders = definition_folders(project, claude)
    assert definition_of("a", folders).system == "above"
    assert definition_of("b", folders).system == "b"
    assert definition_of("general-purpose", folders).system is None
    with pytest.raises(BadArgumentError) as refusal:
        definition_of("c", folders)
    assert "a, b, general-purpose" in refusal.value.hint


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_nothing_outside_the_project_is_read_through_its_links(tmp_path: Path) -> None:
    """Git keeps links: a clone could have the user's notes read to a model."""
    project, claude, notes = (tmp_path / name for name in ("clone/sub", "home/.claude", "notes"))
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    written(notes / "diary.md", "diary", "SECRET")
    written(tmp_path / "clone" / "shared" / "own.md", "own")
    agents = project / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "x.md").symlink_to(notes / "diary.md")
    (agents / "folder").symlink_to(notes)
    (agents / "own.md").symlink_to(tmp_path / "clone" / "shared" / "own.md")
    (tmp_path / "clone" / ".claude").mkdir()
    (tmp_path / "clone" / ".claude" / "agents").symlink_to(notes)
    with pytest.raises(BadArgumentError) as refusal:
        definition_of("diary", definition_folders(project, claude))
    assert "subagent_type: general-purpose, own;" in refusal.value.hint
    assert definition_of("own", definition_folders(project, claude)).name == "own"
    # The user's own folder may be anything, links to a folder of notes, too.
    (claude).mkdir(parents=True)
    (claude / "agents").symlink_to(notes)
    assert definition_of("diary", definition_folders(project, claude)).system == "SECRET"


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_a_whole_folder_of_settings_that_is_a_link_brings_nothing(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "clone", tmp_path / "elsewhere"
    written(elsewhere / "agents" / "diary.md", "diary", "SECRET")
    project.mkdir()
    (project / ".claude").symlink_to(elsewhere)
    with pytest.raises(BadArgumentError):
        definition_of("diary", definition_folders(project, tmp_path / "home"))


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_neither_plugins_nor_a_projects_settings_of_them_are_read_through_links_out(
    tmp_path: Path,
) -> None:
    plugins = Plugins(tmp_path)
    folder = plugins.install("formatter")
    written(tmp_path / "notes" / "diary.md", "diary", "SECRET")
    written(folder / "agents" / "tidy.md", "tidy")
    (folder / "agents" / "diary.md").symlink_to(tmp_path / "notes" / "diary.md")
    plugins.enable(tmp_path / "other.json", formatter=True)
    (plugins.project / ".claude" / "settings.json").symlink_to(tmp_path / "other.json")
    assert plugins.names() == []
    plugins.enable(plugins.claude / "settings.json", formatter=True)
    assert plugins.names() == ["formatter:tidy"]


class Plugins:
    """A home of Claude Code with plugins, laid out as 2.1.197 and 2.1.325 do it."""

    def __init__(self, root: Path) -> None:
        self.claude, self.project = root / "home", root / "project"
        (self.project / ".claude").mkdir(parents=True)
        self._installed: dict[str, list[dict[str, str]]] = {}

    def install(self, name: str, manifest: dict[str, object] | None = None, **more: str) -> Path:
        folder = self.claude / "plugins" / "cache" / "tools" / name / "1.0.0"
        (folder / ".claude-plugin").mkdir(parents=True)
        (folder / ".claude-plugin" / "plugin.json").write_text(
            json.dumps({"name": name, **(manifest or {})})
        )
        self._installed[f"{name}@tools"] = [{"scope": "user", "installPath": str(folder), **more}]
        (self.claude / "plugins" / "installed_plugins.json").write_text(
            json.dumps({"version": 2, "plugins": self._installed})
        )
        return folder

    def enable(self, file: Path, **plugins: bool) -> None:
        enabled = {f"{name}@tools": value for name, value in plugins.items()}
        file.write_text(json.dumps({"enabledPlugins": enabled}))

    def names(self) -> list[str]:
        return [found.name for found in definitions_of_plugins(self.project, self.claude)]


def written(file: Path, name: str, words: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"---\nname: {name}\nmodel: haiku\n---\n{words}")


def test_the_agents_of_enabled_plugins_are_found_by_the_clients_names(tmp_path: Path) -> None:
    plugins = Plugins(tmp_path)
    folder = plugins.install("formatter")
    written(folder / "agents" / "tidy.md", "tidy", "Look in ${CLAUDE_PLUGIN_ROOT}/rules.")
    written(folder / "agents" / "deep" / "inner.md", "inner")
    (folder / "agents" / "notes.md").write_text("no definition")
    assert plugins.names() == []
    plugins.enable(plugins.claude / "settings.json", formatter=True)
    assert plugins.names() == ["formatter:deep:inner", "formatter:tidy"]
    brought = list(definitions_of_plugins(plugins.project, plugins.claude))
    found = definition_of("formatter:tidy", [], brought)
    assert found.name == "formatter:tidy"
    assert (found.model, found.system) == ("haiku", f"Look in {folder}/rules.")
    with pytest.raises(BadArgumentError) as refusal:
        definition_of("tidy", [], brought)
    assert "formatter:tidy" in refusal.value.hint


def test_the_nearest_settings_decide_which_plugins_are_enabled(tmp_path: Path) -> None:
    plugins = Plugins(tmp_path)
    written(plugins.install("formatter") / "agents" / "tidy.md", "tidy")
    near = plugins.project / ".claude"
    plugins.enable(plugins.claude / "settings.json", formatter=True)
    plugins.enable(near / "settings.json", formatter=False)
    assert plugins.names() == []
    plugins.enable(near / "settings.local.json", formatter=True)
    assert plugins.names() == ["formatter:tidy"]
    (near / "settings.local.json").write_text("[]")
    (near / "settings.json").write_text("{")
    assert plugins.names() == ["formatter:tidy"]


def test_a_plugin_of_another_project_brings_nothing_here(tmp_path: Path) -> None:
    plugins = Plugins(tmp_path)
    folder = plugins.install("formatter", projectPath=str(tmp_path / "other"))
    written(folder / "agents" / "tidy.md", "tidy")
    plugins.enable(plugins.project / ".claude" / "settings.json", formatter=True)
    assert plugins.names() == []
    written(plugins.install("own", projectPath=str(plugins.project)) / "agents" / "a.md", "a")
    plugins.enable(plugins.project / ".claude" / "settings.json", formatter=True, own=True)
    assert plugins.names() == ["own:a"]


def test_a_manifest_names_its_agents_itself_but_none_outside(tmp_path: Path) -> None:
    plugins = Plugins(tmp_path)
    named: dict[str, object] = {"agents": ["./more/other.md", "../../../secret.md", "./none.md", 7]}
    folder = plugins.install("formatter", named)
    written(folder / "agents" / "tidy.md", "tidy")
    written(folder / "more" / "other.md", "other")
    written(folder.parents[2] / "secret.md", "secret")
    plugins.enable(plugins.claude / "settings.json", formatter=True)
    assert plugins.names() == ["formatter:other"]


class BytesRead:
    """Counts what is read of files, and in how many steps lines are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = read_beginning

        def read(path: Path, most: int) -> bytes:
            data = real(path, most)
            self.count += len(data)
            return data

        monkeypatch.setattr(agent_definitions, "read_beginning", read)


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
@pytest.mark.parametrize("body", ["\U0001f600" + "a" * 999_000, "- a\n" * 250_000])
def test_a_clone_of_a_thousand_large_definitions_costs_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    """Git keeps links: nine kilobytes of a clone are a gigabyte to read."""
    agents = tmp_path / "clone" / ".claude" / "agents"
    agents.mkdir(parents=True)
    (tmp_path / "clone" / ".git").mkdir()
    (agents / "a0.md").write_text(f"---\nname: large\ndescription: |\n{body}\n---\n{body}")
    (agents / "b0.md").write_text(f"---\nname: small\n---\n{body}")
    for number in range(1, 1_500):
        (agents / f"{'ab'[number % 2]}{number}.md").symlink_to(agents / f"{'ab'[number % 2]}0.md")
    written(tmp_path / "home" / "agents" / "mine.md", "mine", "My words.")
    read = BytesRead(monkeypatch)
    folders = definition_folders(tmp_path / "clone", tmp_path / "home")
    tracemalloc.start()
    try:
        assert definition_of("mine", folders).system == "My words."
        with pytest.raises(BadArgumentError) as refusal:
            definition_of("nobody", folders)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read.count < 40_000_000
    assert peak < 20_000_000
    assert len(refusal.value.hint) < 1_000


def test_an_error_lists_only_so_many_names(tmp_path: Path) -> None:
    for number in range(200):
        written(tmp_path / "agents" / f"{number}.md", f"agent-{number}-" + "x" * 100)
    written(tmp_path / "agents" / "long.md", "x" * 5_000)
    with pytest.raises(BadArgumentError) as refusal:
        definition_of("y" * 100_000, definition_folders(None, tmp_path))
    assert "and 151 more" in refusal.value.hint
    assert len(str(refusal.value)) + len(refusal.value.hint) < 10_000
