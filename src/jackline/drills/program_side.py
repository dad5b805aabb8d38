"""Play one side of a part whose crew is a program.

Laws: (1) it has a folder of its own, gone when it is through; (2) a side that was cut off has no
figures.
Not here: what is played (session_limit_flow.py, cascade.py, lost_subagent.py, power_cut.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from jackline.drills.drill import FlowFigures, FlowPart, Play, Scene
from jackline.drills.lookout import NOBODY, Lookout


@dataclass(slots=True)
class ProgramSide:
    """`run` it, and ask what is `known`."""

    part: FlowPart
    play: Play
    side: str
    speed: float
    tell: Callable[[str], None]
    watched: Lookout = NOBODY
    _figures: FlowFigures | None = None

    async def run(self) -> None:
        """Play this side to its end."""
        self.tell(f"{self.part.name}, {self.side}: the program begins")
        with TemporaryDirectory(prefix="jackline-drill-", ignore_cleanup_errors=True) as folder:
            speed = self.part.speed(self.speed)
            scene = Scene(Path(folder), speed, self.speed == 1.0, self.watched)
            found = await self.play(scene)
        self._figures = found
        self.tell(
            f"{self.part.name}, {self.side}: {found.finished} of {found.agents} finished with"
            f" {found.requests} requests"
        )

    def known(self) -> FlowFigures | None:
        """The figures, once there are any."""
        return self._figures
