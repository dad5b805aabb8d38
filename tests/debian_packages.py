"""Programs that tests start, installed from Debian's packages where this machine lacks them.

Rules: (1) what cannot be installed fails loudly; (2) one process of the tests installs at a time;
(3) apt-get does not wait while another program of the machine has its lock, it fails: it is started
again until the time is over.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

LIMIT = 600
PAUSE = 0.5


def installed_program(package: str, *names: str) -> str:
    """The path of the first of these programs; their package is installed if none is there."""
    found = _found(names)
    apt = shutil.which("apt-get")
    if found is None and apt is not None and os.geteuid() == 0:
        with _alone():
            found = _found(names)  # another worker may have installed it meanwhile
            if found is None:
                _run_apt(apt, "update", "-q")
                _run_apt(apt, "install", "-q", "-y", "--no-install-recommends", package)
                found = _found(names)
    if found is None:
        raise FileNotFoundError(f"{names[0]} is missing: install it (apt-get install {package})")
    return found


def _run_apt(apt: str, *words: str) -> None:
    until = time.monotonic() + LIMIT
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    while True:
        done = subprocess.run(
            [apt, *words],
            env=environ,
            timeout=LIMIT,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        sys.stderr.write(done.stderr)
        is_locked = "Could not get lock" in done.stderr or "Unable to lock" in done.stderr
        if done.returncode == 0 or not is_locked or time.monotonic() > until:
            done.check_returncode()
            return
        time.sleep(PAUSE)


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name)) is not None), None)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock that all test processes of this machine share."""
    with Path(tempfile.gettempdir(), "jackline-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
