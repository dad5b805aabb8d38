"""Run one command in its own process group, without our secrets, and leave nothing of it behind.

Rules: (1) when the call is over, by its end, its timeout or a cancellation, the whole group is
ended: first terminated, then killed; (2) output is read to its end, memory stays bounded, the text
is always valid, and binary output is described instead; (3) the command inherits only its three
files and never reads from our terminal; (4) variables whose name or value looks like a secret are
dropped, unless the caller names them; there is no pager, no password prompt, no colour; (5) its end
is noticed when the process itself ends, whoever still holds its output; on POSIX systems its number
stays reserved until `finish`, so that no other process can be hit; (6) commands that would outlive
us are ended: only groups that we started and that have not ended, and processes whose environment
has our mark; without a POSIX shell, or where environments are hidden, nothing is done or fails.
"""

from __future__ import annotations

import asyncio
import atexit
import codecs
import os
import re
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Literal
from uuid import uuid4

from jackline.batches.tool import OUTPUT_CHARACTERS, ClippedOutput
from jackline.programs import system_program

_SOUNDS_SECRET = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|KEY|KEYS|TOKEN|TOKENS|SECRET|SECRETS|PASSWORD"
    r"|PASSWD|PASSPHRASE|PASS|PWD|PAT|CREDENTIAL|CREDENTIALS|CREDS|COOKIE|AUTH|BEARER|DSN|SIGNATURE"
    r"|KEY_ID|SALT|JWT|CUSTOM_HEADERS)(?:_\w*)?$",
    re.IGNORECASE,
)
_HOLDS_SECRET_WORD = re.compile(r"SECRET|PASSWORD|CREDENTIAL|APIKEY|AUTHTOKEN", re.IGNORECASE)
_HOLDS_LOGIN = re.compile(r"://[^/\s@]+:[^/\s@]+@")
_LOOKS_LIKE_KEY = re.compile(r"\b(?:sk-|ghp_|gho_|github_pat_|xox[abp]-|AKIA|ASIA|ya29\.|eyJ)\w{8}")

# Names that sound like a secret and hold none, and without which ordinary tools fail.
_HARMLESS = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY", "GPG_TTY", "KEYBOARD"})

_QUIET = {
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "TERM": "dumb",
}


def is_secret(name: str, value: str) -> bool:
    """Whether a variable is to be kept from commands."""
    if name.upper() in _HARMLESS:
        return False
    if name == "GIT_CONFIG_COUNT":  # the names that it counts sound secret: git fails without them
        return True
    if _SOUNDS_SECRET.search(name) or _HOLDS_SECRET_WORD.search(name):
        return True
    return bool(_HOLDS_LOGIN.search(value) or _LOOKS_LIKE_KEY.search(value))


def without_secrets(environ: Mapping[str, str], keep: Iterable[str] = ()) -> dict[str, str]:
    """The environment for a command; `keep` names what passes although it sounds secret."""
    kept = frozenset(keep)
    passed = {
        name: value for name, value in environ.items() if name in kept or not is_secret(name, value)
    }
    return {**passed, **_QUIET}


MARK = "JACKLINE_CALL"
"""The variable that a command and all its children carry."""

_PROCESSES = Path("/proc")


_SCRIPT = """
groups=' '
mark=$1
while read -r sign group; do
  case $sign in
    .) mark= ;;
    +) groups="$groups$group " ;;
    -) case $groups in
         *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;;
       esac ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
for round in 1 2; do
  [ -n "$mark" ] || break
  for found in $(grep -lF "$mark" /proc/[0-9]*/environ 2>/dev/null); do
    found=${found#/proc/}
    kill -s KILL "${found%/environ}" 2>/dev/null
  done
done
"""


class OrphanGuard:
    """Knows the groups that must not outlive this process.

    A tiny shell process holds their list and reads from a pipe. When this process dies, the pipe
    ends, and the shell kills the listed groups and, on Linux, every process that has our mark:
    children that left their group, and a command that was started in the last millisecond.
    Of the listening sockets that it `holds`, nobody gets the port before they are gone.
    """

    def __init__(self, holds: Iterable[int] = ()) -> None:
        self._holds = tuple(holds)
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._token = ""
        self._groups: set[int] = set()

    def mark(self) -> str:
        """A new mark for a command that is about to start; the guard knows it from now on."""
        self._be_there()
        return f"{self._token}.{uuid4().hex}"

    def watch(self, group: int) -> None:
        """From now on this group ends with us."""
        self._be_there()
        self._groups.add(group)
        self._tell(f"+ {group}\n")

    def forget(self, group: int) -> None:
        """The group has ended; its number may soon belong to somebody else."""
        self._groups.discard(group)
        self._tell(f"- {group}\n")

    def close(self) -> None:
        """All has ended in order: let go of the sockets, and end nothing that was left to run."""
        self._tell(".\n")
        self._stop(self._owner)
        atexit.unregister(self._stop)

    def end_strays(self, mark: str) -> None:
        """End every process that carries the mark."""
        if not (_PROCESSES / "self" / "environ").exists():
            return
        line = f"{MARK}={mark}".encode()
        for entry in _PROCESSES.iterdir():
            # Strangers' processes cannot be read, and any may end while we look.
            with suppress(OSError):
                if entry.name.isdigit() and line in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), getattr(signal, "SIGKILL", signal.SIGTERM))

    def _be_there(self) -> None:
        if self._guard is not None and self._owner == os.getpid():
            if self._guard.poll() is None:
                return
            self._stop(self._owner)  # somebody ended it; the next one takes over its list
        elif self._owner != os.getpid():
            self._groups.clear()  # we are a fork; the commands are our parent's
        self._token = uuid4().hex
        if os.name == "nt":
            return
        try:
            # Its own session: Ctrl-C in the terminal must not take the guard before us.
            self._guard = subprocess.Popen(  # noqa: S603 -- fixed words
                ["/bin/sh", "-c", _SCRIPT, "sh", f"{MARK}={self._token}."],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},
                pass_fds=self._holds,
                start_new_session=True,
            )
        except OSError:
            return  # a system without /bin/sh
        self._owner = os.getpid()
        atexit.register(self._stop, self._owner)
        for group in self._groups:
            self._tell(f"+ {group}\n")

    def _tell(self, line: str) -> None:
        if self._guard is None or self._guard.stdin is None or self._owner != os.getpid():
            return
        try:
            self._guard.stdin.write(line.encode())
            self._guard.stdin.flush()
        except OSError:
            # Somebody ended it this very moment; the next command starts another.
            self._stop(self._owner)

    def _stop(self, owner: int) -> None:
        guard = self._guard
        if guard is None or owner != os.getpid() or owner != self._owner:
            return
        self._guard = None
        if guard.stdin is not None:
            with suppress(OSError):  # it was already gone, with what was not yet written to it
                guard.stdin.close()
        guard.wait()


guard = OrphanGuard()
"""The one of this process."""


_PASSED_ON_AS_IT_COMES = 262_144
"""Characters; a command that prints without end must not fill the record of its own call."""
_BINARY = "\0"


class _OutputListener:
    def __init__(self, limit: int, on_output: Callable[[str], None] | None) -> None:
        self.size = 0
        """Bytes so far."""
        self._kept = ClippedOutput(limit)
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._passed_on = 0
        self._is_binary = False

    def take(self, piece: bytes) -> None:
        self.size += len(piece)
        self._add(self._decoder.decode(piece))

    def close(self) -> None:
        """There are no more; half a character at the end is shown as what it is."""
        self._add(self._decoder.decode(b"", final=True))

    def _add(self, text: str) -> None:
        if not text:
            return
        self._is_binary = self._is_binary or _BINARY in text
        self._kept.add(text)
        if self._on_output is not None and self._passed_on < _PASSED_ON_AS_IT_COMES:
            self._passed_on += len(text)
            self._on_output(text.replace(_BINARY, "\N{REPLACEMENT CHARACTER}"))

    @property
    def text(self) -> str:
        """What is kept of it; binary output is described instead."""
        if self._is_binary:
            return f"(binary output, {self.size:,} bytes, not shown)"
        return self._kept.text


_CLOSES_S = 5.0
"""How long pipes may take to close; longer only when the loop is stuck."""


@dataclass(frozen=True, slots=True)
class ProcessCommand:
    """What to start, where, and for how long at most."""

    argv: tuple[str, ...]
    cwd: Path
    environ: Mapping[str, str]
    seconds: float | None = None
    limit: int = OUTPUT_CHARACTERS
    stdin: bytes | None = None
    line: str | None = None
    """Used instead of `argv` on Windows, where quoted words do not survive the way to the shell."""

    def input(self) -> IO[bytes]:
        """A file to read from: unlike a pipe, it takes any size at once and never breaks."""
        if self.stdin is None:
            return Path(os.devnull).open("rb")
        file = TemporaryFile()  # noqa: SIM115 -- closed by whoever asked for it
        file.write(self.stdin)
        file.seek(0)
        return file


class _StartedCommand(ABC):
    """A command that was started; also the receiver of its pipe and its process.

    It leads a process group of its own, with the number of its process.
    """

    def __init__(self, listener: _OutputListener) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.exited: asyncio.Future[None] = loop.create_future()
        self.silent: asyncio.Future[None] = loop.create_future()
        """Done when nobody holds the writing end of its output any more."""
        self.listener = listener

    @abstractmethod
    async def finish(self) -> int | None:
        """Let go of pipe and process; the exit code, or None when even the system cannot end it."""

    def settle(self, waited: asyncio.Future[None]) -> None:
        if not waited.done():
            waited.set_result(None)

    async def reaches(
        self, waited: asyncio.Future[None], stop: asyncio.Event, seconds: float | None
    ) -> bool:
        """Whether `exited` or `silent` comes before it is stopped and before the time is up."""
        stopped = asyncio.ensure_future(stop.wait())
        awaited: list[asyncio.Future[None] | asyncio.Future[Literal[True]]] = [waited, stopped]
        try:
            await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        return waited.done()

    def signal_group(self, *, forced: bool) -> None:
        if sys.platform == "win32":
            # Windows has no groups that end together; its own tool walks the tree. A tree that is
            # gone already is what we want, so its complaint is not read.
            subprocess.run(  # noqa: S603 -- a fixed program and a number
                [system_program("taskkill"), "/F", "/T", "/PID", str(self.pid)],
                capture_output=True,
                check=False,
            )
        else:
            # Nothing is left, or zombies (macOS).
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL if forced else signal.SIGTERM)


class _OnPosix(_StartedCommand, asyncio.Protocol):
    """Not the loop's own subprocess: uvloop's lets children inherit more than their three files."""

    _pipe: asyncio.BaseTransport

    def __init__(
        self, command: ProcessCommand, listener: _OutputListener, stdin: IO[bytes]
    ) -> None:
        super().__init__(listener)
        # Starting blocks the loop for about a millisecond, as every way of starting does.
        self._process = subprocess.Popen(  # noqa: S603 -- running commands is what it is for
            command.argv,
            cwd=command.cwd,
            env=dict(command.environ),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._process.pid

    @classmethod
    async def start(
        cls, command: ProcessCommand, listener: _OutputListener, stdin: IO[bytes]
    ) -> _OnPosix:
        self = cls(command, listener, stdin)
        loop = asyncio.get_running_loop()
        self._pipe, _ = await loop.connect_read_pipe(lambda: self, self._process.stdout)
        waiting = threading.Thread(target=self._wait, args=(loop,), daemon=True)
        waiting.name = f"jackline-wait-{self.pid}"
        waiting.start()
        return self

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(ChildProcessError):  # somebody ignores SIGCHLD: there is nothing to wait for
            if sys.platform != "win32" and hasattr(os, "waitid"):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            else:  # macOS before Python 3.13
                self._process.wait()
        with suppress(RuntimeError):  # the loop is gone, and with it whoever waited
            loop.call_soon_threadsafe(self.settle, self.exited)

    def data_received(self, data: bytes) -> None:
        self.listener.take(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's words
        self.settle(self.silent)

    async def finish(self) -> int | None:
        self._pipe.close()
        await asyncio.wait([self.silent], timeout=_CLOSES_S)
        return self._process.poll()


class _OnWindows(_StartedCommand, asyncio.SubprocessProtocol):
    _transport: asyncio.SubprocessTransport

    @classmethod
    async def start(
        cls, command: ProcessCommand, listener: _OutputListener, stdin: IO[bytes]
    ) -> _OnWindows:
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
        self.listener.take(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self.settle(self.silent)

    def process_exited(self) -> None:
        self.settle(self.exited)

    async def finish(self) -> int | None:
        self._transport.close()
        await asyncio.wait([self.silent], timeout=_CLOSES_S)
        return self._transport.get_returncode()


ASKED_S = 2.0
"""How long a process group may take to end by itself once asked to."""
_LINGERS_S = 0.5
"""After a command ended, children in the background may print until they are silent so long."""
_MADE_S = 5.0
"""How long the system may take to end what was killed; longer only for a stuck disk."""


@dataclass(frozen=True, slots=True)
class FinishedCommand:
    """How a command ended; a negative `exit_code` is the signal that ended it."""

    exit_code: int
    output: str
    timed_out: bool = False
    left_behind: bool = False
    """Something that it had left in the background, still printing, was ended."""


async def run_process(
    command: ProcessCommand, on_output: Callable[[str], None] | None = None
) -> FinishedCommand:
    """How the command ended; OSError when it cannot be started.

    `on_output` gets output as it comes.

    Being cancelled ends the whole process group before the cancellation goes on.
    """
    stop = asyncio.Event()
    # A task of its own, stopped by an event: so no cancellation falls between start and ending.
    life = asyncio.ensure_future(_live(command, _OutputListener(command.limit, on_output), stop))
    cancelled = False
    while not life.done():
        try:
            await asyncio.wait([life])
        except asyncio.CancelledError:
            cancelled = True
            stop.set()
    if cancelled:
        life.exception()
        raise asyncio.CancelledError
    return life.result()


async def _live(
    command: ProcessCommand, listener: _OutputListener, stop: asyncio.Event
) -> FinishedCommand:
    mark = guard.mark()
    marked = replace(command, environ={**command.environ, MARK: mark})
    kind = _OnWindows if os.name == "nt" else _OnPosix
    with command.input() as stdin:
        started = await kind.start(marked, listener, stdin)
    guard.watch(started.pid)
    in_time = left_behind = False
    try:
        in_time = await started.reaches(started.exited, stop, command.seconds)
        if in_time:
            # Somebody in the background may still hold its output, and print.
            left_behind, before = True, -1
            while left_behind and not stop.is_set() and before != listener.size:
                before = listener.size
                left_behind = not await started.reaches(started.silent, stop, _LINGERS_S)
        else:
            started.signal_group(forced=False)
            await asyncio.wait([started.exited], timeout=ASKED_S)
    finally:
        # Also after a good end: what it left in the background would outlive the call.
        started.signal_group(forced=True)
        if not in_time:
            guard.end_strays(mark)
        guard.forget(started.pid)
    await asyncio.wait([started.exited], timeout=_MADE_S)
    code = await started.finish()
    listener.close()
    return FinishedCommand(
        exit_code=-int(signal.SIGTERM) if code is None else code,
        output=listener.text,
        timed_out=not in_time,
        left_behind=left_behind,
    )


def exit_text(code: int) -> str:
    """An exit code in words: a signal by its name."""
    if code >= 0:
        return f"exit {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"
