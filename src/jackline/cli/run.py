"""`jackline run`: run a flow in the foreground, with live progress, and exit with its result.

Rules: (1) the arguments of the flow are a JSON object or `--key value`; (2) the first Ctrl-C lets
agents end their turns and saves, the second ends now: neither loses what is finished; (3) stdout
holds the outcome alone, progress goes to stderr: a live picture on a terminal, else a line for each
event and each wait, without prompts and answers; (4) exit codes: 0 ok, 1 failed, 3 some agents
failed, 75 parked, 130 interrupted.
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
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import click

from jackline import event_loop
from jackline.agents.outcome import Outcome
from jackline.agents.prices import cost_in_words
from jackline.budgets.budget import Budget, Unit
from jackline.cli.gateway_flags import configured, show_warnings
from jackline.cli.run_text import has_live_owner, public_outcome
from jackline.cli.shutdown import discard_output
from jackline.cli.terminal import say
from jackline.cli.wake_timer import RunTimer, WakeBy, paying_variables, save_paying_variables
from jackline.clock import SystemClock
from jackline.config import Config
from jackline.control.fleet import WAITS
from jackline.control.run_view import (
    GATEWAY_GONE,
    WAITING,
    GatewayWaits,
    RunView,
    WaitLines,
    event_line,
    step_after_end,
    wait_line,
)
from jackline.control.text import until_text
from jackline.errors import BadArgumentError, ExitCode, StoreUnavailableError
from jackline.failures.sentences import duration_in_words
from jackline.flows.authoring.flow_definition import Flow, load_flow
from jackline.flows.flow_run import FlowRun
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_run, known_run
from jackline.flows.records import RunRecord, RunState
from jackline.flows.run_events import AgentWaits, FlowEvent, Listener, RunEnded, RunParked, RunWoke
from jackline.flows.run_totals import RunTotals, totals_of
from jackline.flows.store.run_store import RunStore
from jackline.flows.values import decode_arguments, parse_arguments
from jackline.outside_names import printable
from jackline.user_errors import error_texts

if TYPE_CHECKING:
    from rich.console import Group


Begin: TypeAlias = Callable[[FlowHost, Listener], Awaitable[FlowRun[Any] | Outcome[Any]]]
First: TypeAlias = Callable[[RunStore], Awaitable[object]]

_FRAMES_PER_SECOND = 4
_LOOK_EVERY = 1.0
_LIMITS = tuple(unit.value for unit in Unit)
_MOST_AGENTS = 12
_STYLES = {"parked": "magenta", "failed": "red", "stopping": "yellow", "finished": "green"}


class Progress(Protocol):
    """What shows a run."""

    def apply(self, event: FlowEvent) -> None:
        """Show an event."""

    def observe(self, found: GatewayWaits | None) -> None:
        """Show what the gateway says now; None when it does not answer."""


@contextmanager
def show_progress() -> Iterator[Progress]:
    """What shows a run until the block ends."""
    if not sys.stderr.isatty():
        yield ProgressLines()
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
            yield view


class ProgressLines:
    """One line per event; a reason that several agents and the run share is printed once."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._reasons: set[str] = set()
        self._view = RunView()
        self._waits = WaitLines()

    def observe(self, found: GatewayWaits | None) -> None:
        """Print what has changed in what agents wait for."""
        self._view.observe(found)
        now = self._clock.now()
        for line in self._waits.of(self._view, now):
            say(printable(f"{now:%H:%M:%S} {line}"), err=True)

    def apply(self, event: FlowEvent) -> None:
        """Print the line of this event."""
        self._view.apply(event)
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
            say(f"{now:%H:%M:%S} {line}", err=True)


def draw_run(view: RunView, now: datetime) -> Group:
    """The picture of a run on a terminal."""
    from rich.console import Group  # noqa: PLC0415 -- only on a terminal
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    sums = f"{view.tokens:,} tokens, {cost_in_words(view.cost, view.unpriced)}"
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
    lines += [Text(f"  {wait_line(*group, now)}", style="yellow") for group in view.held()]
    if view.is_gateway_gone:
        lines.append(Text(f"  {GATEWAY_GONE}", style="red"))
    needs = () if view.gateway is None else view.gateway.needs
    lines += [Text(f"  needs you: {need}", style="red") for need in needs]
    # Waiting agents first: they are what people look for.
    stands = {task: view.stand(task) for task in view.agents}
    waits = (*WAITS, WAITING)
    agents = sorted(
        view.agents, key=lambda task: (stands[task].state not in waits, view.agents[task].since)
    )
    table = Table.grid(padding=(0, 2))
    for task in agents[:_MOST_AGENTS]:
        agent, stand = view.agents[task], stands[task]
        # The reason of a lane stands above, once for all that wait for it.
        detail = stand.lane or f"{stand.why}{until_text(stand.until, now)}"
        if stand.state not in waits:
            since = duration_in_words(now - datetime.fromtimestamp(agent.since, now.tzinfo))
            detail = f"turn {agent.turns + 1}, {agent.tokens:,} tokens, for {since}"
        table.add_row("  " + agent.label, stand.state, detail)
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
    goes into a log, so that it holds no answer.
    """
    words = not unattended and sys.stderr.isatty()
    references = configured({}, with_secrets=False).gateway.upstreams
    paying = paying_variables(references, os.environ)
    timer = RunTimer(wake, config, lambda line: say(printable(line), err=True), paying)
    work = _run(config, begin, timer, first, quiet=quiet or unattended)
    if unattended:
        with Path(os.devnull).open("w") as devnull, contextlib.redirect_stdout(devnull):
            outcome, record, totals = event_loop.run(work)
            say(printable(summary(outcome, record, totals), keep="\n"), err=True)
    else:
        outcome, record, totals = event_loop.run(work)
        # As it was saved: the value there is plain JSON, whatever the flow's own types are.
        saved = public_outcome(record.outcome)
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
                text = summary(outcome, record, totals, words=words)
                say(printable(text, keep="\n"), err=True)
        except BrokenPipeError:
            discard_output()
    return ExitCode.INTERRUPTED if record.state is RunState.STOPPED else outcome.exit_code


def say_started(url: str) -> None:
    """Say that a gateway was started that goes on after this command."""
    say(f"jackline: started a gateway at {url}; jackline down stops it", err=True)


async def _run(
    config: Config, begin: Begin, timer: RunTimer, first: First | None, *, quiet: bool
) -> tuple[Outcome[Any], RunRecord, RunTotals]:
    stop_lock_messages: list[Callable[[], None]] = []

    async def with_store(engine: RunStore) -> None:
        # Until the run itself reports that it waits.
        stop = engine.on_wait(lambda says: say(printable(says), err=True))
        stop_lock_messages.append(stop)
        if first is not None:
            await first(engine)

    # `ls` and its like share this module and start without a gateway.
    from jackline.assembly.flow_host import open_flow_host  # noqa: PLC0415

    async with open_flow_host(
        config, in_background=True, first=with_store, started=say_started
    ) as host:
        async with AsyncExitStack() as stack:
            progress = None if quiet else stack.enter_context(show_progress())
            if progress is not None:
                watching = asyncio.create_task(_watch_gateway(host, progress))
                stack.callback(watching.cancel)

            def listener(event: FlowEvent) -> None:
                timer.on_event(event)
                if progress is not None:
                    progress.apply(event)

            asyncio.get_running_loop().set_exception_handler(_left_task_raised)
            begun = await begin(host, listener)
            for stop in stop_lock_messages:
                stop()
            if isinstance(begun, Outcome):
                outcome, run_id = begun, begun.task_id
            else:
                run_id = begun.run_id
                outcome = await _run_to_end(begun, host, timer)
        record = await known_run(host, run_id)
        totals = await totals_of(host.engine, record)
        await timer.align(host.engine, run_id)
    return outcome, record, totals


async def _watch_gateway(host: FlowHost, progress: Progress) -> None:
    """Show what the gateway says of the run's agents, until cancelled."""
    while True:
        progress.observe(GatewayWaits.from_json(await host.read_waits()))
        await host.clock.sleep(_LOOK_EVERY)


def _left_task_raised(_loop: object, context: dict[str, Any]) -> None:
    """Nobody awaits it: what it raised is code of users, and is not quoted."""
    error = context.get("exception")
    if error is not None:
        text = f"warning: a task that nobody awaited raised {error_texts(error).brief}"
        say(printable(text), err=True)


async def _run_to_end(run: FlowRun[Any], host: FlowHost, timer: RunTimer) -> Outcome[Any]:
    """The outcome of the run; Ctrl-C stops it."""
    hurry_at_second = itertools.chain((lambda: None,), itertools.repeat(host.engine.hurry))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if run.is_cleaning_up:
            say("cleaning up. Ctrl-C again leaves it to the next process", err=True)
        elif not run.is_parked:
            say("stopping: agents end their turns. Ctrl-C again stops now", err=True)
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
    except StoreUnavailableError as error:
        raise type(error)(
            f"run {run.run_id} is paused as it was last saved: {error.message}",
            hint=f"{error.hint} Then: jackline resume {run.run_id}",
        ) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        timer.stop()
        await watch


def summary(
    outcome: Outcome[Any], record: RunRecord, totals: RunTotals, *, words: bool = False
) -> str:
    """The outcome of a run for a person, with the next step.

    `words` adds what code of users said, which may quote an answer.
    """
    run_id, state = record.run_id, record.state
    figures = f"{totals.in_words(state)}; {totals.paid}"
    says = f": {outcome.evidence.says}" if outcome.evidence.says else ""
    said = outcome.evidence.private
    if said:
        figures += f"\nsaid:  {said if words else f'jackline show {run_id}'}"
    now = SystemClock().now()
    resume = f"jackline resume {run_id}"
    if state is RunState.PARKED:
        first = f"run {run_id} is parked{until_text(record.wake_at, now)}{says}"
        step = f"it waits for you: {resume}"
        if record.wake_at:
            step = f"`jackline up` wakes it then; at once: jackline resume {run_id} --now"
        return f"{first}\n{figures}\nnext:  {step}"
    if state is RunState.STOPPED:
        return f"run {run_id} is stopped; finished work is saved\n{figures}\nnext:  {resume}"
    if state is RunState.RUNNING:
        is_alive = has_live_owner(record, now.timestamp())
        return f"{figures}\nnext:  {f'jackline logs {run_id} -f' if is_alive else resume}"
    ending = "finished" if outcome.ok else f"ended by {outcome.terminated_by.value}"
    lines = [f"run {run_id} {ending}{says}", figures]
    if (after := step_after_end(record, outcome)) is not None:
        lines.append(f"next:  {after.command}   ({after.remark})")
    return "\n".join(lines)


WAKE = click.option(
    "--wake",
    type=click.Choice(["systemd", "launchd", "at", "schtasks", "none"]),
    default="none",
    help="Let a timer of the system wake the run if it stays parked and no `jackline up` runs.",
)
BUDGET = click.option(
    "--budget",
    help='What the run may use: "dollars=5,tokens=2000000,agents=50,turns=500"; "strict" too.',
)
QUIET = click.option("-q", "--quiet", is_flag=True, help="Print only the outcome, no progress.")
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
@click.option(
    "--on-quota", type=click.Choice(["park", "abort"]), help="What to do at a quota wall."
)
@BUDGET
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
      jackline run research.py '{"question": "What?"}' --budget dollars=5

    Ctrl-C once: nothing new starts, agents end their turns, everything is saved. Ctrl-C twice: it
    stops now.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 finished but some agents failed, 75 parked, 130 stopped.
    """
    keys = {"state": "state", **{name: f"run.{name}" for name in ("runner", "model", "on_quota")}}
    limits = None if budget is None else parse_budget(budget)
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


def parse_budget(text: str) -> Budget:
    """The limits that a person has written."""
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
        if name not in _LIMITS or name not in limits:
            wrong = f"{name!r} is no limit" if name not in _LIMITS else f"{number!r} is no number"
            raise BadArgumentError(
                f"{text!r} is no budget: {wrong}",
                hint=f"the limits are {', '.join(_LIMITS)}, and strict; write it like"
                ' "dollars=5,tokens=2000000" or "dollars=5,strict"',
            )
    return Budget(**limits, strict=strict)  # type: ignore[arg-type]
