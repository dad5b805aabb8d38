"""Start an agent program as a child process, recognise it later, and end it with its children.

Rules: (1) a process is identified by its number and its start time, because systems reuse numbers;
without a known start time it is never ended; (2) the prompt goes through standard input, never
through arguments; (3) output is passed on in the pieces in which it came, and pipes that its own
children hold open block nobody; (4) the child never outlives the block in which it was started, nor
this process; (5) to end it, first wait if the caller wants, then terminate it, then kill it;
everything that it started ends with it, also in other process groups; (6) the folder of its start
files is the user's alone and lies beside the state folder, outside of projects and of the system's
temporary folder, which sandboxes of agents leave open; what is in it is gone when the program has
ended; (7) a lock beside it says that its process lives: what one that was killed has left is
removed at the next start of an agent or a service, and by `rm` and `purge`; no clock decides, and
nothing is removed that is in use.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import cast

from jackline.batches.processes import MARK, OrphanGuard, guard
from jackline.clock import Clock
from jackline.private_files import (
    check_private_folder,
    default_config_folder,
    default_state_folder,
    make_private_folder,
    open_private,
)
from jackline.programs import system_program
from jackline.transcripts.sources import ClientFolders

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
            # One that refuses its settings is gone by now, and its words say why.
            with suppress(OSError, RuntimeError):
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
    command: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    clock: Clock,
    guard: OrphanGuard = guard,
) -> AsyncIterator[Child]:
    """The program for as long as the block runs; OSError when it cannot be started."""
    family = guard.mark()
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


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        # Not `lockf`: it would lock nothing against other threads of this process.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_LOCK = ".lock"


def start_files_root() -> Path:
    """The folder that holds those of all agents."""
    return Path(f"{default_state_folder()}-agents")


@contextmanager
def start_files() -> Iterator[Path]:
    """A new folder for one start; OSError where there can be none."""
    root = start_files_root()
    make_private_folder(root)
    remove_left_files()
    lock, descriptor = _new_lock(root)
    folder = lock.with_suffix("")
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        _remove(folder, lock, descriptor)


def remove_left_files() -> None:
    """Remove the folders of processes that have died."""
    root = start_files_root()
    try:
        check_private_folder(root)
        names = {each.name.removesuffix(_LOCK) for each in root.iterdir()}
    except OSError:
        return  # there are none, or others can have put them there
    for name in names:
        lock = root / f"{name}{_LOCK}"
        try:
            descriptor = open_private(lock, os.O_RDWR)
        except FileNotFoundError:
            # The lock comes first: this folder belongs to nobody.
            _remove_tree(root / name)
            continue
        except OSError:
            continue
        try:
            _lock(descriptor)
        except OSError:
            os.close(descriptor)
        else:
            _remove(root / name, lock, descriptor)


def _new_lock(root: Path) -> tuple[Path, int]:
    while True:
        lock = root / f"{secrets.token_hex(8)}{_LOCK}"
        descriptor = open_private(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            _lock(descriptor)
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return lock, descriptor
        except (BlockingIOError, PermissionError, FileNotFoundError):
            pass  # it was taken for a left one before it was locked
        except OSError:
            return lock, descriptor  # a disk without locks: nobody can take this one
        os.close(descriptor)


def _remove_tree(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    # Agents leave folders that not even their owner may change, such as caches of modules.
    for at, names, _ in os.walk(folder):
        for each in (Path(at, name) for name in names):
            with suppress(OSError):
                if not each.is_symlink():
                    each.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path, lock: Path, descriptor: int) -> None:
    _remove_tree(folder)
    if os.name != "nt":
        lock.unlink(missing_ok=True)
    os.close(descriptor)
    if os.name == "nt":  # there, only what nobody has open can be deleted
        with suppress(OSError):
            lock.unlink()


def folders_of_project(cwd: Path) -> tuple[Path, ...]:
    """From the folder up to the top of its repository; none where that cannot be found out."""
    try:
        folder = cwd.resolve()
        above = (folder, *folder.parents)
        # Codex looks up the folder first, and only then its repository and that of a worktree.
        top = next((each for each in above if os.path.lexists(each / ".git")), folder)
    except (OSError, RuntimeError, ValueError):
        return ()
    return above[: above.index(top) + 1]


def holds_own_files(cwd: Path, environment: Mapping[str, str]) -> bool:
    """Whether files that agents' programs or Jackline obey for the user lie in this folder."""
    clients = ClientFolders.of_process(environment)
    home = environment.get("USERPROFILE" if os.name == "nt" else "HOME")
    own = (
        *(Path(home or Path.home()), Path.home(), clients.claude, clients.codex),
        *(Path(default_config_folder()), Path(default_state_folder()), start_files_root()),
        Path(gettempdir()),
    )
    try:
        folder = cwd.resolve()
        return any(each.resolve().is_relative_to(folder) for each in own)
    except (OSError, RuntimeError, ValueError):
        return True
