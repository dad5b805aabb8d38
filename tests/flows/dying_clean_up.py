"""A flow whose process kills itself in the middle of its clean-up, and which tells a ledger of it.

What its hooks and releases say, they know from `ctx`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from jackline import agent, ctx, flow, phase
from jackline.agents.outcome import Outcome
from jackline.event_loop import run as run_on_loop
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_run
from jackline.flows.store import open_run_store, run_store_url
from jackline.testing.scripted_agents import ScriptedRunner

LEDGER, DIES = "DYING_CLEAN_UP_LEDGER", "DYING_CLEAN_UP_DIES"


def told(line: str) -> None:
    with Path(os.environ[LEDGER]).open("a") as ledger:
        ledger.write(f"{line}\n")


def give_back(name: str) -> None:
    """In a thread."""
    ctx.note(f"{name} was given back")
    told(f"release {name} of {ctx.run_id} taken by {ctx.task_id or 'the run'}")


async def after_agent(outcome: Outcome[Any]) -> None:
    if DIES in os.environ:
        raise OSError("not now")
    is_own = ctx.task_id == outcome.task_id
    told(f"agent {outcome.label} {outcome.terminated_by} of {ctx.run_id} {is_own} {ctx.phase}")


def after_run(outcome: Outcome[Any]) -> None:
    """In a thread; what it rents is given back like everything else."""
    if DIES in os.environ:
        told("the process dies")
        os.kill(os.getpid(), signal.SIGKILL)
    told(
        f"run {outcome.terminated_by} of {ctx.run_id} {ctx.task_id or 'itself'} {ctx.phase or '-'}"
    )
    ctx.resource("room for a last message", release=give_back)
    ctx.note("saved", where="on disk")


@flow(on_end=after_run)
async def renting() -> str:
    await ctx.resource("gpu", release=give_back)
    async with phase("work"):
        return await agent("work", label="worker", on_end=after_agent)


async def carry(store: Path) -> None:
    engine = open_run_store(run_store_url(store.parent))
    try:
        host = FlowHost(engine, lambda _run_id: {"messages": ScriptedRunner()})
        await (await begin_run(host, renting, b"{}", run_id="r1")).run()
    finally:
        await engine.close()


if __name__ == "__main__":
    run_on_loop(carry(Path(sys.argv[1])))
