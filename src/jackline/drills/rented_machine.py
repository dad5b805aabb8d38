"""A machine for rent, and what is done on it: each a line in a file.

Laws: (1) whoever uses it, in whichever process, writes to the same files: they are the witnesses;
(2) its work takes the drill's time.
Not here: who rents it (lost_subagent_flow.py, lost_subagent.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jackline.drills.crews import MINUTE
from jackline.drills.pace import Pace

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

    async def work(self, hour: int, pace: Pace) -> str:
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
