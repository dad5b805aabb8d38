"""`jackline ls`, `show`, `logs`, `cancel` and `resources`: list runs, and give them orders.

Rules: (1) the first line is the summary; --json is one document with the name of its schema, a
stream is one document per line; (2) prompts and answers are shown only on request; (3) reading
creates nothing: without a store there are no runs, and an empty list is no error; (4) a run that
this installation did not write is accepted only after all code and commands it leads to were shown,
by a person at a terminal or with `--yes`, and exactly as shown.
The lines: run_text.py. Resuming: resume.py. Deleting: removal.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

import click

from jackline import event_loop
from jackline.agents.prices import known_cost
from jackline.assembly import StateDir
from jackline.assembly.saved_runs import open_quiet_host
from jackline.cli.arguments import run_ids
from jackline.cli.gateway_flags import configured, service_place, warn_of_faults
from jackline.cli.run import AS_JSON, STATE, summary
from jackline.cli.run_text import (
    WakePlan,
    call_lines,
    cancelled_json,
    cancelled_lines,
    code_of_run_lines,
    moment_json,
    no_runs,
    note_line,
    resource_line,
    run_json,
    run_line,
    saved_json,
)
from jackline.cli.terminal import say
from jackline.cli.wake_timer import last_wake_refusal
from jackline.clock import SystemClock
from jackline.control.text import whole_second
from jackline.errors import BadArgumentError, UsageError
from jackline.flows.cleanup.ledger import reap
from jackline.flows.flow_sources import to_look_at, why_not_woken
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import cancel_agents, cancel_run, claim_run, known_run, module_of
from jackline.flows.records import ENDED, ResourceRecord, RunRecord, RunState, decode_outcome
from jackline.flows.run_events import WARNING
from jackline.flows.run_totals import RunTotals, totals_of
from jackline.flows.store import run_store_exists, run_store_url
from jackline.flows.store.agent_log import pending_calls
from jackline.flows.store.run_store import RunStore, how_to_accept
from jackline.outside_names import printable

T = TypeVar("T")
_FOLLOW_SECONDS = 0.5
_EXACT = click.option("--exact", is_flag=True, help="Show when runs began as a date and a time.")
_NO_RUNS = "No runs yet: `jackline run FLOW.py` begins one."
_MOST_WARNINGS = 5


@click.command(name="ls")
@click.option(
    "--parked", is_flag=True, help="List only parked runs: when each would wake, and its cost."
)
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=30, help="List at most this many (30)."
)
@_EXACT
@AS_JSON
@STATE
def ls(parked: bool, limit: int, exact: bool, as_json: bool, state: str | None) -> int:
    """List runs, the newest first."""
    now = SystemClock().now()

    async def look(host: FlowHost) -> list[tuple[RunRecord, RunTotals, WakePlan | None]] | None:
        states = (RunState.PARKED,) if parked else None
        runs = await host.engine.runs(states=states, limit=limit)
        return [
            (
                run,
                await totals_of(host.engine, run),
                await _wake_plan(host, run, now) if parked else None,
            )
            for run in runs
        ]

    found = _with_store(state, look, lambda: None)
    if as_json:
        listed = []
        for run, totals, plan in found or ():
            document = run_json(run, totals)
            if plan is not None:
                at = None if plan.at is None else moment_json(whole_second(plan.at.timestamp()))
                document |= {
                    "wakes_now": plan.now,
                    "wakes_at": at,
                    "held_by": plan.held_by or None,
                    "calls_left": plan.calls_left,
                    "expected_cost": plan.expected_cost,
                }
            listed.append(document)
        click.echo(json.dumps({"schema": "jackline.runs/1", "runs": listed}, indent=2))
        return 0
    for run, totals, plan in found or ():
        say(run_line(run, totals, now, exact=exact))
        if plan is not None:
            say(f"    {plan.line(run, now)}")
    if not found:
        say(_NO_RUNS if found is None or not parked else "No run is parked.", err=True)
    return 0


@click.command()
@click.argument("run_id", metavar="ID", shell_complete=run_ids)
@click.option(
    "--trust",
    is_flag=True,
    help="Show what the run would load and run, and accept a run from elsewhere.",
)
@click.option("--yes", is_flag=True, help="With --trust: accept without asking.")
@_EXACT
@AS_JSON
@STATE
def show(run_id: str, trust: bool, yes: bool, exact: bool, as_json: bool, state: str | None) -> int:
    """Show one run: its state, how each agent ended, its cost, the resources it still holds.

    A run that another installation or an older version wrote is listed but not run: its flow file
    is not loaded, its commands do not run, and it does not wake. --trust shows its flow file and
    every command of it, and asks whether it is yours.
    """

    async def look(host: FlowHost) -> int:
        run = await known_run(host, run_id)
        if trust:
            return await _accept(host.engine, run, yes=yes, as_json=as_json)
        calls = await host.engine.calls(run.run_id)
        totals = await totals_of(host.engine, run)
        held = [each for each in await host.engine.resources() if each.run_id == run.run_id]
        notes = await host.engine.notes(run.run_id)
        texts = [str(note.detail.get("says", "")) for note in notes if note.what == WARNING]
        warnings = list(dict.fromkeys(texts))[-_MOST_WARNINGS:]  # the last ones, each once
        if as_json:
            document = {
                "schema": "jackline.run-shown/1",
                **run_json(run, totals),
                "outcome": saved_json(run.outcome),
                "calls": [
                    {
                        "kind": call.kind.value,
                        "label": call.label,
                        "phase": call.phase,
                        "task": call.task_id,
                        "state": call.state.value,
                        "terminated_by": call.terminated_by or None,
                        "attempts": call.attempts,
                        "tokens": call.tokens,
                        "cost": known_cost(call.cost, call.unpriced),
                        "unpriced_tokens": call.unpriced,
                        "outcome": saved_json(call.outcome),
                    }
                    for call in calls
                ],
                "resources": [each.name for each in held],
                "warnings": warnings,
            }
            click.echo(json.dumps(document, indent=2))
            return 0
        now = SystemClock().now()
        say(run_line(run, totals, now, exact=exact))
        for says in warnings:
            say(printable(f"warning: {says}"))
        if run.state is RunState.PARKED:
            say(f"    {(await _wake_plan(host, run, now)).line(run, now)}")
        if run.outcome is not None:
            lines = summary(decode_outcome(run.outcome), run, totals, words=True)
            for line in lines.splitlines():
                say(printable(line))
        if not run.trusted:
            say(printable(f"next:  {how_to_accept(run.run_id)}"))
        for line in call_lines(calls, now):
            say(line)
        for each in held:
            say(resource_line(each, now))
        return 0

    return _with_store(state, look)


async def _accept(engine: RunStore, run: RunRecord, *, yes: bool, as_json: bool) -> int:
    """Show the run, ask for consent, and mark it as ours."""
    digest = await engine.digest(run.run_id)
    again = await engine.run(run.run_id) or run  # what the digest covers, not what was read before
    resources = [row for row in await engine.resources() if row.run_id == run.run_id]
    hooks = [row for row in await engine.hooks(run.run_id) if row.state != "done"]
    calls = await engine.calls(run.run_id)
    pending = await pending_calls(engine, run.run_id)
    for line in code_of_run_lines(again, resources, hooks, calls, pending):
        click.echo(line, err=as_json)
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise UsageError(
                f"nobody has confirmed that run {run.run_id} is to be trusted",
                hint=f"read the lines above, then: jackline show {run.run_id} --trust --yes",
            )
        if not click.confirm("Is this yours, and may it run?", default=False, err=True):
            say("nothing was accepted", err=True)
            return 1
    await engine.accept(run.run_id, digest)
    if as_json:
        document = {"schema": "jackline.run-accepted/1", "run": run.run_id, "trusted": True}
        click.echo(json.dumps(document))
    else:
        text = f"run {run.run_id} is trusted from now on: jackline resume {run.run_id}"
        say(printable(text))
    return 0


@click.command()
@click.argument("run_id", metavar="[ID]", required=False, shell_complete=run_ids)
@click.option(
    "-f", "--follow", is_flag=True, help="Print new events, too, until the run ends or Ctrl-C."
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    default=200,
    help="Print at most this many events of the service (200).",
)
@AS_JSON
@STATE
def logs(run_id: str | None, follow: bool, limit: int, as_json: bool, state: str | None) -> int:
    """Print a run's log, or without an ID what the service did; one line per event.

    With --json every line is a document with its schema's name that can be read back.

    \b
    Examples:
      jackline logs -f        calls, failed attempts, lanes and notes as they come
      jackline logs 9f3c      one run
      jackline logs --json -n 5000 > events.ndjson
    """
    if run_id is None:
        from jackline.cli.journal_views import print_log  # noqa: PLC0415 -- not for runs

        place = service_place({"state": state})
        journal = StateDir(place.state_dir).journal
        if place.problem is not None and not journal.exists():
            raise place.problem  # without the fault, a journal might be found
        warn_of_faults(place)
        return event_loop.run(print_log(journal, limit, follow=follow, as_json=as_json))

    async def look(host: FlowHost) -> int:
        run = await known_run(host, run_id)
        after = 0
        while True:
            # While its owner still cleans up after it, there is more to come.
            ended = run.state in ENDED and run.lease_until <= SystemClock().wall()
            for note in await host.engine.notes(run.run_id, after=after):
                after = note.number
                click.echo(note_line(note, as_json=as_json, zone=SystemClock().now().tzinfo))
            if not follow or ended:
                return 0
            await SystemClock().sleep(_FOLLOW_SECONDS)
            run = await known_run(host, run.run_id)

    return _with_store(state, look)


@click.command()
@click.argument("run_id", metavar="ID", shell_complete=run_ids)
@click.option(
    "--only", metavar="LABEL", help="Cancel only the agents with this label, or this task id."
)
@click.option(
    "--ahead", is_flag=True, help="With --only: also agents that the flow has not reached yet."
)
@AS_JSON
@STATE
def cancel(run_id: str, only: str | None, ahead: bool, as_json: bool, state: str | None) -> int:
    """Cancel a run for good, with its clean-up; finished results stay readable.

    With --only LABEL, only these agents end, as `cancelled`, with their clean-up. Their siblings go
    on, the flow gets them as failed, and a parked run stays parked. `jackline resume ID` does not
    start them again; `jackline resume ID --only LABEL` does.

    \b
    Examples:
      jackline cancel 9f3c
      jackline cancel 9f3c --only "search 7"
    """

    async def order(host: FlowHost) -> int:
        if only is not None:
            result = await cancel_agents(host, run_id, only, ahead=ahead)
            if as_json:
                click.echo(json.dumps(cancelled_json(result)))
            else:
                for line in cancelled_lines(result):
                    say(line, err=True)
            return 0
        if ahead:
            raise BadArgumentError(
                "--ahead has no meaning without --only", hint="name the agents: --only LABEL"
            )
        run = await known_run(host, run_id)
        now = await cancel_run(host, run.run_id)
        if as_json:
            document = {"schema": "jackline.run-cancelled/1", "run": run.run_id, "state": now.value}
            click.echo(json.dumps(document))
        elif now in ENDED:
            say(printable(f"run {run.run_id} is {now.value}"), err=True)
        else:
            text = f"run {run.run_id} is being cancelled: its process ends it in a moment"
            say(printable(text), err=True)
        return 0

    return _with_store(state, order)


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also list released resources.")
@click.option("--retry", is_flag=True, help="Release what is left over: try failed releases again.")
@click.option("--woken", is_flag=True, hidden=True, help="Started by the service, not by a person.")
@AS_JSON
@STATE
def resources(everything: bool, retry: bool, woken: bool, as_json: bool, state: str | None) -> int:
    """List the resources that runs still hold, and who holds them.

    Exit codes: 0 nothing needs you, 1 a release failed.
    """

    async def look(host: FlowHost) -> Sequence[ResourceRecord]:
        if retry:
            take = partial(claim_run, host)
            reaped = await reap(
                host.engine, host.clock, module_of, take, unattended=woken, allow=host.allow
            )
            for done in reaped:
                say(printable(f"{done.what}: {done.trouble or 'done'}"), err=True)
        return await host.engine.resources(held_only=not everything)

    found: Sequence[ResourceRecord] = _with_store(state, look, tuple)
    if as_json:
        listed = [
            {
                "run": each.run_id,
                "name": each.name,
                "task": each.task_id or None,
                "state": each.state.value,
                "taken_at": each.taken_at,
                "lease_until": each.lease_until,
                "trouble": each.trouble or None,
                "trusted": each.trusted,
            }
            for each in found
        ]
        click.echo(json.dumps({"schema": "jackline.resources/1", "resources": listed}, indent=2))
    else:
        for each in found:
            say(resource_line(each, SystemClock().now()))
        if not found:
            say("nothing is held", err=True)
    return 1 if any(each.trouble for each in found) else 0


def _with_store(
    state: str | None,
    work: Callable[[FlowHost], Awaitable[T]],
    without: Callable[[], T] | None = None,
) -> T:
    """The result of `work`; without a store that of `without`, or UnreadableError."""
    config = configured({"state": state}, with_secrets=False)
    if not run_store_exists(run_store_url(config.state_dir)):
        if without is not None:
            return without()
        raise no_runs(config.state_dir)

    async def main() -> T:
        async with open_quiet_host(config) as host:
            return await work(host)

    return event_loop.run(main())


async def _wake_plan(host: FlowHost, run: RunRecord, now: datetime) -> WakePlan:
    refused = last_wake_refusal(await host.engine.notes(run.run_id))
    if not refused and run.trusted and (why := await why_not_woken(host.engine, run)):
        refused = to_look_at(why, run)
    return WakePlan.of(run, await host.engine.calls(run.run_id), now, refused)
