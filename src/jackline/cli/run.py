"""`jackline run`: run a flow in the foreground, with live progress, and exit with its result.

Rules: (1) the arguments of the flow are a JSON object or `--key value`; (2) the first Ctrl-C lets
agents end their turns and saves, the second ends now: neither loses what is finished; (3) stdout
holds the outcome alone, progress goes to stderr: a live picture on a terminal, else a line for each
event, without prompts and answers; (4) exit codes: 0 ok, 1 failed, 3 some agents failed, 75 parked,
130 interrupted.
Resuming a run: resume.py. The wake timer: wake_timer.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from jackline import event_loop
from jackline.agents.outcome import Outcome
from jackline.budgets.budget import Budget
from jackline.cli.gateway_flags import configured, show_warnings
from jackline.cli.run_text import has_live_owner
from jackline.cli.shutdown import discard_output
from jackline.cli.wake_timer import RunTimer, WakeBy, paying_variables, save_paying_variables
from jackline.clock import SystemClock
from jackline.config import Config
from jackline.control.run_view import RunView, event_line
from jackline.control.text import until_text
from jackline.errors import BadArgumentError, StoreLockedError
from jackline.failures.sentences import duration_in_words
from jackline.flows.authoring.flow_definition import Flow, load_flow
from jackline.flows.flow_run import LOCKED, FlowRun
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_run, known_run
from jackline.flows.records import ENDED, RunRecord, RunState
from jackline.flows.run_events import AgentWaits, FlowEvent, Listener, RunEnded, RunParked, RunWoke
from jackline.flows.store.run_store import RunStore
from jackline.flows.values import decode_arguments, parse_arguments
from jackline.outside_names import printable

if TYPE_CHECKING:
    from rich.console import Group


Begin: TypeAlias = Callable[[FlowHost, Listener], Awaitable[FlowRun[Any] | Outcome[Any]]]
First: TypeAlias = Callable[[RunStore], Awaitable[object]]

_FRAMES_PER_SECOND = 4
_MOST_AGENTS = 12
_STYLES = {"parked": "magenta", "failed": "red", "stopping": "yellow", "finished": "green"}


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[Listener]:
    """A listener that shows a run's events until the block ends."""
    if quiet:
        yield lambda _event: None
    elif not sys.stderr.isatty():
        yield ProgressLines().show
    else:
        from rich.console import Console  # noqa: PLC0415 -- only on a terminal
        from rich.live import Live  # noqa: PLC0415

        clock = SystemClock()
        view = RunView()
        with Live(
            get_renderable=lambda: draw_run(view, clock.now()),
            console=Console(stderr=True, highlight=False),
            refresh_per_second=_FRAMES_PER_SECOND,
            transient=False,
            redirect_stdout=False,
        ):
            yield view.apply


class ProgressLines:
    """One line per event; a reason that several agents and the run share is printed once."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._reasons: set[str] = set()

    def show(self, event: FlowEvent) -> None:
        """Print the line of this event."""
        if isinstance(event, AgentWaits):
            if event.why in self._reasons:
                return
            self._reasons.add(event.why)
        elif isinstance(event, RunParked | RunEnded) and event.why:
            if event.why in self._reasons:
                event = replace(event, why="")
            self._reasons.add(event.why)
        elif isinstance(event, RunWoke):
            self._reasons.clear()
        now = self._clock.now()
        if line := event_line(event, now):
            click.echo(f"{now:%H:%M:%S} {line}", err=True)


def draw_run(view: RunView, now: datetime) -> Group:
    """The picture of a run on a terminal."""
    from rich.console import Group  # noqa: PLC0415 -- only on a terminal
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    sums = f"{view.tokens:,} tokens, ${view.cost:,.2f}"
    head = Text.assemble((view.flow or "…", "bold"), f"  {view.run_id}   {sums}")
    lines: list[Text | Table] = [head, Text(view.sentence(now), style=_STYLES.get(view.state, ""))]
    if len(view.phases) > 1 or "" not in view.phases:
        phases = Text("  ")
        for phase in view.phases.values():
            if phase.name:
                failed = f", {phase.failed} failed" if phase.failed else ""
                total = phase.done + phase.failed + phase.running
                phases.append(f"{phase.name} {phase.done}/{total}{failed}   ")
        lines.append(phases)
    # Waiting agents first: they are what people look for.
    agents = sorted(view.agents.values(), key=lambda each: (not each.why, each.since))
    table = Table.grid(padding=(0, 2))
    for agent in agents[:_MOST_AGENTS]:
        state, detail = "waits", f"{agent.why}{until_text(agent.until, now)}"
        if not agent.why:
            since = duration_in_words(now - datetime.fromtimestamp(agent.since, now.tzinfo))
            state, detail = f"turn {agent.turns + 1}", f"{agent.tokens:,} tokens, for {since}"
        table.add_row("  " + agent.label, state, detail)
    if agents:
        lines.append(table)
    if len(agents) > _MOST_AGENTS:
        lines.append(Text(f"  and {len(agents) - _MOST_AGENTS} more", style="dim"))
    lines += [Text(f"  ! {warning}", style="yellow") for warning in view.warnings]
    return Group(*lines)


def run_in_foreground(
    config: Config,
    begin: Begin,
    *,
    as_json: bool,
    quiet: bool,
    wake: WakeBy = "none",
    first: First | None = None,
    unattended: bool = False,
) -> int:
    """The exit code of a run that `begin` starts or resumes.

    `first` is called with the store before a gateway is looked for or started. `unattended`: output
    goes into a log, so that it holds neither answers nor the messages of exceptions.
    """
    references = configured({}, with_secrets=False).gateway.upstreams
    paying = paying_variables(references, os.environ)
    timer = RunTimer(wake, config, lambda line: click.echo(printable(line), err=True), paying)
    work = _run(config, begin, timer, first, quiet=quiet or unattended)
    if unattended:
        with Path(os.devnull).open("w") as devnull, contextlib.redirect_stdout(devnull):
            outcome, record = event_loop.run(work)
            click.echo(printable(summary(outcome, record, plain=True), keep="\n"), err=True)
    else:
        outcome, record = event_loop.run(work)
        # As it was saved: the value there is plain JSON, whatever the flow's own types are.
        saved = {} if record.outcome is None else json.loads(record.outcome)
        try:
            if as_json:
                head = {
                    "schema": "jackline.run/1",
                    "run": record.run_id,
                    "state": record.state.value,
                    "retry_at": record.wake_at,
                    "exit_code": outcome.exit_code,
                }
                click.echo(json.dumps({**head, **saved}, indent=2, ensure_ascii=False))
            else:
                value = saved.get("value")
                if outcome.ok and value is not None:
                    is_text = isinstance(value, str)
                    click.echo(
                        value if is_text else json.dumps(value, indent=2, ensure_ascii=False)
                    )
                click.echo(printable(summary(outcome, record), keep="\n"), err=True)
        except BrokenPipeError:
            discard_output()
    return 130 if record.state is RunState.STOPPED else outcome.exit_code


async def _run(
    config: Config, begin: Begin, timer: RunTimer, first: First | None, *, quiet: bool
) -> tuple[Outcome[Any], RunRecord]:
    stop_lock_messages: list[Callable[[], None]] = []

    async def with_store(engine: RunStore) -> None:
        # Until the run itself reports a locked store.
        stop = engine.on_lock_wait(lambda: click.echo(LOCKED, err=True))
        stop_lock_messages.append(stop)
        if first is not None:
            await first(engine)

    # `ls` and its like share this module and start without a gateway.
    from jackline.assembly.flow_host import open_flow_host  # noqa: PLC0415

    async with open_flow_host(config, in_background=True, first=with_store) as host:
        with show_progress(quiet=quiet) as show:

            def listener(event: FlowEvent) -> None:
                timer.on_event(event)
                show(event)

            begun = await begin(host, listener)
            for stop in stop_lock_messages:
                stop()
            if isinstance(begun, Outcome):
                outcome, run_id = begun, begun.task_id
            else:
                run_id = begun.run_id
                outcome = await _run_to_end(begun, host, timer)
        record = await known_run(host, run_id)
        await timer.align(host.engine, run_id)
    return outcome, record


async def _run_to_end(run: FlowRun[Any], host: FlowHost, timer: RunTimer) -> Outcome[Any]:
    """The outcome of the run; Ctrl-C stops it."""
    hurry_at_second = itertools.chain((lambda: None,), itertools.repeat(host.engine.hurry))
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
    watch = asyncio.create_task(timer.watch(host.engine, run.run_id))
    try:
        await save_paying_variables(host.engine, run.run_id, timer.paying, host.clock)
        return await run.run()
    except StoreLockedError as error:
        raise StoreLockedError(
            f"run {run.run_id} is paused as it was last saved: {error.message}",
            hint=f"end the program that holds that file, then: jackline resume {run.run_id}",
        ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        timer.stop()
        await watch


def summary(outcome: Outcome[Any], record: RunRecord, *, plain: bool = False) -> str:
    """The outcome of a run for a person, with the next step.

    `plain` leaves out the message of a flow's exception: it may hold an answer.
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
    resume = f"jackline resume {run_id}"
    if state is RunState.PARKED:
        first = f"run {run_id} is parked{until_text(record.wake_at, now)}{says}"
        step = f"it waits for you: {resume}"
        if record.wake_at:
            step = f"`jackline up` wakes it then; at once: {resume} --now"
        return f"{first}\n{figures}\nnext:  {step}"
    if state is RunState.STOPPED:
        return f"run {run_id} is stopped; finished work is saved\n{figures}\nnext:  {resume}"
    if state is RunState.RUNNING:
        is_alive = has_live_owner(record, now.timestamp())
        return f"{figures}\nnext:  {f'jackline logs {run_id} -f' if is_alive else resume}"
    ending = "finished" if outcome.ok else f"ended by {outcome.terminated_by.value}"
    lines = [f"run {run_id} {ending}{says}", figures]
    if not outcome.ok and state is not RunState.CANCELLED:
        lines.append(f"next:  {resume}   (what is finished is not run again)")
    elif tally.failed:
        lines.append(f"next:  jackline retry {run_id}   (runs the failed ones again, nothing else)")
    return "\n".join(lines)


WAKE = click.option(
    "--wake",
    type=click.Choice(["systemd", "launchd", "at", "schtasks", "none"]),
    default="none",
    help="Let the system wake it when it was left parked and no `jackline up` runs.",
)
QUIET = click.option("-q", "--quiet", is_flag=True, help="No progress, only the outcome.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
STATE = click.option("--state", type=click.Path(), help="The folder for journal and state.")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True})
@click.argument("flow")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--runner",
    type=click.Choice(["messages", "claude-code", "codex"]),
    help="The runner of agents that name none.",
)
@click.option("--model", help="The model of agents that name none.")
@click.option("--on-quota", type=click.Choice(["park", "abort"]), help="At a quota wall.")
@click.option(
    "--budget",
    help='What it may use: "dollars=5,tokens=2000000,agents=50,turns=500"; "strict" too.',
)
@WAKE
@QUIET
@AS_JSON
@STATE
def run(
    flow: str,
    arguments: Sequence[str],
    budget: str | None,
    wake: WakeBy,
    quiet: bool,
    as_json: bool,
    **overrides: str | None,
) -> int:
    """Run a flow of agents to its end, whatever happens.

    FLOW is a Python file, with the flow's name if it has several: research.py:main. Its arguments
    follow as one JSON object or as --key value.

    \b
    Examples:
      jackline run research.py --question "What is a jackline?"
      jackline run research.py '{"question": "What is a jackline?"}' --budget dollars=5

    Ctrl-C once: nothing new starts, agents end their turns, everything is saved. Twice: now.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 finished but some agents failed, 75 parked, 130 stopped.
    """
    keys = {"state": "state", **{name: f"run.{name}" for name in ("runner", "model", "on_quota")}}
    limits = None if budget is None else _parse_budget(budget)
    config = configured(
        {keys[name]: value for name, value in overrides.items()},
        in_dollars=limits is not None and limits.dollars is not None,
    )
    show_warnings(config)
    loaded = load_flow(flow)
    values = _flow_arguments(loaded, arguments)
    settings = config.runs
    if limits is not None:
        settings = replace(settings, budgets=(*settings.budgets, limits))

    async def begin(host: FlowHost, listener: Listener) -> FlowRun[Any]:
        return await begin_run(host, loaded, values, settings=settings, listener=listener)

    return run_in_foreground(config, begin, as_json=as_json, quiet=quiet, wake=wake)


def _flow_arguments(flow: Flow[..., Any], words: Sequence[str]) -> bytes:
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            data = json.dumps(json.loads(words[0])).encode()
        except ValueError as error:
            raise BadArgumentError(
                f"the flow's arguments are no JSON: {error}", hint="check the quotes of your shell"
            ) from error
        decode_arguments(flow.function, data)
        return data
    values: dict[str, str] = {}
    rest = list(words)
    while rest:
        name = rest.pop(0)
        if not name.startswith("--") or len(name) < 3:
            raise BadArgumentError(
                f"{name!r} is no argument of the flow", hint="write --key value, or one JSON object"
            )
        name, equals, value = name[2:].partition("=")
        if not equals:
            if not rest:
                raise BadArgumentError(f"--{name} needs a value", hint=f"write --{name} VALUE")
            value = rest.pop(0)
        values[name.replace("-", "_")] = value
    return parse_arguments(flow.function, values)


def _parse_budget(text: str) -> Budget:
    limits: dict[str, float] = {}
    parts = [part.strip() for part in text.split(",")]
    strict = "strict" in parts
    for part in parts:
        if part == "strict":
            continue
        name, _, number = (piece.strip() for piece in part.partition("="))
        try:
            limits[name] = float(number) if name in ("dollars", "seconds") else int(number)
        except ValueError:
            limits = {}
        if name not in ("tokens", "dollars", "agents", "turns", "seconds") or name not in limits:
            raise BadArgumentError(
                f"{text!r} is no budget",
                hint='write it like "dollars=5,tokens=2000000" or "dollars=5,strict"',
            )
    return Budget(**limits, strict=strict)  # type: ignore[arg-type]
