"""Find the processes of an ended command that had left its process group.

Laws: (1) a process is ours only if it carries the mark that this very command was started with; (2)
where the system does not show environments (all but Linux) nothing is found, and nothing fails.
Not here: ending the group itself (processes.py).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "JACKLINE_CALL"
"""The variable that a command and all its children carry."""

_PROCESSES = Path("/proc")


def end_strays(mark: str) -> None:
    """End every process that carries the mark."""
    for process in _marked(f"{MARK}={mark}".encode()):
        with suppress(ProcessLookupError, PermissionError):  # it ended by itself meanwhile
            os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))


def _marked(line: bytes) -> Iterator[int]:
    if not (_PROCESSES / "self" / "environ").exists():
        return
    for entry in _PROCESSES.iterdir():
        if entry.name.isdigit():
            # Strangers' processes cannot be read, and any may end while we look.
            with suppress(OSError):
                if line in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
