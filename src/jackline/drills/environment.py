"""Open what one side of a drill runs against: a provider, a gateway, and a host of flows.

Rules: (1) the gateway has the settings that users get by default, listens on the loopback, and
its state is deleted after the drill; (2) in real time it is a process of its own, in scaled time
it runs in this process by the drill clock; (3) no configuration of the user reaches it; (4) what
a gateway reports is read as its users read it, over HTTP and from its journal; (5) the provider's
ledger and recorded requests are the evidence; (6) a store is a file, so that a second host, in
any process, finds what the first one saved.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from jackline.agents.gateway_model import GatewayModel
from jackline.agents.messages.runner import MessagesRunner
from jackline.assembly import Service
from jackline.config import Config
from jackline.drills.conversation import label_of, posted
from jackline.drills.drill_clock import DrillClock
from jackline.drills.live_view import NOT_WATCHED, LiveView
from jackline.drills.processes import stop
from jackline.errors import InternalError
from jackline.events import AttemptFailed, ServiceNoted
from jackline.flows.host import FlowHost
from jackline.flows.run_events import Listener, ignore_event
from jackline.flows.settings import RunSettings
from jackline.flows.store import open_run_store
from jackline.gateway.settings import GatewaySettings, HoldSettings, ListenSettings
from jackline.journal import JournalReader
from jackline.journal.store import JournalSettings
from jackline.programs import own_command
from jackline.providers.settings import UpstreamSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Fault
from jackline.simulator.ledger import LedgerEntry, RequestLedger
from jackline.simulator.live_provider import LiveProvider
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule
from jackline.simulator.server import SimulatorServer
from jackline.state_dir import StateDir

# Twice in the shortest time that a lane is not used after a failure.
_STATUS_EVERY_S = 2.0
# More than any drill has requests.
_MOST_ATTEMPTS = 100_000
# Real seconds in which a busy machine may delay the first byte.
_COMMIT_AFTER_S = 4.0


@dataclass(slots=True)
class DrillProvider:
    """A simulated provider at work, and whose requests it got."""

    url: str
    playing: LiveProvider
    labels: dict[str, str] = field(default_factory=dict)
    """Whose conversation the body with this hash belongs to."""

    @property
    def ledger(self) -> RequestLedger:
        """Every request so far."""
        return self.playing.provider.ledger

    def label(self, entry: LedgerEntry) -> str:
        """Whose request this is; empty for one that did not reach the model."""
        return self.labels.get(entry.body_hash, "")

    def add_fault(self, fault: Fault) -> float:
        """Begin a fault now; returns its end by the provider's clock."""
        handle = self.playing.add_fault(fault)
        return next(one.fault.until for one in self.playing.provider.faults if one.handle == handle)

    def unix_time(self, at: float) -> float:
        """A moment of the provider's clock as Unix time."""
        return self.playing.provider.settings.calendar.epoch_seconds(at)


@asynccontextmanager
async def open_provider(
    reply: Callable[[ClientRequest], Reply], settings: ProviderSettings, speed: float = 1.0
) -> AsyncIterator[DrillProvider]:
    """A provider whose model answers with what `reply` returns."""

    def labelled_reply(request: ClientRequest) -> Reply:
        provider.labels[request.body_hash] = label_of(request)
        return reply(request)

    script = ReplyScript((Rule(labelled_reply),))
    async with SimulatorServer(settings, script, speed=speed, clients_hurry=True) as server:
        provider = DrillProvider(server.url, server.playing)
        yield provider


@dataclass(slots=True)
class WatchedEndpoint:
    """The base URL of a gateway or a provider, and what was learned about it."""

    url: str
    failed: Sequence[AttemptFailed] = ()
    """Attempts that failed, by the gateway's journal; there once it is closed."""
    verdicts: list[str] = field(default_factory=list)
    """The verdicts of its status, each sentence once."""

    async def watch(self, clock: DrillClock) -> None:
        """Read the status until cancelled."""
        while True:
            verdict = await self.verdict()
            if verdict and verdict not in self.verdicts:
                self.verdicts.append(verdict)
            await clock.sleep(_STATUS_EVERY_S)

    async def verdict(self) -> str:
        """The verdict of its status now; empty where it cannot be reached."""
        try:
            async with posted(self.url, "/_jackline/status", method="GET") as response:
                return str(json.loads(await response.whole())["verdict"])
        except ConnectionError:
            return ""  # the clients' records show whether they reach it


@asynccontextmanager
async def open_gateway(
    upstreams: Sequence[UpstreamSettings],
    clock: DrillClock,
    live_view: LiveView = NOT_WATCHED,
    state: Path | None = None,
) -> AsyncIterator[WatchedEndpoint]:
    """A gateway before these upstreams, for as long as the block runs.

    `state` is its state folder, if it is to exist before or after the gateway.
    """
    with tempfile.TemporaryDirectory(
        prefix="jackline-drill-", ignore_cleanup_errors=True
    ) as folder:
        opener = _process if clock.speed == 1.0 else _in_this_process
        state = state or Path(folder) / "state"
        async with opener(upstreams, clock, state, live_view.port) as url:
            live_view.opened(url, state)
            endpoint = WatchedEndpoint(url)
            yield endpoint
        with JournalReader(StateDir(state).journal) as journal:
            endpoint.failed = journal.failed_attempts(0.0, math.inf, _MOST_ATTEMPTS)


@asynccontextmanager
async def _in_this_process(
    upstreams: Sequence[UpstreamSettings], clock: DrillClock, state: Path, port: int
) -> AsyncIterator[str]:
    settings = GatewaySettings(
        listen=ListenSettings(port=port),
        upstreams=tuple(upstreams),
        hold=HoldSettings(
            # The only wait of the gateway that is measured by the machine's own clock.
            ping_every=clock.real(HoldSettings().ping_every),
            # In scaled time a busy machine's delays look like long waits: allow real seconds.
            commit_after=min(
                240.0, max(HoldSettings().commit_after, _COMMIT_AFTER_S * clock.speed)
            ),
        ),
    )
    config = Config(settings, state, JournalSettings(), "warning", {}, ())
    async with Service(config, clock=clock, beside_flows=True) as service:
        text = f"time passes {clock.speed:g} times as fast"
        service.observatory.announce(ServiceNoted(clock.wall(), "drill", text))
        yield service.url


@asynccontextmanager
async def _process(
    upstreams: Sequence[UpstreamSettings], _clock: DrillClock, state: Path, port: int
) -> AsyncIterator[str]:
    StateDir(state).make()
    lines: list[str] = []
    for upstream in upstreams:
        lines.append("[[upstream]]")
        # JSON's strings are TOML's, too.
        keys = ("name", "url", "kind", "credential")
        lines += [f"{key} = {json.dumps(getattr(upstream, key))}" for key in keys]
        models = (f"{json.dumps(a)} = {json.dumps(b)}" for a, b in upstream.models.items())
        lines.append(f"models = {{ {', '.join(models)} }}")
    config = state / "jackline.toml"
    config.write_text("\n".join(lines), encoding="utf-8")
    if not port:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = int(probe.getsockname()[1])
    process = await asyncio.create_subprocess_exec(
        *own_command("up", "--port", str(port), "--state", str(state), "--config", str(config)),
        env={name: value for name, value in os.environ.items() if "JACKLINE_" not in name},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        if process.stderr is None:
            raise AssertionError("stderr is a pipe")
        url, last_line = "", "nothing"
        async for line in process.stderr:
            text = line.decode("utf-8", "replace").strip()
            if text.startswith("http://"):
                url = text.split()[0]
                break
            last_line = text or last_line
        if not url:
            raise InternalError(
                f"the gateway of the drill did not start; its last line: {last_line}",
                hint="jackline up shows whether one starts here at all",
            )
        # A log that nobody reads would stop the gateway once the pipe is full.
        reader = asyncio.create_task(process.stderr.read())
        try:
            yield url
        finally:
            reader.cancel()
    finally:
        await stop(process)


@asynccontextmanager
async def open_flow_host(
    url: str, store_url: str, clock: DrillClock, *, listener: Listener = ignore_event
) -> AsyncIterator[FlowHost]:
    """A host of flows that calls through the gateway at this URL."""
    usual = RunSettings(lease=3600.0)
    # A busy machine, or a shell that releases something, is no faster because the drill is.
    grace, hook_limit = usual.grace * clock.speed, usual.hook_limit * clock.speed
    runs = open_run_store(store_url, wall=clock.wall)
    try:
        credentials = (("x-api-key", "simulated"),)
        async with GatewayModel(url, clock=clock, headers=credentials) as model:
            yield FlowHost(
                runs,
                lambda run_id: {"messages": MessagesRunner(model, clock=clock, tag=run_id)},
                clock,
                settings=replace(usual, grace=grace, hook_limit=hook_limit),
                listener=listener,
            )
    finally:
        await runs.close()
