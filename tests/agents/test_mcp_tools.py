"""Tools of MCP servers, with real server processes: over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jackline.agents.messages import MessagesRunner
from jackline.agents.messages.mcp_tools import tools_of_servers
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.task import JsonObject
from jackline.batches.tool import ToolContext, ToolFailedError
from jackline.errors import BadArgumentError
from jackline.simulator.mind import Say
from jackline.testing.scripted_model import ScriptedModel
from tests.agents.world import MemoryNotebook, OpenLeave, run, task

ADDER = Path(__file__).with_name("mcp_adder.py")
STDIO: JsonObject = {"command": sys.executable, "args": [str(ADDER)], "type": "stdio"}
ONCE: tuple[tuple[str, JsonObject], ...] = (("mcp__adder__add", {"a": 1, "b": 2}),)


def carry(
    servers: Mapping[str, JsonObject], folder: Path, *calls: tuple[str, JsonObject]
) -> tuple[Outcome[object], ScriptedModel]:
    model = ScriptedModel.in_turn(Say("", calls), Say("done"))
    given = task(mcp_servers=servers, folder=folder)
    return run(MessagesRunner(model).carry(given, MemoryNotebook(), OpenLeave())), model


def results(model: ScriptedModel) -> list[dict[str, Any]]:
    messages: Any = model.ledger[-1].body["messages"]
    return [b for b in messages[-1]["content"] if b["type"] == "tool_result"]


def test_a_servers_tools_are_offered_and_run(tmp_path: Path) -> None:
    outcome, model = carry(
        {"adder": STDIO}, tmp_path, *ONCE, ("mcp__adder__fail", {"why": "no luck"})
    )
    assert outcome.ok
    tools: Any = model.ledger[0].body["tools"]
    assert [tool["name"] for tool in tools] == [f"mcp__adder__{n}" for n in ("add", "fail", "die")]
    assert tools[0]["input_schema"]["properties"]["a"]["type"] == "integer"
    good, bad = results(model)
    assert good["content"].endswith("3")
    assert bad["is_error"]
    assert bad["content"].endswith("no luck")


def test_a_server_that_dies_fails_its_own_calls_and_nothing_else(tmp_path: Path) -> None:
    servers = {"adder": STDIO, "other": STDIO}
    outcome, model = carry(
        servers, tmp_path, ("mcp__adder__die", {}), ("mcp__other__add", {"a": 2, "b": 2})
    )
    assert outcome.ok
    dead, alive = results(model)
    assert dead["is_error"]
    assert alive["content"].endswith("4")


def test_a_read_only_tool_is_known_as_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with tools_of_servers({"adder": STDIO}, tmp_path) as tools:
            add, fail, _ = tools
            assert add.read_only({})
            assert not fail.read_only({})
            assert (await add.run({"a": 1, "b": 1}, ToolContext(tmp_path))).text == "2"
            with pytest.raises(ToolFailedError) as failed:
                await fail.run({"why": "rain"}, ToolContext(tmp_path))
            assert "rain" in failed.value.output

    run(main())


@asynccontextmanager
async def over_http() -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ADDER), str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            await writer.wait_closed()
            break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()


def test_a_server_over_http_is_used_the_same_way(tmp_path: Path) -> None:
    async def main() -> tuple[Outcome[object], ScriptedModel]:
        async with over_http() as url:
            model = ScriptedModel.in_turn(Say("", ONCE), Say("done"))
            servers: dict[str, JsonObject] = {
                "adder": {"type": "http", "url": url, "headers": {"x-team": "blue"}}
            }
            given = task(mcp_servers=servers, folder=tmp_path)
            return await MessagesRunner(model).carry(given, MemoryNotebook(), OpenLeave()), model

    outcome, model = run(main())
    assert outcome.ok
    assert results(model)[0]["content"].endswith("3")


@pytest.mark.parametrize(
    "given",
    [
        {"command": "no-such-program-anywhere"},
        {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no adder today')"]},
        {"type": "http", "url": "http://127.0.0.1:9/mcp"},
        {"neither": "nor"},
    ],
)
def test_a_server_that_cannot_be_had_is_told_before_anything_is_paid(
    given: JsonObject, tmp_path: Path
) -> None:
    outcome, model = carry({"adder": given}, tmp_path)
    assert outcome.terminated_by is Ending.REFUSED
    assert "The MCP server adder cannot be used" in outcome.evidence.says
    assert model.ledger == []


def test_without_the_extra_the_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)

    async def main() -> None:
        async with tools_of_servers({"adder": STDIO}, tmp_path):
            raise AssertionError("nothing to import")

    with pytest.raises(BadArgumentError) as missing:
        run(main())
    assert "jackline[mcp]" in missing.value.next
