"""The flow whose agent works on a rented machine: set-up, rent, and an hour's work.

Rules: (1) it is loaded as a user's file, by each process that runs it; (2) the machine is rented
and put on the ledger in one step, so that whoever resumes the run finds it in the store alone;
(3) the machine is a set of files: every process that uses it writes to the same ones; its work
takes drill time.
Not here: the processes (flow_process.py), the wall (lost_subagent.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jackline import agent, ctx, flow, step
from jackline.drills.drill import MINUTE
from jackline.drills.drill_clock import DrillClock

TURN_TAKES = 5 * MINUTE
SET_UP, RENTED, RELEASED, WORKED = "set-up.log", "rented.log", "released.log", "worked.log"


@dataclass(slots=True)
class Machine:
    """The machine whose files are in this folder."""

    folder: Path

    def set_up(self) -> str:
        """Prepare the data."""
        return self._write(SET_UP, "set up")

    def rent(self) -> str:
        """Rent a machine and give its name."""
        return self._write(RENTED, f"gpu-{len(self.lines(RENTED)) + 1}")

    def release(self, name: str) -> None:
        """Give it back."""
        self._write(RELEASED, name)

    @property
    def release_command(self) -> str:
        """The same as a command of the shell, whichever that is."""
        return f'echo %s>> "{self.folder / RELEASED}"'

    async def work(self, hour: int, pace: DrillClock) -> str:
        """Do one piece of the work."""
        await pace.sleep(TURN_TAKES)
        return self._write(WORKED, f"piece {hour}")

    def lines(self, name: str) -> list[str]:
        """What was written to one of the files."""
        path = self.folder / name
        return path.read_text("utf-8").split("\n")[:-1] if path.exists() else []

    def _write(self, name: str, line: str) -> str:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return line


PROMPT = "PART-1: train the model on the rented machine."


def set_up(folder: str) -> str:
    """Prepare the data."""
    return Machine(Path(folder)).set_up()


def rent(folder: str) -> str:
    """Rent a machine, to be given back whatever happens."""
    machine = Machine(Path(folder))
    name = machine.rent()
    ctx.resource(name, release=machine.release_command % name, lease="12h")
    return name


@flow
async def training(folder: str, clock: str) -> str:
    """Train the model by the drill's clock."""
    pace = DrillClock.joined(clock)

    async def work(hour: int) -> str:
        """Do one piece of the work."""
        return await Machine(Path(folder)).work(hour, pace)

    await step(set_up, folder)
    await step(rent, folder)
    return await agent(PROMPT, tools=[work], label="PART-1")
