"""A machine on which Claude Code runs with our bridge as its MCP server, and a provider behind.

Rules: (1) the real client, the real service, real sockets; (2) nothing of the developer's own home
or environment reaches them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jackline.assembly import StateDir
from jackline.flows.records import RunRecord
from jackline.flows.store import open_run_store, run_store_url
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import RequestLedger
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule, Say
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import AT_ONCE
from tests import warm_processes
from tests.own_home import key_folder
from tests.ports import free_port
from tests.real_clients.clients import claude_binary
from tests.real_clients.old_client import old_claude_binary

CLAUDES = [pytest.param(old_claude_binary, id="2.1.197"), pytest.param(claude_binary, id="2.1.325")]
TOOL = "mcp__jackline__"
PATIENCE = 300.0  # only a test that fails ever waits so long
CONFIG = """\
[hold]
quota = "0.5s"
[agents]
tools = ["Bash", "mcp__jackline"]
model = "claude-sonnet-4-6"
"""
SERVER = {"command": sys.executable, "args": ["-m", "jackline", "mcp"]}


def tool(name: str, **given: object) -> Say:
    """The model calls one of ours."""
    return Say("I ask Jackline.", ((f"{TOOL}{name}", given),))


def shell(command: str) -> Say:
    return Say("I run it.", (("Bash", {"command": command, "description": "a step"}),))


@dataclass
class ParentWorld:
    """A machine on which Claude Code runs with our bridge as its MCP server."""

    folder: Path
    program: Path
    mind: Callable[[ClientRequest], Reply]
    config: str = ""
    """More lines for [agents]."""
    received: list[ClientRequest] = field(default_factory=list)
    server: SimulatorServer | None = None
    clients: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def ledger(self) -> RequestLedger:
        assert self.server is not None
        return self.server.playing.provider.ledger

    @property
    def state(self) -> StateDir:
        return StateDir(self.folder / "state")

    @property
    def environment(self) -> dict[str, str]:
        assert self.server is not None
        return {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            **key_folder(),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "ANTHROPIC_BASE_URL": self.server.url,
            "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "JACKLINE_STATE": str(self.folder / "state"),
            "JACKLINE_PORT": "0",
            "JACKLINE_UPSTREAM": self.server.url,
            "JACKLINE_CONFIG": str(self.folder / "jackline.toml"),
        }

    def _answer(self, asked: ClientRequest) -> Reply:
        self.received.append(asked)
        return self.mind(asked)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ParentWorld]:
        for name in ("home", "project", "bin"):
            (self.folder / name).mkdir()
        (self.folder / "bin" / "claude").symlink_to(self.program)
        (self.folder / "jackline.toml").write_text(CONFIG + self.config)
        settings = ProviderSettings(service=AT_ONCE)
        mind = ReplyScript((Rule(self._answer),))
        async with SimulatorServer(settings, mind, port=free_port()) as self.server:
            # With the client's login, which Claude Code keeps from the servers that it starts.
            await self.jackline("up", "-d")
            try:
                yield self
            finally:
                for client in self.clients:
                    if client.returncode is None:
                        client.kill()
                        await client.communicate()
                await self.jackline("down")

    async def jackline(self, *words: str) -> None:
        command = (sys.executable, "-m", "jackline", *words)
        await asyncio.to_thread(
            warm_processes.run, command, env=self.environment, capture_output=True, check=True
        )

    async def start(
        self, prompt: str = "PARENT: use Jackline.", **environ: str
    ) -> asyncio.subprocess.Process:
        """Claude Code, with its bridge, at the parent's task."""
        return await self._claude(("-p", prompt), asyncio.subprocess.DEVNULL, environ)

    async def converse(self, prompt: str) -> asyncio.subprocess.Process:
        """The same, but spoken with over its standard input, as an editor does."""
        options = ("-p", "--input-format", "stream-json")
        parent = await self._claude(options, asyncio.subprocess.PIPE, {})
        await self.say(parent, type="user", message={"role": "user", "content": prompt})
        return parent

    @staticmethod
    async def say(parent: asyncio.subprocess.Process, **message: object) -> None:
        """One message to a client that is spoken with."""
        assert parent.stdin is not None
        parent.stdin.write(json.dumps(message).encode() + b"\n")
        await parent.stdin.drain()

    async def _claude(
        self, options: tuple[str, ...], given: int, environ: dict[str, str]
    ) -> asyncio.subprocess.Process:
        client = await asyncio.create_subprocess_exec(
            *(str(self.program), *options, "--model", "claude-sonnet-4-6"),
            *("--output-format", "stream-json", "--verbose", "--strict-mcp-config"),
            *("--mcp-config", json.dumps({"mcpServers": {"jackline": SERVER}})),
            *("--allowedTools", f"Agent,Bash,{TOOL[:-2]}"),
            cwd=self.project,
            env=self.environment | environ,
            stdin=given,
            stdout=asyncio.subprocess.PIPE,
        )
        self.clients.append(client)
        return client

    async def client_command(self, *words: str) -> None:
        """One of the client's own commands, such as `mcp add`, to its end."""
        process = await asyncio.create_subprocess_exec(
            *(str(self.program), *words),
            cwd=self.project,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(PATIENCE):
            printed, _ = await process.communicate()
        assert process.returncode == 0, printed

    async def runs(self) -> list[RunRecord]:
        """What is kept of all agents that were started, the newest first."""
        engine = open_run_store(run_store_url(self.state.folder))
        try:
            return list(await engine.runs())
        finally:
            await engine.close()

    async def result_of(self, parent: asyncio.subprocess.Process) -> str:
        """What the parent came to in the end."""
        async with asyncio.timeout(PATIENCE):
            printed, _ = await parent.communicate()
        results = [json.loads(line) for line in printed.splitlines() if b'"type":"result"' in line]
        assert results, printed[-2000:]
        return str(results[-1]["result"])
