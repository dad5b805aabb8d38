"""Ports for tests that have to name one before anybody listens there.

Rules: (1) the system never hands such a port out by itself, neither to a server that asks for any
port nor to a connection that goes out, so that nobody takes it between its choice and its use; (2)
processes that run tests side by side choose from different ones, and no process chooses one twice.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import socket
from collections.abc import Iterator
from pathlib import Path

LOOPBACK = "127.0.0.1"
_FIRST = 10_000
_LAST = 32_000
# So many processes of pytest-xdist at most.
_SHARES = 8


def free_port() -> int:
    """A port of the loopback address that nobody listens on, and nobody will by chance."""
    return next(port for port in _OURS if _is_free(port))


def _ours() -> Iterator[int]:
    worker = re.search(r"\d+", os.environ.get("PYTEST_XDIST_WORKER", ""))
    share = int(worker[0]) % _SHARES if worker else 0
    last = min(_LAST, _first_of_the_systems() - 1)
    ports = range(_FIRST + share, last, _SHARES)
    # Two runs of the tests on one machine begin at different places.
    begin = random.SystemRandom().randrange(len(ports))
    return itertools.cycle((*ports[begin:], *ports[:begin]))


def _first_of_the_systems() -> int:
    try:
        told = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    except OSError:  # no Linux: others begin at 49152, as was agreed
        return 49_152
    first = int(told.split()[0])
    return first if first > _FIRST + 1000 else _LAST


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


_OURS = _ours()
