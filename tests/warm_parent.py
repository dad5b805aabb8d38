"""Start `python -m MODULE` or a script as a copy of a process that has loaded Jackline already.

Rules: (1) a copy is a child of the process that asked, not of this one: it waits for it, signals it
and pays for it as for any child; (2) a copy takes over everything that a new process would take
from its start: words, environment, folder, the three files, limits, mask, priority, session; also
what others read in /proc of it; (3) here nothing but imports happens before a copy is made, and
only of what a long command loads anyway: what a module does at its import must not depend on words,
environment or folder, and a user's module must not be hidden by one that nobody asked for; (4)
Linux only; where the system refuses, the caller hears so and starts a process of its own.
Not here: who starts what this way (warm_processes.py).
"""

from __future__ import annotations

import array
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import socket
import sys
import tempfile
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

_CLONE3 = 435
_CLONE_PARENT = 0x00008000
_CLONE_CHILD_CLEARTID = 0x00200000
_CLONE_CHILD_SETTID = 0x01000000
_PR_GET_TID_ADDRESS = 40
_FILES = 4  # input, output, errors, and where the copy reports
# With what they import, that is what `jackline run` has loaded at its end; `rich`, say, is not.
_LOADED = (
    *("jackline.cli.main", "jackline.cli.run", "jackline.cli.runs", "jackline.cli.resume"),
    *("jackline.cli.gateway_service", "jackline.cli.status", "jackline.config.loader"),
    *("jackline.assembly.flow_host", "jackline.assembly.service", "jackline.flows.store.sqlite"),
    *("jackline.agents.codex", "jackline.agents.messages.runner"),
)


def serve(channel_number: int) -> None:
    """Make copies until the other end is closed; returns in a copy, too, once its module ended."""
    channel = socket.socket(fileno=channel_number)
    _load()
    while (received := _receive(channel)) is not None:
        job, files = received
        process = _copy()
        if process == 0:
            channel.close()
            _become(job, files)
            del sys.modules[__name__], sys.modules["tests"]
            _run(job["words"])
            return
        if process < 0:
            os.write(files[3], b"refused")
        for each in files:
            os.close(each)


def _run(words: list[str]) -> None:
    if words[1] == "-m":
        runpy._run_module_as_main(words[2])  # type: ignore[attr-defined]
        return
    space = vars(sys.modules["__main__"])
    space["__file__"], space["__cached__"] = words[1], None
    space["__loader__"] = SourceFileLoader("__main__", words[1])
    exec(compile(Path(words[1]).read_bytes(), words[1], "exec"), space)  # noqa: S102


def _load() -> None:
    for module in _LOADED:
        importlib.import_module(module)
    # Copies share these pages as long as nobody writes to them.
    gc.collect()
    gc.freeze()


def _receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    files = array.array("i")
    try:
        head, more, _, _ = channel.recvmsg(8, socket.CMSG_SPACE(_FILES * files.itemsize))
    except KeyboardInterrupt:  # of the whole run of tests, which says so itself
        return None
    if not head:
        return None
    for level, kind, content in more:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(content)
    left = int.from_bytes(head, "big")
    parts = []
    while left:
        part = channel.recv(left)
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return json.loads(b"".join(parts)), list(files)


class _CloneArguments(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("flags", "pidfd", "child_tid", "parent_tid", "exit_signal"),
            *("stack", "stack_size", "tls"),
        )
    ]


def _copy() -> int:
    """Like `os.fork`, but the copy's parent is our own parent; -1 where the system refuses."""
    # As `fork` of the C library does it: the copy's thread must know its number.
    place = ctypes.c_ulong(0)
    if _C.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(place), 0, 0, 0):
        return -1
    flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    given = _CloneArguments(flags=flags, child_tid=place.value)
    size = ctypes.sizeof(given)
    ctypes.pythonapi.PyOS_BeforeFork()
    process = int(_C.syscall(_CLONE3, ctypes.byref(given), size))
    if process == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return process


def _become(job: dict[str, Any], files: list[int]) -> None:
    """Take over what a new process would have been given, then report."""
    if job["new_session"]:
        os.setsid()
    if job["group"] is not None:
        os.setpgid(0, job["group"])
    for number in range(3):
        os.dup2(files[number], number)
    for each in files[:3]:
        os.close(each)
    os.chdir(job["folder"])
    os.umask(job["mask"])
    if os.getpriority(os.PRIO_PROCESS, 0) != job["priority"]:
        os.setpriority(os.PRIO_PROCESS, 0, job["priority"])
    for kind, limits in job["limits"]:
        if resource.getrlimit(kind) != tuple(limits):
            resource.setrlimit(kind, tuple(limits))
    words, environment = job["words"], job["environment"]
    # Without a locale Python sets this one itself, before our first line.
    locale = {name: os.environ[name] for name in ("LC_CTYPE",) if name in os.environ}
    os.environ.clear()
    _show(words, environment)
    os.environ.update(locale | environment)
    time.tzset()
    tempfile.tempdir = None
    sys.orig_argv[:] = words
    if words[1] == "-m":
        sys.path[0] = job["folder"]
        sys.argv[:] = ["-m", *words[3:]]
    else:
        script = Path(words[1])
        sys.path[0] = str(script.resolve().parent)
        sys.argv[:] = words[1:]
        # The system names a process by the file that was started.
        Path("/proc/self/comm").write_text(script.name[:15], encoding="utf-8")
    os.write(files[3], str(os.getpid()).encode())
    os.close(files[3])


def _show(words: list[str], environment: dict[str, str]) -> None:
    """Put words and environment where /proc shows them; our own were long enough."""
    after_name = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    # In the order of the manual, from its third field on.
    begin, end, begin_environment, end_environment = (int(each) for each in after_name[45:49])
    lines = [f"{name}={value}" for name, value in environment.items()]
    _fill(begin, end, words)
    _fill(begin_environment, end_environment, lines)


def _fill(begin: int, end: int, lines: list[str]) -> None:
    content = b"".join(os.fsencode(line) + b"\0" for line in lines)
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, content, min(len(content), end - begin - 1))


# Holds the interpreter's lock during a call: between these two halves of a fork nobody else runs.
_C = ctypes.PyDLL(None, use_errno=True)
