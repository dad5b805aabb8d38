"""Start an agent program as a child process, recognise it later, and end it with its children.

Rules: (1) a process is identified by its number and its start time, because systems reuse numbers;
without a known start time it is never ended; (2) the prompt goes through standard input, never
through arguments; (3) output is passed on in the pieces in which it came, and pipes that its own
children hold open block nobody; (4) the child never outlives the block in which it was started, nor
this process; (5) to end it, first wait if the caller wants, then terminate it, then kill it;
everything that it started ends with it, also in other process groups.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from uuid import uuid4

from jackline.batches.processes import MARK, guard
from jackline.clock import Clock
from jackline.programs import system_program

_PROC = Path("/proc")
_BOOT = _PROC / "sys" / "kernel" / "random" / "boot_id"
_PATIENCE_S = 10
GRACE_S = 5.0
_LOOK_EVERY_S = 0.05
_KILL_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """One process of one machine; `began` is the system's start time, empty where it has none."""

    pid: int
    began: str
    family: str = ""
    """A mark in its environment and in that of everything that it starts."""

    async def is_gone_within(self, seconds: float, clock: Clock) -> bool:
        """Whether it ends within this time."""
        until = clock.monotonic() + seconds
        while is_alive(self):
            if clock.monotonic() >= until:
                return False
            await clock.sleep(_LOOK_EVERY_S)
        return True

    def signal(self, *, forced: bool) -> None:
        """Ask its group to end, or end it; no program can ask a console program of Windows."""
        if sys.platform != "win32":
            number = signal.SIGKILL if forced else signal.SIGTERM
            # Between looking and sending it may end: then there is nothing left to do.
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(self.pid) == self.pid:
                    os.killpg(self.pid, number)
                else:
                    os.kill(self.pid, number)
        elif forced:
            with suppress(OSError, subprocess.SubprocessError):
                subprocess.run(  # noqa: S603 -- a fixed program of the system, and a number
                    [system_program("taskkill"), "/T", "/F", "/PID", str(self.pid)],
                    capture_output=True,
                    timeout=_KILL_TIMEOUT_S,
                    check=False,
                )


def mark_of(pid: int, family: str = "") -> ProcessMark:
    """The mark of a process that runs now."""
    return ProcessMark(pid, _began(pid) or "", family)


def is_alive(mark: ProcessMark) -> bool:
    """Whether this very process still runs."""
    return mark.began != "" and _began(mark.pid) == mark.began


def _began(pid: int) -> str | None:
    """The system's start time of this process; None when there is no such process."""
    if sys.platform == "win32":
        return _began_on_windows(pid)
    if _PROC.joinpath("self", "stat").exists():
        try:
            line = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
        except OSError:
            return None
        # The fields from the third on: the second, the name, may hold spaces.
        fields = line.rpartition(")")[2].split()
        if fields[0] in "ZX":
            return None
        # Counted from the boot: two boots may have processes of the same age.
        return f"{_BOOT.read_text('ascii').strip()}+{fields[19]}"
    return _began_by_ps(pid)


def _began_by_ps(pid: int) -> str | None:
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        printed = subprocess.run(  # noqa: S603 -- a fixed program of the system, and a number
            command, env=environment, capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    state, _, began = printed.stdout.decode("utf-8", "replace").strip().partition(" ")
    return None if not began or state.startswith("Z") else began.strip()


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _QUERY = 0x1000
    _STILL_ACTIVE = 259

    def _began_on_windows(pid: int) -> str | None:
        kernel = ctypes.windll.kernel32
        handle = kernel.OpenProcess(_QUERY, False, pid)
        if not handle:
            return None
        try:
            code = wintypes.DWORD()
            times = [wintypes.FILETIME() for _ in range(4)]
            if not kernel.GetExitCodeProcess(handle, ctypes.byref(code)):
                return None
            if code.value != _STILL_ACTIVE:
                return None
            if not kernel.GetProcessTimes(handle, *map(ctypes.byref, times)):
                return None
            return f"{times[0].dwHighDateTime}:{times[0].dwLowDateTime}"
        finally:
            kernel.CloseHandle(handle)

else:

    def _began_on_windows(pid: int) -> str | None:
        raise AssertionError(f"called for process {pid} on another system")


async def end(
    mark: ProcessMark, clock: Clock, *, wait_first: float = 0.0, grace: float = GRACE_S
) -> None:
    """When this returns, neither it nor what it started runs."""
    if not await mark.is_gone_within(wait_first, clock):
        mark.signal(forced=False)
        if not await mark.is_gone_within(grace, clock):
            mark.signal(forced=True)
            await mark.is_gone_within(grace, clock)
    # A program that ends in good order has ended its own by now; one that was killed has not.
    if mark.family:
        guard.end_strays(mark.family)


_MOST_ERRORS = 8_192
# What was printed before the end is in the pipe already: this is only for a busy machine.
_DRAIN_S = 2.0


class _Pipes(asyncio.SubprocessProtocol):
    """What came so far, and who waits for more."""

    def __init__(self) -> None:
        self.pieces: deque[bytes] = deque()
        self.errors = b""
        self.exited = asyncio.Event()
        self.gone = asyncio.Event()
        self.closed = False
        self.news = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.pieces.append(data)
            self.news.set()
        else:
            self.errors = (self.errors + data)[-_MOST_ERRORS:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        if fd == 1:
            self.closed = True
            self.news.set()

    def process_exited(self) -> None:
        self.exited.set()
        self.news.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.exited.set()
        self.gone.set()
        self.news.set()


class Child:
    """A running program."""

    def __init__(
        self, transport: asyncio.SubprocessTransport, pipes: _Pipes, mark: ProcessMark
    ) -> None:
        self._transport = transport
        self._pipes = pipes
        self.mark = mark

    def send(self, prompt: str) -> None:
        """Send it its prompt, and no more; before that it does nothing."""
        pipe = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))
        if pipe is not None:
            pipe.write(prompt.encode("utf-8", "replace"))
            pipe.write_eof()

    async def pieces(self) -> AsyncIterator[bytes]:
        """What it prints, until it has ended."""
        pipes = self._pipes
        while True:
            while pipes.pieces:
                yield pipes.pieces.popleft()
            if pipes.closed:
                break
            pipes.news.clear()
            if not pipes.exited.is_set():
                await pipes.news.wait()
                continue
            try:
                async with asyncio.timeout(_DRAIN_S):
                    await pipes.news.wait()
            except TimeoutError:
                break
        await pipes.exited.wait()

    @property
    def exit_code(self) -> int | None:
        """What it ended with; below zero the signal that ended it; None while it runs."""
        return self._transport.get_returncode()

    @property
    def last_errors(self) -> str:
        """The last that it wrote to its error output."""
        return self._pipes.errors.decode("utf-8", "replace")


@asynccontextmanager
async def started(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], clock: Clock
) -> AsyncIterator[Child]:
    """The program for as long as the block runs; OSError when it cannot be started."""
    family = uuid4().hex
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            _Pipes,
            *command,
            cwd=cwd,
            env={**environment, MARK: family},
            # A group of its own: Ctrl-C in our terminal is ours to answer, and it ends as a whole.
            start_new_session=os.name != "nt",
        )
    )
    try:
        transport, pipes = await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            (await starting)[0].close()
        raise
    pid = transport.get_pid()
    guard.watch(pid)
    child = Child(transport, pipes, mark_of(pid, family))
    try:
        yield child
    finally:
        try:
            # Also a second cancellation while it ends leaves no process behind.
            if child.exit_code is None or child.exit_code < 0:
                await asyncio.shield(asyncio.ensure_future(end(child.mark, clock)))
        finally:
            guard.forget(pid)
            transport.close()
            # The loop may be closed next, and would miss its end.
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await pipes.gone.wait()
