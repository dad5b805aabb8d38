"""What a drill is: a name, parts that are played twice, and the requirements, all as data.

Rules: (1) times are drill seconds; faults count from the moment they begin, so a client may take
its time to start; (2) requirements are limits on figures, so that a result can be printed beside
the measured number; (3) answers take the same time in every run, so two runs differ only by the
faults; (4) a part is either a crew of clients, which is data alone, or a program, which has one
`ProgramSide`: the model's replies and the work without and with Jackline.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from jackline.drills.builtin_client import AgentPlan
from jackline.drills.conversation import ECHO, MAIN, label_of
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import (
    DrillProvider,
    WatchedEndpoint,
    open_flow_host,
    open_gateway,
    open_provider,
)
from jackline.drills.live_view import NOT_WATCHED, LiveView
from jackline.flows.host import FlowHost
from jackline.flows.run_events import Listener, ignore_event
from jackline.flows.store import run_store_url
from jackline.providers.settings import UpstreamKind, UpstreamSettings
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Fault
from jackline.simulator.limits import BucketSettings, ConcurrencyCap
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule, Say, ToolCall, long_answer
from jackline.simulator.time_model import ServiceSettings

OPUS, SONNET, HAIKU = "claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5-20251001"
MINUTE = 60.0
# Codex's name for the tool that runs a command.
CODEX_SHELL = "exec_command"
STEADY = ServiceSettings(first_byte=1.2, first_byte_spread=0.0, tokens_per_second=60.0)
# For drills that are not about the model's speed.
QUICK = ServiceSettings(first_byte=0.05, first_byte_spread=0.0, tokens_per_second=400.0)


@dataclass(frozen=True, slots=True)
class Requirement:
    """The upper limit of one figure of Jackline's side, and the sentence that it proves."""

    text: str
    figure: str
    most: float
    beyond_bare: bool = False
    """Whether `most` is counted from the figure of the bare side."""
    machine_slack: float = 0.0
    """Real seconds that a busy machine may add to `most`."""


# --- parts that are played by clients ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BackupProvider:
    """A further provider that Jackline may use; the bare side does not know of it."""

    name: str
    kind: UpstreamKind = UpstreamKind.ANTHROPIC
    models: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    """They begin together with those of the first provider."""
    buckets: tuple[BucketSettings, ...] = ()
    concurrency: ConcurrencyCap | None = None


@dataclass(frozen=True, slots=True)
class CrewPart:
    """One run of a crew, made twice: bare and through Jackline."""

    name: str
    crew: tuple[AgentPlan, ...]
    script: ReplyScript
    faults: tuple[Fault, ...]
    faults_after: int
    """So many requests of sub-agents come before the faults begin."""
    requirements: tuple[Requirement, ...]
    service: ServiceSettings = STEADY
    bystander_model: str = ""
    """A part of the name of the models that have no fault."""
    time_limit: float = 1800.0
    """Who is not done so long after the start counts as unfinished."""
    backups: tuple[BackupProvider, ...] = ()
    waves: int = 1
    """How many prompts the real client gets; with each its model starts a share of the crew."""
    rest: float = 0.0
    """Seconds between these prompts."""
    dialect: UpstreamKind = UpstreamKind.ANTHROPIC
    """The format of the crew's clients, and so of the first provider."""
    status_texts: tuple[str, ...] = ()
    """Texts that must appear in the verdict of the gateway's status at some moment."""

    @property
    def recovers_after(self) -> float | None:
        """How long after their begin the last fault of the first provider ends, if ever."""
        ends = [fault.until for fault in self.faults]
        return max(ends) if ends and math.isfinite(max(ends)) else None


def final_text(label: str) -> str:
    """What the model says at the end of an agent's work."""
    return f"{label} is done."


def crew(
    count: int, models: Sequence[str] = (SONNET,), *, rounds: int = 1
) -> tuple[AgentPlan, ...]:
    """So many sub-agents of one session, with these models in turn."""
    return tuple(
        AgentPlan(
            label=f"PART-{number}",
            prompt=f"PART-{number}: review this part of the project.",
            final_text=final_text(f"PART-{number}"),
            model=models[(number - 1) % len(models)],
            agent=f"drill-agent-{number}",
            rounds=rounds,
        )
        for number in range(1, count + 1)
    )


def crew_script(
    agents: Sequence[AgentPlan], *, turns: int, tokens: int, tools: int = 1, waves: int = 1
) -> ReplyScript:
    """A model that starts this crew, lets each look so many times, and then ends its part.

    A look is one or two `tools` at once; each echoes its own text, so that swapped results are
    found. With each prompt of the main thread the model starts the next share of the crew.
    """
    share = -(-len(agents) // waves)
    text = long_answer(tokens).text

    def reply(request: ClientRequest) -> Reply:
        label = label_of(request)
        if label == MAIN:
            wave, answered = divmod(request.turn, 2)
            if "Agent" in request.tools and not answered and wave < waves:
                return start_agents(agents[share * wave : share * (wave + 1)])
            return Say("All parts are back.")
        # With several rounds the same turns come again.
        if request.turn % (turns + 1) == turns:
            return Say(final_text(label))
        calls: list[ToolCall] = []
        for side in ("left", "right")[:tools]:
            command = f"{ECHO}{label}-{request.turn}-{side}"
            if CODEX_SHELL in request.tools:
                calls.append((CODEX_SHELL, {"cmd": command}))
            else:
                calls.append(("Bash", {"command": command, "description": f"Look {side}"}))
        return Say(text, tuple(calls))

    return ReplyScript((Rule(reply),))


def start_agents(agents: Sequence[AgentPlan]) -> Say:
    """The model starts these sub-agents, all at once."""
    calls = []
    for plan in agents:
        family = next((one for one in ("opus", "sonnet", "haiku") if one in plan.model), plan.model)
        call = {
            "description": f"Review {plan.label}",
            "prompt": plan.prompt,
            "subagent_type": "general-purpose",
            "model": family,
            "run_in_background": False,
        }
        calls.append(("Agent", call))
    return Say("Splitting the work.", tuple(calls))


# --- parts that are played by programs -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProgramFigures:
    """What every side of a program part has; each part has more figures of its own."""

    agents: int
    finished: int
    requests: int


@dataclass(slots=True, eq=False, kw_only=True)
class ProgramSide(ABC):
    """One side of a program part, with its provider open; each part has its own subclass."""

    part: ProgramPart
    folder: Path
    """Deleted when the drill is over."""
    speed: float
    clock: DrillClock
    provider: DrillProvider
    thorough: bool
    """Whether the drill runs in real time, and so may take long."""
    live_view: LiveView = NOT_WATCHED

    @abstractmethod
    def reply(self, request: ClientRequest) -> Reply:
        """What the model says."""

    @abstractmethod
    async def bare(self) -> ProgramFigures:
        """Do the work without Jackline."""

    @abstractmethod
    async def jackline(self) -> ProgramFigures:
        """Do the work with Jackline."""

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[WatchedEndpoint]:
        """A gateway before the provider; while it is watched, it also shows the runs of `store`."""
        state = self.folder if self.live_view.watching else None
        upstreams = [UpstreamSettings(url=self.provider.url)]
        async with open_gateway(upstreams, self.clock, self.live_view, state) as endpoint:
            yield endpoint
            await self.live_view.wait_for_viewer(self.part.name, self.clock)

    @asynccontextmanager
    async def flow_host(self, listener: Listener = ignore_event) -> AsyncIterator[FlowHost]:
        """A host of flows, with a gateway of its own."""
        async with self.gateway() as endpoint:
            host = open_flow_host(endpoint.url, self.store_url, self.clock, listener=listener)
            async with host as opened:
                yield opened

    @asynccontextmanager
    async def comparison(self) -> AsyncIterator[Self]:
        """A second side of the same part, with its own provider, for an undisturbed run."""
        folder = self.folder / "undisturbed"
        async with self.part.open_side(folder, self.speed, thorough=self.thorough) as other:
            if not isinstance(other, type(self)):
                raise TypeError("all sides of a part have one class")
            yield other

    @property
    def store_url(self) -> str:
        """Where the runs are saved."""
        return run_store_url(self.folder)

    def lines(self, name: str) -> list[str]:
        """The lines of a file in the folder; none if it does not exist."""
        path = self.folder / name
        return path.read_text("utf-8").splitlines() if path.exists() else []


@dataclass(frozen=True, slots=True)
class ProgramPart:
    """One piece of work, done twice: by a program without Jackline, and with Jackline."""

    name: str
    side: Callable[..., ProgramSide]
    """The class of its sides."""
    requirements: tuple[Requirement, ...]
    rows: tuple[tuple[str, str], ...]
    """What is shown: labels and figures."""
    service: ServiceSettings = STEADY
    buckets: tuple[BucketSettings, ...] = ()
    least_speed: float = 1.0
    """Time passes at least so fast: some resets are farther away than anyone watches a drill."""
    in_real_time: bool = False
    """Whether its processes use the machine's own clock, whatever speed was requested."""
    client: str = "a program in plain asyncio, and a flow"
    """Who plays it."""

    def speed(self, requested: float) -> float:
        """How fast it is played when this speed was requested."""
        return 1.0 if self.in_real_time else max(requested, self.least_speed)

    @asynccontextmanager
    async def open_side(
        self,
        folder: Path,
        speed: float,
        *,
        thorough: bool = False,
        live_view: LiveView = NOT_WATCHED,
    ) -> AsyncIterator[ProgramSide]:
        """One side, ready to work in this folder."""

        def reply(request: ClientRequest) -> Reply:
            return side.reply(request)

        await asyncio.to_thread(folder.mkdir, exist_ok=True)
        settings = ProviderSettings(self.buckets, service=self.service)
        async with open_provider(reply, settings, speed) as provider:
            side = self.side(
                part=self,
                folder=folder,
                speed=speed,
                # Made after the provider's clock, and so never ahead of it.
                clock=DrillClock(speed),
                provider=provider,
                thorough=thorough,
                live_view=live_view,
            )
            yield side


@dataclass(frozen=True, slots=True)
class Drill:
    """A rehearsal; the figures of its first part are its main figures."""

    name: str
    about: str
    parts: tuple[CrewPart | ProgramPart, ...]

    @property
    def crews(self) -> tuple[CrewPart, ...]:
        """The parts that are played by clients."""
        return tuple(part for part in self.parts if isinstance(part, CrewPart))

    @property
    def programs(self) -> tuple[ProgramPart, ...]:
        """The parts that are played by programs."""
        return tuple(part for part in self.parts if isinstance(part, ProgramPart))


NOBODY_MISLED = Requirement("nobody takes a broken answer for a whole one", "misled", most=0)
ALL_FINISH = (Requirement("every agent finishes", "left_behind", most=0), NOBODY_MISLED)
NO_ERROR_SEEN = Requirement("no agent sees an error", "errors_seen", most=0)
