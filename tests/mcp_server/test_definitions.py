"""Agent definitions are read as Claude Code reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.errors import BadArgumentError
from jackline.mcp_server.agent_definitions import (
    AgentDefinition,
    definition_folders,
    definition_of,
    read_definition,
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
    assert read_definition(WHOLE) == AgentDefinition(
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
    found = read_definition(f"---\nname: x\n{tools}\n---\n")
    assert found is not None
    assert found.tools == ("Read", "Grep")
    assert found.system is None


def test_a_description_may_follow_on_lines_of_its_own() -> None:
    found = read_definition("---\nname: x\ndescription: >\n  one\n  two\nmodel: inherit\n---\nHi.")
    assert found == AgentDefinition("x", "one two", "Hi.")


@pytest.mark.parametrize("text", ["", "no front matter", "---\nname: x\n", "---\nmodel: y\n---\n"])
def test_what_is_no_definition_is_none(text: str) -> None:
    assert read_definition(text) is None


@given(st.text())
def test_any_text_is_read_without_a_fault(text: str) -> None:
    read_definition(text)
    read_definition(f"---\n{text}\n---\n{text}")


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
    assert "a, b, general-purpose" in refusal.value.next
