"""A model gets no more for its agents than the user allowed, and is never kept waiting too long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import settings as settings_
from hypothesis import strategies as st

from jackline.agents.claude_code.runner import ClaudeCodeRunner
from jackline.agents.codex import CodexRunner
from jackline.agents.process.program import StartRequest
from jackline.agents.runner import AgentTask
from jackline.clock import SystemClock
from jackline.errors import BadArgumentError, RefusedError
from jackline.flows.agent_spec import toolbox
from jackline.mcp_server.agent_definitions import AgentDefinition
from jackline.mcp_server.agent_manager import AgentManager
from jackline.mcp_server.agent_orders import OrderIntake
from jackline.mcp_server.agent_tools import longest_wait
from jackline.mcp_server.model_tool import ToolCaller
from jackline.mcp_server.permissions import (
    USUAL_TOOLS,
    AgentSettings,
    ToolSettings,
    offered,
    offered_to,
)

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
        assert rule in mine or rule.split("__")[0] == "mcp"
        assert "(" not in rule or rule in allowed


class _NoDesk:
    """As much of a desk as an order for a first agent needs."""

    async def depth_of(self, _session: str, _task: str) -> int:
        return 0

    async def project_of(self, caller: ToolCaller) -> Path | None:
        return caller.folder


def _taken(project: Path, settings: AgentSettings, **given: Any) -> dict[str, Any]:
    """The order that a client in `project` gets for what it gave."""
    tools = ToolSettings(settings)
    environ = {"HOME": str(project.parent)}
    desk = OrderIntake(cast("AgentManager", _NoDesk()), lambda: tools, environ, SystemClock())
    caller = ToolCaller(folder=project)
    return cast("dict[str, Any]", asyncio.run(desk.take({"prompt": "x", **given}, caller)).order)


def _task(order: dict[str, Any]) -> AgentTask:
    box = toolbox(order.get("tools"))
    return AgentTask("t", "s", "x", tool_names=box.names, cwd=Path(order["cwd"]))


def _claude_words(order: dict[str, Any]) -> list[str]:
    """The command line of Claude Code for an order."""
    runner = ClaudeCodeRunner("http://127.0.0.1:1", environment={})
    with runner.start(_task(order), StartRequest(None, None)) as begun:
        return list(begun.command)


def _project(tmp_path: Path, tools: str) -> Path:
    project = (tmp_path / "project").resolve()
    (project / ".claude" / "agents").mkdir(parents=True)
    (project / ".claude" / "agents" / "one.md").write_text(
        f"---\nname: one\ndescription: x\ntools: {tools}\n---\nOnly look.\n"
    )
    return project


@pytest.mark.parametrize("tools", ["mcp__docs__search", "?", "[]", ""])
@pytest.mark.parametrize("allowed", [(), ("Bash(pytest *)",)])
def test_a_definition_of_whose_tools_none_is_left_gives_none(
    tmp_path: Path, tools: str, allowed: tuple[str, ...]
) -> None:
    project = _project(tmp_path, tools)
    order = _taken(project, AgentSettings(tools=allowed), subagent_type="one")
    words = _claude_words(order)
    assert words[words.index("--permission-mode") + 1] == "dontAsk"
    assert words[words.index("--tools") + 1] == ""
    assert "--allowedTools" not in words


def test_a_definition_with_every_tool_leaves_it_to_the_client() -> None:
    defined = AgentDefinition.parse('---\nname: one\ntools: "*"\n---\nDo it.')
    assert defined is not None
    assert offered_to(defined, "claude-code", AgentSettings()).tools is None


def test_a_model_that_names_no_usable_tool_is_refused_and_none_at_all_is_none(
    tmp_path: Path,
) -> None:
    project = _project(tmp_path, "Read")
    for names in (["?"], ["mcp__docs__search"], ["a,b"], ["Bash"], ["default"]):
        with pytest.raises(BadArgumentError, match="can be offered"):
            _taken(project, AgentSettings(), tools=names)
    order = _taken(project, AgentSettings(), tools=[], subagent_type="one")
    words = _claude_words(order)
    assert words[words.index("--tools") + 1] == ""
    settings = AgentSettings("codex")
    runner = CodexRunner("http://127.0.0.1:1", environment={"HOME": str(tmp_path)})
    task = _task(_taken(project, settings, tools=[]))
    with runner.start(task, StartRequest(None, None)) as go:
        assert 'sandbox_mode="read-only"' in go.command


@settings_(max_examples=40, deadline=None)
@given(st.lists(st.one_of(NAMES, st.text(max_size=8)), max_size=4), st.lists(NAMES, max_size=3))
def test_whoever_names_tools_is_offered_no_others(wanted: list[str], allowed: list[str]) -> None:
    """From the argument to the command line."""
    try:
        order = _taken(Path("/").resolve(), AgentSettings(tools=tuple(allowed)), tools=wanted)
    except BadArgumentError:
        return
    words = _claude_words(order)
    assert words[words.index("--permission-mode") + 1] == "dontAsk"
    given_names = {name for name in words[words.index("--tools") + 1].split(",") if name}
    assert given_names <= {name.partition("(")[0] for name in wanted}


@pytest.mark.parametrize("runner", ["codex", "messages", "claude-code"])
def test_a_model_chooses_only_a_runner_that_the_user_named(tmp_path: Path, runner: str) -> None:
    project = _project(tmp_path, "Read")
    default = "messages" if runner == "claude-code" else "claude-code"
    with pytest.raises(RefusedError) as refusal:
        _taken(project, AgentSettings(default), runner=runner)
    assert f'agents.runners = ["{runner}"]' in refusal.value.hint
    named = AgentSettings(default, runners=(runner,))
    assert _taken(project, named, runner=runner)["runner"] == runner
    assert _taken(project, AgentSettings(runner))["runner"] == runner


def test_tools_are_offered_by_what_was_named_and_allowed() -> None:
    some = AgentSettings(tools=("Bash(git *)", "mcp__docs"))

    def tools(names: list[str] | None, runner: str, settings: AgentSettings) -> list[str] | None:
        return offered(names, runner, settings).tools

    assert tools(None, "claude-code", AgentSettings()) is None
    assert tools(["Read", "Bash"], "claude-code", some) == ["Read", "Bash(git *)"]
    assert tools(["Bash(git *)"], "claude-code", some) == ["Bash(git *)"]
    assert tools(["Read", "Bash"], "claude-code", AgentSettings()) == ["Read"]
    assert tools(["Read", "default", "Monitor"], "claude-code", some) == ["Read"]
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
    assert f'agents.tools = ["{rule}"]' in refusal.value.hint


def test_what_a_definition_says_in_brackets_widens_nothing_and_is_told() -> None:
    by_default = offered_to(_DEFINED, "claude-code", AgentSettings())
    assert by_default.tools == ["Read", "Write"]
    assert "Write(~/.bashrc), Bash(git log)" in by_default.notes[0]
    # Not all of the tool either, which the definition did not ask for.
    whole = offered_to(_DEFINED, "claude-code", AgentSettings(tools=("Bash",)))
    assert whole.tools == ["Read", "Write"]
    own = AgentSettings(tools=("Bash(git log)", "Write(~/.bashrc)"))
    users = offered_to(_DEFINED, "claude-code", own)
    assert users.tools == ["Read", "Write(~/.bashrc)", "Bash(git log)"]
    assert users.notes == ()


def test_a_tool_that_the_user_did_not_allow_is_left_out_and_that_is_told() -> None:
    """Offered alone, Bash would run what Claude Code takes for harmless: `grep -R` reads links."""
    (note,) = offered(["Read", "Bash", "WebFetch"], "claude-code", AgentSettings()).notes
    assert "Bash, WebFetch" in note
    assert 'agents.tools = ["Bash"]' in note
    own = AgentSettings(tools=("Bash(git *)",))
    assert offered(["Read", "Bash"], "claude-code", own).notes == ()
    assert offered(["Read", "Bash"], "codex", AgentSettings("codex")).notes == ()


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
    assert settings.working_folder(None, project) == project.resolve()
    assert settings.working_folder("part", project) == (project / "part").resolve()
    for outside in ("..", "link", str(other), "part/../../other"):
        with pytest.raises(BadArgumentError) as refusal:
            settings.working_folder(outside, project)
        assert "agents.folders" in refusal.value.hint
    wider = AgentSettings(folders=(other,))
    assert wider.working_folder("link", project) == other.resolve()
    assert wider.working_folder(str(other), None) == other.resolve()
    with pytest.raises(BadArgumentError, match="did not say"):
        wider.working_folder(None, None)
    with pytest.raises(BadArgumentError, match="absolute"):
        wider.working_folder("part", None)


def test_nobody_is_kept_waiting_beyond_the_clients_patience() -> None:
    settings = AgentSettings(wait=50.0, long_wait=1500.0)
    assert longest_wait(ToolCaller(), settings) == 50.0
    assert longest_wait(ToolCaller(client="claude-code"), settings) < 300.0
    patient = ToolCaller(client="claude-code", hears_progress=True)
    assert longest_wait(patient, settings) == 1500.0
    hasty = ToolCaller(client="claude-code", hears_progress=True, patience=60.0)
    assert longest_wait(hasty, settings) < 60.0
