"""Open what a drill's program runs against: a provider, and for flows a gateway and a store.

Laws: (1) the provider's ledger and what it heard are the witnesses; (2) all live by the drill's
clock; (3) a store is a file, so that a second host finds what the first has left, in
whichever process.
Not here: what the programs do, faults (the parts of the drills).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from jackline.agents.gateway_model import GatewayModel
from jackline.agents.messages.runner import MessagesRunner
from jackline.drills.crews import label_of
from jackline.drills.gateway_side import gateway
from jackline.drills.lookout import NOBODY, Lookout
from jackline.drills.pace import Pace
from jackline.flows.host import FlowHost
from jackline.flows.local import LocalEngine
from jackline.flows.progress import Listener, nobody
from jackline.flows.settings import RunSettings
from jackline.simulator.conversation import Asked
from jackline.simulator.ledger import Entry, Ledger, Outcome
from jackline.simulator.limits import BucketSettings
from jackline.simulator.mind import Mind, Reply, Rule
from jackline.simulator.playing import Playing
from jackline.simulator.server import SimulatorServer
from jackline.simulator.service import ServiceSettings
from jackline.simulator.settings import ProviderSettings

CREDENTIALS = (("x-api-key", "simulated"),)


@dataclass(slots=True)
class Provider:
    """A simulated provider at work, and whose requests it got."""

    url: str
    playing: Playing
    labels: dict[str, str] = field(default_factory=dict)
    """Whose conversation the body with this hash belongs to."""

    @property
    def ledger(self) -> Ledger:
        """Every request so far."""
        return self.playing.provider.ledger

    def label(self, entry: Entry) -> str:
        """Whose request this is; empty for one that the model never got to see."""
        return self.labels.get(entry.body_hash, "")


@asynccontextmanager
async def provider_for(
    reply: Callable[[Asked], Reply],
    service: ServiceSettings,
    speed: float = 1.0,
    *,
    buckets: tuple[BucketSettings, ...] = (),
) -> AsyncIterator[Provider]:
    """A provider whose model says what `reply` gives, within these limits."""

    def hear(asked: Asked) -> Reply:
        there.labels[asked.body_hash] = label_of(asked)
        return reply(asked)

    mind = Mind((Rule(hear),))
    settings = ProviderSettings(buckets, service=service)
    server = SimulatorServer(settings, mind, speed=speed, clients_hurry=True)
    async with server:
        there = Provider(server.url, server.playing)
        yield there


@asynccontextmanager
async def flow_host(
    upstream: str,
    store: Path,
    pace: Pace,
    *,
    listener: Listener = nobody,
    watched: Lookout = NOBODY,
) -> AsyncIterator[FlowHost]:
    """A host of flows, with a gateway of its own before this upstream."""
    async with (
        gateway_for_runs(upstream, store, pace, watched) as url,
        flow_host_through(url, store, pace, listener=listener) as host,
    ):
        yield host


def gateway_for_runs(
    upstream: str, store: Path, pace: Pace, watched: Lookout = NOBODY
) -> AbstractAsyncContextManager[str]:
    """The base URL of a gateway before this upstream, for runs that are kept in this store."""
    # A gateway shows the runs that are kept in its own folder.
    state = store.parent if watched.watching else None
    return gateway(upstream, pace, watched, state)


@asynccontextmanager
async def flow_host_through(
    url: str, store: Path, pace: Pace, *, listener: Listener = nobody
) -> AsyncIterator[FlowHost]:
    """A host of flows that calls through the gateway at this URL, whoever has opened it."""
    engine = LocalEngine(store, wall=pace.wall)
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


def paid_tokens(ledger: Ledger, *, once: bool = False) -> int:
    """What whole answers have cost; with `once`, those to the same question count once."""
    done = [entry for entry in ledger if entry.outcome is Outcome.COMPLETED]
    if once:
        done = list({entry.body_hash: entry for entry in done}.values())
    return sum(entry.input_tokens + entry.output_tokens for entry in done)
