"""A dead sub-agent of Claude Code is gone on from once, with what it had finished."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from jackline.errors import UsageError
from jackline.mcp_server.agent_orders import ResumePoint
from tests.assembly.world import run
from tests.mcp_server.agents_world import AgentsWorld, call, refused

SESSION = "0b0e2a0c-0000-4000-8000-000000000001"
NOW = 2_000_000_000.0


def line(kind: str, content: object, **more: Any) -> str:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    given = {"type": kind, "sessionId": SESSION, "timestamp": "2026-11-15T06:57:28.001Z"}
    return json.dumps({**given, "agentId": "dead01", "cwd": "/w", "message": message, **more})


def answer(name: str, *blocks: dict[str, object], stop: str = "tool_use") -> str:
    told = {"id": name, "model": "claude-haiku-4-5", "stop_reason": stop}
    return line("assistant", list(blocks), message=told)


USED: dict[str, object] = {
    "type": "tool_use",
    "id": "t1",
    "name": "Bash",
    "input": {"command": "make"},
}
GAVE: list[object] = [{"type": "tool_result", "tool_use_id": "t1", "content": "BUILT"}]
WORKED = [
    line("user", "THE SUB-TASK"),
    answer("m1", {"type": "text", "text": "I build."}, USED),
    line("user", GAVE),
]
DIED = line(
    "assistant",
    [{"type": "text", "text": "You've hit your session limit · resets 8:02am (UTC)"}],
    message={"id": "e", "model": "<synthetic>"},
    isApiErrorMessage=True,
    apiErrorStatus=429,
    error="rate_limit",
)
DONE = answer("m2", {"type": "text", "text": "All built."}, stop="end_turn")


def written(home: Path, *lines: str, age: float = 3600.0, main: bool = False) -> None:
    project = home / ".claude" / "projects" / "-w"
    path = project / SESSION / "subagents" / "agent-dead01.jsonl"
    path = project / f"{SESSION}.jsonl" if main else path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{each}\n" for each in lines))
    os.utime(path, (NOW - age, NOW - age))


def in_w(folder: str | None) -> bool:
    return folder == "/w"


def of(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "USERPROFILE": str(home)}


def test_who_goes_on_is_told_the_task_and_what_was_finished(tmp_path: Path) -> None:
    written(tmp_path, *WORKED, DIED)
    found = ResumePoint.of_agent("dead01", of(tmp_path), NOW, in_w)
    assert found is not None
    assert (found.cwd, found.model) == ("/w", "claude-haiku-4-5")
    for words in ("THE SUB-TASK", "session limit", "I build.", "make", "BUILT", "Do not run them"):
        assert words.lower() in found.prompt.lower()


@pytest.mark.parametrize("named", ["unknown", "..", "*", "dead0*", "", "a/b"])
def test_other_ids_find_nothing(tmp_path: Path, named: str) -> None:
    written(tmp_path, *WORKED, DIED)
    assert ResumePoint.of_agent(named, of(tmp_path), NOW, in_w) is None
    assert ResumePoint.of_session(named, of(tmp_path), NOW, in_w) is None


def test_one_that_may_be_alive_or_has_finished_is_left_alone(tmp_path: Path) -> None:
    written(tmp_path, *WORKED, age=5.0)
    with pytest.raises(UsageError, match="may be alive"):
        ResumePoint.of_agent("dead01", of(tmp_path), NOW, in_w)
    written(tmp_path, *WORKED)
    assert ResumePoint.of_agent("dead01", of(tmp_path), NOW, in_w) is not None
    written(tmp_path, *WORKED, DONE, age=5.0)
    with pytest.raises(UsageError, match="finished"):
        ResumePoint.of_agent("dead01", of(tmp_path), NOW, in_w)
    written(tmp_path, *WORKED, DONE, main=True)
    with pytest.raises(UsageError, match="finished; nothing was cut off"):
        ResumePoint.of_session(SESSION, of(tmp_path), NOW, in_w)
    written(tmp_path, *WORKED, age=5.0, main=True)
    with pytest.raises(UsageError, match="may be alive"):
        ResumePoint.of_session(SESSION, of(tmp_path), NOW, in_w)
    written(tmp_path, *WORKED, DIED, age=5.0, main=True)
    assert ResumePoint.of_session(SESSION, of(tmp_path), NOW, in_w) is not None


def test_one_of_another_project_is_unknown_however_it_stands(tmp_path: Path) -> None:
    for lines, age in (((*WORKED, DIED), 3600.0), (WORKED, 5.0), ((*WORKED, DONE), 5.0)):
        for main in (False, True):
            written(tmp_path, *lines, age=age, main=main)
        for find, named in ((ResumePoint.of_agent, "dead01"), (ResumePoint.of_session, SESSION)):
            assert find(named, of(tmp_path), NOW, lambda _folder: False) is None


def test_a_dead_sub_agent_is_gone_on_from_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = AgentsWorld(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    written(tmp_path, *WORKED, DIED)

    async def main() -> None:
        async with world.open() as client:
            given = {"continue_from_task_id": "dead01", "runner": "messages"}
            for place in ({}, {"cwd": "."}):
                text, _ = await refused(client, "agent", **given, **place)
                assert "of this project has the id" in text
            own = json.dumps(str(world.project))
            written(tmp_path, *(each.replace('"/w"', own) for each in (*WORKED, DIED)))
            _, data = await call(client, "agent", **given)
            assert "THE SUB-TASK" in data["answer"]
            text, _ = await refused(client, "agent", **given)
            assert data["run_id"] in text
            assert "goes on with it already" in text
            text, _ = await refused(client, "agents", orders=[{"prompt": "x"}, given])
            assert text.startswith("Agent 2: ")
        assert len(world.received) == 1

    run(main())


def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)


def test_of_two_clients_at_once_one_goes_on_with_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _own_home(tmp_path, monkeypatch)
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        async with world.open() as client:
            own = json.dumps(str(world.project))
            written(tmp_path, *(each.replace('"/w"', own) for each in (*WORKED, DIED)))
            given = {"continue_from_task_id": "dead01", "runner": "messages"}
            told = await asyncio.gather(*(client.call_tool("agent", given) for _ in range(4)))
            assert sorted(each.is_error for each in told) == [False, True, True, True]
        assert len(world.received) == 1

    run(main())


def test_whoever_waits_for_the_end_of_a_session_holds_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _own_home(tmp_path, monkeypatch)
    world = AgentsWorld(tmp_path)

    async def main() -> None:
        async with world.open() as client:
            own = json.dumps(str(world.project))
            written(tmp_path, *(each.replace('"/w"', own) for each in WORKED), main=True)
            transcript = tmp_path / ".claude" / "projects" / "-w" / f"{SESSION}.jsonl"
            os.utime(transcript)
            waits = asyncio.ensure_future(refused(client, "agent", resume=SESSION))
            # The reading of the transcript has begun, and it may be alive.
            await asyncio.sleep(0.5)
            _, data = await call(client, "agent", prompt="x", runner="messages")
            assert data["answer"] == "done: x"
            assert not waits.done()
            assert "may be alive" in (await waits)[0]

    run(main())
