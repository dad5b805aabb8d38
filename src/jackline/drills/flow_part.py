"""Say what a part of a drill is whose crew is a program: a fan-out in plain asyncio, and a flow.

Laws: (1) both sides are asked for the same work and get the same provider; (2) each side gives its
figures once it is through: a side that was cut off has none; (3) hours pass at least `least_speed`
times as fast as life, since walls are farther away than anyone watches a drill.
Not here: the parts (session_limit_flow.py, cascade.py, lost_subagent.py, power_cut.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from jackline.drills.drill import Demand


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """What every such side is known by; each part has more of its own."""

    agents: int
    finished: int
    requests: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What one side is played with."""

    folder: Path
    """Its own, gone when the drill is over."""
    speed: float
    thorough: bool
    """Whether nobody asked to hurry."""


Play: TypeAlias = Callable[[Scene], Awaitable[FlowFigures]]


@dataclass(frozen=True, slots=True)
class FlowPart:
    """One piece of work, done twice: by a plain program, and by a flow."""

    name: str
    bare: Play
    jackline: Play
    demands: tuple[Demand, ...]
    rows: tuple[tuple[str, str], ...]
    """What is shown: labels and figures."""
    least_speed: float = 1.0

    def speed(self, asked: float) -> float:
        """How fast it is played when this speed was asked for."""
        return max(asked, self.least_speed)


@dataclass(slots=True)
class FlowSide:
    """One side of such a part: `run` it, and ask what is `known`."""

    part: FlowPart
    play: Play
    side: str
    speed: float
    tell: Callable[[str], None]
    _figures: list[FlowFigures] = field(default_factory=list)

    async def run(self) -> None:
        """Play this side to its end."""
        self.tell(f"{self.part.name}, {self.side}: the program begins")
        with TemporaryDirectory(prefix="jackline-drill-", ignore_cleanup_errors=True) as folder:
            speed = self.part.speed(self.speed)
            scene = Scene(Path(folder), speed, thorough=self.speed == 1.0)
            found = await self.play(scene)
        self._figures.append(found)
        self.tell(
            f"{self.part.name}, {self.side}: {found.finished} of {found.agents} finished with"
            f" {found.requests} requests"
        )

    def known(self) -> FlowFigures | None:
        """The figures, once there are any."""
        return self._figures[-1] if self._figures else None
