"""Name the program that holds a port, so that its user knows what to stop.

Rules: (1) best effort: nothing is guessed; (2) never raises.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from jackline.programs import find_program

_LISTENING = "0A"
_TOOL_SECONDS = 5


def port_holder(port: int) -> str | None:
    """The holder as "nginx (process 812)", or None when it is not known."""
    if Path("/proc/net/tcp").exists():
        pid = _pid_on_linux(port)
    elif os.name == "nt":
        lines = [line.split() for line in _output("netstat", "-ano", "-p", "tcp").splitlines()]
        held = [
            fields[-1]
            for fields in lines
            if "LISTENING" in fields and fields[1].endswith(f":{port}")
        ]
        pid = next(iter(held), "")
    else:
        pid = next(iter(_output("lsof", "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-t").split()), "")
    if not pid.isdigit():
        return None
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it has just ended, or this system has no such file
        if os.name == "nt":
            rows = _output("tasklist", "/fi", f"PID eq {pid}", "/fo", "csv", "/nh")
            name = rows.partition(",")[0].strip('" \r\n')
        else:
            name = Path(_output("ps", "-p", pid, "-o", "comm=").strip()).name
    return f"{name} (process {pid})" if name else f"process {pid}"


def _pid_on_linux(port: int) -> str:
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
                return folder.parent.name
        except OSError:
            continue  # another user's process, or one that has just ended
    return ""


def _output(tool: str, *arguments: str) -> str:
    path = find_program(tool)
    if path is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 -- one of four system tools, with numbers
            [path, *arguments], capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
