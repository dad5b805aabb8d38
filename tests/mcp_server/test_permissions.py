"""A model gets no more for its agents than the user allowed, and is never kept waiting too long."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.agents.claude_code.tool_rules import is_offered_only, offered_only
from jackline.errors import BadArgumentError
from jackline.mcp_server.agent_definitions import AgentDefinition
from jackline.mcp_server.model_tool import Caller
from jackline.mcp_server.offered_tools import offered, offered_to
from jackline.mcp_server.places import working_folder
from jackline.mcp_server.settings import USUAL_TOOLS, AgentSettings
from jackline.mcp_server.tools.agents import longest_wait

NAMES = st.sampled_from(
    ["Read", "Bash", "Bash(git *)", "WebFetch", "Edit", "mcp__a__b", "Task", "Agent", "Write(~/x)"]
)
_DEFINED = AgentDefinition("reviewer", tools=("Read", "Write(~/.bashrc)", "Bash(git log)"))


@given(st.lists(NAMES), st.lists(NAMES))
def test_no_tool_is_allowed_that_the_user_did_not_allow(
    wanted: list[str], allowed: list[str]
) -> None:
    settings = AgentSettings(tools=tuple(allowed))
    mine = {*USUAL_TOOLS, *allowed}
    given_by = AgentDefinition("any", tools=tuple(wanted))
    for rule in offered_to(given_by, "claude-code", settings).tools or ():
        assert is_offered_only(rule) or rule in mine or rule.split("__")[0] == "mcp"
        assert "(" not in rule or is_offered_only(rule) or rule in allowed


def test_tools_are_offered_by_what_was_named_and_allowed() -> None:
    some = AgentSettings(tools=("Bash(git *)", "mcp__docs"))

    def tools(names: list[str] | None, runner: str, settings: AgentSettings) -> list[str] | None:
        return offered(names, runner, settings).tools

    assert tools(None, "claude-code", AgentSettings()) is None
    assert tools(["Read", "Bash"], "claude-code", some) == ["Read", "Bash(git *)"]
    assert tools(["Bash(git *)"], "claude-code", some) == ["Bash(git *)"]
    assert tools(["Bash"], "claude-code", AgentSettings()) == [offered_only("Bash")]
    assert tools(["mcp__docs__find", "mcp__mail__send"], "claude-code", some) == ["mcp__docs__find"]
    assert {"Bash(git *)", "mcp__docs"} <= set(tools(None, "claude-code", some) or ())
    assert "read" not in (tools(None, "claude-code", some) or ())
    assert tools(["read"], "messages", some) == ["read"]
    with pytest.raises(BadArgumentError, match="shell"):
        offered(["shell"], "messages", some)


@pytest.mark.parametrize("allowed", [(), ("Bash", "Read", "Write", "mcp__docs")])
@pytest.mark.parametrize(
    "rule",
    [
        *("Write(~/.bashrc)", "Read(//root/.ssh/**)", "Edit(~/.claude/settings.json)"),
        *("Bash(rm *)", "Read(../**)", "mcp__docs__find(x)", "WebFetch(domain:x)"),
    ],
)
def test_what_a_model_writes_in_brackets_is_refused(rule: str, allowed: tuple[str, ...]) -> None:
    with pytest.raises(BadArgumentError) as refusal:
        offered(["Read", rule], "claude-code", AgentSettings(tools=allowed))
    assert f'agents.tools = ["{rule}"]' in refusal.value.next


def test_what_a_definition_says_in_brackets_widens_nothing_and_is_told() -> None:
    by_default = offered_to(_DEFINED, "claude-code", AgentSettings())
    assert by_default.tools == ["Read", "Write", offered_only("Bash")]
    assert "Write(~/.bashrc)" in by_default.notes[0]
    # Not all of the tool either, which the definition did not ask for.
    assert offered_only("Bash") in (
        offered_to(_DEFINED, "claude-code", AgentSettings(tools=("Bash",))).tools or ()
    )
    own = AgentSettings(tools=("Bash(git log)", "Write(~/.bashrc)"))
    users = offered_to(_DEFINED, "claude-code", own)
    assert users.tools == ["Read", "Write(~/.bashrc)", "Bash(git log)"]
    assert users.notes == ()


def test_codex_may_change_nothing_where_no_tool_was_named_that_changes_something() -> None:
    assert offered(None, "codex", AgentSettings()).tools is None
    assert offered(["Read", "Grep"], "codex", AgentSettings()).tools == ["Read", "Grep"]
    assert offered_to(_DEFINED, "codex", AgentSettings()).tools == ["Read", "Write", "Bash"]


def test_a_call_works_in_the_folder_of_its_client_or_below_or_in_a_configured_one(
    tmp_path: Path,
) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    (project / "part").mkdir(parents=True)
    other.mkdir()
    (project / "link").symlink_to(other)
    settings = AgentSettings()
    assert working_folder(None, project, settings) == project.resolve()
    assert working_folder("part", project, settings) == (project / "part").resolve()
    for outside in ("..", "link", str(other), "part/../../other"):
        with pytest.raises(BadArgumentError) as refusal:
            working_folder(outside, project, settings)
        assert "agents.folders" in refusal.value.next
    wider = AgentSettings(folders=(other,))
    assert working_folder("link", project, wider) == other.resolve()
    assert working_folder(str(other), None, wider) == other.resolve()
    with pytest.raises(BadArgumentError, match="did not tell"):
        working_folder(None, None, wider)
    with pytest.raises(BadArgumentError, match="absolute"):
        working_folder("part", None, wider)


def test_nobody_is_kept_waiting_beyond_the_clients_patience() -> None:
    settings = AgentSettings(wait=50.0, long_wait=1500.0)
    assert longest_wait(Caller(), settings) == 50.0
    assert longest_wait(Caller(client="claude-code"), settings) < 300.0
    patient = Caller(client="claude-code", hears_progress=True)
    assert longest_wait(patient, settings) == 1500.0
    hasty = Caller(client="claude-code", hears_progress=True, patience=60.0)
    assert longest_wait(hasty, settings) < 60.0
