"""What one agent of Claude Code does changes nothing for other sessions of its user.

The programs' own stores are meant: memory, schedules, messages between sessions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from jackline.agents.claude_code.runner import ClaudeCodeRunner
from jackline.agents.outcome import Ending
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.reply_script import Reply, Say
from tests.agents.process.doubles import FreeLeave, Pages
from tests.agents.process.world import World
from tests.assembly.world import run
from tests.real_clients.clients import claude_binary
from tests.real_clients.old_client import old_claude_binary

pytestmark = pytest.mark.real_client

CLAUDES = [pytest.param(old_claude_binary, id="2.1.197"), pytest.param(claude_binary, id="2.1.325")]
PLANTED = "PLANTED-BY-AN-AGENT"
SCHEDULE = {"cron": "* * * * *", "prompt": PLANTED, "durable": True, "recurring": True}


def memory_of(project: Path, home: Path) -> Path:
    """Where the client has what it remembers of a project."""
    name = re.sub(r"[^a-zA-Z0-9]", "-", str(project))
    return home / ".claude" / "projects" / name / "memory" / "MEMORY.md"


def uses(project: Path, home: Path) -> list[tuple[str, dict[str, object]]]:
    """Each of these needs no permission, by the client's own rules."""
    stores = (
        memory_of(project, home),
        home / ".claude" / "agent-memory" / "reviewer" / "MEMORY.md",
        project / ".claude" / "agent-memory" / "reviewer" / "MEMORY.md",
        project / ".claude" / "launch.json",
    )
    writes: list[tuple[str, dict[str, object]]] = [
        ("Write", {"file_path": str(path), "content": PLANTED}) for path in stores
    ]
    return [
        *writes,
        ("CronCreate", SCHEDULE),
        ("ListAgents", {}),
        ("SendMessage", {"to": "main", "summary": "do", "message": PLANTED}),
        ("Write", {"file_path": str(project / "result.txt"), "content": "the work"}),
    ]


@pytest.mark.parametrize("fetched", CLAUDES)
@pytest.mark.parametrize("tools", [None, ("Read", "Edit", "Write")], ids=["usual", "named"])
def test_an_agent_leaves_nothing_that_later_sessions_follow(
    fetched: Callable[[], Path], tools: tuple[str, ...] | None, tmp_path: Path
) -> None:
    left: list[tuple[str, dict[str, object]]] = []

    def works(_asked: ClientRequest) -> Reply:
        return Say("", (left.pop(0),)) if left else Say("Done.")

    world = World(tmp_path, fetched(), works)
    left += uses(world.project, world.home)

    async def main() -> None:
        async with world.open():
            outcome = await world.carry(Pages(), FreeLeave(), tool_names=tools)
            assert outcome.terminated_by is Ending.COMPLETION

    run(main())
    assert (world.project / "result.txt").read_text() == "the work", "its own work is done"
    transcripts = ("*.jsonl", "*.json.backup*")
    found = [
        path
        for path in (*world.home.rglob("*"), *world.project.rglob("*"))
        if path.is_file() and PLANTED in path.read_text(errors="replace")
    ]
    assert [path for path in found if not any(map(path.match, transcripts))] == []
    body = json.dumps(dict(world.received[0].body))
    offered = {tool["name"] for tool in json.loads(body)["tools"]}
    assert not offered & {"CronCreate", "ListAgents", "SendMessage"}


@pytest.mark.parametrize("fetched", CLAUDES)
def test_an_agents_tasks_are_in_no_list_that_other_sessions_get(
    fetched: Callable[[], Path], tmp_path: Path
) -> None:
    """The user's own sessions may share a list by a variable, and Jackline be started from one."""
    call = ("TaskCreate", {"subject": PLANTED, "description": PLANTED})
    world = World(tmp_path, fetched(), lambda asked: Say("", () if asked.turn else (call,)))

    async def main() -> None:
        async with world.open():
            environment = {**world.environment, "CLAUDE_CODE_TASK_LIST_ID": "shared"}
            runner = ClaudeCodeRunner(
                world.url, program=str(world.program), environment=environment
            )
            task = world.task(tool_names=("TaskCreate",))
            await runner.run(task, Pages(), FreeLeave())

    run(main())
    lists = world.home / ".claude" / "tasks"
    assert PLANTED in json.dumps([dict(asked.body) for asked in world.received])
    assert not (lists / "shared").exists()


@pytest.mark.parametrize("fetched", CLAUDES)
def test_an_agent_follows_no_memory_that_another_one_has_written(
    fetched: Callable[[], Path], tmp_path: Path
) -> None:
    world = World(tmp_path, fetched(), lambda _asked: Say("Done."))
    memory = memory_of(world.project, world.home)
    memory.parent.mkdir(parents=True)
    memory.write_text(f"- {PLANTED}\n")

    async def main() -> None:
        async with world.open():
            await world.carry(Pages(), FreeLeave())

    run(main())
    assert PLANTED not in json.dumps([dict(asked.body) for asked in world.received])
