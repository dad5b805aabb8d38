"""Tools of MCP servers, with real server processes: over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jackline.agents.messages import MessagesRunner
from jackline.agents.messages.mcp_tools import tools_of_servers
from jackline.agents.outcome import Ending, Outcome
from jackline.agents.runner import JsonObject
from jackline.batches.tool import ToolContext, ToolFailedError
from jackline.errors import BadArgumentError
from jackline.simulator.reply_script import Say
from jackline.testing.scripted_agents import ScriptedModel
from tests.agents.world import MemoryNotebook, OpenLeave, run, task
from tests.ports import free_port

ADDER = Path(__file__).with_name("mcp_adder.py")
STDIO: JsonObject = {"command": sys.executable, "args": [str(ADDER)], "type": "stdio"}
GARBAGE: JsonObject = {"command": sys.executable, "args": ["-c", "print('words, no JSON')"]}
ONCE: tuple[tuple[str, JsonObject], ...] = (("mcp__adder__add", {"a": 1, "b": 2}),)


def carry(
    servers: Mapping[str, JsonObject], folder: Path, *calls: tuple[str, JsonObject]
) -> tuple[Outcome[object], ScriptedModel]:
    model = ScriptedModel.in_turn(Say("", calls), Say("done"))
    given = task(mcp_servers=servers, folder=folder)
    return run(MessagesRunner(model).run(given, MemoryNotebook(), OpenLeave())), model


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
    assert "no luck" in bad["content"]


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


def test_a_server_knows_for_which_agent_it_works(tmp_path: Path) -> None:
    """By this, `agents.depth` holds where it is our own bridge."""

    async def main() -> None:
        async with tools_of_servers({"adder": STDIO}, tmp_path, "task-7") as tools:
            with pytest.raises(ToolFailedError) as failed:
                await tools[1].run({"why": "for"}, ToolContext(tmp_path))
            assert "for task-7" in failed.value.output

    run(main())


@asynccontextmanager
async def over_http() -> AsyncIterator[str]:
    port = free_port()
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
            return await MessagesRunner(model).run(given, MemoryNotebook(), OpenLeave()), model

    outcome, model = run(main())
    assert outcome.ok
    assert results(model)[0]["content"].endswith("3")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"command": "no-such-program-anywhere"}, "there is no program no-such-program-anywhere"),
        (
            {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no adder today')"]},
            "it said: no adder today",
        ),
        ({"type": "http", "url": "http://127.0.0.1:9/mcp"}, "ConnectError"),
        ({"neither": "nor"}, "it has neither a `command` nor a `url`"),
        ({"command": 5}, "it has neither a `command` nor a `url`"),
        (GARBAGE, "Connection closed"),
    ],
)
def test_a_server_that_cannot_be_had_is_told_before_anything_is_paid(
    given: JsonObject, why: str, tmp_path: Path
) -> None:
    outcome, model = carry({"adder": given}, tmp_path)
    assert outcome.terminated_by is Ending.REFUSED
    assert "The MCP server adder cannot be used" in outcome.evidence.says
    assert why in outcome.evidence.says + outcome.evidence.private
    assert model.ledger == []


def test_what_a_server_prints_that_is_no_mcp_goes_to_no_terminal(tmp_path: Path) -> None:
    # In a process of its own: there nobody has set up logging, and Python would print it.
    program = (
        "import asyncio, json, pathlib, sys\n"
        "from jackline.agents.messages.mcp_tools import tools_of_servers\n"
        "from jackline.errors import BadArgumentError\n"
        "async def main():\n"
        "    try:\n"
        "        async with tools_of_servers(json.loads(sys.argv[1]), pathlib.Path()): pass\n"
        "    except BadArgumentError as error: print(error.message)\n"
        "asyncio.run(main())\n"
    )
    words = [sys.executable, "-c", program, json.dumps({"adder": GARBAGE})]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "cannot be used" in done.stdout
    assert done.stderr == ""


def test_without_the_extra_the_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)

    async def main() -> None:
        async with tools_of_servers({"adder": STDIO}, tmp_path):
            raise AssertionError("nothing to import")

    with pytest.raises(BadArgumentError) as missing:
        run(main())
    assert "jackline[mcp]" in missing.value.hint
