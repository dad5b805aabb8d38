"""Run a flow in a process of its own, by the drill clock; a program to start.

    python -m jackline.drills.flow_process CLOCK GATEWAY STORE_URL run FLOW.py ARGUMENTS
    python -m jackline.drills.flow_process CLOCK GATEWAY STORE_URL resume RUN

Rules: (1) as `jackline run` and `jackline resume`, it knows the flow's file and the store, and
nothing from another process's memory; (2) a process that began a run exits when the run is
parked, as if its terminal was closed: what was not saved by then is lost; (3) the last line on
stdout is the outcome as JSON, the exit code is the outcome's.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from jackline import event_loop
from jackline.agents.outcome import Outcome
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import open_flow_host
from jackline.flows.api import resume
from jackline.flows.authoring.flow_definition import load_flow
from jackline.flows.flow_run import FlowRun
from jackline.flows.lifecycle import begin_run
from jackline.flows.records import encode_outcome
from jackline.flows.run_events import FlowEvent, RunParked


async def main(clock: str, url: str, store_url: str, verb: str, *rest: str) -> int:
    """Begin a run or resume one; returns the exit code."""
    run: FlowRun[Any] | None = None

    def stop_when_parked(event: FlowEvent) -> None:
        if isinstance(event, RunParked) and run is not None:
            run.stop("Its terminal was closed.")

    def print_outcome(outcome: Outcome[Any]) -> int:
        line = encode_outcome(outcome, plain_value=outcome.value).decode()
        print(line, flush=True)  # noqa: T201 -- a program
        return outcome.exit_code

    async with open_flow_host(url, store_url, DrillClock.from_text(clock)) as host:
        if verb == "run":
            file, arguments = rest
            flow = load_flow(file)
            run = await begin_run(host, flow, arguments.encode(), listener=stop_when_parked)
            os._exit(print_outcome(await run.run()))
        outcome: Outcome[Any] = await resume(*rest, host=host)
    return print_outcome(outcome)


if __name__ == "__main__":
    sys.exit(event_loop.run(main(*sys.argv[1:])))
