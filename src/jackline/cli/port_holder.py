"""Name the program that holds a port, so that its user knows what to stop.

Rules: (1) best effort: what cannot be found out is not guessed; (2) never raises.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from jackline.programs import find_program

_LISTENING = "0A"
_ASK_SECONDS = 5


def port_holder(port: int) -> str | None:
    """The holder as "nginx (process 812)", or None when it cannot be found out."""
    pid = _pid_on_linux(port) if Path("/proc/net/tcp").exists() else _pid_by_tools(port)
    if pid is None:
        return None
    name = _name(pid)
    return f"{name} (process {pid})" if name else f"process {pid}"


def _pid_on_linux(port: int) -> int | None:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue  # no IPv6 here
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(str(link.readlink()) in inodes for link in folder.iterdir()):
                return int(folder.parent.name)
        except OSError:
            continue  # another user's process, or one that has just ended
    return None


def _pid_by_tools(port: int) -> int | None:
    if os.name == "nt":
        lines = _output("netstat", "-ano", "-p", "tcp").splitlines()
        found = [
            line.split()[-1]
            for line in lines
            if "LISTENING" in line and line.split()[1].endswith(f":{port}")
        ]
    else:
        found = _output("lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-t").split()
    return int(found[0]) if found and found[0].isdigit() else None


def _name(pid: int) -> str:
    with suppress(OSError):  # it has just ended, or this system has no such file
        return Path(f"/proc/{pid}/comm").read_text().strip()
    if os.name == "nt":
        told = _output("tasklist", "/fi", f"PID eq {pid}", "/fo", "csv", "/nh")
        return told.partition(",")[0].strip('" \r\n')
    return Path(_output("ps", "-p", str(pid), "-o", "comm=").strip()).name


def _output(tool: str, *arguments: str) -> str:
    path = find_program(tool)
    if path is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 -- one of four system tools, with numbers
            [path, *arguments], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
