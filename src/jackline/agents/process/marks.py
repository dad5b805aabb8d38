"""Know a process again by its number and the moment at which it began.

Laws: (1) a number alone names no process: systems give it away again; (2) where a system does not
tell when a process began, it is not known again, and so never ended by mistake; (3) a process that
has ended and only waits to be buried is not alive.
Not here: ending one (ending.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_BOOT = _PROC / "sys" / "kernel" / "random" / "boot_id"
_PATIENCE_S = 10


@dataclass(frozen=True, slots=True)
class Mark:
    """One process of one machine; `began` is the system's own word, empty when it tells none."""

    pid: int
    began: str
    family: str = ""
    """What it and all that it starts carry in their environment."""


def mark_of(pid: int, family: str = "") -> Mark:
    """The mark of a process that runs now."""
    return Mark(pid, _began(pid) or "", family)


def is_alive(mark: Mark) -> bool:
    """Whether this very process still runs."""
    return mark.began != "" and _began(mark.pid) == mark.began


def _stat(pid: int) -> list[str] | None:
    """The fields of a process's state from the third on; its name, the second, may hold spaces."""
    try:
        told = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return told.rpartition(")")[2].split()


def _began(pid: int) -> str | None:
    """The system's word for when this process began; None when there is no such process."""
    if sys.platform == "win32":
        return _began_on_windows(pid)
    if _PROC.joinpath("self", "stat").exists():
        fields = _stat(pid)
        if fields is None or fields[0] in "ZX":
            return None
        # Counted from the boot: two boots may have processes of the same age.
        return f"{_BOOT.read_text('ascii').strip()}+{fields[19]}"
    return _began_by_ps(pid)


def _began_by_ps(pid: int) -> str | None:
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        told = subprocess.run(  # noqa: S603 -- a fixed program of the system, and a number
            command, env=environment, capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    state, _, began = told.stdout.decode("utf-8", "replace").strip().partition(" ")
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
        raise AssertionError(f"asked for process {pid} on another system")
