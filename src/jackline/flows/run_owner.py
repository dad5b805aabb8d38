"""Name the process that owns a run, and find out whether it has died.

Rules: (1) an owner is named by its machine, its PID namespace where the system has them, its
process id and a random part; (2) only an owner of this very machine and namespace can be found
dead: the process ids of a container that shares the state folder mean nothing outside of it; (3) a
process id that is in use proves nothing: it may be another process's by now.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

_NAMESPACE = Path("/proc/self/ns/pid")


def new_owner() -> str:
    """The name of this process as the owner of a run."""
    return f"{_this_host()}:{os.getpid()}:{os.urandom(3).hex()}"


def process_here(owner: str) -> int | None:
    """The process id of an owner of this machine and namespace; None of any other."""
    host, _, process = owner.rpartition(":")[0].rpartition(":")
    # On Windows, to ask for a process would end it.
    if os.name == "nt" or host != _this_host() or not process.isdecimal():
        return None
    return int(process)


def is_dead(owner: str) -> bool:
    """Whether an owner was a process of this machine and namespace that is no more."""
    process = process_here(owner)
    if process is None:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return False


def owner_in_words(owner: str) -> str:
    """How an owner is shown, such as "process 4242 on laptop"."""
    host, _, process = owner.rpartition(":")[0].rpartition(":")
    return f"process {process} on {host.partition('/')[0]}"


def _this_host() -> str:
    try:
        # Such as pid:[4026531836].
        namespace = _NAMESPACE.readlink().name.removeprefix("pid:").strip("[]")
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()}/{namespace}"
