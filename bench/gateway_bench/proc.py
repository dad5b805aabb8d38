"""Read what a process and all its children have used, without any package.

Rules: (1) only cheap files are read (`stat`, `statm`): reading `smaps` would stall the process that
is measured; (2) where there is no /proc, the answer is None, never a guess.
Not here: starting and ending processes (children.py).
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:  # it has ended meanwhile
        return None
    # The name in brackets may hold spaces and brackets itself: fields are counted behind it.
    return text.rpartition(")")[2].split()


def runs(pid: int) -> bool:
    """Whether the process is there and has not ended; false where there is no /proc."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in ("Z", "X")


def tree(root: int) -> list[int]:
    """The process and everything that descends from it, parents first."""
    children: dict[int, list[int]] = {}
    if not _PROC.is_dir():
        return [root]
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields is not None:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_seconds(root: int) -> float | None:
    """User and system time of the tree so far."""
    ticks = 0
    fields = None
    for pid in tree(root):
        fields = _stat(pid)
        if fields is not None:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK") if _PROC.is_dir() else None


def busy_seconds() -> float | None:
    """What all processors of the machine have worked so far, for anybody."""
    try:
        fields = (_PROC / "stat").read_text("ascii").split("\n", 1)[0].split()[1:]
    except OSError:  # no /proc
        return None
    user, nice, system, _idle, _waiting, *interrupts = map(int, fields[:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """What this process and its children have worked so far, ended ones included."""
    ended = os.times()
    living = cpu_seconds(os.getpid()) or 0.0
    return living + ended.children_user + ended.children_system


def resident_bytes(root: int) -> int | None:
    """Resident memory of the tree, pages shared between its processes counted once for each."""
    if not _PROC.is_dir():
        return None
    pages = 0
    for pid in tree(root):
        try:
            pages += int((_PROC / str(pid) / "statm").read_text("ascii").split()[1])
        except OSError:  # it has ended meanwhile
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")
