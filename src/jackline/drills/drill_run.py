"""Run a drill: each part without and with Jackline, against providers that fail on cue.

Rules: (1) both sides meet the same provider, replies and faults; (2) whatever is started is
stopped, also when the drill is interrupted, and the figures so far can still be read; (3) in real
time both sides run at once, in scaled time one after the other, because they would slow each
other down; (4) each side of a program part has its own folder, deleted afterwards; a side that
was cut off has no figures; (5) a stopped fleet leaves no task and no connection behind.
Not here: the real client (claude_client.py), opening the gateway (environment.py), the figures
(evaluation.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeAlias

from jackline.drills.builtin_client import (
    SUBSCRIBER_POLICY,
    AgentRecord,
    BuiltinClient,
    ClientRetryPolicy,
)
from jackline.drills.conversation import misbound
from jackline.drills.drill import (
    MAIN,
    BackupProvider,
    CrewPart,
    Drill,
    FlowFigures,
    FlowPart,
    Play,
    SideContext,
    label_of,
)
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import WatchedEndpoint
from jackline.drills.evaluation import (
    Figures,
    ProviderLedger,
    RequirementResult,
    RunEvidence,
    check_requirements,
    figures,
)
from jackline.drills.live_view import NOT_WATCHED, LiveView
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect
from jackline.simulator.live_provider import LiveProvider
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import seeded_random


class ClientFleet(Protocol):
    """A crew at work; there is one implementation per client."""

    @property
    def error_waits(self) -> Sequence[float]:
        """For each error that has reached the client, how long its request had been out."""
        ...

    @property
    def records(self) -> Sequence[AgentRecord]:
        """How far each agent of the crew is."""
        ...

    async def run(self) -> None:
        """Let all work to their ends."""
        ...


class BuiltinFleet:
    """The built-in client, once per agent of the crew."""

    def __init__(
        self,
        part: CrewPart,
        url: str,
        pace: DrillClock,
        habits: ClientRetryPolicy = SUBSCRIBER_POLICY,
    ) -> None:
        self._clients = [
            BuiltinClient(plan, url, pace, seeded_random(number), habits)
            for number, plan in enumerate(part.crew)
        ]

    @property
    def records(self) -> Sequence[AgentRecord]:
        """How far each agent of the crew is."""
        return [client.record for client in self._clients]

    @property
    def error_waits(self) -> Sequence[float]:
        """For each error that has reached the client, how long its request had been out."""
        return [error.waited for record in self.records for error in record.errors]

    async def run(self) -> None:
        """Let all work to their ends."""
        async with asyncio.TaskGroup() as group:
            for client in self._clients:
                group.create_task(client.run())


@dataclass(slots=True)
class ProgramSide:
    """`run` it, and ask what is `known`."""

    part: FlowPart
    play: Play
    side: str
    speed: float
    tell: Callable[[str], None]
    watched: LiveView = NOT_WATCHED
    _figures: FlowFigures | None = None

    async def run(self) -> None:
        """Play this side to its end."""
        self.tell(f"{self.part.name}, {self.side}: the program begins")
        with TemporaryDirectory(prefix="jackline-drill-", ignore_cleanup_errors=True) as folder:
            speed = self.part.speed(self.speed)
            scene = SideContext(Path(folder), speed, self.speed == 1.0, self.watched)
            found = await self.play(scene)
        self._figures = found
        self.tell(
            f"{self.part.name}, {self.side}: {found.finished} of {found.agents} finished with"
            f" {found.requests} requests"
        )

    def known(self) -> FlowFigures | None:
        """The figures, once there are any."""
        return self._figures


FleetMaker: TypeAlias = Callable[[CrewPart, str, DrillClock], ClientFleet]
GatewayOpener: TypeAlias = Callable[
    [Sequence[UpstreamSettings], DrillClock, LiveView], AbstractAsyncContextManager[WatchedEndpoint]
]
Teller: TypeAlias = Callable[[str], None]

# The provider that both sides know.
FIRST = "anthropic"
IDS_APART = 10_000
# What drills are run with that no client takes part in.
PROGRAMS = "a program in plain asyncio, and a flow"


class Side(StrEnum):
    """The two ways in which a crew reaches its provider."""

    BARE = "bare"
    JACKLINE = "jackline"


@dataclass(frozen=True, slots=True)
class DrillOptions:
    """What a drill is run with."""

    client: str
    make_fleet: FleetMaker
    open_gateway: GatewayOpener
    speed: float = 1.0
    tell: Teller = lambda _line: None
    watched: LiveView = NOT_WATCHED


@dataclass(frozen=True, slots=True)
class PartResult:
    """Both sides of a part; a side that was never begun is None."""

    part: CrewPart | FlowPart
    bare: Figures | FlowFigures | None
    jackline: Figures | FlowFigures | None
    verdicts: tuple[RequirementResult, ...]


@dataclass(frozen=True, slots=True)
class DrillResult:
    """What a drill came to."""

    drill: Drill
    client: str
    speed: float
    parts: tuple[PartResult, ...]
    complete: bool

    @property
    def passed(self) -> bool:
        """Whether the drill was run to its end and every demand is held."""
        held = [verdict.held for part in self.parts for verdict in part.verdicts]
        return self.complete and bool(held) and all(held)


@dataclass(slots=True)
class SideRun:
    """One side of one part: `run` it, and read its `figures` at any time."""

    part: CrewPart
    side: Side
    means: DrillOptions
    books: list[ProviderLedger] = field(default_factory=list)
    door: WatchedEndpoint | None = None
    fleet: ClientFleet | None = None
    pace: DrillClock = field(default_factory=DrillClock)
    took: float | None = None
    wall_resets_at: float | None = None
    asked: int = 0
    at_work: asyncio.Event = field(default_factory=asyncio.Event)
    struck_at: float | None = None
    agents: dict[str, str] = field(default_factory=dict)
    """Whose conversation the body with this hash belongs to."""
    misbound: int = 0

    async def run(self) -> None:
        """Run the crew to its end, or to the end of patience."""
        means, part = self.means, self.part
        means.tell(f"{part.name}, {self.side}: {len(part.crew)} agents begin")
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(self._provider())]
            if self.side is Side.JACKLINE:
                for stand_in in part.stand_ins:
                    servers.append(await stack.enter_async_context(self._stand_in(stand_in)))
                    _use_other_ids(servers[-1].playing, len(servers))
            # It starts later than the providers' clocks, and so is never ahead of them.
            self.pace = DrillClock(means.speed)
            self.door = await stack.enter_async_context(self._open(servers))
            self.books = [
                ProviderLedger(name, server.playing.provider.ledger, -server.playing.now())
                for name, server in zip(self._names(), servers, strict=False)
            ]
            now = self.pace.monotonic()
            self.books = [book._replace(ahead=book.ahead + now) for book in self.books]
            self.fleet = means.make_fleet(part, self.door.url, self.pace)
            besides = [asyncio.create_task(self._strike([one.playing for one in servers]))]
            if self.side is Side.JACKLINE and part.status_says:
                besides.append(asyncio.create_task(self.door.watch(self.pace)))
            try:
                async with self.pace.timeout(part.patience):
                    await self.fleet.run()
            except TimeoutError:
                means.tell(f"{part.name}, {self.side}: not all are done, and it is enough")
            finally:
                for task in besides:
                    task.cancel()
                self.took = self.pace.monotonic()
                await asyncio.gather(*besides, return_exceptions=True)
            if self.side is Side.JACKLINE:
                await means.watched.linger(part.name, self.pace)
        seen = self.figures()
        means.tell(
            f"{part.name}, {self.side}: {seen.finished} of {seen.agents} finished after"
            f" {seen.seconds:.0f} s, {seen.requests} requests of which {seen.wasted} were wasted"
        )

    def _provider(self) -> SimulatorServer:
        return self._server(ProviderSettings(service=self.part.service))

    def _stand_in(self, one: BackupProvider) -> SimulatorServer:
        settings = ProviderSettings(one.buckets, one.concurrency, service=self.part.service)
        return self._server(settings)

    def _server(self, settings: ProviderSettings) -> SimulatorServer:
        mind = ReplyScript((Rule(self._hear),))
        return SimulatorServer(settings, mind, speed=self.means.speed, clients_hurry=True)

    def _names(self) -> list[str]:
        return [FIRST, *(one.name for one in self.part.stand_ins)]

    def _open(
        self, servers: Sequence[SimulatorServer]
    ) -> AbstractAsyncContextManager[WatchedEndpoint]:
        first, *others = servers
        if self.side is Side.BARE:
            return nullcontext(WatchedEndpoint(first.url))
        kind = self.part.dialect
        upstreams = [UpstreamSettings(FIRST, _address(first, kind), kind)]
        for one, server in zip(self.part.stand_ins, others, strict=True):
            url = _address(server, one.kind)
            upstreams.append(
                UpstreamSettings(one.name, url, one.kind, Credential.NONE, models=one.models)
            )
        return self.means.open_gateway(upstreams, self.pace, self.means.watched)

    def _hear(self, asked: ClientRequest) -> Reply:
        """What the part's mind says; enough requests of sub-agents are the cue for the faults."""
        label = label_of(asked)
        self.agents[asked.body_hash] = label
        self.misbound += misbound(asked.body)
        # Clients that are no Claude Code name their agents by the prompt alone.
        self.asked += bool(asked.agent) or label != MAIN
        if self.asked >= self.part.strike_after:
            self.at_work.set()
        return self.part.mind.reply(asked)

    async def _strike(self, providers: Sequence[LiveProvider]) -> None:
        """Let the faults begin once the crew is at work."""
        await self.at_work.wait()
        first, *others = providers
        for fault in self.part.faults:
            handle = first.add_fault(fault)
            if fault.effect is Effect.QUOTA_WALL:
                provider = first.provider
                until = next(one.fault.until for one in provider.faults if one.handle == handle)
                self.wall_resets_at = provider.settings.calendar.epoch_seconds(until)
        for one, playing in zip(self.part.stand_ins, others, strict=False):
            for fault in one.faults:
                playing.add_fault(fault)
        self.struck_at = self.pace.monotonic()
        self.means.tell(f"{self.part.name}, {self.side}: the trouble begins")

    def figures(self) -> Figures:
        """What has happened so far, in numbers."""
        return figures(
            RunEvidence(
                part=self.part,
                books=self.books,
                records=self.fleet.records if self.fleet else (),
                speed=self.means.speed,
                seconds=self.pace.monotonic() if self.took is None else self.took,
                error_waits=self.fleet.error_waits if self.fleet else (),
                wall_resets_at=self.wall_resets_at,
                agents=self.agents,
                struck_at=self.struck_at,
                misbound=self.misbound,
                door=self.door,
            )
        )

    def known(self) -> Figures | None:
        """The figures, once there are any."""
        return None if self.fleet is None else self.figures()


class DrillRun:
    """A drill at work; `run` gives its result, `so_far` what an interrupted one has."""

    def __init__(self, drill: Drill, means: DrillOptions) -> None:
        self._drill = drill
        self._means = means
        self._sides = {
            (part.name, side): _side(part, side, means) for part in drill.parts for side in Side
        }

    async def run(self) -> DrillResult:
        """Run every part on both sides."""
        for part in self._drill.parts:
            bare, jackline = (self._sides[part.name, side] for side in Side)
            # Two programs would only slow each other down; a crew's clients mostly wait.
            if self._means.speed == 1.0 and isinstance(part, CrewPart):
                await _both(bare.run(), jackline.run())
            else:
                await bare.run()
                await jackline.run()
        return self._result(complete=True)

    def so_far(self) -> DrillResult:
        """What is known of a drill that was not run to its end."""
        return self._result(complete=False)

    def _result(self, *, complete: bool) -> DrillResult:
        parts = tuple(self._part_result(part) for part in self._drill.parts)
        client, speed = self._means.client, self._means.speed
        programs = self._drill.programs
        if len(programs) == len(parts):
            client = programs[0].client or PROGRAMS
            speed = max(part.speed(speed) for part in programs)
        return DrillResult(self._drill, client, speed, parts, complete)

    def _part_result(self, part: CrewPart | FlowPart) -> PartResult:
        bare, jackline = (self._sides[part.name, side].known() for side in Side)
        verdicts: tuple[RequirementResult, ...] = ()
        if bare and jackline:
            speed = self._means.speed
            speed = speed if isinstance(part, CrewPart) else part.speed(speed)
            verdicts = tuple(check_requirements(part, bare, jackline, speed))
        return PartResult(part, bare, jackline, verdicts)


def _side(part: CrewPart | FlowPart, side: Side, means: DrillOptions) -> SideRun | ProgramSide:
    if isinstance(part, CrewPart):
        return SideRun(part, side, means)
    if side is Side.BARE:
        return ProgramSide(part, part.bare, side, means.speed, means.tell)
    return ProgramSide(part, part.jackline, side, means.speed, means.tell, means.watched)


def _address(server: SimulatorServer, kind: UpstreamKind) -> str:
    return server.url if kind is UpstreamKind.ANTHROPIC else f"{server.url}/v1"


def _use_other_ids(playing: LiveProvider, place: int) -> None:
    """Let a provider count from elsewhere: no two vendors give out the same ids."""
    for _ in range(place * IDS_APART):
        playing.next_serial()


async def _both(one: Coroutine[None, None, None], other: Coroutine[None, None, None]) -> None:
    """Run two at once; the failure of one ends the other and is told as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(one)
            group.create_task(other)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
