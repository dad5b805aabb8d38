"""Start a command and hear of its output and its end, apart from each other.

Laws: (1) the command inherits its own three files and nothing else of ours; (2) its end is heard
of when it ends itself, whoever still holds its output open; (3) on POSIX systems its number stays
taken until `finish`, so that ending its group can never hit a stranger.
Not here: when to end it (processes.py).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jackline.batches.kept_output import USUAL_LIMIT
from jackline.batches.listening import Listener

_CLOSES_S = 5.0
"""How long pipes may take to close; longer only when the loop is stuck."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to start, where, and for how long at most."""

    argv: tuple[str, ...]
    cwd: Path
    environ: Mapping[str, str]
    seconds: float | None = None
    limit: int = USUAL_LIMIT
    stdin: bytes | None = None
    line: str | None = None
    """Used instead of `argv` on Windows, where quoted words do not survive the way to the shell."""


class Started(ABC):
    """A command that was started; also what its pipe and its process are told to."""

    def __init__(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.exited: asyncio.Future[None] = loop.create_future()
        self.silent: asyncio.Future[None] = loop.create_future()
        """Done when nobody holds the writing end of its output any more."""
        self.listener = listener

    @abstractmethod
    async def finish(self) -> int | None:
        """Let go of pipe and process; the exit code, or None when even the system cannot end it."""


async def start(command: Command, listener: Listener) -> Started:
    """The running command; OSError when it cannot be started."""
    with _input(command.stdin) as stdin:
        if os.name == "nt":
            return await _OnWindows.start(command, listener, stdin)
        return await _OnPosix.start(command, listener, stdin)


def _input(content: bytes | None) -> IO[bytes]:
    """A file to read from: unlike a pipe, it takes any size at once and never breaks."""
    if content is None:
        return Path(os.devnull).open("rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by whoever asked for it
    file.write(content)
    file.seek(0)
    return file


def _settle(waited: asyncio.Future[None]) -> None:
    if not waited.done():
        waited.set_result(None)


def _popen(command: Command, stdin: IO[bytes]) -> subprocess.Popen[bytes]:
    # Starting blocks the loop for about a millisecond, as every way of starting does.
    return subprocess.Popen(  # noqa: S603 -- running commands is what it is for
        command.argv,
        cwd=command.cwd,
        env=dict(command.environ),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


class _OnPosix(Started, asyncio.Protocol):
    """Not the loop's own subprocess: uvloop's lets children inherit more than their three files."""

    _process: subprocess.Popen[bytes]
    _pipe: asyncio.BaseTransport

    @classmethod
    async def start(cls, command: Command, listener: Listener, stdin: IO[bytes]) -> _OnPosix:
        self = cls(listener)
        self._process = _popen(command, stdin)
        self.pid = self._process.pid
        loop = asyncio.get_running_loop()
        self._pipe, _ = await loop.connect_read_pipe(lambda: self, self._process.stdout)
        waiting = threading.Thread(target=self._wait, args=(loop,), daemon=True)
        waiting.name = f"jackline-wait-{self.pid}"
        waiting.start()
        return self

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(ChildProcessError):  # somebody ignores SIGCHLD: there is nothing to wait for
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            else:  # macOS before Python 3.13
                self._process.wait()
        with suppress(RuntimeError):  # the loop is gone, and with it whoever waited
            loop.call_soon_threadsafe(_settle, self.exited)

    def data_received(self, data: bytes) -> None:
        """The next bytes of its output."""
        self.listener.take(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's words
        """Nobody holds the writing end any more, or we let go of ours."""
        _settle(self.silent)

    async def finish(self) -> int | None:
        """Let go of pipe and process."""
        self._pipe.close()
        await asyncio.wait([self.silent], timeout=_CLOSES_S)
        return self._process.poll()


class _OnWindows(Started, asyncio.SubprocessProtocol):
    _transport: asyncio.SubprocessTransport

    @classmethod
    async def start(cls, command: Command, listener: Listener, stdin: IO[bytes]) -> _OnWindows:
        self = cls(listener)
        loop = asyncio.get_running_loop()
        by_shell = command.line is not None
        starting = loop.subprocess_shell if by_shell else loop.subprocess_exec
        self._transport, _ = await starting(
            lambda: self,
            *((command.line or "",) if by_shell else command.argv),
            cwd=command.cwd,
            env=dict(command.environ),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self.pid = self._transport.get_pid()
        return self

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002 -- asyncio's words
        """The next bytes of its output."""
        self.listener.take(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        """Nobody holds the writing end any more."""
        _settle(self.silent)

    def process_exited(self) -> None:
        """The process itself has ended; its children may live."""
        _settle(self.exited)

    async def finish(self) -> int | None:
        """Let go of pipe and process."""
        self._transport.close()
        await asyncio.wait([self.silent], timeout=_CLOSES_S)
        return self._transport.get_returncode()
