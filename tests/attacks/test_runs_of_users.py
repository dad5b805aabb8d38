"""A model that was talked into an attack reaches for the runs of the user's own flows.

Rules: those of this package. The flow's file was edited by an agent since the user started the run:
what was added must not run in the service, which holds all keys.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import ClientSession

from jackline.assembly import Service
from jackline.flows.authoring.flow_definition import load_module
from jackline.flows.flow_sources import UserCodeError
from jackline.flows.records import (
    CallKind,
    CallRecord,
    CallState,
    HookRecord,
    ResourceRecord,
    ResourceState,
    RunRecord,
    RunState,
)
from jackline.flows.run_processes import Waker
from jackline.flows.settings import RunSettings, encode_settings
from jackline.flows.store import open_run_store, run_store_url
from jackline.mcp_server.flow.started_agents import started_agents
from tests.assembly.world import run
from tests.mcp_server.agents_world import AgentsWorld, call, refused

FLOW = """
from pathlib import Path
Path({mark!r}).touch()

def give_back(name):
    pass
"""
RUN = "ab12cd34ef"
TASK = "task-of-the-user"


@pytest.fixture(autouse=True)
def no_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the service's own process is looked at; what others compare: test_edited_flow.py."""
    monkeypatch.setattr(Waker, "_start_verb", lambda *_words: None)


class Project:
    """The user's project with a run that nobody carries: it rented a machine, and owes a hook."""

    def __init__(self, folder: Path, flow: str = "survey") -> None:
        self.world = AgentsWorld(folder)
        self.flow = flow
        self.mark = folder / "ran"
        self.world.project.mkdir()
        self.source = self.world.project / "survey.py"
        self.source.write_text(FLOW.format(mark=str(self.mark)))

    async def leave(self, service: Service, state: RunState) -> None:
        """Keep the run, as the process of the user's `jackline run` has left it."""
        engine = open_run_store(run_store_url(service.config.state_dir))
        record = RunRecord(
            RUN,
            self.flow,
            str(self.source),
            b"{}",
            encode_settings(RunSettings()),
            cwd=str(self.world.project),
        )
        claim = await engine.create(record, owner="gone", lease=30)
        call = CallRecord(RUN, "key", 0, CallKind.AGENT, "part 0", "", TASK, CallState.RUNNING)
        await engine.begin_call(claim, call)
        for name, release in (("machine", "function give_back"), ("disk", "function helper:off")):
            rented = ResourceRecord(RUN, name, "", release, False, None, ResourceState.HELD, 0.0)
            await engine.save_resource(rented)
        await engine.end_hook(HookRecord(RUN, f"{RUN}/1", "function give_back", b"{}"))
        wake_at = 4e9 if state is RunState.PARKED else None
        await engine.let_go(claim, replace(record, state=state, wake_at=wake_at))
        await engine.close()

    async def kept(self, service: Service) -> RunRecord:
        engine = open_run_store(run_store_url(service.config.state_dir))
        record = await engine.run(RUN)
        await engine.close()
        assert record is not None
        return record


@pytest.mark.parametrize("flow", ["survey", started_agents.name])
@pytest.mark.parametrize("state", [RunState.PARKED, RunState.STOPPED, RunState.FAILED])
@pytest.mark.parametrize(
    ("tool", "given", "next_step"),
    [
        ("agent_cancel", {"ids": [RUN]}, f"jackline cancel {RUN}"),
        ("agent_cancel", {"ids": [TASK]}, f"jackline cancel {RUN}"),
        ("agent", {"resume": RUN}, f"jackline resume {RUN}"),
        ("agent", {"continue_from_task_id": TASK}, f"jackline resume {RUN}"),
    ],
)
def test_a_model_neither_ends_nor_resumes_a_run_of_the_user(
    tmp_path: Path, flow: str, state: RunState, tool: str, given: dict[str, object], next_step: str
) -> None:
    project = Project(tmp_path, flow)
    world, path = project.world, list(sys.path)

    async def main() -> None:
        async with world.provider(), world.service() as service:
            await project.leave(service, state)
            before = await project.kept(service)
            async with world.client(service) as client:
                said, _ = await refused(client, tool, **given)
            assert "started by the user" in said
            assert next_step in said
            assert await project.kept(service) == before

    run(main())
    assert not project.mark.exists(), "what an agent wrote was run in the service"
    assert sys.path == path
    assert world.received == []


def test_of_several_ids_with_a_run_of_the_user_none_is_cancelled(tmp_path: Path) -> None:
    project = Project(tmp_path)
    world = project.world

    async def main() -> None:
        async with world.provider(), world.service() as service:
            await project.leave(service, RunState.PARKED)
            async with world.client(service) as client:
                theirs = await _parked(world, client)
                await refused(client, "agent_cancel", ids=[theirs, RUN])
                _, data = await call(client, "agent_status", ids=[theirs])
                assert data["run_state"] == "parked"
                await call(client, "agent_cancel", ids=[theirs])
                _, data = await refused(client, "agent_status", ids=[theirs])
                assert data["run_state"] == "cancelled"

    run(main())


async def _parked(world: AgentsWorld, client: ClientSession) -> str:
    from tests.mcp_server.test_agents import walled  # noqa: PLC0415 -- a module of tests

    walled(world, 3600.0)
    _, data = await call(client, "agent", prompt="TASK")
    assert data["run_state"] == "parked"
    return str(data["run_id"])


def test_a_flow_of_the_user_with_the_name_of_ours_is_not_taken_for_it(tmp_path: Path) -> None:
    """Neither listed among the models' runs, nor taken up by the service with the user's data."""
    project = Project(tmp_path, started_agents.name)
    world = project.world

    async def main() -> None:
        async with world.provider(), world.service() as service:
            await project.leave(service, RunState.RUNNING)
            before = await project.kept(service)
            async with world.client(service) as client:
                _, data = await call(client, "agent_status")
                assert json.dumps(data).count(RUN) == 0
                _, data = await call(client, "agent", prompt="TASK")
            assert data["run_id"] != RUN
            desk = service._agents.desk
            await desk.look_after()
            assert not desk.wakes(before)
            assert await desk.continuations_of(["anything"]) == []
            assert await project.kept(service) == before

    run(main())


def test_while_the_service_lives_its_process_loads_no_file_of_a_flow(tmp_path: Path) -> None:
    project = Project(tmp_path)
    world, path = project.world, list(sys.path)

    async def main() -> None:
        async with world.provider():
            async with world.service():
                with pytest.raises(UserCodeError):
                    load_module(project.source)
                assert sys.path == path
            assert not project.mark.exists()
            load_module(project.source)
            assert project.mark.exists()

    try:
        run(main())
    finally:
        sys.path[:] = path
