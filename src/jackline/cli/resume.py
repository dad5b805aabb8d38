"""`jackline resume` and `fork`: claim a run, and go on without paying for anything twice.

Rules: (1) what is finished answers from the store; (2) a run is claimed before a gateway is found
or started: a service that starts wakes every run that nobody holds; (3) a process that was woken
and may not resume, or comes too late, says so and does no harm; (4) a person's order goes before
the brakes, and before a known quota wall only with `--now`; (5) the rules of run.py.
What is run again: flows/lifecycle.py. The brakes: flows/settings.py.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn, TypeVar

import click

from jackline import event_loop
from jackline.agents.outcome import Outcome
from jackline.assembly.gateway_process import find, order
from jackline.assembly.saved_runs import open_state_store
from jackline.budgets.budget import with_limits
from jackline.cli.arguments import run_ids
from jackline.cli.gateway_flags import configured
from jackline.cli.run import AS_JSON, BUDGET, QUIET, STATE, WAKE, parse_budget, run_in_foreground
from jackline.cli.run_text import has_live_owner
from jackline.cli.terminal import say
from jackline.cli.wake_timer import RunTimer, WakeBy, missing_paying_variables, remove_own_timer
from jackline.clock import SystemClock
from jackline.config import Config
from jackline.control.text import until_text
from jackline.errors import BadArgumentError, JacklineError, UsageError
from jackline.flows.execution.agent_cancellation import withdraw_cancellations
from jackline.flows.flow_run import FlowRun
from jackline.flows.flow_sources import ChangedSourceError
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_fork, begin_resume, begin_retry, claim_run, known_run
from jackline.flows.records import RunRecord, RunState
from jackline.flows.run_events import Listener
from jackline.flows.run_owner import owner_in_words
from jackline.flows.settings import (
    NOT_WOKEN,
    RunSettings,
    decode_settings,
    limits_in_words,
    may_wake,
)
from jackline.flows.store.run_store import NOT_OURS, Claim, RunStore, how_to_accept, must_be_trusted
from jackline.outside_names import printable
from jackline.state_dir import StateDir

T = TypeVar("T")
# Longer than a gateway takes to start, on a machine that is busy with a fleet.
_CLAIM_SECONDS = 120.0
_HANDOVER_SECONDS = 60.0
_POLL_SECONDS = 0.2
_WAKE_RETRY = timedelta(minutes=15)
# A launchd timer also fires whenever it is loaded, and stays until it is removed.
_FIRE_ONCE: tuple[WakeBy, ...] = ("systemd", "at", "schtasks")


class RunClaim:
    """A claim on the run that is to be resumed; each `for_…` method makes it."""

    def __init__(self, run_id: str, config: Config, *, wake: WakeBy = "none") -> None:
        self.run_id = run_id
        self._config = config
        self._wake = wake
        self._held: tuple[RunStore, Claim, RunRecord] | None = None

    async def for_person(self, engine: RunStore) -> None:
        """A person resumes it."""
        record = await self.trusted(engine)
        if record.state is not RunState.PARKED:
            return
        # This command is the confirmation that a brake waits for.
        await engine.allow_waking(record.run_id)
        if not await self._hold(engine, record):
            brakes = decode_settings(record.settings).wake
            now = SystemClock().now()
            held = may_wake(now, replace(record, confirmed=True), brakes)
            if held.now:
                place = owner_in_words(record.owner)
                _exit(f"run {record.run_id} may go on now, and does so in {place}")
            until = until_text(None if held.at is None else held.at.timestamp(), now)
            raise UsageError(
                f"the run {record.run_id} waits in {owner_in_words(record.owner)}{until}:"
                f" {held.why}",
                hint=f"take it over and call at once: jackline resume {record.run_id} --now",
            )

    async def for_agent(self, only: str, engine: RunStore) -> None:
        """A person resumes one agent of it, perhaps one that was cancelled a moment ago."""
        record = await self.trusted(engine)
        withdrawn = await withdraw_cancellations(engine, record.run_id, only)
        if not has_live_owner(record, SystemClock().wall()):
            await self.for_person(engine)
        elif withdrawn:
            _exit(f"the order to cancel {only} was withdrawn: run {record.run_id} goes on with it")
        else:
            raise UsageError(
                f"the run {record.run_id} runs in {owner_in_words(record.owner)}, and its flow has"
                f" already received how {only} ended",
                hint="once it has ended or was stopped: "
                f"jackline resume {record.run_id} --only {shlex.quote(only)}",
            )

    async def for_person_now(self, engine: RunStore) -> None:
        """A person resumes it now, before its reset, even if a process waits for that."""
        record = await self.trusted(engine)
        if record.state is not RunState.PARKED:
            return
        await engine.allow_waking(record.run_id)
        if await self._hold(engine, record):
            return
        _print(f"{owner_in_words(record.owner)} waits for its reset: it hands the run over")
        await engine.request_stop(record.run_id, "stop")
        for _ in range(round(_HANDOVER_SECONDS / _POLL_SECONDS)):
            await asyncio.sleep(_POLL_SECONDS)
            if await self._hold(engine, await self._known(engine)):
                return
        raise UsageError(
            f"the run {record.run_id} still runs in {owner_in_words(record.owner)}",
            hint="stop that process, then resume",
        )

    async def for_timer(self, engine: RunStore) -> None:
        """A timer or the service wakes it: only if it is parked, may wake, and can pay."""
        record = await self._known(engine)
        if not record.trusted:
            _exit(f"run {record.run_id} is {NOT_OURS}; {how_to_accept(record.run_id)}")
        if record.state is not RunState.PARKED:
            remove_own_timer(record.run_id, _print)
            _exit(f"run {record.run_id} is not woken: it is {record.state.value}")
        decision = may_wake(SystemClock().now(), record, decode_settings(record.settings).wake)
        if not decision.now:
            if decision.at is not None and self._wake in _FIRE_ONCE:
                await RunTimer(self._wake, self._config, _print).align(engine, record.run_id)
            _exit(f"run {record.run_id} is not woken: {decision.why}")
        missing = await missing_paying_variables(engine, record.run_id, os.environ)
        if missing:
            why = f"{', '.join(missing)} was set where it was started, and is not set here"
            await engine.note(record.run_id, SystemClock().wall(), NOT_WOKEN, "", {"why": why})
            remove_own_timer(record.run_id, _print)
            _exit(f"run {record.run_id} is not woken: {why}")
        if not await self._hold(engine, record):
            _exit(f"run {record.run_id} is not woken: it runs in {owner_in_words(record.owner)}")
        remove_own_timer(record.run_id, _print)

    def wake_again_later(self) -> None:
        """Set the timer again after a wake-up that failed, as when no gateway starts."""

        async def set_timer() -> None:
            engine = open_state_store(self._config)
            try:
                later = SystemClock().now() + _WAKE_RETRY
                timer = RunTimer(self._wake, self._config, _print)
                await timer.align(engine, self.run_id, not_before=later)
            finally:
                await engine.close()

        event_loop.run(set_timer())

    async def hand_over(self, begun: Awaitable[T]) -> T:
        """Give up the claim and await `begun`, which claims the run itself."""
        if self._held is not None:
            engine, claim, record = self._held
            self._held = None
            await engine.let_go(claim, record)
        return await begun

    async def with_budget(
        self, host: FlowHost, budget: str | None, *, may_have_ended: bool
    ) -> RunSettings | None:
        """The settings of the run with these limits in place of its own; None without any."""
        if budget is None:
            return None
        record = await self._known(host.engine)
        if not may_have_ended and record.state in (RunState.FINISHED, RunState.CANCELLED):
            outcome, words = record.decoded_outcome(), shlex.quote(budget)
            again = (
                f"what failed runs again: jackline resume {record.run_id} --failed --budget {words}"
            )
            raise BadArgumentError(
                f"the run {record.run_id} is {record.state}: no limit holds it any more",
                hint=again if outcome is not None and outcome.tally.failed else "",
            )
        settings = decode_settings(record.settings)
        settings = replace(settings, budgets=with_limits(settings.budgets, parse_budget(budget)))
        _print(f"run {record.run_id} may use {limits_in_words(settings.budgets)} from now on")
        return settings

    async def probe_walls(self) -> None:
        """Let the gateway send one call to the vendor before the known reset."""
        state = StateDir(self._config.state_dir)
        try:
            running = await asyncio.to_thread(find, state, self._config.gateway.listen)
            if running is not None:
                await asyncio.to_thread(order, running, "probe", {"lane": "*"})
        except UsageError:
            return  # it knows of no wall

    async def _known(self, engine: RunStore) -> RunRecord:
        record = await known_run(FlowHost(engine, lambda _run_id: {}), self.run_id)
        self.run_id = record.run_id
        return record

    async def trusted(self, engine: RunStore) -> RunRecord:
        """The run; UsageError for one that this installation did not write."""
        record = await self._known(engine)
        must_be_trusted(record)
        return record

    async def _hold(self, engine: RunStore, record: RunRecord) -> bool:
        claim = await claim_run(FlowHost(engine, lambda _run_id: {}), record, _CLAIM_SECONDS)
        if claim is None:
            return False
        self._held = (engine, claim, await self._known(engine))
        return True


def _print(text: str) -> None:
    say(printable(text), err=True)


def _exit(text: str) -> NoReturn:
    """End the command without an error."""
    _print(text)
    raise click.exceptions.Exit(0)


@click.command()
@click.argument("run_id", metavar="ID", shell_complete=run_ids)
@click.option("--now", is_flag=True, help="Call the vendor now, before the reported reset.")
@click.option(
    "--only",
    metavar="LABEL",
    help="Only the failed or cancelled agents with this label, or this task id.",
)
@click.option("--failed", is_flag=True, help="Run what failed again, and nothing else.")
@click.option(
    "--woken", is_flag=True, hidden=True, help="Started by a timer or the service: brakes apply."
)
@BUDGET
@WAKE
@QUIET
@AS_JSON
@STATE
def resume(
    run_id: str,
    now: bool,
    only: str | None,
    failed: bool,
    woken: bool,
    budget: str | None,
    wake: WakeBy,
    state: str | None,
    **output: bool,
) -> int:
    """Resume a run that was stopped, parked, cut off or failed.

    ID is the run's id, or its beginning. Finished calls do not run again; agents continue at their
    last complete turn. For a finished run, the command shows the outcome.

    In a parked run, one agent goes first. If the gateway knows the quota wall, it answers that
    agent itself until the reset. With --now it calls the vendor once: use it after you bought
    more. If another process holds the waiting run, it hands the run over.

    With --only LABEL, only these agents continue, each in its own conversation at its last complete
    turn; other failed agents stay failed. This also works for a finished run, and undoes
    `jackline cancel --only`.

    With --failed, the failed calls of a run that ended run again, and nothing else. Agents that
    would end in the same way (by schema, refused or tool_error) start anew; the others continue at
    their last complete turn. Agents that you cancelled with `jackline cancel --only` are left out
    unless --only names them.

    With --budget, the limits that it names replace the run's own from now on: for a run that ended
    at one of them.
    """
    if failed and woken:
        raise BadArgumentError("a timer resumes what is parked, nothing that failed")
    limits = None if budget is None else parse_budget(budget)
    config = configured(
        {"state": state}, in_dollars=limits is not None and limits.dollars is not None
    )
    claim = RunClaim(run_id, config, wake=wake)

    async def begin(host: FlowHost, listener: Listener) -> FlowRun[Any] | Outcome[Any]:
        if now:
            await claim.probe_walls()
        some = failed or only is not None
        settings = await claim.with_budget(host, budget, may_have_ended=some)
        if failed:
            return await claim.hand_over(
                begin_retry(host, claim.run_id, only=only, settings=settings, listener=listener)
            )
        return await claim.hand_over(
            begin_resume(
                host,
                claim.run_id,
                settings=settings,
                listener=listener,
                only=only,
                unattended=woken,
            )
        )

    first = claim.for_timer if woken else claim.for_person_now if now else claim.for_person
    if only is not None and not (now or woken or failed):
        first = partial(claim.for_agent, only)
    try:
        return run_in_foreground(config, begin, **output, wake=wake, first=first, unattended=woken)
    except ChangedSourceError as error:
        # Not a failure of a timer or the service: the run waits for a person.
        say(printable(f"run {claim.run_id} is not woken: {error.message}"), err=True)
        return 0
    except JacklineError:
        if woken:
            claim.wake_again_later()
        raise


@click.command()
@click.argument("run_id", metavar="ID", shell_complete=run_ids)
@click.option(
    "--from", "label", metavar="LABEL", required=True, help="The first call to run again."
)
@QUIET
@AS_JSON
@STATE
def fork(run_id: str, label: str, quiet: bool, as_json: bool, state: str | None) -> int:
    """Begin a new run with the results that another run had before LABEL."""
    config = configured({"state": state})

    async def begin(host: FlowHost, listener: Listener) -> FlowRun[Any]:
        return await begin_fork(host, run_id, label, listener=listener)

    first = RunClaim(run_id, config).trusted
    return run_in_foreground(config, begin, as_json=as_json, quiet=quiet, first=first)
