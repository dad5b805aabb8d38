"""An independent client (the official SDK's) speaks with the service's tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from jackline.assembly import Service, StateDir
from tests.assembly.world import config_for, gateway, run

NOBODY = "http://127.0.0.1:9"


def token_of(service: Service) -> str:
    running = StateDir(service.config.state_dir).running()
    assert running is not None
    return running.token


@asynccontextmanager
async def session(service: Service) -> AsyncIterator[ClientSession]:
    headers = {"x-jackline-control": token_of(service)}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http,
        streamable_http_client(f"{service.url}/mcp", http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as client,
    ):
        await client.initialize()
        yield client


def text_of(result: Any) -> str:
    return str(result.content[0].text)


def test_a_client_finds_the_tools_and_reads_the_verdict(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service, session(service) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert {"status", "why"} <= tools.keys()
            assert all(tool.description for tool in tools.values())
            told = await client.call_tool("status", {})
            assert text_of(told).startswith("Nothing is under way.")
            assert told.structured_content is not None
            assert told.structured_content["verdict"] == text_of(told).splitlines()[0]

    run(main())


def test_bad_arguments_and_unknown_tools_are_told_in_words(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service, session(service) as client:
            wrong = await client.call_tool("status", {"nonsense": 1})
            assert wrong.is_error
            assert "nonsense" in text_of(wrong)
            missing = await client.call_tool("why", {"id": "00000000-nobody"})
            assert missing.is_error
            assert "hint: " in text_of(missing)
            unknown = await client.call_tool("fly", {})
            assert unknown.is_error
            assert "status" in text_of(unknown)

    run(main())


def test_a_read_only_service_takes_no_order_from_a_model(tmp_path: Path) -> None:
    orders: dict[str, dict[str, Any]] = {
        "agent": {"prompt": "write a file"},
        "agents": {"items": ["a"], "prompt": "look at {item}"},
        "agent_cancel": {"ids": ["run-1"]},
        "batch": {"calls": [{"id": "a", "tool": "shell", "input": {"command": "touch made"}}]},
    }

    async def main() -> None:
        config = config_for(tmp_path, NOBODY)
        listen = replace(config.gateway.listen, read_only=True)
        config = replace(config, gateway=replace(config.gateway, listen=listen))
        async with Service(config) as service, session(service) as client:
            tools = (await client.list_tools()).tools
            reads = {t.name for t in tools if t.annotations and t.annotations.read_only_hint}
            assert reads == {"status", "why", "agent_wait", "agent_status"}
            assert orders.keys() == {tool.name for tool in tools} - reads
            for name, arguments in orders.items():
                told = await client.call_tool(name, arguments)
                assert told.is_error
                assert "--read-only" in text_of(told), name
            assert not (await client.call_tool("status", {})).is_error
            assert not (await client.call_tool("agent_status", {})).is_error

    run(main())


def test_without_the_control_token_nobody_gets_in(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, NOBODY) as service, httpx2.AsyncClient(timeout=120) as http:
            for headers in ({}, {"x-jackline-control": "guess"}):
                answer = await http.post(f"{service.url}/mcp", json={}, headers=headers)
                assert answer.status_code == 401
                assert "jackline mcp" in answer.text

    run(main())
