"""What `agent(…)` was given is what the runner is asked for, one argument at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from jackline import Budget, agent, flow
from jackline.agents.runner import AgentTask
from jackline.errors import BadArgumentError
from jackline.flows.authoring.calls import AgentCall
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_run
from jackline.testing.scripted_agents import ScriptedRunner
from tests.flows.world import played, world


class Found(BaseModel):
    place: str


def depth(place: str) -> float:
    """The depth of the water at a place."""
    return float(len(place))


def asked_of_the_runner(call: dict[str, object], *, cwd: str = "") -> AgentTask:
    @flow
    async def one() -> None:
        made: AgentCall[object] = agent("look", **call)  # type: ignore[call-overload]
        await made.outcome()

    async def test() -> AgentTask:
        w = world(lambda _task: {"place": "Kiel"})
        begun = await begin_run(w.host, one, b"{}", run_id="r1", cwd=cwd)
        assert (await w.through(begun.run())).ok
        (task,) = w.runner.tasks
        return task

    return played(test)


def test_without_a_word_nothing_is_asked_for_but_the_prompt() -> None:
    task = asked_of_the_runner({})
    assert task.prompt == "look"
    assert (task.schema, task.model, task.system, task.class_) == (None, None, None, None)
    assert (task.tools, task.tool_names, dict(task.mcp_servers)) == ((), None, {})
    assert (task.max_turns, task.max_dollars) == (None, None)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"model": "claude-sonnet-5"}, {"model": "claude-sonnet-5"}),
        ({"system": "Be short."}, {"system": "Be short."}),
        ({"label": "north"}, {"label": "north"}),
        ({"class_": "low"}, {"class_": "low"}),
        ({"budget": Budget(turns=4)}, {"max_turns": 4}),
        ({"budget": Budget(dollars=2.5)}, {"max_dollars": 2.5}),
        # A window is of all runs together: no single agent may take it for its own.
        ({"budget": Budget(dollars=2.5, window="5h")}, {"max_dollars": None}),
        (
            {"tools": [{"sea": {"command": "charts"}}]},
            {"mcp_servers": {"sea": {"command": "charts"}}},
        ),
        ({"schema": Found}, {"schema": Found.model_json_schema()}),
        ({"schema": {"type": "object"}}, {"schema": {"type": "object"}}),
    ],
    ids="-".join,
)
def test_what_an_agent_is_given_reaches_its_runner(
    given: dict[str, object], asked: dict[str, object]
) -> None:
    task = asked_of_the_runner(given)
    assert {name: getattr(task, name) for name in asked} == asked


def test_python_functions_and_ready_tools_reach_the_runner_ready_to_run() -> None:
    task = asked_of_the_runner({"tools": [depth, "read", "search"]})
    assert [tool.name for tool in task.tools] == ["depth", "read", "search"]
    assert task.tools[0].input_schema["required"] == ["place"]


def test_an_agents_folder_is_found_from_the_runs_own(tmp_path: Path) -> None:
    (tmp_path / "corner").mkdir()
    assert asked_of_the_runner({"cwd": "corner"}, cwd=str(tmp_path)).cwd == tmp_path / "corner"
    assert asked_of_the_runner({}, cwd=str(tmp_path)).cwd == tmp_path
    assert asked_of_the_runner({"cwd": tmp_path / "corner"}).cwd == tmp_path / "corner"


def test_the_named_runner_carries_an_agent_and_the_runs_own_the_others() -> None:
    @flow
    async def two() -> None:
        await agent("here", label="here")
        await agent("there", label="there", runner="claude-code", tools=["Read"])

    async def test() -> None:
        w = world()
        other = ScriptedRunner(name="claude-code", clock=w.clock)
        host = FlowHost(
            w.engine, lambda _id: {"messages": w.runner, other.name: other}, clock=w.clock
        )
        begun = await begin_run(host, two, b"{}")
        assert (await w.through(begun.run())).ok
        assert (w.runner.begun, other.begun) == (["here"], ["there"])
        # It brings its own tools, so that it is told their names.
        assert (other.tasks[0].tools, other.tasks[0].tool_names) == ((), ("Read",))

    played(test)


def test_one_tool_alone_needs_no_list() -> None:
    (tool,) = asked_of_the_runner({"tools": depth}).tools
    assert tool.name == "depth"


@pytest.mark.parametrize(
    "given",
    [
        {"model": 5},
        {"system": 5},
        {"runner": 5},
        {"class_": 5},
        {"cwd": 5},
        {"cwd": b"."},
        {"label": 5},
        {"budget": {"turns": 1}},
        {"retries": "2"},
        {"retries": -1},
        {"resume": 5},
        {"continue_from": 5},
        {"on_end": 5},
        {"tools": 5},
        {"schema": 5},
    ],
    ids=str,
)
def test_an_argument_that_cannot_be_meant_is_told_where_it_is_written(
    given: dict[str, object],
) -> None:
    told: list[BadArgumentError] = []

    @flow
    async def one() -> None:
        with pytest.raises(BadArgumentError) as error:
            agent("look", **given)  # type: ignore[call-overload]
        told.append(error.value)

    async def test() -> None:
        assert (await world().run(one)).ok

    played(test)
    (error,) = told
    assert error.message.endswith(".")
    assert error.hint
