"""Take a run before a gateway is found or started for it, by hand or because its time has come.

Laws: (1) a parked run is held from here on: a service that starts meanwhile would wake it in
another process, and take it from whoever asked; (2) who is woken and may not, or comes too late,
says so and does no harm; (3) a person's word goes before the brakes, and before a remembered wall
only if it says `--now`.
Not here: carrying it (carrying_run.py), the brakes (flows/waking.py).
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta
from typing import NoReturn, TypeVar

import click

from jackline import event_loop
from jackline.assembly.hosting import open_store
from jackline.assembly.running_gateway import find, order
from jackline.assembly.state_dir import StateDir
from jackline.cli.paying_variables import missing_to_pay, note_not_woken
from jackline.cli.run_timer import RunTimer, remove_own_timer
from jackline.cli.wake_timer import WakeBy
from jackline.clock import SystemClock
from jackline.config import Config
from jackline.control.run_view import until_words
from jackline.errors import UsageError
from jackline.flows.engine import Claim
from jackline.flows.host import FlowHost
from jackline.flows.local import LocalEngine
from jackline.flows.naming_agents import take_back
from jackline.flows.orders import claim_run, is_dead, known_run
from jackline.flows.records import RunRecord, RunState
from jackline.flows.settings import decode_settings
from jackline.flows.trusting import NOT_OURS, how_to_accept, must_be_trusted
from jackline.flows.waking import may_wake
from jackline.outside_names import printable

T = TypeVar("T")
# Longer than a gateway takes to start, on a machine that is busy with a fleet.
_HELD = 120.0
_HANDED_OVER_WITHIN = 60.0
_LOOK_EVERY = 0.2
_WAKE_AGAIN = timedelta(minutes=15)
# launchd's is started whenever it is loaded, too, and stays in place until it is removed.
_FIRE_ONCE: tuple[WakeBy, ...] = ("systemd", "at", "schtasks")


class TakingUp:
    """One run that somebody wants to go on with."""

    def __init__(self, run_id: str, config: Config, *, wake: WakeBy = "none") -> None:
        self.run_id = run_id
        self._config = config
        self._wake = wake
        self._held: tuple[LocalEngine, Claim, RunRecord] | None = None

    async def by_hand(self, engine: LocalEngine) -> None:
        """A person wants it."""
        record = await self._known(engine)
        must_be_trusted(record)
        if record.state is not RunState.PARKED:
            return
        # Whoever types this is the person that a brake asks for.
        await engine.allow_waking(record.run_id)
        if not await self._hold(engine, record):
            brakes = decode_settings(record.settings).wake
            now = SystemClock().now()
            held = may_wake(now, replace(record, confirmed=True), brakes)
            if held.now:
                _leave(f"run {record.run_id} may go on now, and does so in {_process(record)}")
            until = until_words(None if held.at is None else held.at.timestamp(), now)
            raise UsageError(
                f"the run {record.run_id} waits in {_process(record)}{until}: {held.why}",
                next=f"jackline resume {record.run_id} --now takes it over and asks at once",
            )

    async def by_name(self, only: str, engine: LocalEngine) -> None:
        """A person wants one agent of it, perhaps one that was cancelled a moment ago."""
        record = await self._known(engine)
        must_be_trusted(record)
        taken_back = await take_back(engine, record.run_id, only)
        if not _is_carried(record):
            await self.by_hand(engine)
        elif taken_back:
            _leave(
                f"the order to cancel {only} was taken back: run {record.run_id} goes on with it"
            )
        else:
            raise UsageError(
                f"the run {record.run_id} is carried by {_process(record)}, and its flow has heard"
                f" how {only} ended",
                next="once it has ended or was stopped: "
                f"jackline resume {record.run_id} --only {shlex.quote(only)}",
            )

    async def hurried(self, engine: LocalEngine) -> None:
        """A person wants it now, whatever was told of its reset and whoever waits for that."""
        record = await self._known(engine)
        must_be_trusted(record)
        if record.state is not RunState.PARKED:
            return
        await engine.allow_waking(record.run_id)
        if await self._hold(engine, record):
            return
        _tell(f"{_process(record)} waits for its reset: it hands the run over")
        await engine.ask_to_stop(record.run_id, "stop")
        for _ in range(round(_HANDED_OVER_WITHIN / _LOOK_EVERY)):
            await asyncio.sleep(_LOOK_EVERY)
            if await self._hold(engine, await self._known(engine)):
                return
        raise UsageError(
            f"the run {record.run_id} is still carried by {_process(record)}",
            next="stop that process, then resume",
        )

    async def woken(self, engine: LocalEngine) -> None:
        """A timer or the service wakes it: only if it is parked, may wake, and can pay."""
        record = await self._known(engine)
        if not record.trusted:
            _leave(f"run {record.run_id} is {NOT_OURS}; {how_to_accept(record.run_id)}")
        if record.state is not RunState.PARKED:
            remove_own_timer(record.run_id, _tell)
            _leave(f"run {record.run_id} is not woken: it is {record.state.value}")
        decision = may_wake(SystemClock().now(), record, decode_settings(record.settings).wake)
        if not decision.now:
            if decision.at is not None and self._wake in _FIRE_ONCE:
                await RunTimer(self._wake, self._config, _tell).align(engine, record.run_id)
            _leave(f"run {record.run_id} is not woken: {decision.why}")
        missing = await missing_to_pay(engine, record.run_id, os.environ)
        if missing:
            why = f"{', '.join(missing)} was set where it was begun, and is not set here"
            await note_not_woken(engine, record.run_id, why, SystemClock())
            remove_own_timer(record.run_id, _tell)
            _leave(f"run {record.run_id} is not woken: {why}")
        if not await self._hold(engine, record):
            _leave(f"run {record.run_id} is not woken: {_process(record)} carries it")
        remove_own_timer(record.run_id, _tell)

    def wake_again_later(self) -> None:
        """Whoever was woken could not go on, as when no gateway starts: the timer is set anew."""

        async def set_anew() -> None:
            engine = open_store(self._config)
            try:
                later = SystemClock().now() + _WAKE_AGAIN
                timer = RunTimer(self._wake, self._config, _tell)
                await timer.align(engine, self.run_id, not_before=later)
            finally:
                await engine.close()

        event_loop.run(set_anew())

    async def hand_over(self, begun: Awaitable[T]) -> T:
        """What `begun` makes of the run; from here on it is held by that."""
        if self._held is not None:
            engine, claim, record = self._held
            self._held = None
            await engine.let_go(claim, record)
        return await begun

    async def forget_walls(self) -> None:
        """Have the gateway ask the vendor once, though it was told of a later reset."""
        state = StateDir(self._config.state_dir)
        try:
            running = await asyncio.to_thread(find, state, self._config.gateway.listen)
            if running is not None:
                await asyncio.to_thread(order, running, "probe", {"lane": "*"})
        except UsageError:
            return  # it knows of no wall, so that there is nothing to forget

    async def _known(self, engine: LocalEngine) -> RunRecord:
        record = await known_run(FlowHost(engine, lambda _run_id: {}), self.run_id)
        self.run_id = record.run_id
        return record

    async def check(self, engine: LocalEngine) -> None:
        """Refuse a run that this installation did not write."""
        must_be_trusted(await self._known(engine))

    async def _hold(self, engine: LocalEngine, record: RunRecord) -> bool:
        claim = await claim_run(FlowHost(engine, lambda _run_id: {}), record, _HELD)
        if claim is None:
            return False
        self._held = (engine, claim, await self._known(engine))
        return True


def _is_carried(record: RunRecord) -> bool:
    holds = record.owner and record.lease_until > SystemClock().wall()
    return bool(holds) and not is_dead(record.owner)


def _process(record: RunRecord) -> str:
    host, _, number = record.owner.rpartition(":")[0].rpartition(":")
    return f"process {number} on {host}"


def _tell(words: str) -> None:
    click.echo(printable(words), err=True)


def _leave(words: str) -> NoReturn:
    _tell(words)
    raise click.exceptions.Exit(0)
