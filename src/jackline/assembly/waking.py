"""Wake parked runs at their time, and give back what is overdue, while the service lives.

Laws: (1) a run that a living process carries is left to it; (2) each is woken by a process of its
own, since it runs the user's code, and `--woken`: that runs only what a person has started; (3) one
that went back to sleep, or died, is not tried again before its pause is over, and ever more rarely:
a broken flow, or one that cannot pay here, must not be started in a circle; (4) without a store
nothing is made; (5) what this installation did not write is told once, and left alone.
Not here: whether a run may wake (flows/waking.py), timers of the system (cli/wake_timer.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from jackline.assembly.state_dir import safe_files
from jackline.clock import Clock
from jackline.errors import JacklineError
from jackline.flows.cleanup.reaper import is_overdue
from jackline.flows.engine import Engine
from jackline.flows.local import LocalEngine
from jackline.flows.records import RunRecord, RunState
from jackline.flows.settings import decode_settings
from jackline.flows.trusting import NOT_OURS, how_to_accept
from jackline.flows.waking import may_wake
from jackline.private_files import open_private
from jackline.programs import own_command

_log = logging.getLogger("jackline")
# Often enough that a reset is not missed by long, rarely enough to cost nothing.
_LOOK_EVERY = 15.0
_PAUSE = 300.0
# What cannot be given back is tried ever more rarely, but never given up: it may cost money.
_LONGEST_PAUSE = 4 * 3600.0
# On Windows alone; elsewhere a session of its own does the same.
_DETACHED = sum(
    getattr(subprocess, name, 0) for name in ("DETACHED_PROCESS", "CREATE_NEW_PROCESS_GROUP")
)


class Waker:
    """Looks after parked runs; `watch` must run for as long as the service does."""

    def __init__(
        self,
        store: Path,
        clock: Clock,
        start: Callable[[RunRecord], None] | None = None,
        here: Callable[[RunRecord], bool] = lambda _run: False,
        clean_up: Callable[[], None] | None = None,
    ) -> None:
        """`here` may take a run up in this process, if it needs no code of a user."""
        self._here = here
        self._store = store
        self._clock = clock
        self._start = start or self._start_process
        self._clean_up = clean_up or self._start_clean_up
        self._clean_up_from = 0.0
        self._clean_up_pause = _PAUSE
        self._not_before: dict[str, float] = {}
        self._pauses: dict[str, tuple[float | None, float]] = {}
        """By run: the reset it was last woken for, and how long the next try waits."""
        self._told_untrusted: set[str] = set()
        # Kept until they have ended, so that the system can forget them.
        self._started: list[subprocess.Popen[bytes]] = []

    async def watch(self) -> None:
        """Wake what may wake, again and again."""
        while True:
            try:
                await self.look()
            except JacklineError as error:
                _log.warning("parked runs cannot be looked after: %s", error.message)
            except OSError as error:  # no process can be started, or its log is somebody else's
                _log.warning("parked runs cannot be woken: %s", error)
            await self._clock.sleep(_LOOK_EVERY)

    async def look(self) -> Sequence[str]:
        """Wake every run whose time has come; their ids."""
        if not await asyncio.to_thread(self._store.exists):
            return ()
        engine = LocalEngine(self._store)
        try:
            return await self._wake(engine)
        finally:
            await engine.close()

    async def _wake(self, engine: Engine) -> list[str]:
        now, steady = self._clock.wall(), self._clock.steady()
        if steady >= self._clean_up_from:
            if await is_overdue(engine, now):
                self._clean_up_from = steady + self._clean_up_pause
                self._clean_up_pause = min(2 * self._clean_up_pause, _LONGEST_PAUSE)
                self._clean_up()
            else:
                self._clean_up_pause = _PAUSE
        self._started = [process for process in self._started if process.poll() is None]
        woken = []
        for run in await engine.runs(states=(RunState.PARKED,)):
            if not run.trusted:
                self._tell_untrusted(run)
                continue
            if not run.source or run.lease_until > now:
                continue
            if self._not_before.get(run.run_id, 0.0) > steady:
                continue
            if may_wake(self._clock.now(), run, decode_settings(run.settings).wake).now:
                self._not_before[run.run_id] = steady + self._pause_of(run)
                _log.info("waking run %s (%s): its limit has reset", run.run_id, run.flow)
                if not self._here(run):
                    self._start(run)
                woken.append(run.run_id)
        return woken

    def _tell_untrusted(self, run: RunRecord) -> None:
        if run.run_id not in self._told_untrusted:
            self._told_untrusted.add(run.run_id)
            _log.warning("run %s is %s; %s", run.run_id, NOT_OURS, how_to_accept(run.run_id))

    def _pause_of(self, run: RunRecord) -> float:
        """How long a run that stays parked for all our waking is left alone."""
        reset, pause = self._pauses.get(run.run_id, (run.wake_at, _PAUSE))
        if reset != run.wake_at:
            pause = _PAUSE  # it went on in between, to another wall
        self._pauses[run.run_id] = (run.wake_at, min(2 * pause, _LONGEST_PAUSE))
        return pause

    def _start_process(self, run: RunRecord) -> None:
        cwd = run.cwd if run.cwd and Path(run.cwd).is_dir() else None
        self._start_verb(("resume", "--woken", run.run_id), cwd)

    def _start_clean_up(self) -> None:
        _log.info("giving back what runs have left behind")
        self._start_verb(("resources", "--retry", "--woken"), None)

    def _start_verb(self, words: Sequence[str], cwd: str | None) -> None:
        log = self._store.with_name("woken-runs.log")
        with safe_files():
            descriptor = open_private(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(descriptor, "ab") as file:
            process = subprocess.Popen(  # noqa: S603 -- ourselves
                own_command(*words, "--state", str(self._store.parent)),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                creationflags=_DETACHED,
                start_new_session=os.name != "nt",
            )
        self._started.append(process)
