"""A process that carries one run with the store on disk, until it is done or killed.

Every turn that was answered and every step that ran is told to a ledger outside the store.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from jackline import agent, flow, parallel, step
from jackline.agents.outcome import Outcome
from jackline.agents.runner import AgentTask
from jackline.event_loop import run as run_on_loop
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_resume, begin_run
from jackline.flows.settings import RunSettings
from jackline.flows.store import open_run_store, run_store_url
from jackline.testing.scripted_agents import Play, ScriptedRunner

LEDGER = Path(os.environ.get("LEDGER", os.devnull))
TURNS = 3


def told(line: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{line}\n")


def measured(n: int) -> int:
    told(f"step {n}")
    return n * n


@flow
async def killed(size: int) -> str:
    """Branches of several calls each, side by side and in no fixed order."""

    async def branch(n: int) -> str:
        await asyncio.sleep((n * 7 % 5) / 1000)
        first = await agent(f"first {n}", label=f"{n}/1")
        square = await step(measured, n)
        second = await agent(f"second {n} {first}", label=f"{n}/2")
        return f"{first};{square};{second}"

    found = await parallel(branch(n) for n in range(size))
    return " | ".join([*found.require().values, await agent(found.summary, label="last")])


def script(task: AgentTask) -> Play:
    async def during() -> None:
        told(f"turn {task.label}")

    return Play(value=f"<{task.prompt}>", turns=TURNS, seconds=0.002, during=during)


async def carry(store: Path, size: int) -> Outcome[str]:
    runner = ScriptedRunner(script)
    engine = open_run_store(run_store_url(store.parent))
    try:
        settings = RunSettings(lease=30.0, poll=0.1)
        host = FlowHost(engine, lambda _run_id: {"messages": runner}, settings=settings)
        if await engine.run("r1") is None:
            arguments = f'{{"size": {size}}}'.encode()
            return await (await begin_run(host, killed, arguments, run_id="r1")).run()
        begun = await begin_resume(host, "r1", flow=killed)
        return begun if isinstance(begun, Outcome) else await begun.run()
    finally:
        await engine.close()


if __name__ == "__main__":
    outcome = run_on_loop(carry(Path(sys.argv[1]), int(sys.argv[2])))
    sys.stdout.write(f"{outcome.exit_code} {outcome.tally.replayed} {outcome.value}")
