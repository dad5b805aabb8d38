"""The flow whose agent works on a rented machine: set-up, rent, and an hour's work.

Laws: (1) it is loaded as a user's file, by each process that carries it; (2) the machine is rented
and put on the ledger in one step, so that whoever goes on knows of it by the store alone.
Not here: the processes (flow_process.py), the wall (lost_subagent.py).
"""

from __future__ import annotations

from pathlib import Path

from jackline import agent, ctx, flow, step
from jackline.drills.pace import Pace
from jackline.drills.rented_machine import Machine

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
    pace = Pace.joined(clock)

    async def work(hour: int) -> str:
        """Do one piece of the work."""
        return await Machine(Path(folder)).work(hour, pace)

    await step(set_up, folder)
    await step(rent, folder)
    return await agent(PROMPT, tools=[work], label="PART-1")
