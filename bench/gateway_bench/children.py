"""Start the programs of the bench, each on its cores, and end every one of them.

Rules: (1) what was started here is ended here, with its descendants, each by its id, also on Ctrl-C
and when the bench itself is told to stop; (2) where cores cannot be chosen, nothing is pinned and
nothing breaks; (3) what a program prints goes to a file beside its state, not to the table.
Not here: which programs (peers.py), what they used (proc.py).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

from gateway_bench.proc import runs, tree

# A program that was asked to end has so long before it is ended.
PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Cores:
    """Which cores serve what; both None where there is only one, or where none can be chosen."""

    measured: frozenset[int] | None
    others: frozenset[int] | None

    @classmethod
    def of_this_machine(cls) -> Cores:
        """One core for what is measured, all others for the load and the upstream."""
        if not hasattr(os, "sched_getaffinity"):
            return cls(None, None)
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) < 2:
            return cls(None, None)
        return cls(frozenset(usable[-1:]), frozenset(usable[:-1]))


@contextmanager
def on(cores: frozenset[int] | None) -> Iterator[None]:
    """Programs that are started inside this run on these cores, with all their threads."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def allow_many_files(wanted: int) -> int:
    """Raise the soft limit of open files as far as is needed and allowed; what it is now."""
    try:
        import resource  # noqa: PLC0415 -- there is none on Windows
    except ImportError:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


class Children:
    """Everything that the bench has running."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._before = signal.getsignal(signal.SIGTERM)

    def __enter__(self) -> Children:
        signal.signal(signal.SIGTERM, _leave)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._running:
            end(self._running.pop())
        signal.signal(signal.SIGTERM, self._before)

    def start(
        self,
        command: Sequence[str],
        cores: frozenset[int] | None,
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program; its words go to `log`."""
        with log.open("ab") as words, on(cores):
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env={**os.environ, **(env or {})},
                # Ctrl-C is for the bench, which then ends its children in order.
                start_new_session=True,
            )
        self._running.append(child)
        return child

    def stop(self, child: subprocess.Popen[bytes]) -> None:
        """End one of them now."""
        self._running.remove(child)
        end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a program and everything that it started."""
    family = tree(child.pid)
    child.terminate()
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    for pid in family[1:]:
        _kill(pid)
    give_up = time.monotonic() + PATIENCE
    while any(map(runs, family[1:])) and time.monotonic() < give_up:
        time.sleep(0.01)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        return  # it went with its parent


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def wait_until(ready: Callable[[], bool], seconds: float, child: subprocess.Popen[bytes]) -> bool:
    """Whether `ready()` came true in time, with the program still running."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up and child.poll() is None:
        if ready():
            return True
        time.sleep(0.1)
    return False
