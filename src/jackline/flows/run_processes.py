"""Start processes for runs: to wake parked runs, to clean up, and for orders from the page.

Rules: (1) each is a process of its own, since it runs the user's code: the command that a person
would type, and nothing of an order is read as an option; (2) a run that a living process owns is
left to it; (3) a run that was parked again, or died, is not tried before its pause is over, less
and less often; (4) without a store nothing is made; (5) what this installation did not write is
reported once and left alone; (6) an order that ends soon returns how it ended, one that takes
longer where to look; the log of orders has what was ordered and its exit code, no output of a run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from jackline.clock import Clock, SystemClock
from jackline.errors import BadArgumentError, JacklineError, UsageError
from jackline.flows.cleanup.ledger import is_overdue
from jackline.flows.records import RunRecord, RunState
from jackline.flows.settings import decode_settings, may_wake
from jackline.flows.store import open_run_store, run_store_exists
from jackline.flows.store.run_store import NOT_OURS, RunStore, how_to_accept, must_be_trusted
from jackline.private_files import open_private
from jackline.programs import own_command
from jackline.state_dir import safe_files

_log = logging.getLogger("jackline")
# Often enough that a reset is not missed by long, rarely enough to cost nothing.
_WAKE_EVERY = 15.0
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
        state_folder: Path,
        store_url: str,
        clock: Clock,
        start: Callable[[RunRecord], None] | None = None,
        here: Callable[[RunRecord], bool] = lambda _run: False,
        clean_up: Callable[[], None] | None = None,
    ) -> None:
        """`here` may wake a run in this process, if it needs no code of a user."""
        self._here = here
        self._folder = state_folder
        self._store_url = store_url
        self._clock = clock
        self._start = start or self._start_process
        self._clean_up = clean_up or self._start_clean_up
        self._clean_up_from = 0.0
        self._clean_up_pause = _PAUSE
        self._not_before: dict[str, float] = {}
        self._pauses: dict[str, tuple[float | None, float]] = {}
        """By run: the reset it was last woken for, and how long the next try waits."""
        self._reported_untrusted: set[str] = set()
        # Polled until they have ended, so that the system can forget them.
        self._started: list[subprocess.Popen[bytes]] = []

    async def watch(self) -> None:
        """Wake what may wake, again and again."""
        while True:
            try:
                await self.look()
            except JacklineError as error:
                _log.warning("parked runs cannot be read: %s", error.message)
            except OSError as error:  # no process can be started, or its log is somebody else's
                _log.warning("parked runs cannot be woken: %s", error)
            await self._clock.sleep(_WAKE_EVERY)

    async def look(self) -> Sequence[str]:
        """Wake every run whose time has come; their ids."""
        if not await asyncio.to_thread(run_store_exists, self._store_url):
            return ()
        store = open_run_store(self._store_url)
        try:
            return await self._wake(store)
        finally:
            await store.close()

    async def _wake(self, store: RunStore) -> list[str]:
        now, steady = self._clock.wall(), self._clock.steady()
        if steady >= self._clean_up_from:
            if await is_overdue(store, now):
                self._clean_up_from = steady + self._clean_up_pause
                self._clean_up_pause = min(2 * self._clean_up_pause, _LONGEST_PAUSE)
                self._clean_up()
            else:
                self._clean_up_pause = _PAUSE
        self._started = [process for process in self._started if process.poll() is None]
        woken = []
        for run in await store.runs(states=(RunState.PARKED,)):
            if not run.trusted:
                if run.run_id not in self._reported_untrusted:
                    self._reported_untrusted.add(run.run_id)
                    step = how_to_accept(run.run_id)
                    _log.warning("run %s is %s; %s", run.run_id, NOT_OURS, step)
                continue
            if not run.source or run.lease_until > now:
                continue
            if self._not_before.get(run.run_id, 0.0) > steady:
                continue
            if may_wake(self._clock.now(), run, decode_settings(run.settings).wake).now:
                reset, pause = self._pauses.get(run.run_id, (run.wake_at, _PAUSE))
                if reset != run.wake_at:
                    pause = _PAUSE  # it went on in between, to another wall
                self._pauses[run.run_id] = (run.wake_at, min(2 * pause, _LONGEST_PAUSE))
                self._not_before[run.run_id] = steady + pause
                _log.info("waking run %s (%s): its limit has reset", run.run_id, run.flow)
                if not self._here(run):
                    self._start(run)
                woken.append(run.run_id)
        return woken

    def _start_process(self, run: RunRecord) -> None:
        self._start_verb(("resume", "--woken", run.run_id), run.cwd)

    def _start_clean_up(self) -> None:
        _log.info("giving back what runs have left behind")
        self._start_verb(("resources", "--retry", "--woken"), "")

    def _start_verb(self, words: Sequence[str], cwd: str) -> None:
        with safe_files():
            log = self._folder / "woken-runs.log"
            descriptor = open_private(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(descriptor, "ab") as file:
            self._started.append(_start(words, self._folder, cwd, stdout=file, stderr=file))


def _start(
    words: Sequence[str], folder: Path, cwd: str, *, stdout: BinaryIO | int, stderr: BinaryIO
) -> subprocess.Popen[bytes]:
    """A process of this program that outlives ours."""
    return subprocess.Popen(  # noqa: S603 -- ourselves
        own_command(*words, "--state", str(folder)),
        cwd=cwd if cwd and Path(cwd).is_dir() else None,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        creationflags=_DETACHED,
        start_new_session=os.name != "nt",
    )


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WAITED_FOR = {"resume": 3.0, "retry": 3.0, "cancel": 30.0, "release": 30.0}
_POLL_EVERY = 0.1
_MOST_WORDS = 2000


def _words(verb: str, run_id: str) -> list[str]:
    """The command that an order to a run is."""
    return ["resume", run_id, "--failed"] if verb == "retry" else [verb, run_id]


class RunOrders:
    """Orders to the runs of one state folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def carry_out(
        self, verb: str, order: Mapping[str, object], store: RunStore | None
    ) -> dict[str, object]:
        """The result of an order, as text."""
        arguments, cwd = ["resources", "--retry"], ""
        undo: dict[str, object] = {}
        if verb != "release":
            run_id = order.get("run")
            if not isinstance(run_id, str) or not _ID.fullmatch(run_id):
                raise BadArgumentError("an order names its run", hint="`jackline ls` lists them")
            run = None if store is None else await store.run(run_id)
            if run is None:
                raise BadArgumentError(f"there is no run {run_id}", hint="`jackline ls` lists them")
            if verb != "cancel":
                must_be_trusted(run)
            arguments, cwd = _words(verb, run.run_id), run.cwd if run.trusted else ""
            only = order.get("only")
            if isinstance(only, str) and only:
                arguments.append(f"--only={only}")
                if verb == "cancel":
                    undo = {"undo": {"order": "resume", "run": run.run_id, "only": only}}
        process, output = await asyncio.to_thread(self._start, arguments, cwd)
        with output:  # also when whoever ordered does not wait
            for _ in range(round(_WAITED_FOR[verb] / _POLL_EVERY)):
                if process.poll() is not None:
                    break
                await asyncio.sleep(_POLL_EVERY)
            code = process.returncode
            output.seek(0)
            written = await asyncio.to_thread(output.read, _MOST_WORDS)
            words = written.decode(errors="replace").strip()
        if code is None:
            says = f"jackline {' '.join(arguments)} goes on, process {process.pid}."
            return {"says": says} | undo
        # A run that failed was resumed as was ordered.
        if code not in (0, 1, 3, 75):
            raise UsageError(f"jackline {' '.join(arguments)} failed: {words}")
        return {"says": words or f"jackline {' '.join(arguments)} is done."} | undo

    def _start(self, arguments: list[str], cwd: str) -> tuple[subprocess.Popen[bytes], BinaryIO]:
        output = cast("BinaryIO", TemporaryFile())  # noqa: SIM115 -- closed once it was read
        process = _start(arguments, self._folder, cwd, stdout=subprocess.DEVNULL, stderr=output)
        order = f"jackline {' '.join(arguments)}, process {process.pid}"
        self._note(f"{order}: started")

        def see_it_end() -> None:
            # Whoever orders does not wait for hours, but somebody must see it end: the system
            # keeps what is left of a process until then.
            self._note(f"{order}: exit {process.wait()}")

        threading.Thread(target=see_it_end, name=f"order {process.pid}", daemon=True).start()
        return process, output

    def _note(self, words: str) -> None:
        """Write a line of our own to the log of orders."""
        line = f"{SystemClock().now():%Y-%m-%d %H:%M:%S} {words}\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with suppress(OSError):  # an order is carried out though nobody can read of it later
            descriptor = open_private(self._folder / "ordered-runs.log", flags)
            with os.fdopen(descriptor, "ab") as file:
                file.write(line.encode(errors="replace"))
