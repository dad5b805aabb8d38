"""The flow whose agent works on a rented machine: set-up, rent, and an hour's work.

Rules: (1) it is loaded as a user's file, by each process that runs it; (2) the machine is rented
and saved as a resource in one step, so that whoever resumes the run finds it in the store alone;
(3) the machine is a set of files: every process that uses it writes to the same ones; its work
takes drill time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jackline import agent, ctx, flow, step
from jackline.drills.drill_clock import DrillClock

PROMPT = "PART-1: train the model on the rented machine."
TURN_SECONDS = 300.0
SET_UP, RENTED, RELEASED, WORKED = "set-up.log", "rented.log", "released.log", "worked.log"


@dataclass(slots=True)
class Machine:
    """The machine whose files are in this folder."""

    folder: Path

    def rent(self) -> str:
        """Rent a machine; returns its name."""
        path = self.folder / RENTED
        rented = path.read_text("utf-8").splitlines() if path.exists() else []
        return self.write(RENTED, f"gpu-{len(rented) + 1}")

    async def work(self, hour: int, clock: DrillClock) -> str:
        """Do one piece of the work."""
        await clock.sleep(TURN_SECONDS)
        return self.write(WORKED, f"piece {hour}")

    def write(self, name: str, line: str) -> str:
        """Add a line to one of the files; returns the line."""
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return line


def set_up(folder: str) -> str:
    """Prepare the data."""
    return Machine(Path(folder)).write(SET_UP, "set up")


def rent(folder: str) -> str:
    """Rent a machine, to be released whatever happens."""
    name = Machine(Path(folder)).rent()
    release = f'echo {name}>> "{Path(folder) / RELEASED}"'
    ctx.resource(name, release=release, lease="12h")
    return name


@flow
async def training(folder: str, clock: str) -> str:
    """Train the model by the drill's clock."""
    drill_clock = DrillClock.from_text(clock)

    async def work(hour: int) -> str:
        """Do one piece of the work."""
        return await Machine(Path(folder)).work(hour, drill_clock)

    await step(set_up, folder)
    await step(rent, folder)
    return await agent(PROMPT, tools=[work], label="PART-1")
