"""A provider, a gateway before it and a runner behind that, all in this process and in real time.

Rules: (1) nothing of the developer's own home or environment reaches a client, and its credential
is a dummy; (2) times at which something happens are told by what happened, not by sleeping.
Not here: what is asserted (tests/real_clients/test_runners.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from jackline.agents.claude_code.runner import ClaudeCodeRunner
from jackline.agents.codex import CodexRunner
from jackline.agents.outcome import Outcome
from jackline.agents.runner import AgentTask
from jackline.assembly import Service
from jackline.batches.processes import guard
from jackline.config import Config
from jackline.gateway.relay import Relay
from jackline.gateway.settings import GatewaySettings, HoldSettings, ListenSettings
from jackline.journal.store import JournalSettings
from jackline.providers.settings import UpstreamKind, UpstreamSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import RequestLedger
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import AT_ONCE, ServiceSettings
from tests.agents.process.doubles import FreeLeave, Pages
from tests.own_home import key_folder
from tests.ports import free_port

CLAUDE_MODEL, CODEX_MODEL = "claude-sonnet-4-6", "gpt-5.5"
# Only a test that fails ever waits so long.
PATIENCE_S = 180.0
LOOK_EVERY_S = 0.02


@dataclass
class World:
    """One agent's surroundings; what it asks is answered by `mind`."""

    folder: Path
    program: Path
    mind: Callable[[ClientRequest], Reply]
    codex: bool = False
    hold: HoldSettings = field(default_factory=lambda: HoldSettings(quota=0.5))
    service: ServiceSettings = AT_ONCE
    received: list[ClientRequest] = field(default_factory=list)
    server: SimulatorServer | None = None
    url: str = ""
    relay: Relay | None = None

    @property
    def ledger(self) -> RequestLedger:
        assert self.server is not None
        return self.server.playing.provider.ledger

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            **key_folder(),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "OPENAI_API_KEY": "sk-dummy",
            # A subscriber's, whose limits are told with the time of their reset.
            "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
        }

    def runner(self) -> ClaudeCodeRunner | CodexRunner:
        """As runs have it: the program calls over a relay."""
        url, ends = (self.url, guard) if self.relay is None else (self.relay.url, self.relay.guard)
        if self.codex:
            return CodexRunner(
                url,
                guard=ends,
                program=str(self.program),
                environment=self.environment,
                sandbox="danger-full-access",
                tag="run-1",
            )
        return ClaudeCodeRunner(
            url,
            guard=ends,
            program=str(self.program),
            environment=self.environment,
            tag="run-1",
        )

    def task(self, **more: object) -> AgentTask:
        model = CODEX_MODEL if self.codex else CLAUDE_MODEL
        given: dict[str, object] = {
            "prompt": "TASK: do the work.",
            "model": model,
            "tool_names": ("Bash", "Agent"),
            "cwd": self.project,
            **more,
        }
        session = str(uuid5(NAMESPACE_URL, str(self.folder)))
        return AgentTask("task-1", session, **given)  # type: ignore[arg-type]

    async def carry(self, pages: Pages, leave: FreeLeave, **more: object) -> Outcome[object]:
        async with asyncio.timeout(PATIENCE_S):
            return await self.runner().run(self.task(**more), pages, leave)

    def _answer(self, asked: ClientRequest) -> Reply:
        self.received.append(asked)
        return self.mind(asked)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[World]:
        self.home.mkdir(exist_ok=True)
        self.project.mkdir(exist_ok=True)
        settings = ProviderSettings(service=self.service)
        mind = ReplyScript((Rule(self._answer),))
        async with SimulatorServer(settings, mind, port=free_port()) as server:
            self.server = server
            kind = UpstreamKind.OPENAI_RESPONSES if self.codex else UpstreamKind.ANTHROPIC
            gateway = GatewaySettings(
                listen=ListenSettings(port=free_port()),
                upstreams=(UpstreamSettings(url=server.url, kind=kind),),
                hold=self.hold,
            )
            state = self.folder / "state"
            config = Config(gateway, state, JournalSettings(), "warning", {}, ())
            async with Service(config) as service:
                self.url = service.url
                with Relay(service.url) as self.relay:
                    yield self


async def until(condition: Callable[[], object]) -> None:
    """Wait for it to come about."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 -- what is waited for happens in other processes
            await asyncio.sleep(LOOK_EVERY_S)


def lines_of(file: Path) -> Sequence[str]:
    return file.read_text().splitlines() if file.exists() else []
