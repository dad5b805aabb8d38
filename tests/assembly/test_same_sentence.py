"""One verdict everywhere: status, `top`, the models' tool; in short in the status line."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from jackline.assembly import Service, StateDir
from jackline.flows.records import CallKind, CallRecord, CallState, RunRecord, RunState
from jackline.flows.store import open_run_store, run_store_url
from jackline.gateway.settings import HoldSettings
from jackline.testing import SimulatedProvider
from tests.assembly.world import ask, config_for, question, request, run, until

RUN = RunRecord("9f3c", "many", "", b"{}")
WAITS = "0 of 3 agents answering, 3 parked until"
NEEDS = "1 needs you: many (9f3c) is parked until you say so: jackline resume 9f3c."


async def a_run_that_waits_for_a_person(folder: Path) -> None:
    engine = open_run_store(run_store_url(folder))
    claim = await engine.create(RUN, owner="test", lease=600.0)
    call = CallRecord("9f3c", "k", 0, CallKind.AGENT, "the first", "", "task-0", CallState.RUNNING)
    await engine.begin_call(claim, call)
    await engine.let_go(claim, replace(RUN, state=RunState.PARKED, why="confirm"))
    await engine.close()


def read(url: str, path: str, token: str, body: bytes | None = None) -> bytes:
    headers = {"x-jackline-control": token, "content-type": "application/json"}
    asked = urllib.request.Request(url + path, body, headers)  # noqa: S310 -- our own loopback
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(asked, timeout=120) as answer:
        return bytes(answer.read())


async def told_by_the_models_tool(service: Service, token: str) -> str:
    async with (
        httpx2.AsyncClient(headers={"x-jackline-control": token}, timeout=120) as http,
        streamable_http_client(f"{service.url}/mcp", http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as client,
    ):
        await client.initialize()
        told: Any = await client.call_tool("status", {})
        return str(told.content[0].text).splitlines()[0]


def test_who_works_until_when_others_wait_and_what_needs_you_is_said_by_every_face(
    tmp_path: Path,
) -> None:
    async def main(provider: SimulatedProvider) -> None:
        provider.quota_wall(resets_in=7200.0)
        config = config_for(tmp_path, provider.url, hold=HoldSettings(quota=36000.0))
        await a_run_that_waits_for_a_person(config.state_dir)
        async with Service(config) as service:
            asked = []
            for number in range(3):
                who = (
                    (b"x-claude-code-session-id", b"s"),
                    (b"x-claude-code-agent-id", b"task-%d" % number),
                )
                one = request(b"POST", b"/v1/messages", question(), *who)
                asked.append(asyncio.ensure_future(ask(service.url, one)))
            await until(lambda: str(service.status()["verdict"]).startswith(WAITS))
            await until(lambda: NEEDS in str(service.status()["verdict"]))
            running = StateDir(config.state_dir).running()
            assert running is not None
            token = running.token
            fleet = await asyncio.to_thread(read, service.url, "/_jackline/fleet", token)
            line = await asyncio.to_thread(
                read, service.url, "/_jackline/statusline", token, b'{"session_id": "s"}'
            )
            for sentence in (
                str(json.loads(fleet)["verdict"]),
                await told_by_the_models_tool(service, token),
            ):
                assert sentence.startswith(WAITS)
                assert NEEDS in sentence
            assert "1 needs you · 0 of 3 answering" in line.decode()
            waiting: Any = service.status()["waiting"]
            assert "the first" in {call["label"] for call in waiting}
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    with SimulatedProvider() as provider:
        run(main(provider))
