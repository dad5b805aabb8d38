"""End commands that would outlive us, and processes of an ended command that left its group.

A tiny shell process holds the list of our process groups and reads from a pipe. When this process
dies, the pipe ends, and the shell kills the listed groups and, on Linux, every process that has our
mark: children that left their group, and a command that was started in the last millisecond.

Rules: (1) one guard per process, started before the first command; (2) only groups that we started
and that have not ended are on the list; (3) without a POSIX shell, or where the system hides
environments, nothing is done and nothing fails; (4) a process is ours only if its environment has
the mark of this command.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

MARK = "JACKLINE_CALL"
"""The variable that a command and all its children carry."""

_PROCESSES = Path("/proc")


def end_strays(mark: str) -> None:
    """End every process that carries the mark."""
    if not (_PROCESSES / "self" / "environ").exists():
        return
    line = f"{MARK}={mark}".encode()
    for entry in _PROCESSES.iterdir():
        # Strangers' processes cannot be read, and any may end while we look.
        with suppress(OSError):
            if entry.name.isdigit() and line in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), getattr(signal, "SIGKILL", signal.SIGTERM))


_SCRIPT = """
groups=' '
while read -r sign group; do
  case $sign in
    +) groups="$groups$group " ;;
    -) case $groups in
         *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;;
       esac ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
for round in 1 2; do
  for found in $(grep -lF "$1" /proc/[0-9]*/environ 2>/dev/null); do
    found=${found#/proc/}
    kill -s KILL "${found%/environ}" 2>/dev/null
  done
done
"""


class OrphanGuard:
    """Knows the groups that must not outlive this process."""

    def __init__(self) -> None:
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
                start_new_session=True,
            )
        except OSError:
            return  # a system without /bin/sh: law 3
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
