"""A simulated provider, a service before it, and clients that speak with its tools.

Rules: (1) real sockets, a real store, the SDK's own client; (2) nothing is waited for by sleeping
for luck: tests wait for what was heard or is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from jackline.agents.prices import Price
from jackline.assembly import Service, StateDir
from jackline.budgets.budget import Budget
from jackline.clock import Clock, SystemClock
from jackline.gateway.settings import HoldSettings
from jackline.mcp_server.permissions import AgentSettings, BatchSettings, ToolSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import RequestLedger
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule, Say
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import AT_ONCE
from tests.assembly.world import config_for
from tests.ports import free_port


def agreeing(asked: ClientRequest) -> Reply:
    """A model that repeats what it was asked."""
    return Say(f"done: {asked.prompt}")


@dataclass
class AgentsWorld:
    """Everything around the tools; `mind` answers, and `heard` is what it was asked."""

    folder: Path
    mind: Callable[[ClientRequest], Reply] = agreeing
    allow: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    tools: tuple[str, ...] = ()
    runners: tuple[str, ...] = ("claude-code", "codex")
    budgets: tuple[Budget, ...] = ()
    prices: dict[str, Price] = field(default_factory=dict)
    wait: float = 30.0
    long_wait: float = 1500.0
    clock: Clock | None = None
    received: list[ClientRequest] = field(default_factory=list)
    server: SimulatorServer | None = None

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def ledger(self) -> RequestLedger:
        assert self.server is not None
        return self.server.playing.provider.ledger

    def prompts(self) -> list[str]:
        """What was asked so far, in order."""
        return [asked.prompt for asked in self.received]

    def _answer(self, asked: ClientRequest) -> Reply:
        self.received.append(asked)
        return self.mind(asked)

    @asynccontextmanager
    async def provider(self) -> AsyncIterator[SimulatorServer]:
        self.project.mkdir(exist_ok=True)
        settings = ProviderSettings(service=AT_ONCE)
        mind = ReplyScript((Rule(self._answer),))
        async with SimulatorServer(settings, mind, port=free_port()) as self.server:
            yield self.server

    @asynccontextmanager
    async def service(self) -> AsyncIterator[Service]:
        assert self.server is not None
        config = config_for(self.folder, self.server.url, hold=HoldSettings(quota=0.2, other=0.5))
        agents = AgentSettings(
            runner="messages",
            folders=self.folders,
            runners=self.runners,
            tools=self.tools,
            wait=self.wait,
            long_wait=self.long_wait,
        )
        tools = ToolSettings(agents, BatchSettings(self.allow))
        runs = replace(config.runs, budgets=self.budgets)
        config = replace(config, tools=tools, runs=runs, prices=self.prices)
        async with Service(config, clock=self.clock) as service:
            yield service

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ClientSession]:
        """All of it, and one client."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.provider())
            service = await stack.enter_async_context(self.service())
            yield await stack.enter_async_context(self.client(service))

    @asynccontextmanager
    async def client(
        self,
        service: Service,
        logging: Any = None,
        session: str = "the-session-of-the-client",
        parent_task: str = "",
        folder: Path | None = None,
    ) -> AsyncIterator[ClientSession]:
        """A client that works in `folder`, by default the project."""
        running = StateDir(service.config.state_dir).running()
        assert running is not None
        headers = {
            "x-jackline-control": running.token,
            "x-jackline-folder": quote(str(folder or self.project)),
            "x-jackline-client-session": session,
            "x-jackline-parent-task": parent_task,
        }
        async with (
            httpx2.AsyncClient(headers=headers, timeout=240) as http,
            streamable_http_client(f"{service.url}/mcp", http_client=http) as streams,
            ClientSession(streams[0], streams[1], logging_callback=logging) as client,
        ):
            await client.initialize()
            yield client


async def call(client: ClientSession, tool: str, **given: Any) -> tuple[str, dict[str, Any]]:
    """A call that must succeed: its text and its data."""
    told = await client.call_tool(tool, given)
    assert not told.is_error, told.content
    return _both(told)


async def refused(client: ClientSession, tool: str, **given: Any) -> tuple[str, dict[str, Any]]:
    """A call that must fail: its text and its data."""
    told = await client.call_tool(tool, given)
    assert told.is_error, told.content
    return _both(told)


def _both(told: Any) -> tuple[str, dict[str, Any]]:
    (content,) = told.content
    json.dumps(told.structured_content)
    return content.text, told.structured_content


async def until(condition: Callable[[], bool]) -> None:
    """Return as soon as it holds."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 -- what is awaited happens in the service
            await asyncio.sleep(0.01)


class Hurried(SystemClock):
    """A clock that runs a hundred times as fast, except for the hour of the day."""

    def monotonic(self) -> float:
        return super().monotonic() * 100

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)


class Working:
    """A mind whose agents read on and on until they are let go."""

    def __init__(self) -> None:
        self.may_end = False

    def __call__(self, asked: ClientRequest) -> Reply:
        if self.may_end:
            return Say(f"done: {asked.prompt}")
        return Say("I read.", (("read", {"path": "notes.txt"}),), delay=0.05)
