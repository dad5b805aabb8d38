"""`jackline resume`, `retry` and `fork`: go on with a run, and pay for nothing twice.

Laws: (1) what is finished answers from the store; (2) those of carrying_run.py.
Not here: what is run again (flows/orders.py).
"""

from __future__ import annotations

import sys
from typing import Any

import click

from jackline.agents.outcome import Outcome
from jackline.cli.carrying_run import carry_in_foreground
from jackline.cli.completing import run_ids
from jackline.cli.gateway_flags import configured
from jackline.cli.run import AS_JSON, QUIET, STATE, WAKE
from jackline.cli.system_steps import Write, carry_out
from jackline.cli.wake_timer import WakeBy, wake_timer
from jackline.clock import SystemClock
from jackline.flows.host import FlowHost
from jackline.flows.orders import begin_fork, begin_resume, begin_retry, known_run
from jackline.flows.progress import Listener
from jackline.flows.records import RunState
from jackline.flows.running import FlowRun
from jackline.flows.settings import decode_settings
from jackline.flows.waking import may_wake

_OWN_TIMERS: dict[str, WakeBy] = {"darwin": "launchd", "win32": "schtasks"}


@click.command()
@click.argument("run_id", metavar="ID", shell_complete=run_ids)
@click.option("--woken", is_flag=True, hidden=True, help="By a timer or the service: brakes hold.")
@WAKE
@QUIET
@AS_JSON
@STATE
def resume(
    run_id: str, woken: bool, wake: WakeBy, quiet: bool, as_json: bool, state: str | None
) -> int:
    """Go on with a run that was stopped, parked, cut off or failed.

    ID is the run's id, or its beginning. What is finished is not run again; agents go on at their
    last complete turn. A finished run shows its outcome.
    """
    config = configured({"state": state})

    async def begin(host: FlowHost, listener: Listener) -> FlowRun[Any] | Outcome[Any]:
        record = await known_run(host, run_id)
        if woken:
            _remove_timers(record.run_id)
            brakes = decode_settings(record.settings).wake
            decision = may_wake(SystemClock().now(), record, brakes)
            if record.state is not RunState.PARKED or not decision.now:
                words = decision.why or f"it is {record.state.value}"
                click.echo(f"run {record.run_id} is not woken: {words}", err=True)
                raise click.exceptions.Exit(0)
        elif record.state is RunState.PARKED:
            # Whoever types this is the person that a brake asks for.
            await host.engine.allow_waking(record.run_id)
        return await begin_resume(host, record.run_id, listener=listener)

    return carry_in_foreground(config, begin, as_json=as_json, quiet=quiet, wake=wake)


@click.command()
@click.argument("run_id", metavar="ID", shell_complete=run_ids)
@click.option("--only", metavar="LABEL", help="Only the failed calls with this label.")
@QUIET
@AS_JSON
@STATE
def retry(run_id: str, only: str | None, quiet: bool, as_json: bool, state: str | None) -> int:
    """Run the failed calls of a run again, and nothing else."""
    config = configured({"state": state})

    async def begin(host: FlowHost, listener: Listener) -> FlowRun[Any]:
        return await begin_retry(host, run_id, only=only, listener=listener)

    return carry_in_foreground(config, begin, as_json=as_json, quiet=quiet)


@click.command()
@click.argument("run_id", metavar="ID", shell_complete=run_ids)
@click.option("--from", "label", metavar="LABEL", required=True, help="The first call to run anew.")
@QUIET
@AS_JSON
@STATE
def fork(run_id: str, label: str, quiet: bool, as_json: bool, state: str | None) -> int:
    """Begin a new run with what another had finished before LABEL."""
    config = configured({"state": state})

    async def begin(host: FlowHost, listener: Listener) -> FlowRun[Any]:
        return await begin_fork(host, run_id, label, listener=listener)

    return carry_in_foreground(config, begin, as_json=as_json, quiet=quiet)


def _remove_timers(run_id: str) -> None:
    """Take back the timer that woke us: it has done its work, and would stay for ever."""
    kind: WakeBy = _OWN_TIMERS.get(sys.platform, "systemd")
    timer = wake_timer(kind, run_id, SystemClock().now(), ("jackline",))
    if any(step.path.exists() for step in timer.set if isinstance(step, Write)):
        carry_out(timer.remove, lambda words: click.echo(words, err=True))
