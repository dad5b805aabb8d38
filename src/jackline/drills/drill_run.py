"""Run a drill: each part without and with Jackline, against providers that fail on cue.

Rules: (1) both sides meet the same provider, replies and faults; (2) whatever is started is
stopped, also when the drill is interrupted, and the figures so far can still be read; (3) in real
time both sides of a crew run at once, in scaled time one after the other, because they would slow
each other down; (4) each side of a program part has its own folder, deleted afterwards; a side
that was cut off has no figures; (5) a stopped fleet leaves no task and no connection behind; (6) a
result shows the bare side beside Jackline's, in text and in JSON the same figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import asdict, dataclass, field, replace
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
from jackline.drills.conversation import MAIN, label_of, misbound
from jackline.drills.drill import CrewPart, Drill, ProgramFigures, ProgramPart
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import DrillProvider, WatchedEndpoint, open_provider
from jackline.drills.evaluation import (
    Figures,
    ProviderLedger,
    RequirementResult,
    RunEvidence,
    check_requirements,
)
from jackline.drills.live_view import NOT_WATCHED, LiveView, ProgressLine
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply
from jackline.simulator.time_model import seeded_random

# The provider that both sides know.
FIRST = "anthropic"
_IDS_APART = 10_000
SCHEMA = "jackline.drill/2"
# Label, figure, whether it is left out where both sides have none.
_ROWS = (
    ("agents finished", "finished", False),
    ("died", "died", False),
    ("still at work at the end", "unfinished", True),
    ("misled by half an answer", "misled", True),
    ("errors that clients saw", "errors_seen", False),
    ("requests to the provider", "requests", False),
    ("of these wasted", "wasted", False),
    ("sent into a known wall", "sent_into_the_wall", True),
    ("seconds for unaffected siblings", "bystanders_took", True),
    ("failed attempts, by the journal", "failed_attempts", True),
    ("longest wait after a failure", "slowest_move", True),
    ("seconds in all", "seconds", False),
)


class ClientFleet(Protocol):
    """A crew at work; there is one implementation per client."""

    @property
    def error_waits(self) -> Sequence[float]:
        """For each error that has reached the client, the seconds since its request was sent."""
        ...

    @property
    def records(self) -> Sequence[AgentRecord]:
        """How far each agent of the crew is."""
        ...

    async def run(self) -> None:
        """Let all agents work to their ends."""
        ...


class BuiltinFleet:
    """The built-in client, once per agent of the crew."""

    def __init__(
        self,
        part: CrewPart,
        url: str,
        clock: DrillClock,
        policy: ClientRetryPolicy = SUBSCRIBER_POLICY,
    ) -> None:
        self._clients = [
            BuiltinClient(plan, url, clock, seeded_random(number), policy)
            for number, plan in enumerate(part.crew)
        ]

    @property
    def records(self) -> Sequence[AgentRecord]:
        """How far each agent of the crew is."""
        return [client.record for client in self._clients]

    @property
    def error_waits(self) -> Sequence[float]:
        """For each error that has reached the client, the seconds since its request was sent."""
        return [error.waited for record in self.records for error in record.errors]

    async def run(self) -> None:
        """Let all agents work to their ends."""
        async with asyncio.TaskGroup() as group:
            for client in self._clients:
                group.create_task(client.run())


FleetMaker: TypeAlias = Callable[[CrewPart, str, DrillClock], ClientFleet]
GatewayOpener: TypeAlias = Callable[
    [Sequence[UpstreamSettings], DrillClock, LiveView], AbstractAsyncContextManager[WatchedEndpoint]
]


class Side(StrEnum):
    """The two ways in which a part is played."""

    BARE = "bare"
    JACKLINE = "jackline"


@dataclass(frozen=True, slots=True)
class DrillOptions:
    """How a drill is run."""

    client: str
    make_fleet: FleetMaker
    open_gateway: GatewayOpener
    speed: float = 1.0
    progress: ProgressLine = lambda _line: None
    live_view: LiveView = NOT_WATCHED


@dataclass(frozen=True, slots=True)
class PartResult:
    """Both sides of a part; a side that was never begun is None."""

    part: CrewPart | ProgramPart
    bare: Figures | ProgramFigures | None
    jackline: Figures | ProgramFigures | None
    results: tuple[RequirementResult, ...]

    def to_text(self) -> Iterable[str]:
        """Both sides in lines for people."""
        rows: Iterable[tuple[str, str, bool]] = _ROWS
        if isinstance(self.part, ProgramPart):
            own = ((label, figure, False) for label, figure in self.part.rows)
            rows = (_ROWS[0], *own, ("requests to the provider", "requests", False))
        yield f"  {self.part.name.replace('_', ' '):<34}{'bare':>10}{'jackline':>10}"
        for label, figure, optional in rows:
            values = []
            for side in (self.bare, self.jackline):
                value = None if side is None else getattr(side, figure)
                if side is None or value is None:
                    values.append("-")
                elif figure == "finished":
                    values.append(f"{value} of {side.agents}")
                else:
                    values.append(f"{value:,}" if isinstance(value, int) else f"{value:.4g}")
            if not (optional and all(value in ("0", "-") for value in values)):
                yield f"    {label:<32}{values[0]:>10}{values[1]:>10}"
        for name, side in ((Side.BARE, self.bare), (Side.JACKLINE, self.jackline)):
            died_of = side.died_of if isinstance(side, Figures) else {}
            for text, count in list(died_of.items())[:2]:
                yield f"    {name}: {count} died of: {text}"


@dataclass(frozen=True, slots=True)
class DrillResult:
    """The result of a drill."""

    drill: Drill
    client: str
    speed: float
    parts: tuple[PartResult, ...]
    complete: bool

    @property
    def passed(self) -> bool:
        """Whether the drill was run to its end and every requirement is met."""
        met = [result.met for part in self.parts for result in part.results]
        return self.complete and bool(met) and all(met)

    def to_json(self) -> dict[str, object]:
        """The result as one document; figures of further parts are under the part's name."""
        sides: dict[str, dict[str, object]] = {}
        for side in Side:
            sides[side.value] = {}
            for number, part in enumerate(self.parts):
                found = part.bare if side is Side.BARE else part.jackline
                if found is not None:
                    own = asdict(found)
                    sides[side.value] |= own if number == 0 else {part.part.name: own}
        requirements = [
            {
                "part": one.part,
                "text": one.requirement.text,
                "figure": one.requirement.figure,
                "measured": one.measured,
                "at_most": one.allowed,
                "met": one.met,
            }
            for part in self.parts
            for one in part.results
        ]
        return {
            "schema": SCHEMA,
            "drill": self.drill.name,
            "passed": self.passed,
            "complete": self.complete,
            "client": self.client,
            "speed": self.speed,
            **sides,
            "requirements": requirements,
        }

    def to_text(self) -> Iterable[str]:
        """The result in lines for people."""
        drill = self.drill
        speed = "in real time" if self.speed == 1 else f"{self.speed:g} times as fast as real time"
        yield f"{drill.name}: {drill.about}"
        yield f"  with {self.client}, {speed}"
        for part in self.parts:
            yield ""
            yield from part.to_text()
            for one in part.results if self.complete else ():
                missed = "" if one.met else f" ({one.measured:g}, at most {one.allowed:g})"
                yield f"    {'ok  ' if one.met else 'MISS'}  {one.requirement.text}{missed}"
        yield ""
        if not self.complete:
            yield f"{drill.name} was interrupted: this is what had happened by then."
        else:
            yield f"{drill.name}: {'passed' if self.passed else 'NOT passed'}."


def all_as_json(results: Sequence[DrillResult], *, passed: bool) -> dict[str, object]:
    """Several results as one document."""
    return {
        "schema": SCHEMA,
        "drill": "all",
        "passed": passed,
        "drills": [result.to_json() for result in results],
    }


@dataclass(slots=True)
class ProgramRun:
    """One side of a program part: `run` it, then read its `figures`."""

    part: ProgramPart
    side: Side
    options: DrillOptions
    figures: ProgramFigures | None = None

    async def run(self) -> ProgramFigures:
        """Play this side to its end."""
        name, options = f"{self.part.name}, {self.side}", self.options
        options.progress(f"{name}: the program begins")
        with TemporaryDirectory(prefix="jackline-drill-", ignore_cleanup_errors=True) as folder:
            opened = self.part.open_side(
                Path(folder),
                self.part.speed(options.speed),
                thorough=options.speed == 1.0,
                live_view=options.live_view if self.side is Side.JACKLINE else NOT_WATCHED,
            )
            async with opened as side:
                found = await (side.bare() if self.side is Side.BARE else side.jackline())
        self.figures = found
        finished = f"{found.finished} of {found.agents} finished"
        options.progress(f"{name}: {finished} with {found.requests} requests")
        return found


@dataclass(slots=True)
class CrewRun:
    """One side of a crew part: `run` it, and read its `figures` at any time."""

    part: CrewPart
    side: Side
    options: DrillOptions
    evidence: RunEvidence = field(init=False)
    _fleet: ClientFleet | None = None
    _clock: DrillClock = field(default_factory=DrillClock)
    _agent_requests: int = 0
    _at_work: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.evidence = RunEvidence(self.part, self.options.speed)

    @property
    def seconds(self) -> float:
        """Drill seconds since this side began."""
        return self._clock.monotonic()

    @property
    def fault_seconds(self) -> float | None:
        """Drill seconds since the faults began; None before."""
        began = self.evidence.faults_began_at
        return None if began is None else self.seconds - began

    @property
    def figures(self) -> Figures | None:
        """What has happened so far, in numbers; None before the crew begins."""
        if self._fleet is None:
            return None
        self.evidence.records = self._fleet.records
        self.evidence.error_waits = self._fleet.error_waits
        return self.evidence.figures()

    async def run(self) -> Figures:
        """Run the crew to its end, or to the time limit."""
        options, part, evidence = self.options, self.part, self.evidence
        name = f"{part.name}, {self.side}"
        options.progress(f"{name}: {len(part.crew)} agents begin")
        async with AsyncExitStack() as stack:
            providers = await self._open_providers(stack)
            # Made after the providers' clocks, and so never ahead of them.
            clock = self._clock = DrillClock(options.speed)
            endpoint: AbstractAsyncContextManager[WatchedEndpoint]
            if self.side is Side.BARE:
                endpoint = nullcontext(WatchedEndpoint(providers[FIRST].url))
            else:
                upstreams = self._upstreams(providers)
                endpoint = options.open_gateway(upstreams, clock, options.live_view)
            evidence.endpoint = await stack.enter_async_context(endpoint)
            evidence.ledgers = [
                ProviderLedger(host, one.ledger, clock.monotonic() - one.playing.now())
                for host, one in providers.items()
            ]
            fleet = self._fleet = options.make_fleet(part, evidence.endpoint.url, clock)
            tasks = [asyncio.create_task(self._begin_faults(providers))]
            if self.side is Side.JACKLINE and part.status_texts:
                tasks.append(asyncio.create_task(evidence.endpoint.watch(clock)))
            try:
                async with clock.timeout(part.time_limit):
                    await fleet.run()
            except TimeoutError:
                options.progress(f"{name}: not all are done, and the time is up")
            finally:
                for task in tasks:
                    task.cancel()
                evidence.seconds = clock.monotonic()
                await asyncio.gather(*tasks, return_exceptions=True)
            if self.side is Side.JACKLINE:
                await options.live_view.wait_for_viewer(part.name, clock)
        found = self.figures or evidence.figures()
        options.progress(
            f"{name}: {found.finished} of {found.agents} finished after {found.seconds:.0f} s,"
            f" {found.requests} requests of which {found.wasted} were wasted"
        )
        return found

    async def _open_providers(self, stack: AsyncExitStack) -> dict[str, DrillProvider]:
        settings = {FIRST: ProviderSettings(service=self.part.service)}
        if self.side is Side.JACKLINE:
            for backup in self.part.backups:
                settings[backup.name] = ProviderSettings(
                    backup.buckets, backup.concurrency, service=self.part.service
                )
        providers: dict[str, DrillProvider] = {}
        for place, (host, one) in enumerate(settings.items()):
            opened = open_provider(self._reply, one, self.options.speed)
            providers[host] = await stack.enter_async_context(opened)
            # No two vendors use the same ids.
            for _ in range(place * _IDS_APART):
                providers[host].playing.next_serial()
        return providers

    def _upstreams(self, providers: dict[str, DrillProvider]) -> list[UpstreamSettings]:
        found = [UpstreamSettings(FIRST, providers[FIRST].url, self.part.dialect)]
        found += [
            UpstreamSettings(
                one.name, providers[one.name].url, one.kind, Credential.NONE, models=one.models
            )
            for one in self.part.backups
        ]
        return [
            one if one.kind is UpstreamKind.ANTHROPIC else replace(one, url=f"{one.url}/v1")
            for one in found
        ]

    def _reply(self, request: ClientRequest) -> Reply:
        """The script's reply; enough requests of sub-agents are the cue for the faults."""
        label = label_of(request)
        self.evidence.agents[request.body_hash] = label
        self.evidence.misbound += misbound(request.body)
        # Clients other than Claude Code name their agents by the prompt alone.
        self._agent_requests += bool(request.agent) or label != MAIN
        if self._agent_requests >= self.part.faults_after:
            self._at_work.set()
        return self.part.script.reply(request)

    async def _begin_faults(self, providers: dict[str, DrillProvider]) -> None:
        """Begin the faults once the crew is at work."""
        await self._at_work.wait()
        for fault in self.part.faults:
            until = providers[FIRST].add_fault(fault)
            if fault.effect is Effect.QUOTA_WALL:
                self.evidence.wall_resets_at = providers[FIRST].unix_time(until)
        for backup in self.part.backups:
            for fault in backup.faults:
                if backup.name in providers:
                    providers[backup.name].add_fault(fault)
        self.evidence.faults_began_at = self._clock.monotonic()
        self.options.progress(f"{self.part.name}, {self.side}: the faults begin")


class DrillRun:
    """A drill at work; `run` returns its result, `so_far` that of an interrupted one."""

    def __init__(self, drill: Drill, options: DrillOptions) -> None:
        self._drill = drill
        self._options = options
        self._runs: dict[tuple[str, Side], CrewRun | ProgramRun] = {
            (part.name, side): CrewRun(part, side, options)
            if isinstance(part, CrewPart)
            else ProgramRun(part, side, options)
            for part in drill.parts
            for side in Side
        }

    async def run(self) -> DrillResult:
        """Run every part on both sides."""
        for part in self._drill.parts:
            bare, jackline = (self._runs[part.name, side] for side in Side)
            # Two programs would only slow each other down; a crew's clients mostly wait.
            if self._options.speed == 1.0 and isinstance(part, CrewPart):
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(bare.run())
                        group.create_task(jackline.run())
                except ExceptionGroup as failed:
                    raise failed.exceptions[0] from failed
            else:
                await bare.run()
                await jackline.run()
        return self._result(complete=True)

    def so_far(self) -> DrillResult:
        """The result of a drill that was not run to its end."""
        return self._result(complete=False)

    def _result(self, *, complete: bool) -> DrillResult:
        client, speed = self._options.client, self._options.speed
        parts = []
        for part in self._drill.parts:
            bare, jackline = (self._runs[part.name, side].figures for side in Side)
            own_speed = speed if isinstance(part, CrewPart) else part.speed(speed)
            results: tuple[RequirementResult, ...] = ()
            if bare and jackline:
                results = check_requirements(part, bare, jackline, own_speed)
            parts.append(PartResult(part, bare, jackline, results))
        programs = self._drill.programs
        if len(programs) == len(parts):
            client = programs[0].client
            speed = max(part.speed(speed) for part in programs)
        return DrillResult(self._drill, client, speed, tuple(parts), complete)
