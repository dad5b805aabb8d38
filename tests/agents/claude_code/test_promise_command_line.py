"""Claude Code is started with its session, the schema, and what is left of turns and dollars."""

from __future__ import annotations

import json

import pytest

from jackline.agents.claude_code.runner import ClaudeCodeRunner
from jackline.agents.claude_code.tool_rules import USUAL_TOOLS
from jackline.agents.process.program import StartRequest
from jackline.agents.runner import AgentTask
from tests.agents.claude_code.streams import SESSION

RUNNER = ClaudeCodeRunner("http://127.0.0.1:1", environment={})
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def words(order: StartRequest, **more: object) -> list[str]:
    task = AgentTask("task", SESSION, "THE TASK", **more)  # type: ignore[arg-type]
    with RUNNER.start(task, order) as start:
        return list(start.command)


def after(option: str, command: list[str]) -> str | None:
    return command[command.index(option) + 1] if option in command else None


def test_a_new_session_has_the_agents_own_id_and_a_resumed_one_its_own() -> None:
    new, resumed = words(StartRequest(None, None)), words(StartRequest("earlier", None))
    assert (after("--session-id", new), after("--resume", new)) == (SESSION, None)
    assert (after("--session-id", resumed), after("--resume", resumed)) == (None, "earlier")


def test_the_schema_is_given_as_it_was_asked_for() -> None:
    assert after("--json-schema", words(StartRequest(None, None))) is None
    given = after("--json-schema", words(StartRequest(None, None), schema=SCHEMA))
    assert json.loads(given or "") == SCHEMA


def test_a_schema_that_is_for_no_object_is_given_inside_of_one() -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    given = json.loads(
        after("--json-schema", words(StartRequest(None, None), schema=numbers)) or ""
    )
    assert (given["type"], given["properties"]) == ("object", {"value": numbers})


@pytest.mark.parametrize(
    ("order", "option", "value"),
    [
        (StartRequest(None, None, turns_left=3), "--max-turns", "3"),
        (StartRequest(None, None, dollars_left=0.25), "--max-budget-usd", "0.250000"),
        (StartRequest("earlier", "claude-opus-4-8[1m]"), "--model", "claude-opus-4-8[1m]"),
    ],
)
def test_limits_and_model_are_those_of_the_order(
    order: StartRequest, option: str, value: str
) -> None:
    assert after(option, words(order)) == value
    assert after(option, words(StartRequest(None, None))) is None


_FILE_TOOLS = ("Read", "Grep", "Glob", "LS", "NotebookRead")
_EDITING = ("Edit", "MultiEdit", "Write", "NotebookEdit")


def test_no_file_tool_is_allowed_beyond_the_folder() -> None:
    """A bare name in --allowedTools allows every use of the tool, wherever the file is."""
    command = words(
        StartRequest(None, None), tool_names=(*_FILE_TOOLS, *_EDITING, "Bash(pytest *)")
    )
    assert after("--allowedTools", command) == "Edit(./**),Bash(pytest *)"
    assert after("--permission-mode", command) == "dontAsk"
    assert after("--tools", command) == ",".join((*_FILE_TOOLS, *_EDITING, "Bash"))


def test_who_may_not_edit_unasked_edits_nothing_unasked() -> None:
    asking = words(StartRequest(None, None), accepts_edits=False)
    assert after("--allowedTools", asking) == "Agent,TodoWrite"
    assert after("--permission-mode", asking) == "dontAsk"
    named = words(StartRequest(None, None), accepts_edits=False, tool_names=("Edit",))
    assert after("--allowedTools", named) == "Edit(./**)"


def test_who_is_given_no_editing_tool_may_edit_nothing() -> None:
    command = words(StartRequest(None, None), tool_names=_FILE_TOOLS)
    assert after("--allowedTools", command) is None
    assert after("--tools", command) == ",".join(_FILE_TOOLS)


def test_what_the_user_wrote_in_brackets_is_kept_as_it_is() -> None:
    command = words(StartRequest(None, None), tool_names=("Edit(src/**)", "Read(//srv/data/**)"))
    assert after("--allowedTools", command) == "Edit(src/**),Read(//srv/data/**)"


def test_without_names_the_usual_tools_are_offered_and_no_others() -> None:
    """Whatever the client brings besides: some of it needs no permission, by its own list."""
    command = words(StartRequest(None, None))
    assert after("--tools", command) == ",".join(USUAL_TOOLS)
    assert set(USUAL_TOOLS) == {*_FILE_TOOLS, *_EDITING, "Agent", "TodoWrite"}
    assert after("--permission-mode", command) == "dontAsk"
    assert after("--allowedTools", command) == "Edit(./**),Agent,TodoWrite"


def test_tools_are_named_also_where_an_agent_has_servers_alone() -> None:
    servers = {"web": {"type": "http", "url": "http://127.0.0.1:1"}}
    command = words(StartRequest(None, None), mcp_servers=servers)
    assert after("--tools", command) == ",".join(USUAL_TOOLS)
    assert (after("--allowedTools", command) or "").endswith(",mcp__web")
