"""The protocol over HTTP holds for clients that are wrong, old, rude or many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from jackline.assembly import Service
from tests.assembly.world import gateway, run
from tests.mcp_server.agents_world import AgentsWorld, Working, call, refused
from tests.mcp_server.test_protocol import NOBODY, token_of

OPENING: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@asynccontextmanager
async def rude(service: Service, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that says what it likes."""
    usual = {
        "x-jackline-control": token_of(service),
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
    }
    async with httpx2.AsyncClient(
        base_url=service.url, headers=usual | headers, timeout=120
    ) as http:
        yield http


async def opened(http: httpx2.AsyncClient) -> str:
    """A session's id."""
    answer = await http.post("/mcp", json=OPENING)
    assert answer.status_code == 200
    return str(answer.headers["mcp-session-id"])


def told(answer: httpx2.Response) -> dict[str, Any]:
    (line,) = [line for line in answer.text.splitlines() if line.startswith(("{", "data: {"))]
    return dict(json.loads(line.removeprefix("data: ")))


async def still_well(service: Service) -> None:
    """Another client is served as if nothing had been."""
    async with rude(service) as http:
        answer = await http.post("/mcp", json=PING, headers={"mcp-session-id": await opened(http)})
        assert told(answer)["result"] == {}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{not json", 400),
        (b"\xff\xfe\x00", 400),
        (b"[]", 400),
        (b"7", 400),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', 400),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', 400),
    ],
)
def test_what_is_no_message_is_refused_and_nobody_else_notices(
    body: bytes, status: int, tmp_path: Path
) -> None:
    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service:
            async with rude(service) as http:
                answer = await http.post("/mcp", content=body)
                assert answer.status_code == status, answer.text
                assert "error" in answer.json()
            await still_well(service)

    run(main())


def test_sessions_are_opened_kept_apart_and_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service, rude(service) as http:
            mine, other = await opened(http), await opened(http)
            assert mine != other
            missing = await http.post("/mcp", json=PING)
            assert missing.status_code == 400
            unknown = await http.post("/mcp", json=PING, headers={"mcp-session-id": "nobody"})
            assert unknown.status_code == 404
            old = {"mcp-session-id": mine, "mcp-protocol-version": "1999-01-01"}
            assert (await http.post("/mcp", json=PING, headers=old)).status_code == 400
            gone = await http.delete("/mcp", headers={"mcp-session-id": mine})
            assert gone.status_code in (200, 204)
            after = await http.post("/mcp", json=PING, headers={"mcp-session-id": mine})
            assert after.status_code == 404
            theirs = await http.post("/mcp", json=PING, headers={"mcp-session-id": other})
            assert told(theirs)["result"] == {}

    run(main())


def test_wrong_types_of_content_methods_and_origins_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service, rude(service) as http:
            text = await http.post("/mcp", content=b"{}", headers={"content-type": "text/plain"})
            assert text.status_code in (400, 415)
            picky = await http.post("/mcp", json=OPENING, headers={"accept": "image/png"})
            assert picky.status_code == 406
            assert (await http.put("/mcp", json=OPENING)).status_code == 405
            for name, value in (("origin", "https://evil.example"), ("host", "evil.example")):
                answer = await http.post("/mcp", json=OPENING, headers={name: value})
                assert answer.status_code in (401, 403, 421), name
            huge = {**PING, "params": {"x": "y" * 70_000_000}}
            assert (await http.post("/mcp", json=huge)).status_code == 413
            await still_well(service)

    run(main())


def test_a_session_is_listened_to_on_one_stream_which_ends_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service, rude(service) as http:
            session = {"mcp-session-id": await opened(http)}
            async with http.stream("GET", "/mcp", headers=session) as listening:
                assert listening.status_code == 200
                assert listening.headers["content-type"].startswith("text/event-stream")
                async with http.stream("GET", "/mcp", headers=session) as second:
                    assert second.status_code == 409
                await http.delete("/mcp", headers=session)
                async with asyncio.timeout(120):
                    assert [line async for line in listening.aiter_lines() if "data" in line] == []

    run(main())


def test_calls_with_wrong_words_are_told_what_was_wrong_and_do_nothing(tmp_path: Path) -> None:
    world = AgentsWorld(tmp_path)
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("agent", {"prompt": 7}, "prompt"),
        ("agent", {"prompt": "x", "budget": {"turns": 0}}, "budget"),
        ("agent", {"prompt": "x", "runner": "nobody"}, "runner"),
        ("agent", {"prompt": "x", "schema": {"type": "nonsense"}}, "schema"),
        ("agent", {"prompt": "x", "tools": "Bash"}, "tools"),
        ("agent", {}, "prompt"),
        ("agent", {"prompt": "x", "subagent_type": "nobody"}, "general-purpose"),
        ("agent", {"prompt": "x", "cwd": "\0"}, "folder"),
        ("agent", {"prompt": "x", "resume": "a", "continue_from_task_id": "b"}, "not both"),
        ("agent", {"resume": "../../etc/passwd"}, "agent_status"),
        ("agents", {"orders": []}, "orders"),
        ("agents", {"orders": [{"prompt": "x"}] * 201}, "orders"),
        ("agents", {"orders": [{"prompt": "x"}, {"prompt": "y", "cwd": "/"}]}, "None was started"),
        ("agent_wait", {"ids": "text"}, "ids"),
        ("agent_wait", {"ids": ["no-such-agent"]}, "agent_status"),
        ("agent_wait", {"ids": ["no-such-agent"], "seconds": -1}, "seconds"),
        ("agent_cancel", {}, "ids"),
        ("batch", {"calls": [{"id": "a", "tool": "rm", "input": {}}]}, "calls.0.tool: must be"),
        ("batch", {"calls": [{"id": "a", "tool": "rm", "input": {}}]}, '"search", "fetch"'),
    ]

    async def main() -> None:
        async with world.open() as client:
            for tool, given, words in wrong:
                text, _ = await refused(client, tool, **given)
                assert words in text, (tool, given)
            _, listed = await call(client, "agent_status")
            assert listed["runs"] == []
            assert world.received == []

    run(main())


def test_claude_code_is_answered_by_its_long_patience_when_it_hears_of_progress(
    tmp_path: Path,
) -> None:
    mind = Working()
    world = AgentsWorld(tmp_path, mind, wait=600.0, long_wait=0.3)
    client = {"name": "claude-code", "version": "2.1.325"}
    opening = {**OPENING, "params": {**OPENING["params"], "clientInfo": client}}
    folder = {"x-jackline-folder": quote(str(world.project))}
    calls = {"name": "agent", "arguments": {"prompt": "TASK", "tools": ["read"]}}
    asked = {"jsonrpc": "2.0", "id": "a", "method": "tools/call"}

    async def main() -> None:
        async with world.provider(), world.service() as service, rude(service, **folder) as http:
            answer = await http.post("/mcp", json=opening)
            session = {"mcp-session-id": str(answer.headers["mcp-session-id"])}
            params = {**calls, "_meta": {"progressToken": 7, "claudecode/toolUseId": "toolu_1"}}
            answer = await http.post("/mcp", json={**asked, "params": params}, headers=session)
            lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
            first, *_, last = [json.loads(line.removeprefix("data: ")) for line in lines]
            # The id comes first, by a sign of progress; then the answer, though it is at work.
            assert first["method"] == "notifications/progress"
            assert first["params"]["progressToken"] == 7
            data = last["result"]["structuredContent"]
            assert data["run_id"] in first["params"]["message"]
            assert data["run_state"] == "running"
            mind.may_end = True

    run(main())


def test_a_client_of_the_newest_protocol_is_served_without_a_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service, rude(service) as http:
            streams = streamable_http_client(f"{service.url}/mcp", http_client=http)
            async with Client(streams) as client:
                answer = await client.call_tool("status", {})
                assert not answer.is_error
                wrong = await client.call_tool("why", {"id": 7})
                assert wrong.is_error

    run(main())
