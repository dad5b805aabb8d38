"""Agents that a model starts give their answers, or say truly what became of them."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.reply_script import Fail, Reply, Say, structured
from tests.assembly.world import run
from tests.mcp_server.agents_world import AgentsWorld, Hurried, Working, call, refused, until

SCHEMA = {
    "type": "object",
    "properties": {"points": {"type": "integer"}},
    "required": ["points"],
    "additionalProperties": False,
}
READS: dict[str, Any] = {"tools": ["read"]}


def test_an_agent_gives_its_answer_with_the_ids_to_go_on_with(tmp_path: Path) -> None:
    def mind(asked: ClientRequest) -> Reply:
        return structured({"points": 9}) if "points" in asked.prompt else Say("The answer.")

    async def main() -> None:
        async with AgentsWorld(tmp_path, mind).open() as client:
            text, data = await call(client, "agent", prompt="TASK", label="review")
            assert text.endswith("\nThe answer.")
            assert data["terminated_by"] == "completion"
            assert data["answer"] == "The answer."
            assert data["run_id"] in text
            assert data["task_id"] in text
            assert data["session_id"] in text
            assert data["usage"]["output_tokens"] > 0
            _, data = await call(client, "agent", prompt="Count points", schema=SCHEMA)
            assert data["answer"] == {"points": 9}
            listed, _ = await call(client, "agent_status")
            assert "1 of 1 ok (review)" in listed
            _, again = await call(client, "agent_status", ids=[data["task_id"]])
            assert again == data

    run(main())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs a prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "x", "resume": "s", "continue_from_task_id": "t"}, "not both"),
        ({"prompt": "x", "subagent_type": "nobody"}, "reviewer"),
        ({"prompt": "x", "cwd": ".."}, "agents.folders"),
        ({"prompt": "x", "cwd": "nowhere"}, "There is no folder"),
        ({"prompt": "x", "schema": {"type": "nonsense"}}, "not valid JSON Schema"),
        ({"prompt": "x", "release": "rm -r ."}, "batch.allow"),
        ({"prompt": "x", "resources": [{"name": "i-1", "release": "kill 1"}]}, "batch.allow"),
        ({"prompt": "x", "tools": ["shell"]}, "agents.tools"),
        ({"prompt": "x", "budget": {"tokens": 0}}, "budget.tokens"),
        ({"prompt": "x", "runner": "magic"}, "runner"),
        ({"continue_from_task_id": "t-nobody"}, "No agent, sub-agent or session"),
        ({"resume": "00000000-0000-0000-0000-000000000000"}, "No agent, sub-agent or session"),
        ({"resume": "the-session-of-the-client"}, "this very session"),
        ({"resume": "../../etc/passwd"}, "No agent, sub-agent or session"),
        ({"resume": "--yolo", "runner": "codex"}, "begins with a dash"),
        ({"resume": "a\nb", "runner": "codex"}, "control characters"),
        ({"continue_from_task_id": "-c"}, "begins with a dash"),
    ],
)
def test_what_cannot_be_meant_is_said_and_starts_nothing(
    tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        async with world.open() as client:
            definitions = world.project / ".claude" / "agents"
            definitions.mkdir(parents=True)
            (definitions / "r.md").write_text("---\nname: reviewer\n---\nYou review.")
            text, data = await refused(client, "agent", **given)
            assert words in text
            assert "error" in data
            listed, _ = await call(client, "agent_status")
            assert listed == "No agent was started here yet."
        assert not world.received

    run(main())


def test_a_definition_gives_the_agent_its_words_and_its_model(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        async with world.open() as client:
            definitions = world.project / ".claude" / "agents" / "team"
            definitions.mkdir(parents=True)
            text = "---\nname: reviewer\nmodel: claude-haiku-4-5\ntools: read\n---\nYou review."
            (definitions / "r.md").write_text(text)
            _, data = await call(client, "agent", prompt="TASK", subagent_type="reviewer")
            assert data["label"] == "reviewer"
            (asked,) = world.received
            assert asked.model == "claude-haiku-4-5"
            assert "You review." in str(asked.body["system"])
            assert "read" in asked.tools

    run(main())


def test_a_failed_agent_says_so_and_its_run_goes_on_by_its_task_id(tmp_path: Path) -> None:
    broken = True

    def mind(asked: ClientRequest) -> Reply:
        if broken:
            return Fail(400, "invalid_request_error", "this cannot be answered")
        return Say(f"done: {asked.prompt}")

    async def main() -> None:
        nonlocal broken
        async with AgentsWorld(tmp_path, mind).open() as client:
            text, data = await refused(client, "agent", prompt="TASK")
            assert text.startswith('The agent "agent" did not complete: refused')
            assert data["evidence"]["status"] == 400
            task, run_id = data["task_id"], data["run_id"]
            assert f'agent(continue_from_task_id="{task}")' in text
            broken = False
            _, data = await call(client, "agent", continue_from_task_id=task)
            assert (data["run_id"], data["task_id"]) == (run_id, task)
            assert data["answer"] == "done: TASK"
            text, _ = await refused(client, "agent", continue_from_task_id=task)
            assert "It has completed" in text

    run(main())


@pytest.mark.parametrize("by", ["continue_from_task_id", "resume"])
def test_an_agent_that_was_cut_off_is_gone_on_with_and_repeats_no_turn(
    tmp_path: Path, by: str
) -> None:
    def mind(asked: ClientRequest) -> Reply:
        if "go on" in asked.latest:
            return Say(f"done after {asked.turn} turns")
        return Say("I read.", (("read", {"path": "notes.txt"}),))

    world = AgentsWorld(tmp_path, mind)

    async def main() -> None:
        async with world.open() as client:
            (world.project / "notes.txt").write_text("note")
            text, data = await refused(client, "agent", prompt="TASK", budget={"turns": 2}, **READS)
            assert data["terminated_by"] == "turns"
            given = {"continue_from_task_id": data["task_id"], "resume": data["session_id"]}
            assert given[by] in text
            _, more = await call(client, "agent", prompt="Now go on.", **{by: given[by]})
            assert more["task_id"] != data["task_id"]
            assert more["answer"] == "done after 2 turns"
            assert world.received[-1].prompt == "TASK"
        assert world.ledger.repeated == 0

    run(main())


def test_a_call_is_answered_before_its_client_gives_up_and_waited_for_by_id(
    tmp_path: Path,
) -> None:
    mind = Working()

    async def main() -> None:
        async with AgentsWorld(tmp_path, mind, wait=0.3).open() as client:
            text, data = await call(client, "agent", prompt="TASK", **READS)
            assert "still at work" in text
            assert data["run_state"] == "running"
            run_id = data["run_id"]
            assert f'agent_wait(ids=["{run_id}"])' in text
            twice, _ = await refused(client, "agent", continue_from_task_id=run_id)
            assert "would do its work twice" in twice
            mind.may_end = True
            while data["run_state"] == "running":
                text, data = await call(client, "agent_wait", ids=[run_id])
            assert data["answer"] == "done: TASK"

    run(main())


def test_taking_a_call_back_cancels_its_agent(tmp_path: Path) -> None:
    mind = Working()
    world = AgentsWorld(tmp_path, mind)

    async def main() -> None:
        async with world.open() as client:
            asking = asyncio.create_task(client.call_tool("agent", {"prompt": "TASK", **READS}))
            await until(lambda: len(world.received) > 1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            _, data = await call(client, "agent_status")
            (one,) = data["runs"]
            _, data = await refused(client, "agent_wait", ids=[one["run_id"]], seconds=20)
            assert data["run_state"] == "cancelled"
            assert data["terminated_by"] == "cancelled"
            received = len(world.received)
            await call(client, "status")
            assert len(world.received) == received

    run(main())


def test_a_client_that_is_lost_cancels_nothing_and_the_next_is_told(tmp_path: Path) -> None:
    mind = Working()
    world = AgentsWorld(tmp_path, mind)

    async def main() -> None:
        async with world.provider(), world.service() as service:
            async with world.client(service) as client:
                asking = asyncio.create_task(client.call_tool("agent", {"prompt": "TASK", **READS}))
                await until(lambda: len(world.received) > 1)
                # The session ends with its call under way; nobody said to cancel it.
                asking.add_done_callback(lambda task: task.cancelled() or task.exception())
            mind.may_end = True
            async with world.client(service) as client:
                data: dict[str, Any] = {"run_state": "running"}
                while data["run_state"] == "running":
                    _, listed = await call(client, "agent_status")
                    (data,) = listed["runs"]
                assert data["run_state"] == "finished"

    run(main())


def test_background_agents_answer_at_once_and_are_announced_once(tmp_path: Path) -> None:
    mind = Working()
    world = AgentsWorld(tmp_path, mind)
    said: list[str] = []

    async def hear(message: Any) -> None:
        said.append(str(message.data))

    async def main() -> None:
        async with (
            world.provider(),
            world.service() as service,
            world.client(service, hear) as client,
            world.client(service) as other,
        ):
            text, data = await call(client, "agent", prompt="A", background=True, **READS)
            assert "still at work" in text
            await call(client, "agent", prompt="B", background=True, **READS)
            mind.may_end = True
            await until(lambda: len(said) == 2)
            assert data["run_id"] in " ".join(said)
            text, data = await call(other, "status")
            assert "2 background agents finished: run " in text
            assert len(data["finished_meanwhile"]) == 2
            text, _ = await call(client, "status")
            assert "finished" not in text

    run(main())


def test_the_id_is_told_before_the_result_to_whoever_hears_of_progress(tmp_path: Path) -> None:
    received: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
        received.append(message)

    async def main() -> None:
        async with AgentsWorld(tmp_path).open() as client:
            told = await client.call_tool("agent", {"prompt": "TASK"}, progress_callback=hear)
            assert told.structured_content is not None
            assert told.structured_content["run_id"] in str(received[0])

    run(main())


def test_whoever_waits_hears_again_and_again_how_it_goes(tmp_path: Path) -> None:
    mind = Working()
    received: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        assert progress == len(received) + 1
        received.append(str(message))

    world = AgentsWorld(tmp_path, mind, wait=100_000.0, clock=Hurried())

    async def main() -> None:
        async with world.open() as client:
            given = {"prompt": "TASK", **READS}
            asking = asyncio.create_task(client.call_tool("agent", given, progress_callback=hear))
            await until(lambda: len(received) > 4)
            mind.may_end = True
            assert not (await asking).is_error
            assert "has begun" in received[0]
            assert all(re.match(r"1 at work, \d+ answers", words) for words in received[2:5])

    run(main())


def test_an_agent_without_a_login_says_how_the_service_gets_one(tmp_path: Path) -> None:
    def mind(_asked: ClientRequest) -> Reply:
        return Fail(401, "authentication_error", "invalid x-api-key")

    async def main() -> None:
        async with AgentsWorld(tmp_path, mind).open() as client:
            text, data = await refused(client, "agent", prompt="TASK")
            assert data["evidence"]["failure"] == "auth"
            assert "jackline down; jackline up -d" in text

    run(main())


def test_of_a_group_each_has_its_own_result_and_failures_are_counted(tmp_path: Path) -> None:
    def mind(asked: ClientRequest) -> Reply:
        if "broken" in asked.prompt:
            return Fail(400, "invalid_request_error", "this cannot be answered")
        return Say(f"done: {asked.prompt}")

    async def main() -> None:
        async with AgentsWorld(tmp_path, mind).open() as client:
            prompts = ["one", "two broken", "three", "four broken", "five"]
            orders = [{"prompt": prompt} for prompt in prompts]
            text, data = await call(client, "agents", orders=orders)
            assert text.startswith("3 of 5 ok, 2 failed: 2 ")
            agents = data["agents"]
            answers = [agent.get("answer") for agent in agents]
            assert answers == ["done: one", None, "done: three", None, "done: five"]
            assert len({agent["task_id"] for agent in agents}) == 5
            assert all(agent["task_id"] in text for agent in agents)
            _, one = await call(client, "agent_status", ids=[agents[2]["task_id"]])
            assert one["answer"] == "done: three"
            same, data = await call(client, "agents", orders=[{"prompt": "one"}] * 3)
            assert same.startswith("3 of 3 ok")
            assert len({agent["task_id"] for agent in data["agents"]}) == 3

    run(main())


def test_one_agent_of_a_group_can_be_cancelled_alone(tmp_path: Path) -> None:
    mind = Working()
    world = AgentsWorld(tmp_path, mind)

    async def main() -> None:
        async with world.open() as client:
            orders = [{"prompt": prompt, **READS} for prompt in ("one", "two")]
            _, data = await call(client, "agents", orders=orders, background=True)
            run_id = data["run_id"]
            await until(lambda: {"one", "two"} <= set(world.prompts()))
            _, data = await call(client, "agent_status", ids=[run_id])
            text, _ = await call(client, "agent_cancel", ids=[data["agents"][0]["task_id"]])
            assert text == f"run {run_id}, agent agent 1: cancelled"
            text, _ = await refused(
                client, "agent_wait", ids=[data["agents"][0]["task_id"]], until="any"
            )
            assert "did not complete: cancelled" in text
            mind.may_end = True
            text, data = await call(client, "agent_wait", ids=[run_id])
            assert text.startswith("1 of 2 ok, 1 failed: 1 cancelled")
            assert data["agents"][1]["answer"] == "done: two"

    run(main())


def test_at_a_wall_the_answer_says_until_when_and_the_agent_goes_on_by_itself(
    tmp_path: Path,
) -> None:
    walls = [12.0]

    def mind(asked: ClientRequest) -> Reply:
        if asked.turn == 0:
            return Say("I read.", (("read", {"path": "notes.txt"}),))
        if walls:
            # It strikes the very request that is being answered here.
            walled(world, walls.pop())
        return Say("All is done.")

    world = AgentsWorld(tmp_path, mind, wait=1.0)

    async def main() -> None:
        async with world.open() as client:
            data: dict[str, Any] = {}
            text, data = await call(client, "agent", prompt="TASK", **READS)
            while data["run_state"] == "running":
                text, data = await call(client, "agent_wait", ids=[data["run_id"]])
            assert data["run_state"] == "parked"
            assert "It goes on by itself at " in text
            assert data["goes_on_at"]
            while data["run_state"] != "finished":
                text, data = await call(client, "agent_wait", ids=[data["run_id"]])
                await asyncio.sleep(0.1)
            assert data["answer"] == "All is done."
        assert world.ledger.repeated == 0

    run(main())


def walled(world: AgentsWorld, seconds: float) -> None:
    """Every request from now on meets a wall that lasts so long."""
    assert world.server is not None
    world.server.playing.add_fault(Fault(Effect.QUOTA_WALL, until=seconds))


def test_a_parked_agent_is_left_alone_by_the_next_service_and_can_be_cancelled(
    tmp_path: Path,
) -> None:
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        async with world.provider():
            walled(world, 3600.0)
            async with world.service() as service, world.client(service) as client:
                _, data = await call(client, "agent", prompt="TASK")
                assert data["run_state"] == "parked"
                text, _ = await refused(client, "agent", continue_from_task_id=data["run_id"])
                assert "goes on by itself" in text
            asked = len(world.ledger)
            async with world.service() as service, world.client(service) as client:
                text, data = await call(client, "agent_status", ids=[data["run_id"]])
                assert data["run_state"] == "parked"
                assert "It goes on by itself at " in text
                await call(client, "agent_cancel", ids=[data["run_id"]])
                _, data = await refused(client, "agent_status", ids=[data["run_id"]])
                assert data["run_state"] == "cancelled"
            assert len(world.ledger) == asked

    run(main())


def test_a_service_that_starts_after_the_reset_wakes_the_agent_that_was_parked(
    tmp_path: Path,
) -> None:
    world = AgentsWorld(tmp_path, wait=1.0)

    async def main() -> None:
        async with world.provider():
            walled(world, 12.0)
            async with world.service() as service, world.client(service) as client:
                _, data = await call(client, "agent", prompt="TASK")
                assert data["run_state"] == "parked"
                # It is told in whole seconds.
                over = datetime.fromisoformat(data["goes_on_at"]) + timedelta(seconds=1)
            await until(lambda: datetime.now(over.tzinfo) > over)
            async with world.service() as service, world.client(service) as client:
                while data["run_state"] != "finished":
                    _, data = await call(client, "agent_wait", ids=[data["run_id"]])
                assert data["answer"] == "done: TASK"

    run(main())


def test_what_was_rented_is_given_back_by_commands_that_the_user_allowed(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path, allow=("touch *",))

    async def main() -> None:
        async with world.open() as client:
            resources = [{"name": "i-1", "release": "touch released", "lease": "2h"}]
            given = {"release": "touch ended", "resources": resources}
            await call(client, "agent", prompt="TASK", **given)
            assert {path.name for path in world.project.iterdir()} == {"ended", "released"}

    run(main())


def test_a_release_runs_in_the_folder_in_which_it_was_allowed(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path, allow=("touch *",))
    folders = [world.project / name for name in ("one", "two")]
    world.folders = tuple(folders)

    def given(name: str) -> dict[str, Any]:
        rented = [{"name": f"of {name}", "release": "touch released"}]
        return {"prompt": "TASK", "cwd": name, "release": "touch ended", "resources": rented}

    async def main() -> None:
        async with world.open() as client:
            for each in folders:
                each.mkdir()
            await call(client, "agents", orders=[given("one"), given("two")])

    run(main())
    for each in folders:
        assert {path.name for path in each.iterdir()} == {"ended", "released"}


def test_a_release_runs_in_no_folder_that_a_model_chose(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path, allow=("./check.sh",))

    async def main() -> str:
        async with world.open() as client:
            (world.project / "vendor").mkdir()
            (world.project / "vendor" / "check.sh").write_text("#!/bin/sh\ntouch ran\n")
            (world.project / "vendor" / "check.sh").chmod(0o755)
            given = {"prompt": "TASK", "cwd": "vendor", "release": "./check.sh"}
            return (await refused(client, "agent", **given))[0]

    assert "own folder" in run(main())
    assert not (world.project / "vendor" / "ran").exists()
    assert not world.received


def test_a_release_is_judged_again_when_it_runs(tmp_path: Path) -> None:
    """Between the order and the end of the agent, the agent works in the folder."""
    outside = tmp_path / "outside"
    outside.mkdir()

    def mind(_asked: ClientRequest) -> Reply:
        (world.project / "door").rmdir()
        (world.project / "door").symlink_to(outside)
        return Say("done")

    world = AgentsWorld(tmp_path, mind, allow=("touch *",))
    rented = [{"name": "i-1", "release": "touch door/released"}]

    async def main() -> str:
        async with world.open() as client:
            (world.project / "door").mkdir()
            await call(client, "agent", prompt="TASK", release="touch door/ended", resources=rented)
            return (await call(client, "agent_status"))[0]

    run(main())
    assert not list(outside.iterdir())


def test_a_release_is_not_run_in_a_folder_that_was_swapped(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    def mind(_asked: ClientRequest) -> Reply:
        (world.project / "own").rename(world.project / "away")
        (world.project / "own").symlink_to(outside)
        return Say("done")

    world = AgentsWorld(tmp_path, mind, allow=("touch *",))
    world.folders = (world.project / "own",)

    async def main() -> None:
        async with world.open() as client:
            (world.project / "own").mkdir()
            await call(client, "agent", prompt="TASK", cwd="own", release="touch ended")
            assert world.received

    run(main())
    assert not list(outside.iterdir())


def test_a_release_sees_no_secret_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", "of-the-service")
    world = AgentsWorld(tmp_path, allow=("sh look.sh *",))
    rented = [{"name": "i-1", "release": "sh look.sh released"}]

    async def main() -> None:
        async with world.open() as client:
            (world.project / "look.sh").write_text('env > "$1"')
            await call(client, "agent", prompt="TASK", release="sh look.sh ended", resources=rented)

    run(main())
    for name in ("ended", "released"):
        seen = (world.project / name).read_text()
        assert "JACKLINE_RUN_ID=" in seen
        assert "of-the-service" not in seen


def test_a_service_that_is_stopped_leaves_its_agents_to_the_next_one(tmp_path: Path) -> None:
    mind = Working()
    world = AgentsWorld(tmp_path, mind)

    async def main() -> None:
        async with world.provider():
            async with world.service() as service, world.client(service) as client:
                _, data = await call(client, "agent", prompt="TASK", background=True, **READS)
                await until(lambda: len(world.received) > 2)
            mind.may_end = True
            async with world.service() as service, world.client(service) as client:
                _, data = await call(client, "agent_wait", ids=[data["run_id"]])
                assert data["answer"] == "done: TASK"
            assert world.ledger.repeated == 0

    run(main())


def test_fifty_clients_at_once_each_get_their_own_agent(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path)

    async def ask(service: Any, number: int) -> str:
        async with world.client(service) as client:
            _, data = await call(client, "agent", prompt=f"task {number}")
            await call(client, "status")
            return str(data["answer"])

    async def main() -> None:
        async with world.provider(), world.service() as service:
            told = await asyncio.gather(*(ask(service, number) for number in range(50)))
            assert told == [f"done: task {number}" for number in range(50)]

    run(main())
