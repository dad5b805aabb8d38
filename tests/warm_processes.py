"""Start `jackline …` in a fraction of the time, where its start is not what is tested.

Most of what a command costs is loading Jackline anew. Here each process of pytest has one parent
that has it loaded (warm_parent.py) and copies itself for each command.

Rules: (1) to whoever starts it, a copy is a process like any other: its own number, words,
environment, folder, files, signals and exit code; test_warm_processes.py shows it beside a new one;
(2) anything that a copy cannot be like is started anew, without a word: a terminal, another
interpreter, its flags or its variables, code before the start; so are the first few, which cost
less than a parent; (3) the tests of `FRESH` start everything anew, for their claim is about the
start, about what is imported from where, or about timers that start Jackline; and so does whoever
sets FRESH_PROCESSES=1; (4) what Jackline itself starts is always new.
"""

from __future__ import annotations

import array
import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

FRESH = (
    "tests/attacks/test_command_folders.py",
    "tests/attacks/test_repository.py::test_modules_in_the_repository_are_not_imported_by",
    "tests/attacks/test_repository.py::test_python_dash_m_does_not_import_from_the_repository",
    "tests/attacks/test_untrusted_clones.py",
    "tests/cli/test_env.py",
    "tests/cli/test_help.py",
    "tests/cli/test_timers_for_real.py",
    "tests/quick/",
)
ROOT = Path(__file__).parents[1]
COMMAND = Path(sys.executable).with_name("jackline.exe" if os.name == "nt" else "jackline")
_FIRST_LINE = f"#!{sys.executable}\n"
# What an interpreter reads before its first line of Python; one parent for each of these sets.
_EARLY = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_")
_UTF8 = {"PYTHONUTF8": "1"}
_FEW = 3
"""So many starts cost less than a parent."""
# Bytes that a copy can show in /proc, of its words and of its environment.
_ROOM_OF_WORDS = 16_384
_ROOM_OF_ENVIRONMENT = 65_536


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, faster where it can be."""

    def _execute_child(self, *given: Any, **named: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        arguments = signature(start).bind(*given, **named).arguments
        process = _ask(arguments) if _can_be_warm(arguments) else None
        if process is None:
            start(*given, **named)
            return
        self.pid = process
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(arguments[end] for end in ends))  # type: ignore[attr-defined]


def run(
    words: Sequence[str],
    *,
    input: Any = None,  # noqa: A002 -- as subprocess.run names it
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **more: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run`, faster where it can be."""
    if input is not None:
        more["stdin"] = subprocess.PIPE
    if capture_output:
        more["stdout"] = more["stderr"] = subprocess.PIPE
    with Popen(words, **more) as process:
        try:
            out, errors = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(words, process.returncode, out, errors)
    if check:
        done.check_returncode()
    return done


class _Parent:
    """The process that copies are made of, for one set of early variables."""

    def __init__(self, early: Mapping[str, str]) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._channel, other = socket.socketpair()
        code = f"__import__('tests.warm_parent').warm_parent.serve({other.fileno()})"
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, "-" * _ROOM_OF_WORDS],
                cwd=ROOT,
                env={**early, "ROOM": "-" * _ROOM_OF_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
            )
        atexit.register(self._end)

    def copy(self, job: Mapping[str, Any], files: Sequence[int]) -> int | None:
        """The number of a new process; None where the system refuses."""
        content = json.dumps(job).encode()
        answer, report = os.pipe()
        try:
            passed = array.array("i", [*files, report])
            with self._lock:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)
                self._channel.sendmsg([len(content).to_bytes(8, "big")], [rights])
                self._channel.sendall(content)
        finally:
            os.close(report)
        with open(answer, "rb") as file:  # noqa: PTH123 -- a number
            told = file.read()
        if told and not told.isdigit():
            return None
        assert told, "a copy of the warm parent did not come to life: its errors are above"
        return int(told)

    def _end(self) -> None:
        self._channel.close()
        if os.getpid() == self._owner:
            self._process.wait()


_Key = tuple[tuple[str, str], ...]
_parents: dict[_Key, _Parent] = {}
_asked_for: Counter[_Key] = Counter()
_parents_lock = threading.Lock()


def _can_be_warm(arguments: Mapping[str, Any]) -> bool:
    """Whether a copy would be just like the new process that is asked for."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if sys.platform != "linux" or os.environ.get("FRESH_PROCESSES") or test.startswith(FRESH):
        return False
    words = arguments["args"]
    if isinstance(words, (str, bytes, os.PathLike)) or not _is_ours(words):
        return False
    special = ("executable", "preexec_fn", "pass_fds", "startupinfo", "shell", "gid", "gids", "uid")
    if any(arguments[name] for name in special) or not arguments["close_fds"]:
        return False
    return arguments["umask"] == -1 and bool(arguments["restore_signals"])


def _is_ours(words: Sequence[Any]) -> bool:
    """Whether it is a module for this interpreter, or a script whose first line names it."""
    if list(words[:2]) == [sys.executable, "-m"]:
        return True
    return str(words[0]) == str(COMMAND) and COMMAND.read_text().startswith(_FIRST_LINE)


def _ask(arguments: Mapping[str, Any]) -> int | None:
    """Have a copy made; None where a new process has to be started instead."""
    words = [os.fsdecode(word) for word in arguments["args"]]
    if words[0] != sys.executable:
        words.insert(0, sys.executable)
    given = os.environ if arguments["env"] is None else arguments["env"]
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
    folder = Path(os.fsdecode(arguments["cwd"] or ".")).resolve()
    ends = (("p2cread", 0), ("c2pwrite", 1), ("errwrite", 2))
    files = [arguments[end] if arguments[end] != -1 else number for end, number in ends]
    sizes = (
        (words, _ROOM_OF_WORDS),
        ([f"{name}={value}" for name, value in environment.items()], _ROOM_OF_ENVIRONMENT),
    )
    if (
        any(sum(len(os.fsencode(line)) + 1 for line in lines) > most for lines, most in sizes)
        or not os.access(folder, os.X_OK)
        or not all(_is_open_and_no_terminal(file) for file in files)
        or (parent := _parent_for(environment)) is None
    ):
        return None
    job = {
        "words": words,
        "environment": environment,
        "folder": str(folder),
        "mask": _mask(),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "limits": _limits(),
        "new_session": arguments["start_new_session"],
        "group": None if arguments["process_group"] == -1 else arguments["process_group"],
    }
    return parent.copy(job, files)


def _parent_for(environment: Mapping[str, str]) -> _Parent | None:
    """The parent with the same early variables; None if they are odd, or nobody else had them."""
    asked = _early(environment)
    if not asked.items() <= (_early(os.environ) | _UTF8).items():
        return None
    key = (("process", str(os.getpid())), *sorted(asked.items()))
    with _parents_lock:
        if key not in _parents and _asked_for[key] < _FEW:
            _asked_for[key] += 1
            return None
        if key not in _parents:
            _parents[key] = _Parent(asked)
        return _parents[key]


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_EARLY)}


def _is_open_and_no_terminal(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:
        return False
    return not os.isatty(file)


def _mask() -> int:
    """What `os.umask` would return, without changing it for the other threads."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))


def _limits() -> list[tuple[int, tuple[int, int]]]:
    import resource  # noqa: PLC0415 -- Windows has none

    kinds = {value for name, value in vars(resource).items() if name.startswith("RLIMIT_")}
    return [(kind, resource.getrlimit(kind)) for kind in sorted(kinds)]
