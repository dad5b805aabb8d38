"""Open what one side of a drill runs against: a provider, a gateway, and a host of flows.

Rules: (1) the gateway has the settings that users get by default, listens on the loopback, and
its state is deleted after the drill; (2) in real time it is a process of its own, in scaled time
it runs in this process by the drill clock; (3) no configuration of the user reaches it; (4) what
a gateway reports is read as its users read it, over HTTP and from its journal; (5) the provider's
ledger and recorded requests are the evidence; (6) a store is a file, so that a second host, in
any process, finds what the first one saved.
Not here: what the programs do, faults (the parts of the drills), the gateway itself (assembly/
and below).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from jackline.agents.gateway_model import GatewayModel
from jackline.agents.messages.runner import MessagesRunner
from jackline.assembly import Service
from jackline.config import Config
from jackline.drills.conversation import exchanged
from jackline.drills.drill import label_of
from jackline.drills.drill_clock import DrillClock
from jackline.drills.live_view import NOT_WATCHED, LiveView
from jackline.drills.processes import stop
from jackline.errors import InternalError
from jackline.events import AttemptFailed, ServiceNoted
from jackline.flows.host import FlowHost
from jackline.flows.run_events import Listener, ignore_event
from jackline.flows.settings import RunSettings
from jackline.flows.store.sqlite import SqliteRunStore
from jackline.gateway.settings import GatewaySettings, HoldSettings, ListenSettings
from jackline.journal import JournalReader
from jackline.journal.store import JournalSettings
from jackline.programs import own_command
from jackline.providers.settings import UpstreamSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import LedgerEntry, RequestLedger, RequestOutcome
from jackline.simulator.limits import BucketSettings
from jackline.simulator.live_provider import LiveProvider
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import ServiceSettings
from jackline.state_dir import StateDir

STATUS = "/_jackline/status"
# Twice in the shortest time that a lane is left alone for.
LOOK_EVERY_S = 2.0


@dataclass(slots=True)
class WatchedEndpoint:
    """The base URL of a gateway or a provider, and what was learned about it."""

    url: str
    failed: Sequence[AttemptFailed] = ()
    """Attempts that failed, by the gateway's journal; there once it is closed."""
    verdicts: list[str] = field(default_factory=list)
    """What its status said, each sentence once."""

    async def watch(self, pace: DrillClock) -> None:
        """Read the status for ever."""
        while True:
            verdict = await self._verdict()
            if verdict and verdict not in self.verdicts:
                self.verdicts.append(verdict)
            await pace.sleep(LOOK_EVERY_S)

    async def _verdict(self) -> str:
        try:
            async with exchanged(self.url, "GET", STATUS) as response:
                return str(json.loads(await response.whole())["verdict"])
        except ConnectionError:
            return ""  # it is only asked again; that clients reach it is seen by their records


# More than any drill has requests.
MOST_ATTEMPTS = 100_000


_UNHURRIED = 4.0


@asynccontextmanager
async def gateway(
    upstream: str, pace: DrillClock, watched: LiveView = NOT_WATCHED, state: Path | None = None
) -> AsyncIterator[str]:
    """The base URL of a gateway before this one upstream, for as long as the block runs."""
    async with gateway_before([UpstreamSettings(url=upstream)], pace, watched, state) as door:
        yield door.url


@asynccontextmanager
async def gateway_before(
    upstreams: Sequence[UpstreamSettings],
    pace: DrillClock,
    watched: LiveView = NOT_WATCHED,
    state: Path | None = None,
) -> AsyncIterator[WatchedEndpoint]:
    """A gateway before these upstreams, for as long as the block runs.

    `state` is its state folder, if it is to have one that is there before or after it.
    """
    with tempfile.TemporaryDirectory(
        prefix="jackline-drill-", ignore_cleanup_errors=True
    ) as folder:
        opened = _process if pace.speed == 1.0 else _in_this_process
        state = state or Path(folder) / "state"
        async with opened(upstreams, pace, state, watched.port) as url:
            watched.opened(url, state)
            door = WatchedEndpoint(url)
            yield door
        with JournalReader(StateDir(state).journal) as journal:
            door.failed = journal.failed_attempts(0.0, math.inf, MOST_ATTEMPTS)


@asynccontextmanager
async def _in_this_process(
    upstreams: Sequence[UpstreamSettings], pace: DrillClock, state: Path, port: int
) -> AsyncIterator[str]:
    settings = GatewaySettings(
        listen=ListenSettings(port=port),
        upstreams=tuple(upstreams),
        hold=HoldSettings(
            # Of all that the gateway waits for, only this is measured by the machine's own clock.
            ping_every=pace.real(HoldSettings().ping_every),
            # Hurried, a busy machine's delays would look like long waits: it is given real seconds.
            commit_after=min(240.0, max(HoldSettings().commit_after, _UNHURRIED * pace.speed)),
        ),
    )
    config = Config(settings, state, JournalSettings(), "warning", {}, ())
    async with Service(config, clock=pace, beside_flows=True) as service:
        words = f"time passes {pace.speed:g} times as fast"
        service.observatory.announce(ServiceNoted(pace.wall(), "drill", words))
        yield service.url


@asynccontextmanager
async def _process(
    upstreams: Sequence[UpstreamSettings], _pace: DrillClock, state: Path, port: int
) -> AsyncIterator[str]:
    StateDir(state).make()
    config = state / "jackline.toml"
    config.write_text("\n".join(_lines(upstreams)), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *own_command("up", "--port", str(port or _free_port())),
        *("--state", str(state), "--config", str(config)),
        env={name: value for name, value in os.environ.items() if "JACKLINE_" not in name},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        log = process.stderr
        if log is None:
            raise AssertionError("its log was asked for")
        url = await _told_url(log)
        # A log that nobody reads would stop the gateway once the pipe is full.
        reading = asyncio.create_task(_read_on(log))
        try:
            yield url
        finally:
            reading.cancel()
    finally:
        await stop(process)


def _lines(upstreams: Iterable[UpstreamSettings]) -> Iterator[str]:
    """The upstreams as a user writes them down."""
    for each in upstreams:
        yield "[[upstream]]"
        for key in ("name", "url", "kind", "credential"):
            # JSON's strings are TOML's, too.
            yield f"{key} = {json.dumps(getattr(each, key))}"
        models = ", ".join(f"{json.dumps(a)} = {json.dumps(b)}" for a, b in each.models.items())
        yield f"models = {{ {models} }}"


def _free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


async def _told_url(log: asyncio.StreamReader) -> str:
    last_words = "nothing"
    async for line in log:
        words = line.decode("utf-8", "replace").strip()
        if words.startswith("http://"):
            return words.split()[0]
        last_words = words or last_words
    raise InternalError(
        f"the gateway of the drill did not start; it said: {last_words}",
        next="jackline up shows whether one starts here at all",
    )


async def _read_on(log: asyncio.StreamReader) -> None:
    async for _line in log:
        pass


CREDENTIALS = (("x-api-key", "simulated"),)


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
        """Whose request this is; empty for one that the model never got to see."""
        return self.labels.get(entry.body_hash, "")


@asynccontextmanager
async def provider_for(
    reply: Callable[[ClientRequest], Reply],
    service: ServiceSettings,
    speed: float = 1.0,
    *,
    buckets: tuple[BucketSettings, ...] = (),
) -> AsyncIterator[DrillProvider]:
    """A provider whose model says what `reply` gives, within these limits."""

    def hear(asked: ClientRequest) -> Reply:
        there.labels[asked.body_hash] = label_of(asked)
        return reply(asked)

    mind = ReplyScript((Rule(hear),))
    settings = ProviderSettings(buckets, service=service)
    server = SimulatorServer(settings, mind, speed=speed, clients_hurry=True)
    async with server:
        there = DrillProvider(server.url, server.playing)
        yield there


@asynccontextmanager
async def flow_host(
    upstream: str,
    store: Path,
    pace: DrillClock,
    *,
    listener: Listener = ignore_event,
    watched: LiveView = NOT_WATCHED,
) -> AsyncIterator[FlowHost]:
    """A host of flows, with a gateway of its own before this upstream."""
    async with (
        gateway_for_runs(upstream, store, pace, watched) as url,
        flow_host_through(url, store, pace, listener=listener) as host,
    ):
        yield host


def gateway_for_runs(
    upstream: str, store: Path, pace: DrillClock, watched: LiveView = NOT_WATCHED
) -> AbstractAsyncContextManager[str]:
    """The base URL of a gateway before this upstream, for runs that are kept in this store."""
    # A gateway shows the runs that are kept in its own folder.
    state = store.parent if watched.watching else None
    return gateway(upstream, pace, watched, state)


@asynccontextmanager
async def flow_host_through(
    url: str, store: Path, pace: DrillClock, *, listener: Listener = ignore_event
) -> AsyncIterator[FlowHost]:
    """A host of flows that calls through the gateway at this URL, whoever has opened it."""
    engine = SqliteRunStore(store, wall=pace.wall)
    try:
        async with GatewayModel(url, clock=pace, headers=CREDENTIALS) as model:
            yield FlowHost(
                engine,
                lambda run_id: {"messages": MessagesRunner(model, clock=pace, tag=run_id)},
                pace,
                settings=_unhurried(pace.speed),
                listener=listener,
            )
    finally:
        await engine.close()


def _unhurried(speed: float) -> RunSettings:
    """The usual settings, but for what a busy machine takes, whose second is minutes here."""
    usual = RunSettings(lease=3600.0)
    # A shell that gives something back starts no faster because the drill is in a hurry.
    return replace(usual, grace=usual.grace * speed, hook_limit=usual.hook_limit * speed)


def paid_tokens(ledger: RequestLedger, *, once: bool = False) -> int:
    """What whole answers have cost; with `once`, those to the same question count once."""
    done = [entry for entry in ledger if entry.outcome is RequestOutcome.COMPLETED]
    if once:
        done = list({entry.body_hash: entry for entry in done}.values())
    return sum(entry.input_tokens + entry.output_tokens for entry in done)
