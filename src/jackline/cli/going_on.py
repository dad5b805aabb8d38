"""`jackline resume`, `retry` and `fork`: go on with a run, and pay for nothing twice.

Laws: (1) what is finished answers from the store; (2) a run is taken before a gateway is started
for it, since a service that starts wakes every run that nobody holds; (3) those of carrying_run.py.
Not here: what is run again (flows/orders.py), taking a run (taking_up.py).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from jackline.agents.outcome import Outcome
from jackline.cli.carrying_run import carry_in_foreground
from jackline.cli.completing import run_ids
from jackline.cli.gateway_flags import configured
from jackline.cli.run import AS_JSON, QUIET, STATE, WAKE
from jackline.cli.taking_up import TakingUp
from jackline.cli.wake_timer import WakeBy
from jackline.errors import JacklineError
from jackline.flows.executed_sources import ChangedSourceError
from jackline.flows.host import FlowHost
from jackline.flows.orders import begin_fork, begin_resume, begin_retry
from jackline.flows.progress import Listener
from jackline.flows.running import FlowRun
from jackline.outside_names import printable


@click.command()
@click.argument("run_id", metavar="ID", shell_complete=run_ids)
@click.option(
    "--now",
    is_flag=True,
    help="Ask at once, though its limit is told to reset later: you know better.",
)
@click.option(
    "--only",
    metavar="LABEL",
    help="Of those that failed or were cancelled, only the agents with this label, or task id.",
)
@click.option("--woken", is_flag=True, hidden=True, help="By a timer or the service: brakes hold.")
@WAKE
@QUIET
@AS_JSON
@STATE
def resume(
    run_id: str,
    now: bool,
    only: str | None,
    woken: bool,
    wake: WakeBy,
    quiet: bool,
    as_json: bool,
    state: str | None,
) -> int:
    """Go on with a run that was stopped, parked, cut off or failed.

    ID is the run's id, or its beginning. What is finished is not run again; agents go on at their
    last complete turn. A finished run shows its outcome.

    A parked run asks with one agent first. Where the gateway remembers the wall, that is answered
    by the gateway itself until the reset; with --now it asks the vendor once, as after you bought
    more. A process that waits for the reset with the run is asked to hand it over.

    With --only LABEL, also of a finished run, just these agents go on, each in its own conversation
    at its last complete turn; other failed ones stay failed. It undoes `jackline cancel --only`.
    `jackline retry` differs: it runs the failed calls again, and those that would end alike (by
    schema, refused or tool_error) begin anew. What the run has not finished goes on in both cases.
    """
    config = configured({"state": state})
    taking = TakingUp(run_id, config, wake=wake)

    async def begin(host: FlowHost, listener: Listener) -> FlowRun[Any] | Outcome[Any]:
        if now:
            await taking.forget_walls()
        return await taking.hand_over(
            begin_resume(host, taking.run_id, listener=listener, only=only, unattended=woken)
        )

    first = taking.woken if woken else taking.hurried if now else taking.by_hand
    if only is not None and not now and not woken:
        first = partial(taking.by_name, only)
    try:
        return carry_in_foreground(
            config,
            begin,
            as_json=as_json,
            quiet=quiet,
            wake=wake,
            first=first,
            unattended=woken,
        )
    except ChangedSourceError as error:
        # No failure of a timer or the service: the run waits for a person, and says so everywhere.
        click.echo(printable(f"run {taking.run_id} is not woken: {error.message}"), err=True)
        return 0
    except JacklineError:
        if woken:
            taking.wake_again_later()
        raise


@click.command()
@click.argument("run_id", metavar="ID", shell_complete=run_ids)
@click.option("--only", metavar="LABEL", help="Only the failed calls with this label, or task id.")
@QUIET
@AS_JSON
@STATE
def retry(run_id: str, only: str | None, quiet: bool, as_json: bool, state: str | None) -> int:
    """Run the failed calls of a run again, and nothing else.

    Agents that ended by schema, refused or tool_error begin anew, since they would end alike; the
    others go on at their last complete turn, like with `jackline resume ID --only LABEL`. Agents
    that you cancelled with `jackline cancel --only` are left out unless you name them.
    """
    config = configured({"state": state})
    taking = TakingUp(run_id, config)

    async def begin(host: FlowHost, listener: Listener) -> FlowRun[Any] | Outcome[Any]:
        return await taking.hand_over(
            begin_retry(host, taking.run_id, only=only, listener=listener)
        )

    return carry_in_foreground(config, begin, as_json=as_json, quiet=quiet, first=taking.by_hand)


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

    first = TakingUp(run_id, config).check
    return carry_in_foreground(config, begin, as_json=as_json, quiet=quiet, first=first)
