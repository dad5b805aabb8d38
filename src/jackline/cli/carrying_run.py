"""Carry a run in the foreground: progress, timer, Ctrl-C, what comes out, the exit code.

Laws: (1) the first Ctrl-C lets agents end their turns and saves, the second ends now: neither loses
what is finished; (2) stdout holds the outcome alone; (3) exit codes: 0 ok, 1 failed, 3 some agents
failed, 75 parked, 130 interrupted.
Not here: the run (flows/), how it is shown (run_progress.py), the timer (run_timer.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import click

from jackline import event_loop
from jackline.agents.outcome import Outcome
from jackline.assembly.flow_host import open_flow_host
from jackline.cli.closed_output import forget_output
from jackline.cli.gateway_flags import configured
from jackline.cli.paying_variables import note_paying, paying_variables
from jackline.cli.run_progress import shown_progress
from jackline.cli.run_timer import RunTimer
from jackline.cli.wake_timer import WakeBy
from jackline.clock import SystemClock
from jackline.config import Config
from jackline.control.run_view import until_words
from jackline.errors import StoreLockedError
from jackline.flows.host import FlowHost
from jackline.flows.local import LocalEngine
from jackline.flows.orders import is_dead, known_run
from jackline.flows.progress import FlowEvent, Listener
from jackline.flows.records import ENDED, RunRecord, RunState
from jackline.flows.running import LOCKED, FlowRun
from jackline.outside_names import printable

SCHEMA = "jackline.run/1"
EXIT_INTERRUPTED = 130
Begin: TypeAlias = Callable[[FlowHost, Listener], Awaitable[FlowRun[Any] | Outcome[Any]]]
First: TypeAlias = Callable[[LocalEngine], Awaitable[None]]


def carry_in_foreground(
    config: Config,
    begin: Begin,
    *,
    as_json: bool,
    quiet: bool,
    wake: WakeBy = "none",
    first: First | None = None,
    unattended: bool = False,
) -> int:
    """The exit code of a run that `begin` starts or goes on with.

    `first` is done with the store before a gateway is looked for or started. `unattended`: what is
    printed goes into a log, so that it holds neither answers nor what an exception said.
    """
    references = configured({}, with_secrets=False).gateway.upstreams
    paying = paying_variables(references, os.environ)
    timer = RunTimer(wake, config, lambda words: click.echo(printable(words), err=True), paying)
    if unattended:
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            return event_loop.run(
                _carry(config, begin, timer, first, tell=_tell_plainly, quiet=True)
            )
    tell = partial(_tell, as_json=as_json)
    return event_loop.run(_carry(config, begin, timer, first, tell=tell, quiet=quiet))


async def _carry(
    config: Config,
    begin: Begin,
    timer: RunTimer,
    first: First | None,
    *,
    tell: Callable[[Outcome[Any], RunRecord], None],
    quiet: bool,
) -> int:
    forget_locks: list[Callable[[], None]] = []

    async def taken(engine: LocalEngine) -> None:
        # Until the run itself tells of it.
        forget_locks.append(engine.tell_of_locks(lambda: click.echo(LOCKED, err=True)))
        if first is not None:
            await first(engine)

    async with open_flow_host(config, in_background=True, first=taken) as host:
        with shown_progress(quiet=quiet) as shown:

            def listener(event: FlowEvent) -> None:
                timer.heard(event)
                shown(event)

            begun = await begin(host, listener)
            for forget in forget_locks:
                forget()
            if isinstance(begun, Outcome):
                outcome, run_id = begun, begun.task_id
            else:
                run_id = begun.run_id
                outcome = await _carried(begun, host, timer)
        record = await known_run(host, run_id)
        await timer.align(host.engine, run_id)
    try:
        tell(outcome, record)
    except BrokenPipeError:
        forget_output()
    return EXIT_INTERRUPTED if record.state is RunState.STOPPED else outcome.exit_code


async def _carried(run: FlowRun[Any], host: FlowHost, timer: RunTimer) -> Outcome[Any]:
    undo = _on_signals(run, host.engine.hurry)
    minding = asyncio.create_task(timer.watch(host.engine, run.run_id))
    try:
        await note_paying(host.engine, run.run_id, timer.paying, host.clock)
        return await run.carry()
    except StoreLockedError as error:
        raise StoreLockedError(
            f"run {run.run_id} is paused as it was last kept: {error.message}",
            next=f"end the program that holds that file, then: jackline resume {run.run_id}",
        ) from error
    finally:
        undo()
        timer.leave()
        await minding


def _on_signals(run: FlowRun[Any], hurry: Callable[[], None]) -> Callable[[], None]:
    """Let Ctrl-C stop the run; gives what undoes that."""
    hurry_at_second = itertools.chain((lambda: None,), itertools.repeat(hurry))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if run.is_cleaning_up:
            click.echo("cleaning up. Ctrl-C again leaves it to the next process", err=True)
        elif not run.is_parked:
            click.echo("stopping: agents end their turns. Ctrl-C again stops now", err=True)
        next(hurry_at_second)()
        run.stop("Ctrl-C.")

    def from_handler(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(stop)

    before = {}
    for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is not None:
            before[number] = signal.signal(number, from_handler)

    def undo() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return undo


def _tell(outcome: Outcome[Any], record: RunRecord, *, as_json: bool) -> None:
    # As it was kept: the value there is plain JSON, whatever the flow's own types are.
    kept = {} if record.outcome is None else json.loads(record.outcome)
    if as_json:
        head = {
            "schema": SCHEMA,
            "run": record.run_id,
            "state": record.state.value,
            "retry_at": record.wake_at,
            "exit_code": outcome.exit_code,
        }
        click.echo(json.dumps({**head, **kept}, indent=2, ensure_ascii=False))
        return
    value = kept.get("value")
    if outcome.ok and value is not None:
        whole = isinstance(value, str)
        click.echo(value if whole else json.dumps(value, indent=2, ensure_ascii=False))
    click.echo(printable(summary(outcome, record), keep="\n"), err=True)


def _tell_plainly(outcome: Outcome[Any], record: RunRecord) -> None:
    click.echo(printable(summary(outcome, record, plain=True), keep="\n"), err=True)


def summary(outcome: Outcome[Any], record: RunRecord, *, plain: bool = False) -> str:
    """What became of a run, for a person, with the next step.

    `plain` leaves out what an exception of the flow said: it may hold an answer.
    """
    run_id, state = record.run_id, record.state
    tally = outcome.tally
    counts = tally.in_words("parked" if state is RunState.PARKED else "not finished")
    cost = "" if outcome.cost is None else f", ${outcome.cost:,.2f}"
    figures = f"{counts}; {outcome.usage.total:,} tokens{cost}"
    says = f": {outcome.evidence.says}" if outcome.evidence.says else ""
    if plain and state in ENDED:
        says = ""
    now = SystemClock().now()
    if state is RunState.PARKED:
        first = f"run {run_id} is parked{until_words(record.wake_at, now)}{says}"
        step = f"jackline resume {run_id}"
        by_itself = f"`jackline up` wakes it then; at once: {step} --now"
        step = by_itself if record.wake_at else f"it waits for you: {step}"
        return "\n".join([first, figures, f"next:  {step}"])
    if state is RunState.STOPPED:
        first = f"run {run_id} is stopped; everything that is finished is kept"
        return "\n".join([first, figures, f"next:  jackline resume {run_id}"])
    if state is RunState.RUNNING:
        gone = record.lease_until < now.timestamp() or is_dead(record.owner)
        step = f"jackline resume {run_id}" if gone else f"jackline logs {run_id} -f"
        return f"{figures}\nnext:  {step}"
    words = "finished" if outcome.ok else f"ended by {outcome.terminated_by.value}"
    lines = [f"run {run_id} {words}{says}", figures]
    if not outcome.ok and state is not RunState.CANCELLED:
        lines.append(f"next:  jackline resume {run_id}   (what is finished is not run again)")
    elif tally.failed:
        lines.append(f"next:  jackline retry {run_id}   (runs the failed ones again, nothing else)")
    return "\n".join(lines)
