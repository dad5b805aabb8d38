"""Hear single keys on a terminal, and wait meanwhile.

Laws: (1) the terminal is given back as it was, whatever happens; (2) without a terminal to read
from there are no keys, and waiting still works.
Not here: what the keys mean (top.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_LOOK_EVERY = 0.05


class Keys(Protocol):
    """Where keys come from."""

    def wait(self, seconds: float) -> str:
        """The key that was pressed within the time; empty when none was."""
        ...


class _NoKeys:
    def wait(self, seconds: float) -> str:
        time.sleep(seconds)
        return ""


@contextmanager
def keys() -> Iterator[Keys]:
    """The keys of this terminal."""
    if not sys.stdin.isatty():
        yield _NoKeys()
    elif sys.platform == "win32":
        yield _WindowsKeys()
    else:
        import termios  # noqa: PLC0415 -- only there
        import tty  # noqa: PLC0415

        file = sys.stdin.fileno()
        before = termios.tcgetattr(file)
        try:
            # Unlike raw mode this leaves Ctrl-C what it is; a key that was pressed early counts.
            tty.setcbreak(file, termios.TCSANOW)
            yield _PosixKeys(file)
        finally:
            termios.tcsetattr(file, termios.TCSADRAIN, before)


class _PosixKeys:
    def __init__(self, file: int) -> None:
        self._file = file

    def wait(self, seconds: float) -> str:
        import os  # noqa: PLC0415
        import select  # noqa: PLC0415

        ready, _, _ = select.select([self._file], [], [], seconds)
        return os.read(self._file, 1).decode("latin-1") if ready else ""


class _WindowsKeys:
    def wait(self, seconds: float) -> str:
        from importlib import import_module  # noqa: PLC0415

        console = import_module("msvcrt")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if console.kbhit():
                return str(console.getwch())
            time.sleep(_LOOK_EVERY)
        return ""
