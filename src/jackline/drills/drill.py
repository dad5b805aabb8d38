"""Say what a drill is: a provider that misbehaves, a crew at work, and what is demanded.

Laws: (1) frozen values, nothing here runs; (2) times are the drill's seconds; faults count from the
moment at which they strike, so that a client may take its time to start; (3) demands are bounds on
figures, so that a verdict can be printed beside what was measured.
Not here: the drills themselves (catalogue.py), running them (running.py), the figures (judging.py).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from jackline.drills.builtin_client import AgentPlan
from jackline.drills.lookout import NOBODY, Lookout
from jackline.providers.settings import UpstreamKind
from jackline.simulator.faults import Fault
from jackline.simulator.limits import BucketSettings, ConcurrencySettings
from jackline.simulator.mind import Mind
from jackline.simulator.service import ServiceSettings


@dataclass(frozen=True, slots=True)
class Demand:
    """The most that a figure of Jackline's side may be, and the sentence that this stands for."""

    says: str
    figure: str
    most: float
    beyond_bare: bool = False
    """Whether `most` is counted from what the bare side took."""
    machine_slack: float = 0.0
    """Real seconds that a busy machine may add to `most`."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """A further provider that Jackline may go to; the bare side does not know of it."""

    name: str
    kind: UpstreamKind = UpstreamKind.ANTHROPIC
    models: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    """They strike together with those of the first provider."""
    buckets: tuple[BucketSettings, ...] = ()
    concurrency: ConcurrencySettings | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One run of a crew, made twice: bare and through Jackline."""

    name: str
    crew: tuple[AgentPlan, ...]
    mind: Mind
    faults: tuple[Fault, ...]
    strike_after: int
    """So many requests of sub-agents come before the faults begin."""
    demands: tuple[Demand, ...]
    service: ServiceSettings = field(default_factory=ServiceSettings)
    bystander_model: str = ""
    """A part of the name of the models that no fault strikes."""
    patience: float = 1800.0
    """Who is not done so long after the start counts as unfinished."""
    stand_ins: tuple[StandIn, ...] = ()
    waves: int = 1
    """How often the real client is asked; each time its model starts the next share of the crew."""
    rest: float = 0.0
    """How long its user takes to ask again."""
    dialect: UpstreamKind = UpstreamKind.ANTHROPIC
    """What the crew's clients, and so the first provider, speak."""
    status_says: tuple[str, ...] = ()
    """What the gateway's status must have said in its verdict at some moment."""

    @property
    def recovers_after(self) -> float | None:
        """How long after they strike the last fault of the first provider ends, if ever."""
        ends = [fault.until for fault in self.faults]
        return max(ends) if ends and math.isfinite(max(ends)) else None


# --- parts whose crew is a program ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """What every program's side is known by; each such part has more of its own."""

    agents: int
    finished: int
    requests: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What one side of such a part is played with."""

    folder: Path
    """Its own, gone when the drill is over."""
    speed: float
    thorough: bool
    """Whether nobody asked to hurry."""
    watched: Lookout = NOBODY


Play: TypeAlias = Callable[[Scene], Awaitable[FlowFigures]]


@dataclass(frozen=True, slots=True)
class FlowPart:
    """One piece of work, done twice: by a program in plain asyncio, and by a flow."""

    name: str
    bare: Play
    jackline: Play
    demands: tuple[Demand, ...]
    rows: tuple[tuple[str, str], ...]
    """What is shown: labels and figures."""
    least_speed: float = 1.0
    """Hours pass at least so fast: walls are farther away than anyone watches a drill."""

    in_real_time: bool = False
    """Whether its processes live by the machine's own clock, whatever was asked for."""

    client: str = ""
    """Who plays it, where that is neither program nor flow."""

    def speed(self, asked: float) -> float:
        """How fast it is played when this speed was asked for."""
        return 1.0 if self.in_real_time else max(asked, self.least_speed)


@dataclass(frozen=True, slots=True)
class Drill:
    """A rehearsal under a name; its first part is the one that its figures are known by."""

    name: str
    about: str
    parts: tuple[Part | FlowPart, ...]

    @property
    def crews(self) -> tuple[Part, ...]:
        """The parts that are played by clients."""
        return tuple(part for part in self.parts if isinstance(part, Part))

    @property
    def programs(self) -> tuple[FlowPart, ...]:
        """The parts that are played by programs."""
        return tuple(part for part in self.parts if isinstance(part, FlowPart))
