"""A model gets no more for its agents than the user allowed, and is never kept waiting too long."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.errors import BadArgumentError
from jackline.mcp_server.model_tool import Caller
from jackline.mcp_server.offered_tools import offered
from jackline.mcp_server.places import working_folder
from jackline.mcp_server.settings import USUAL_TOOLS, AgentSettings
from jackline.mcp_server.tools.agents import longest_wait

NAMES = st.sampled_from(
    ["Read", "Bash", "Bash(git *)", "WebFetch", "Edit", "mcp__a__b", "Task", "Agent"]
)


@given(st.lists(NAMES), st.lists(NAMES))
def test_no_tool_is_allowed_that_the_user_did_not_allow(
    wanted: list[str], allowed: list[str]
) -> None:
    settings = AgentSettings(tools=tuple(allowed))
    mine = {*USUAL_TOOLS, *allowed}
    for rule in offered(wanted, "claude-code", settings) or ():
        base = rule.partition("(")[0]
        # A rule that no call fits offers the tool, and allows nothing.
        harmless = rule == f"{base}(nothing-by-jackline)"
        assert harmless or rule in mine or base in mine


def test_tools_are_offered_by_what_was_named_and_allowed() -> None:
    some = AgentSettings(tools=("Bash(git *)", "mcp__docs"))
    assert offered(None, "claude-code", AgentSettings()) is None
    assert offered(["Read", "Bash"], "claude-code", some) == ["Read", "Bash(git *)"]
    assert offered(["Bash(rm *)"], "claude-code", AgentSettings()) == ["Bash(nothing-by-jackline)"]
    assert offered(["mcp__docs__find", "mcp__mail__send"], "claude-code", some) == [
        "mcp__docs__find"
    ]
    assert {"Bash(git *)", "mcp__docs"} <= set(offered(None, "claude-code", some) or ())
    assert "read" not in (offered(None, "claude-code", some) or ())
    assert offered(["read"], "messages", some) == ["read"]
    with pytest.raises(BadArgumentError, match="shell"):
        offered(["shell"], "messages", some)


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
