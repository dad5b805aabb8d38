"""How agents stand is told of each by its label, in the words of every other face."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jackline.control.run_view import AgentView
from jackline.flows.records import CallKind, CallRecord, CallState, RunRecord, RunState
from jackline.mcp_server.agent_manager import RunSnapshot
from jackline.mcp_server.agent_results import listed, run_reply
from jackline.mcp_server.flow.started_agents import started_agents
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply, Say
from tests.assembly.world import run
from tests.mcp_server.agents_world import AgentsWorld, call, refused, until

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
AT = NOW.timestamp()
OURS = started_agents.source
ORDERS = b'{"orders": [{"label": "one"}, {"label": "two"}, {"label": "three"}]}'


def group(state: RunState, **more: Any) -> RunSnapshot:
    record = RunRecord(
        "r1", "started_agents", OURS, ORDERS, state=state, created_at=AT - 60, cost=0.5, **more
    )
    calls = tuple(
        CallRecord("r1", f"k{label}", 1, CallKind.AGENT, label, "", f"t-{label}", CallState.RUNNING)
        for label in ("one", "two")
    )
    waits = AgentView("one", "", AT - 30, "throttled by the server", AT + 90, turns=2, tokens=700)
    works = AgentView("two", "", AT - 30, turns=1, tokens=50)
    return RunSnapshot(record, calls, under_way={"t-one": waits, "t-two": works})


def test_who_waits_says_for_what_and_until_when() -> None:
    (told,) = _runs(listed([group(RunState.RUNNING)], NOW).data)
    one, two, three = told["agents"]
    assert (one["label"], one["state"]) == ("one", "waiting")
    assert one["waits"] == {"why": "throttled by the server", "until": "2026-11-15T12:01:30+00:00"}
    assert (one["turns"], one["tokens"]) == (2, 700)
    assert (two["state"], "waits" in two) == ("running", False)
    # It has not begun: nothing is known of it but its name.
    assert three == {"label": "three", "state": "running"}
    assert told["since"] == "2026-11-15T11:59:00+00:00"
    assert told["cost_usd"] == 0.5
    assert told["summary"] == "0 of 3 ok, 3 not ended"


def test_agents_of_a_parked_run_wait_for_what_it_waits_for() -> None:
    look = group(RunState.PARKED, why="the 5-hour limit was reached", wake_at=AT + 3600)
    for agent in _agents(run_reply(look, NOW).data):
        assert agent["state"] == "parked"
        assert agent["waits"] == {
            "why": "the 5-hour limit was reached",
            "until": "2026-11-15T13:00:00+00:00",
        }
    for state in (RunState.RUNNING, RunState.STOPPED, RunState.PARKED):
        told = run_reply(group(state, why="w.", wake_at=AT + 60), NOW)
        # A model of Claude Code sees the data alone: it must say what to call next.
        assert str(told.data["says"]) in told.text
        assert "r1" in str(told.data["says"])
        one = run_reply(replace(group(state, why="w.", wake_at=AT + 60), label="one"), NOW)
        assert one.data["says"] == one.text
    person = group(RunState.PARKED, why="no credit is left", wake_at=None)
    for agent in _agents(run_reply(person, NOW).data):
        assert agent["waits"]["until"] is None


def _runs(data: dict[str, Any]) -> list[dict[str, Any]]:
    return list(data["runs"])


def _agents(data: dict[str, Any]) -> list[dict[str, Any]]:
    return list(data["agents"])


def test_a_list_names_each_agent_with_its_end_and_what_it_cost(tmp_path: Path) -> None:
    def mind(asked: ClientRequest) -> Reply:
        if "slow" in asked.prompt and not world.allow_end:
            return Say("I read.", (("read", {"path": "notes.txt"}),), delay=0.05)
        return Say("Done.")

    world = _World(tmp_path, mind)

    async def main() -> None:
        async with world.open() as client:
            orders = [
                {"prompt": "quick", "label": "first", "model": "claude-sonnet-4-6"},
                {"prompt": "slow", "label": "second", "tools": ["read"]},
            ]
            await call(client, "agents", orders=orders, background=True)
            told: dict[str, Any] = {}
            first: dict[str, Any] = {}
            second: dict[str, Any] = {}
            while first.get("state") != "done" or not second.get("turns"):
                _, data = await call(client, "agent_status")
                (told,) = data["runs"]
                first, second = told["agents"]
            assert (first["label"], first["terminated_by"]) == ("first", "completion")
            assert first["cost_usd"] > 0
            assert "answer" not in first
            assert datetime.fromisoformat(first["ended_at"]) >= datetime.fromisoformat(
                first["since"]
            )
            assert (second["label"], second["state"]) == ("second", "running")
            assert told["run_state"] == "running"
            world.allow_end = True
            _, data = await call(client, "agent_wait", ids=[told["run_id"]])
            assert data["summary"] == "2 of 2 ok"

    run(main())


class _World(AgentsWorld):
    allow_end = False


def test_agents_start_agents_only_so_deep(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        async with world.provider(), world.service() as service:
            session, task = "a person's", ""
            for depth in (1, 2, 3):
                async with world.client(service, session=session) as client:
                    _, data = await call(client, "agent", prompt=f"depth {depth}")
                    session, task = data["session_id"], data["task_id"]
            async with world.client(service, session=session) as client:
                for tool, given in (
                    ("agent", {"prompt": "deeper"}),
                    ("agents", {"orders": [{"prompt": "deeper"}]}),
                ):
                    text, _ = await refused(client, tool, **given)
                    assert "3 deep" in text
                    assert "agents.depth = 4" in text
            # By the agent for whose program it works: Codex tells its servers no session.
            async with world.client(service, parent_task=task) as client:
                assert "3 deep" in (await refused(client, "agent", prompt="deeper"))[0]
            async with world.client(service, parent_task="of another state folder") as client:
                _, data = await call(client, "agent", prompt="depth 2")
            async with world.client(service, parent_task=data["task_id"]) as client:
                _, data = await call(client, "agent", prompt="depth 3")
            async with world.client(service, parent_task=data["task_id"]) as client:
                assert "3 deep" in (await refused(client, "agent", prompt="deeper"))[0]
            # Whoever is not so deep still may.
            async with world.client(service) as client:
                await call(client, "agent", prompt="again")
            await until(lambda: len(world.received) == 6)
            assert "deeper" not in world.prompts()

    run(main())
