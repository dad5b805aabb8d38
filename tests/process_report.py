"""Print what this process is like, or end as its first word says; for test_warm_processes.py."""

from __future__ import annotations

import atexit
import gc
import io
import json
import locale
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from pathlib import Path


def main() -> None:
    atexit.register(print, "at exit")
    _ENDS[sys.argv[1]]()


def _interrupt() -> None:
    raise KeyboardInterrupt


def _wrong() -> None:
    raise ValueError("wrong")


def _wait() -> None:
    _say("waiting")
    time.sleep(600)


def _spawn() -> None:
    with get_context("spawn").Pool(1) as pool:
        _say(pool.map(abs, [-1, -2]))


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _report() -> dict[str, object]:
    process = Path("/proc/self")
    status = (process / "status").read_text().splitlines()
    kinds = {name: value for name, value in vars(resource).items() if name.startswith("RLIMIT_")}
    main_module = sys.modules["__main__"]
    return {
        "words": sys.argv,
        "all words": sys.orig_argv,
        "path": sys.path,
        "flags": list(sys.flags),
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "files": sorted(os.listdir("/proc/self/fd")),  # noqa: PTH208 -- names only
        "streams": [
            (each.name, each.encoding, each.errors, each.line_buffering, each.write_through)
            for each in map(_text, (sys.stdin, sys.stdout, sys.stderr))
        ],
        "encodings": [sys.getfilesystemencoding(), locale.getencoding(), locale.setlocale(0)],
        "limits": {name: resource.getrlimit(kind) for name, kind in sorted(kinds.items())},
        "mask": [line for line in status if line.startswith("Umask:")],
        "signals": [line for line in status if line.startswith("Sig") and "SigQ" not in line],
        "handlers": [str(signal.getsignal(each)) for each in sorted(signal.valid_signals())],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "parent": os.getppid(),
        "group": os.getpgrp() == os.getpid() or os.getpgrp(),
        "session": os.getsid(0) == os.getpid() or os.getsid(0),
        "shown words": (process / "cmdline").read_bytes().decode().rstrip("\0"),
        "shown environment": sorted(filter(None, (process / "environ").read_text().split("\0"))),
        "name": (process / "comm").read_text(),
        "program": str((process / "exe").readlink()),
        "threads": [each.name for each in threading.enumerate()],
        "main": [main_module.__name__, str(main_module.__file__), sorted(vars(main_module))],
        "no modules": [name for name in ("rich", "mcp", "colorsys") if name in sys.modules],
        "own modules": [name for name in sys.modules if name.startswith("tests")],
        "zone": time.tzname,
        "temporary": tempfile.gettempdir(),
        "collection": [gc.isenabled(), gc.get_threshold()],
        "switch": sys.getswitchinterval(),
        "recursion": sys.getrecursionlimit(),
        "trace": sys.gettrace() is None,
    }


def _text(stream: object) -> io.TextIOWrapper:
    assert isinstance(stream, io.TextIOWrapper)
    return stream


_ENDS: Mapping[str, Callable[[], object]] = {
    "abort": os.abort,
    "error": _wrong,
    "exit": lambda: sys.exit(int(sys.argv[2])),
    "input": lambda: sys.stderr.write(f"{sys.stdin.read().upper()} é\n"),
    "interrupt": _interrupt,
    "raise": lambda: signal.raise_signal(signal.SIGTERM),
    "random": lambda: _say(f"{random.getrandbits(64)} {random.SystemRandom().getrandbits(64)}"),
    "report": lambda: _say(json.dumps(_report())),
    "sentence": lambda: sys.exit("no such thing"),
    "spawn": _spawn,
    "thread": lambda: threading.Timer(0.1, _say, ["from a thread"]).start(),
    "wait": _wait,
}

if __name__ == "__main__":
    main()
