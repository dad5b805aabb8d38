"""A process that dies after each hook and before the hook's end is kept; a ledger has the keys."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from jackline import agent, ctx, flow
from jackline.agents.outcome import Outcome
from jackline.event_loop import run as run_on_loop
from jackline.flows.flow_run import FlowRun
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_resume, begin_run
from jackline.flows.records import HookRecord
from jackline.flows.settings import RunSettings
from jackline.flows.store import open_run_store, run_store_url
from jackline.testing.scripted_agents import ScriptedRunner
from tests.flows.world import StoreWrapper

LEDGER = "DYING_HOOKS_LEDGER"
COMMAND = f'echo "command {{}} $JACKLINE_IDEMPOTENCY_KEY" >> "${LEDGER}"'


def ledger(line: str) -> None:
    with Path(os.environ[LEDGER]).open("a") as file:
        file.write(f"{line}\n")


async def after_agent(outcome: Outcome[Any]) -> None:
    ledger(f"function {outcome.label} {ctx.idempotency_key}")


def after_run(_outcome: Outcome[Any]) -> None:
    """In a thread."""
    ledger(f"function run {ctx.idempotency_key}")


@flow(on_end=after_run)
async def hooked() -> str:
    await agent("one", label="one", on_end=[after_agent, COMMAND.format("one")])
    return await agent("two", label="two", on_end=after_agent)


class Dies(StoreWrapper):
    """The store of a process that is killed when it would keep the end of a hook's first try."""

    async def end_hook(self, hook: HookRecord) -> None:
        if hook.state == "done" and hook.tries == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        await self.store.end_hook(hook)


async def carry(store: Path) -> None:
    engine = Dies(open_run_store(run_store_url(store.parent)))
    try:
        host = FlowHost(
            engine,
            lambda _run_id: {"messages": ScriptedRunner()},
            settings=RunSettings(lease=0.05),
        )
        if await engine.run("r1") is None:
            await (await begin_run(host, hooked, b"{}", run_id="r1")).run()
        else:
            begun = await begin_resume(host, "r1", flow=hooked)
            if isinstance(begun, FlowRun):
                await begun.run()
    finally:
        await engine.close()


if __name__ == "__main__":
    run_on_loop(carry(Path(sys.argv[1])))
